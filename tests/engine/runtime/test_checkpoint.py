"""Checkpoint: a training that is cut short and resumed ends bit for bit like one that ran through."""

# SPDX-License-Identifier: Apache-2.0
import itertools
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy import io, nn, static
from argosy.engine.data import readers
from argosy.engine.errors import ConfigError, DataError, FileError, ScopeError
from argosy.engine.ir import names
from argosy.engine.log import NOTICE
from argosy.engine.runtime.checkpoint import Checkpoint, Position
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope

SAMPLES = 22  # six batches of four, the last one short


class Numbers(io.Dataset[Any]):
    """Distinct samples; `noisy` ones draw from NumPy's and Python's generators."""

    def __init__(self, noisy: bool = False) -> None:
        self.noisy = noisy

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        noise = np.random.rand(3) + random.random() if self.noisy else 0.0
        x = np.sin(np.arange(3) + index) + noise
        return x.astype("float32"), np.array([index % 2], "int64")

    def __len__(self) -> int:
        return SAMPLES


def samples(noisy: bool = False) -> Callable[[], Iterator[Any]]:
    data = Numbers(noisy)
    return lambda: (data[i] for i in range(SAMPLES))


def generator_loader(feeds: list[Any], reader: Callable[[], Any]) -> Any:
    return io.DataLoader.from_generator(feeds, capacity=3).set_sample_list_generator(readers.batch(reader, 4))


LOADERS: dict[str, Callable[[list[Any]], Any]] = {
    "shuffled": lambda feeds: io.DataLoader(Numbers(), feeds, batch_size=4, shuffle=True),
    "noisy": lambda feeds: io.DataLoader(Numbers(True), feeds, batch_size=4, shuffle=True),
    "noisy, not ahead": lambda feeds: io.DataLoader(
        Numbers(True), feeds, batch_size=4, shuffle=True, use_buffer_reader=False
    ),
    "workers": lambda feeds: io.DataLoader(Numbers(), feeds, batch_size=4, shuffle=True, num_workers=2),
    "distributed": lambda feeds: io.DataLoader(
        Numbers(), feeds, batch_sampler=io.DistributedBatchSampler(Numbers(), 4, 2, 1, shuffle=True)
    ),
    "generator": lambda feeds: generator_loader(feeds, readers.shuffle(samples(True), 10)),
    "buffered, seeded": lambda feeds: generator_loader(
        feeds, readers.buffered(readers.shuffle(samples(), 10, seed=5), 2)
    ),
    "reader": lambda feeds: feed_reader(readers.batch(readers.shuffle(samples(True), 10), 4)),
}


def feed_reader(batches: Callable[[], Iterator[list[Any]]]) -> Callable[[], Iterator[dict[str, Any]]]:
    def read() -> Iterator[dict[str, Any]]:
        for group in batches():
            x, y = zip(*group, strict=True)
            yield {"x": np.stack(x), "y": np.stack(y)}

    return read


class Job:
    """One life of a training script: program, executor, scope and generators of its own."""

    def __init__(self, folder: Path, loader: str = "shuffled", life: int = 0, **options: Any) -> None:
        self.checkpoint = Checkpoint(folder, options.pop("every", 2), options.pop("keep", 3))
        self.main, startup = static.Program(), static.Program()
        self.loss, self.rate, feeds = self._build(self.main, startup, options.pop("hidden", 5))
        self.main.random_seed = startup.random_seed = options.pop("seed", 0)
        assert not options
        self.loader = LOADERS[loader](feeds)
        for generator in (torch.manual_seed, np.random.seed, random.seed):
            generator(11 + life)  # a resumed life draws other numbers until the checkpoint is restored
        self.exe, self.scope = Executor(), Scope()
        self.exe.run(startup, scope=self.scope)
        self.seen: list[tuple[int, int]] = []

    def _build(self, main: Any, startup: Any, hidden: int) -> tuple[Any, Any, list[Any]]:
        with static.program_guard(main, startup), names.guard():
            x = static.data("x", [None, 3])
            y = static.data("y", [None, 1], "int64")
            h = nn.functional.relu(nn.BatchNorm1D(hidden)(nn.Linear(3, hidden)(x)))
            logits = nn.Linear(hidden, 2)(nn.functional.dropout(h, 0.3))
            loss = paddle.mean(nn.functional.cross_entropy(logits, y))
            rate = paddle.optimizer.lr.StepDecay(0.1, step_size=4, gamma=0.7)
            paddle.optimizer.Momentum(rate, 0.9, weight_decay=0.01).minimize(loss)
        return loss, rate, [x, y]

    def train(self, epochs: int = 3, until: int | None = None) -> "Job":
        """Train to the end, or leave in the middle of step `until` as a crash would."""
        running = self.checkpoint.batches(self.loader, epochs, self.exe, self.main, self.scope)
        for step, (epoch, batch, data) in enumerate(running, self.checkpoint.step + 1):
            self.seen.append((epoch, batch))
            self.one_step(data)
            if step == until:
                break
        return self

    def one_step(self, data: Any) -> None:
        self.exe.run(self.main, feed=data, fetch_list=[self.loss], scope=self.scope)
        self.rate.step()

    def values(self) -> dict[str, torch.Tensor]:
        return {name: self.scope.get(name).clone() for name in self.main.persistables()}


