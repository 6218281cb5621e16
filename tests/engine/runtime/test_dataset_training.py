"""train_from_dataset and infer_from_dataset: every batch once, in threads, with one error if there are several."""

# SPDX-License-Identifier: Apache-2.0
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy import distributed, static
from argosy.engine.errors import ConfigError, DataError, FetchError, ProgramError
from argosy.engine.runtime.dataset_training import FetchHandler, FetchPrinter, run_dataset
from argosy.nn import functional
from tests.ranks import ForkServer

Feed = Mapping[str, Any]


class Given:
    """Batches that are there already; notes which are taken."""

    def __init__(self, batches: list[Feed], thread_num: int = 1) -> None:
        self.thread_num, self._batches = thread_num, batches
        self.taken = 0
        self.closed = False

    def batches(self) -> Iterator[Feed]:
        try:
            for batch in self._batches:
                self.taken += 1
                yield batch
        finally:
            self.closed = True


def numbers(count: int, rows: int = 4) -> list[Feed]:
    return [{"x": np.full((rows, 1), i + 1, np.float32)} for i in range(count)]


def build_sum() -> tuple[static.Executor, Any, Any]:
    """A program that adds up what is fed in the variable `total`."""
    x = static.data("x", [None, 1])
    total = static.create_global_var([1], 0.0, "float32", persistable=True, name="total")
    paddle.assign(total + x.sum(), total)
    mean = x.mean()
    exe = static.Executor()
    exe.run(static.default_startup_program())
    return exe, total, mean


def build_regression(rate: float = 0.1) -> tuple[static.Executor, Any]:
    x, y = static.data("x", [None, 4]), static.data("y", [None, 1])
    loss = functional.mse_loss(static.nn.fc(x, 1), y)
    paddle.optimizer.SGD(rate).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    return exe, loss


def regression(count: int) -> list[Feed]:
    rng = np.random.default_rng(0)
    x = rng.random((count, 8, 4), np.float32)
    return [{"x": one, "y": one.sum(1, keepdims=True) - 2} for one in x]


def value(name: str) -> np.ndarray[Any, Any]:
    return static.global_scope().get(name).numpy().copy()


def parameters() -> list[np.ndarray[Any, Any]]:
    return [value(p.name) for p in static.default_main_program().all_parameters()]


# --- batches ------------------------------------------------------------------------------------------------


def test_every_batch_is_run_once() -> None:
    exe, _, _ = build_sum()
    dataset = Given(numbers(10))
    exe.train_from_dataset(dataset=dataset)
    assert value("total") == 4 * 55
    assert dataset.closed


