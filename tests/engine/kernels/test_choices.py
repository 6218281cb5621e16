"""choices: the table decides, a search fills it within its budget, the file survives damage and many writers."""

# SPDX-License-Identifier: Apache-2.0
import json
import logging
import math
import os
import time
import timeit
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from argosy.engine.kernels import background_search, choices, choices_file
from argosy.engine.kernels.choices import Choices
from argosy.engine.runtime.flags import get_flags, set_flags
from tests.ranks import ForkServer


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def one_by_one(a: Tensor, b: Tensor) -> Tensor:
    """Slower by so much that no other work on the machine can hide it."""
    return torch.stack([torch.stack([row @ column for column in b.t()]) for row in a])


ALTERNATIVES = {"loop": one_by_one, "product": product}
ARGUMENTS = (torch.randn(200, 64), torch.randn(64, 64))
KEY = ("matmul", (200, 64), (64, 64), torch.float32)
WORDS = "matmul, 200x64, 64x64, float32"


def by_rule(a: Tensor, b: Tensor) -> str:
    return "loop"


def file_in(folder: Path) -> Path:
    return folder / choices_file.file_name(torch.get_num_threads())


def write(folder: Path, best: str) -> None:
    choices_file.add(file_in(folder), {WORDS: {"best": best, "ms": {}}})


def selected(known: Choices) -> str:
    return known.best(KEY, ALTERNATIVES, ARGUMENTS, by_rule)


def test_without_a_search_the_rule_answers_and_nothing_is_measured_or_written(tmp_path: Path) -> None:
    assert selected(Choices(tmp_path, 30)) == "loop"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_searching", [False, True])
@pytest.mark.parametrize("best", ["loop", "product"])
def test_what_the_file_says_is_done_with_and_without_a_search(
    best: str, is_searching: bool, tmp_path: Path
) -> None:
    write(tmp_path, best)
    known = Choices(tmp_path, 30, is_searching)
    assert [selected(known), selected(known)] == [best, best]
    assert known.spent_s == 0


def test_a_choice_that_is_no_alternative_any_more_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "of_an_older_argosy")
    assert selected(Choices(tmp_path, 30)) == "loop"


def test_a_search_finds_the_faster_one_and_the_next_start_knows_it(tmp_path: Path) -> None:
    first = Choices(tmp_path, 120, is_searching=True)
    assert selected(first) == "product"
    assert 0 < first.spent_s < 120  # within its budget
    entry = json.loads(file_in(tmp_path).read_text())["choices"][WORDS]
    assert entry["best"] == "product"
    assert entry["ms"]["product"] < entry["ms"]["loop"]
    assert selected(Choices(tmp_path, 30)) == "product"


def test_a_search_that_is_switched_on_later_asks_again(tmp_path: Path) -> None:
    known = Choices(tmp_path, 30)
    assert selected(known) == "loop"
    known.search(True)
    assert selected(known) == "product"
    known.search(False)
    assert selected(known) == "product"


def test_other_threads_are_another_question(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    write(tmp_path, "product")
    known = Choices(tmp_path, 30)
    try:
        torch.set_num_threads(threads + 1)
        assert selected(known) == "loop"
    finally:
        torch.set_num_threads(threads)
    assert selected(known) == "product"


def test_a_search_ends_with_its_budget_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = Choices(tmp_path, 0.001, is_searching=True)
    with caplog.at_level(logging.INFO, logger="argosy"):
        names = [known.best((*KEY, i), ALTERNATIVES, ARGUMENTS, by_rule) for i in range(4)]
    assert names == ["product", "loop", "loop", "loop"]
    assert [m for m in caplog.messages if "used up" in m] == [
        "kernel search: the budget of 0.001 s is used up (ARGOSY_SEARCH_S); other kernels are chosen by rule"
    ]


def test_a_hopeless_alternative_does_not_make_the_search_long(tmp_path: Path) -> None:
    def slow() -> None:
        time.sleep(0.1)

    known = Choices(tmp_path, 30, is_searching=True)
    assert known.best(("nap",), {"slow": slow, "fast": int}, (), lambda: "slow") == "fast"
    assert known.spent_s < 2


def test_the_log_says_how_many_choices_are_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "product")
    with caplog.at_level(logging.INFO, logger="argosy"):
        selected(Choices(tmp_path, 30))
    assert caplog.messages == [f"kernel choices: 1 known from {file_in(tmp_path)}"]


# --- in the background ----------------------------------------------------------------------------------


def trained(known: Choices, steps: int) -> list[str]:
    """What is chosen in so many steps."""
    return [selected(known) for _ in range(steps)]