def random_numbers() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()


def assert_equal(actual: Job, wanted: Job) -> None:
    values = wanted.values()
    assert [n for n, value in actual.values().items() if not torch.equal(value, values[n])] == []
    assert actual.rate.state_dict() == wanted.rate.state_dict()


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in folder.iterdir())


def part(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08}" / "rank-0-of-1.safetensors"


# --- resuming ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loader", "seed"),
    [
        ("shuffled", 7),
        ("workers", 0),
        ("generator", 0),
        ("reader", 0),
        *(
            pytest.param(loader, 0, marks=pytest.mark.slow)
            for loader in ("noisy", "noisy, not ahead", "distributed", "buffered, seeded")
        ),
    ],
)
def test_a_resumed_training_ends_as_if_it_had_not_been_cut(tmp_path: Path, loader: str, seed: int) -> None:
    wanted = Job(tmp_path / "straight", loader, seed=seed, every=1000).train()
    drawn = random_numbers()
    total = len(wanted.seen)
    for life, until in enumerate((5, total - 1, None)):  # in the first epoch, in the last one, to the end
        last = Job(tmp_path / "cut", loader, life, seed=seed).train(until=until)
    assert last.seen[-1] == wanted.seen[-1]
    assert len(last.seen) <= 4
    assert_equal(last, wanted)
    assert random_numbers() == drawn


def test_a_checkpoint_changes_nothing_of_the_training(tmp_path: Path) -> None:
    saved = Job(tmp_path, "noisy").train()
    plain = Job(tmp_path, "noisy")
    for _ in range(3):
        for data in plain.loader:
            plain.one_step(data)
    assert_equal(saved, plain)


def test_a_finished_training_has_no_epochs_left_and_a_longer_one_resumes(tmp_path: Path) -> None:
    done = Job(tmp_path / "cut").train(epochs=2)
    again = Job(tmp_path / "cut", life=1).train(epochs=2)
    assert again.seen == []
    assert_equal(again, done)
    longer = Job(tmp_path / "cut", life=2).train(epochs=3)
    assert longer.seen == [(2, i) for i in range(6)]
    assert_equal(longer, Job(tmp_path / "straight").train(epochs=3))


def test_the_end_is_saved_also_between_two_checkpoints(tmp_path: Path) -> None:
    Job(tmp_path, every=4, keep=1).train(epochs=1)
    assert steps(tmp_path) == [6]


def test_the_log_says_where_training_resumes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "argosy"):
        Job(tmp_path).train(until=9)
        Job(tmp_path).train(until=9)
    where = tmp_path / "step-00000008"
    assert f"saved step 8 (epoch 1, batch 2) to {where}: 0.1 MB in " in caplog.text
    noticed = [r.getMessage() for r in caplog.records if r.levelno == NOTICE]
    assert noticed[-1] == f"resumed at step 8 (epoch 1, batch 2) from {where}"


def test_a_loop_of_ones_own_saves_and_restores(tmp_path: Path) -> None:
    def train(job: Job, stop: int | None) -> Job:
        position = job.checkpoint.restore(job.exe, job.main, job.scope)
        first = position.epoch if position else 0
        for epoch in range(first, 3):
            for data in job.loader:
                job.one_step(data)
            if epoch == stop:
                break
            job.checkpoint.save(6 * (epoch + 1), job.exe, job.main, epoch=epoch + 1, scope=job.scope)
        return job

    wanted = train(Job(tmp_path / "straight"), None)
    train(Job(tmp_path / "cut"), 1)
    second = Job(tmp_path / "cut", life=1)
    assert_equal(train(second, None), wanted)
    position = second.checkpoint.restore(second.exe, second.main, second.scope)
    assert position == Position(18, 3, 0)


# --- what is not whole ------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def cut_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


@pytest.mark.parametrize("damage", [flip, cut_the_header, Path.unlink])
def test_a_damaged_checkpoint_is_skipped_by_name(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    Job(tmp_path).train(until=9)
    damage(part(tmp_path, 8))
    again = Job(tmp_path, life=1).train(until=13)
    assert again.seen[0] == (1, 0)
    if damage is not Path.unlink:
        assert f"checkpoint {tmp_path / 'step-00000008'} is skipped" in caplog.text
    assert steps(tmp_path) == [8, 10, 12]  # 8 was rewritten


def test_without_a_valid_checkpoint_training_starts_from_scratch_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Job(tmp_path).train(until=5)
    for step in steps(tmp_path):
        flip(part(tmp_path, step))
    assert Job(tmp_path).train(until=1).seen == [(0, 0)]
    assert "training begins at step 0" in caplog.text


# --- what is kept -----------------------------------------------------------------------------------------


def test_keeps_the_last_ones_and_nothing_of_others(tmp_path: Path) -> None:
    foreign = [tmp_path / "step-00000001" / "notes.txt", tmp_path / "step-best" / "rank-0-of-1.safetensors"]
    for path in foreign:
        path.parent.mkdir()
        path.write_text("mine")
    Job(tmp_path, every=1, keep=2).train(until=6)
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"step-00000001", "step-best", "step-00000004", "step-00000005"}
    assert [p.read_text() for p in foreign] == ["mine", "mine"]
    assert [p.name for p in foreign[0].parent.iterdir()] == ["notes.txt"]