def test_one_thread_trains_as_a_loop_of_runs_does() -> None:
    exe, _ = build_regression()
    first = parameters()
    exe.train_from_dataset(dataset=Given(regression(20)))
    trained = parameters()
    for parameter, old in zip(static.default_main_program().all_parameters(), first, strict=True):
        static.global_scope().find_var(parameter.name).get_tensor().set(old)
    for feed in regression(20):
        exe.run(feed=feed)
    for a, b in zip(trained, parameters(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_several_threads_share_the_parameters_and_learn() -> None:
    exe, loss = build_regression(0.05)
    batches = regression(300)
    before = exe.run(feed=batches[0], fetch_list=[loss], use_prune=True)[0]
    names = set()
    run = exe.run

    def noted(*args: Any, **kwargs: Any) -> Any:
        names.add(threading.current_thread().name)
        return run(*args, **kwargs)

    exe.run = noted
    exe.train_from_dataset(dataset=Given(batches), thread=3)
    exe.run = run
    assert len(names) == 3
    assert exe.run(feed=batches[0], fetch_list=[loss], use_prune=True)[0] < before / 10
    assert not [t for t in threading.enumerate() if t.name.startswith("argosy-train")]


def test_no_thread_means_as_many_as_the_dataset_has_readers(
    capsys: pytest.CaptureFixture[str], two_threads: None
) -> None:
    exe, _, _ = build_sum()
    exe.train_from_dataset(dataset=Given(numbers(8), thread_num=2), debug=True)
    assert torch.get_num_threads() == 2
    said = capsys.readouterr().out.splitlines()
    counts = [[int(n) for n in re.findall(r"(\d+) batches, (\d+) examples", line)[0]] for line in said[:2]]
    assert np.sum(counts, axis=0).tolist() == [8, 32]
    assert said[2].startswith("all: 32 examples in ")
    assert len(said) == 3


def test_the_next_batch_is_prefetched_before_each_run() -> None:
    exe, _, _ = build_sum()
    events: list[tuple[str, float]] = []
    run = exe.run

    def recorded(*args: Any, **kwargs: Any) -> Any:
        events.append(("run", float(kwargs["feed"]["x"][0, 0])))
        return run(*args, **kwargs)

    def prefetch(feed: Feed) -> None:
        events.append(("next", float(feed["x"][0, 0])))

    exe.run = recorded
    program, scope = static.default_main_program(), static.global_scope()
    run_dataset(exe, program, prefetch, Given(numbers(3)), scope, 0, False, FetchPrinter(), None)
    assert events == [("next", 2), ("run", 1), ("next", 3), ("run", 2), ("run", 3)]


def test_a_dataset_of_files_trains(tmp_path: Path) -> None:
    exe, loss = build_regression(0.2)
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"part-{i}" for i in range(2)]
    for path in paths:
        rows = rng.random((2000, 4))
        path.write_text("".join(f"4 {' '.join(map(str, row))} 1 {row.sum() - 2}\n" for row in rows))
    program = static.default_main_program()
    dataset = distributed.InMemoryDataset()
    dataset.init(use_var=[program.var("x"), program.var("y")], batch_size=16, thread_num=2)
    dataset.set_filelist([str(path) for path in paths])
    dataset.load_into_memory()
    for _ in range(2):
        dataset.local_shuffle()
        exe.train_from_dataset(dataset=dataset)
    feed = regression(1)[0]
    assert exe.run(feed=feed, fetch_list=[loss], use_prune=True)[0] < 0.01


# --- what is printed ------------------------------------------------------------------------------------------


def test_values_are_printed_every_so_many_batches(capsys: pytest.CaptureFixture[str]) -> None:
    exe, total, mean = build_sum()
    exe.train_from_dataset(
        dataset=Given(numbers(7)), fetch_list=[mean, "total"], fetch_info=["the mean", "sum"], print_period=3
    )
    lines = capsys.readouterr().out.splitlines()
    form = r"time: \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\], "
    assert [re.sub(form, "", line) for line in lines] == [
        "batch: [3], the mean: [3.], sum: [24.]",
        "batch: [6], the mean: [6.], sum: [84.]",
    ]
    exe.train_from_dataset(dataset=Given(numbers(1)), fetch_list=total, print_period=1)
    assert capsys.readouterr().out.endswith("batch: [1], total: [116.]\n")


def test_a_handler_gets_values_from_time_to_time() -> None:
    exe, _, mean = build_sum()
    results: list[dict[str, Any]] = []

    class Handler(FetchHandler):
        def handler(self, res_dict: dict[str, Any]) -> None:
            results.append(res_dict)

    exe.train_from_dataset(dataset=Given(numbers(3)), fetch_handler=Handler({"m": mean}, period_secs=0))
    assert [float(one["m"]) for one in results] == [1, 2, 3]
    exe.train_from_dataset(dataset=Given(numbers(3)), fetch_handler=Handler({"m": mean}, period_secs=60))
    assert len(results) == 3


# --- inference ------------------------------------------------------------------------------------------------


def test_inference_trains_nothing_and_counts_on(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = static.data("x", [None, 4]), static.data("y", [None, 1], "int64")
    hidden = functional.dropout(static.nn.fc(x, 8), 0.9)
    score = functional.sigmoid(static.nn.fc(hidden, 1))
    loss = functional.log_loss(score, paddle.cast(y, "float32")).mean()
    area, _, stats = static.auc(score, y)
    paddle.optimizer.Adam(0.1).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    batches = [{"x": b["x"], "y": (b["y"] > 0).astype(np.int64)} for b in regression(6)]
    before = parameters()
    for _ in range(2):
        exe.infer_from_dataset(dataset=Given(batches, 2), fetch_list=[loss, area], print_period=6)
    for a, b in zip(before, parameters(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert sum(int(value(stat.name).sum()) for stat in stats[2:]) <= 2 * 6 * 8
    assert sum(int(value(stat.name).sum()) for stat in stats[2:]) > 6 * 8
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    exe.infer_from_dataset(dataset=Given(batches), fetch_list=loss, print_period=6)
    exe.infer_from_dataset(dataset=Given(batches), fetch_list=loss, print_period=6)
    same = [line.partition("batch")[2] for line in capsys.readouterr().out.splitlines()]
    assert same[0] == same[1]  # nothing is dropped out


def test_a_program_without_updates_is_inferred_as_it_is() -> None:
    exe, _, _ = build_sum()
    exe.infer_from_dataset(dataset=Given(numbers(3)))
    assert value("total") == 24


# --- errors ---------------------------------------------------------------------------------------------------


def test_there_must_be_a_dataset() -> None:
    exe, _, _ = build_sum()
    with pytest.raises(RuntimeError, match="dataset is None"):
        exe.train_from_dataset()
    with pytest.raises(ProgramError, match="dataset is None"):
        exe.infer_from_dataset()
    with pytest.raises(ConfigError, match="dataset is a list"):
        exe.train_from_dataset(dataset=[])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"thread": -1}, "thread is -1"),
        ({"print_period": 0}, "print_period is 0"),
        ({"fetch_list": ["total"], "fetch_info": ["a", "b"]}, "2 titles for 1 fetches"),
        ({"fetch_handler": print}, "a class that extends FetchHandler"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    exe, _, _ = build_sum()
    with pytest.raises(ConfigError, match=message):
        exe.train_from_dataset(dataset=Given(numbers(1)), **arguments)
    with pytest.raises(ConfigError, match="give a dict"):
        FetchHandler()


def test_an_unknown_fetch_is_refused() -> None:
    exe, _, _ = build_sum()
    with pytest.raises(FetchError, match="'totl' is not in"):
        exe.train_from_dataset(dataset=Given(numbers(3)), fetch_list=["totl"], print_period=1)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_one_thread_ends_the_others_and_is_raised_once(threads: int) -> None:
    exe, _, _ = build_sum()
    batches = numbers(10_000)
    batches[5] = {"x": np.zeros((4, 2), np.float32)}
    dataset = Given(batches)
    with pytest.raises(ConfigError, match="feed 'x' has shape"):
        exe.train_from_dataset(dataset=dataset, thread=threads)
    assert dataset.taken < 1000
    assert dataset.closed
    assert not [t for t in threading.enumerate() if t.name.startswith("argosy-train")]


def test_an_error_of_the_reader_ends_the_training_and_its_processes(tmp_path: Path) -> None:
    exe, _, _ = build_sum()
    path = tmp_path / "part"
    path.write_text("1 1\n" * 100 + "1 one\n")
    dataset = distributed.QueueDataset()
    dataset.init(use_var=[static.default_main_program().var("x")], batch_size=10, thread_num=1)
    dataset.set_filelist([str(path)])
    with pytest.raises(DataError, match="line 101: slot 'x' is float32 and has 'one'"):
        exe.train_from_dataset(dataset=dataset, thread=2)
    assert not [t for t in threading.enumerate() if t.name.startswith("argosy-")]


def test_an_error_ends_a_thread_that_waits_for_a_reader_that_hangs(tmp_path: Path) -> None:
    exe, _, _ = build_sum()
    (tmp_path / "good").write_text("1 1\n" * 30)  # three batches: one of two threads gets two of them
    (tmp_path / "bad").write_text("hang\n")
    dataset = distributed.QueueDataset()
    dataset.init(
        use_var=[static.default_main_program().var("x")],
        batch_size=10,
        pipe_command='read line; [ "$line" = hang ] && sleep 1000; echo "$line"; cat',
    )
    dataset.set_filelist([str(tmp_path / "good"), str(tmp_path / "bad")])

    def fail(feed: Feed) -> None:
        time.sleep(0.2)  # the other thread waits for the fourth batch by now
        raise DataError("no rows")

    program, scope = static.default_main_program(), static.global_scope()
    with pytest.raises(DataError, match="no rows"):
        run_dataset(exe, program, fail, dataset, scope, 2, False, FetchPrinter(), None)
    assert not [t for t in threading.enumerate() if t.name.startswith("argosy-")]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, also where the tests were started in the background, where it is ignored."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


@pytest.mark.usefixtures("interruptible")
def test_a_training_that_is_interrupted_leaves_no_thread() -> None:
    exe, _, _ = build_sum()

    class Endless(Given):
        def batches(self) -> Iterator[Feed]:
            batch = numbers(1)[0]
            while True:
                yield batch

    def interrupt() -> None:
        time.sleep(0.5)
        import _thread

        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        exe.train_from_dataset(dataset=Endless([]), thread=2)
    assert not [t for t in threading.enumerate() if t.name.startswith("argosy-train")]


def two_threads_of_a_collective_job() -> None:
    from argosy.distributed import fleet

    fleet.init(is_collective=True)
    x = static.data("x", [None, 4])
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1)).minimize(static.nn.fc(x, 1).mean())
    exe = static.Executor()
    exe.run(static.default_startup_program())
    batches = [{"x": feed["x"]} for feed in regression(4)]
    with pytest.raises(ConfigError, match="use thread=1, and start more workers"):
        exe.train_from_dataset(dataset=Given(batches), thread=2)
    exe.train_from_dataset(dataset=Given(batches), thread=1)


def test_threads_and_collectives_exclude_each_other(ranks: ForkServer) -> None:
    ranks.check(2, two_threads_of_a_collective_job)