def hurried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Choices:
    """Choices with a background search that may use all the time."""
    monkeypatch.setattr(background_search, "SHARE", math.inf)
    return Choices(folder, 30, in_background=True)


def test_a_background_search_finds_the_faster_one_for_the_next_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(trained(hurried(tmp_path, monkeypatch), 20)) == {"loop"}
    entry = choices_file.read(file_in(tmp_path))[WORDS]
    assert entry["best"] == "product"
    assert entry["ms"].keys() == {"loop", "product"}
    assert selected(Choices(tmp_path, 30)) == "product"


def test_a_background_search_measures_nothing_in_the_first_step(tmp_path: Path) -> None:
    calls: list[str] = []
    known = Choices(tmp_path, 30, in_background=True)
    known.best(KEY, {"a": calls.append, "b": calls.append}, ("ran",), lambda *_: "a")
    assert calls == []


def test_a_background_search_takes_its_share_of_the_time_and_one_round_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, round_s = [0.0], 0.006

    def nap(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(background_search, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    naps = {name: lambda: nap(round_s / 6) for name in "abcdef"}
    known = Choices(tmp_path, 30, in_background=True)
    search = known.background
    assert search is not None
    for step in range(100):
        for key in range(4):
            known.best(("nap", key), naps, (), lambda: "a")
        nap(0.01)
        assert search.spent_s <= 0.05 * search.elapsed_s + round_s + 1e-9, step
    assert search.spent_s > 2 * round_s


class Clock:
    """A clock that alternatives of known duration advance; counts their calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.calls: list[str] = []
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def takes(self, name: str, seconds: float) -> Callable[..., None]:
        def run() -> None:
            self.now += seconds
            self.calls.append(name)

        return run


@pytest.mark.parametrize(
    ("seconds", "best", "calls"),
    [
        ({"rule": 1.0, "other": 1.1}, "rule", {"rule": 3, "other": 3}),  # the rule's is the fastest
        ({"rule": 1.0, "slow": 1.6}, "rule", {"rule": 3, "slow": 2}),  # dropped after one
        ({"rule": 1.0, "fast": 0.5, "near": 0.55}, "fast", {"rule": 2, "fast": 6, "near": 6}),
        ({"rule": 1.0, "fast": 0.5, "far": 0.62}, "fast", {"rule": 2, "fast": 4, "far": 4}),
        ({"rule": 1.0, "little": 0.9}, "rule", {"rule": 6, "little": 6}),  # within the margin of noise
    ],
)
def test_a_background_search_ends_as_soon_as_the_result_is_clear(
    seconds: dict[str, float],
    best: str,
    calls: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    known = hurried(tmp_path, monkeypatch)
    alternatives = {name: clock.takes(name, s) for name, s in seconds.items()}
    for _ in range(10):
        known.best(KEY, alternatives, (), lambda: "rule")
    assert Counter(clock.calls) == calls
    assert choices_file.read(file_in(tmp_path))[WORDS]["best"] == best


def test_a_background_search_measures_few_keys_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that have begun are finished first; shapes that are not seen again do not block the others for long."""
    clock = Clock(monkeypatch)
    known = hurried(tmp_path, monkeypatch)

    def step(keys: str) -> list[str]:
        clock.calls.clear()
        for key in keys:
            kernels = {"a": clock.takes(key, 0.125), "b": clock.takes(key, 0.125)}
            known.best(("op", key), kernels, (), lambda: "a")
        return clock.calls

    assert step("pqrst") == []
    assert step("pqrst") == list("ppqqrr")
    assert step("pqst") == list("ppqq")
    assert step("pqst") == list("ppqqsstt"), "p and q are finished, and make room"
    assert step("uvw") == step("uvw") == [], "r, s and t are not"
    for _ in range(25):  # seconds
        clock.now += 1.0
        step("x")
    assert step("uvw") == list("uuvvww")


def test_a_pause_does_not_fill_the_budget(tmp_path: Path) -> None:
    known = Choices(tmp_path, 30, in_background=True)
    assert known.background is not None
    selected(known)
    known.background._last -= 3600.0
    selected(known)
    assert known.background.elapsed_s <= 1.0


def test_a_measured_choice_is_not_searched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(hurried(tmp_path, monkeypatch), 20)
    later = hurried(tmp_path, monkeypatch)
    assert set(trained(later, 20)) == {"product"}
    assert later.background is not None
    assert later.background.spent_s == 0


def test_a_new_alternative_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choices_file.add(file_in(tmp_path), {WORDS: {"best": "loop", "ms": {"loop": 5.0}}})
    trained(hurried(tmp_path, monkeypatch), 20)
    assert choices_file.read(file_in(tmp_path))[WORDS]["best"] == "product"


def test_an_alternative_that_is_switched_off_leaves_the_next_best(tmp_path: Path) -> None:
    entry = {"best": "winograd", "ms": {"loop": 5.0, "winograd": 1.0, "product": 2.0}}
    choices_file.add(file_in(tmp_path), {WORDS: entry})
    assert selected(Choices(tmp_path, 30)) == "product"


def test_of_two_processes_that_search_the_first_one_decides(tmp_path: Path) -> None:
    path = file_in(tmp_path)
    choices_file.add(path, {WORDS: {"best": "loop", "ms": {"loop": 1.0, "product": 2.0}}}, replaces=False)
    choices_file.add(path, {WORDS: {"best": "product", "ms": {"loop": 2.0, "product": 1.0}}}, replaces=False)
    assert choices_file.read(path)[WORDS]["best"] == "loop"


def test_a_resumed_process_chooses_as_the_first_one_did(tmp_path: Path) -> None:
    first = Choices(tmp_path, 30)
    assert selected(first) == "loop"
    write(tmp_path, "product")
    resumed = Choices(tmp_path, 30)
    resumed.restore(json.loads(json.dumps(first.state())))
    assert selected(resumed) == "loop"
    assert selected(Choices(tmp_path, 30)) == "product"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"format": 1, "choices": {',
        b"\xff\xfe\x00",
        b"[1, 2]",
        b'{"format": 2, "choices": {}}',
        b'{"format": 1}',
        b'{"format": 1, "choices": {"matmul": {"ms": {}}}}',
    ],
)
def test_a_file_that_cannot_be_used_is_put_aside_with_a_warning(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file_in(tmp_path).write_bytes(content)
    assert selected(Choices(tmp_path, 30, is_searching=True)) == "product"
    assert "is invalid" in caplog.text
    assert file_in(tmp_path).with_name(file_in(tmp_path).name + ".damaged").read_bytes() == content
    assert choices_file.read(file_in(tmp_path))[WORDS]["best"] == "product"


def test_where_nothing_can_be_written_the_choice_is_kept_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    known = Choices(tmp_path / "file" / "choices", 30, is_searching=True)
    assert [selected(known), selected(known)] == ["product", "product"]
    assert len([m for m in caplog.messages if "cannot be stored" in m]) == 1


def write_choices() -> None:
    """On a rank."""
    path, rank = Path(os.environ["CHOICES"]), int(os.environ["PADDLE_TRAINER_ID"])
    for i in range(40):
        choices_file.add(path, {f"{'ab'[rank]} {i}": {"best": "aten", "ms": {"aten": 1.0}}})


def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path, ranks: ForkServer) -> None:
    path = tmp_path / "choices" / "one.json"
    ranks.check(2, write_choices, CHOICES=str(path))
    assert choices_file.read(path).keys() == {f"{name} {i}" for name in "ab" for i in range(40)}
    assert sorted(os.listdir(path.parent)) == ["lock", "one.json"]


def test_the_file_is_of_this_cpu_this_torch_and_these_threads() -> None:
    assert choices_file.file_name(3).endswith(f"-torch-{torch.__version__.lower()}-threads-3.json")
    assert choices_file.file_name(3) != choices_file.file_name(4)


def test_a_lookup_takes_few_microseconds(tmp_path: Path) -> None:
    known = Choices(tmp_path, 30)
    selected(known)
    best_us = min(timeit.repeat(lambda: selected(known), number=2000, repeat=5)) / 2000 * 1e6
    assert best_us < 10  # 1 us on an idle machine


def test_the_flag_starts_and_ends_the_search_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))
    choices.of_process.cache_clear()
    try:
        assert choices.best(KEY, ALTERNATIVES, ARGUMENTS, by_rule) == "loop"
        assert get_flags(choices.FLAG) == {choices.FLAG: False}
        set_flags({choices.FLAG: True})
        assert choices.best(KEY, ALTERNATIVES, ARGUMENTS, by_rule) == "product"
        assert file_in(tmp_path / "choices").exists()
    finally:
        set_flags({choices.FLAG: False})
        choices.of_process.cache_clear()


def test_the_environment_starts_a_search_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))
    monkeypatch.setenv(choices.FLAG, "1")
    monkeypatch.setenv("ARGOSY_SEARCH_S", "7")
    choices.of_process.cache_clear()
    try:
        process_choices = choices.of_process()
        assert (process_choices.is_searching, process_choices.budget_s, process_choices.folder) == (
            True,
            7,
            tmp_path / "choices",
        )
    finally:
        choices.of_process.cache_clear()