def test_damaged_ones_do_not_count_among_those_kept(tmp_path: Path) -> None:
    Job(tmp_path).train(until=7)
    flip(part(tmp_path, 6))
    Job(tmp_path, every=5, keep=3).train(until=11)
    assert steps(tmp_path) == [4, 5, 10]


# --- what is refused --------------------------------------------------------------------------------------


def test_another_program_is_refused_with_the_difference(tmp_path: Path) -> None:
    Job(tmp_path).train(until=3)
    other = Job(tmp_path, hidden=6)
    before = other.values()
    with pytest.raises(
        ConfigError,
        match=r"of another program: 'batch_norm1d_0.w_0' is float32\[5\], in the program float32\[6\]",
    ):
        other.train()
    assert all(torch.equal(value, before[name]) for name, value in other.values().items())


def test_another_number_of_ranks_is_refused_with_both(tmp_path: Path) -> None:
    Job(tmp_path).train(until=3)
    part(tmp_path, 2).rename(part(tmp_path, 2).with_name("rank-0-of-4.safetensors"))
    with pytest.raises(ConfigError, match="saved by a job of size 4 and this one is of size 1"):
        Job(tmp_path).train()


@pytest.mark.parametrize("loader", ["shuffled", "generator", "reader"])
def test_data_that_has_become_shorter_is_refused(
    tmp_path: Path, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(tmp_path, loader).train(until=5)
    monkeypatch.setattr(f"{__name__}.SAMPLES", 10)
    with pytest.raises(DataError, match="after batch 4 of an epoch, and the epoch now ends after 3"):
        Job(tmp_path, loader).train()


def test_a_reader_that_fails_while_it_skips_shows_its_own_error(tmp_path: Path) -> None:
    Job(tmp_path, "generator").train(until=5)

    def broken() -> Iterator[Any]:
        yield from itertools.islice(samples()(), 5)
        raise OSError("disk gone")

    second = Job(tmp_path, "generator")
    second.loader.set_sample_list_generator(readers.batch(broken, 4))
    with pytest.raises(OSError, match="disk gone"):
        second.train()


def test_the_startup_program_comes_first(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with pytest.raises(ScopeError, match="run the startup program"):
        job.checkpoint.batches(job.loader, 1, job.exe, job.main, Scope())


def test_a_checkpoint_without_the_readers_place_is_no_start_for_batches(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.checkpoint.save(3, job.exe, job.main, epoch=0, batch=3, scope=job.scope)
    with pytest.raises(ConfigError, match="without the position of the reader"):
        job.train()


@pytest.mark.parametrize("name", ["file/checkpoints", "x" * 300, "a\0b"])
def test_a_folder_that_cannot_be_made_is_rejected_before_the_first_step(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    job = Job(tmp_path)
    job.checkpoint = Checkpoint(tmp_path / name)
    message = r"checkpoints cannot be stored in .*; give a directory that can be"
    with pytest.raises(ConfigError, match=message):
        job.train()
    with pytest.raises(ConfigError, match=message):
        job.checkpoint.save(1, job.exe, job.main, scope=job.scope)
    with pytest.raises(ConfigError, match=message):
        job.checkpoint.restore(job.exe, job.main, job.scope)
    assert job.seen == []


def test_a_folder_that_is_lost_meanwhile_is_named(tmp_path: Path) -> None:
    job = Job(tmp_path / "checkpoints")
    running = job.checkpoint.batches(job.loader, 1, job.exe, job.main, job.scope)
    job.one_step(next(running)[2])
    (tmp_path / "checkpoints").rmdir()
    (tmp_path / "checkpoints").write_text("")
    job.one_step(next(running)[2])
    with pytest.raises(
        FileError, match=r"rank-0-of-1.safetensors cannot be written: .*Not a directory.*free disk space"
    ):
        next(running)


def test_arguments_are_checked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for arguments, message in (
        ({"directory": tmp_path / "file"}, "is a file; give a directory"),
        ({"directory": tmp_path, "every": 0}, "every is 0"),
        ({"directory": tmp_path, "keep": 0}, "keep is 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            Checkpoint(**arguments)
    job = Job(tmp_path)
    with pytest.raises(ConfigError, match="epochs is 0"):
        job.checkpoint.batches(job.loader, 0, job.exe, job.main)
    with pytest.raises(ConfigError, match="executor is a Program"):
        job.checkpoint.batches(job.loader, 1, job.main, job.exe)
    with pytest.raises(ConfigError, match="program is a str"):
        job.checkpoint.batches(job.loader, 1, job.exe, "main")
