"""train_from_dataset: threads that read batches from one dataset and run one program on one scope (Hogwild).

    dataset ─▶ batches, one lock ─┬▶ thread 0: prefetch(k + 1), run(k)  ─┐
                                  └▶ thread 1: prefetch(l + 1), run(l)  ─┴▶ the scope's variables, unlocked

The first error ends all threads and is raised once.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from argosy.engine import env, process_effects
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir.variable import Variable
from argosy.engine.log import NOTICE, logger
from argosy.engine.metrics.metrics_recorder import recorder
from argosy.engine.runtime import remote
from argosy.engine.runtime.fetching import to_numpy
from argosy.engine.runtime.scope import Scope

if TYPE_CHECKING:
    from argosy.engine.runtime.executor import Executor

Batch = Mapping[str, Any]


class Dataset(Protocol):
    """The interface of datasets."""

    @property
    def thread_num(self) -> int: ...
    def batches(self) -> Iterator[Batch]: ...


class FetchHandler:
    """Receives the values of some variables every `period_secs` seconds, in the thread that computed them."""

    def __init__(self, var_dict: Mapping[str, Variable] | None = None, period_secs: float = 60) -> None:
        if not isinstance(var_dict, Mapping) or not var_dict:
            raise ConfigError(f"FetchHandler: var_dict is {var_dict!r}; give a dict {{name: Variable}}")
        self.var_dict, self.period_secs = dict(var_dict), period_secs

    def handler(self, res_dict: dict[str, Any]) -> None:
        """To be overridden: `res_dict` holds an array for each name of `var_dict`."""
        for name, value in res_dict.items():
            print(f"{name}: {value}", flush=True)


@dataclass
class FetchPrinter:
    """Prints variables, each with a title, every `period` batches."""

    fetches: Sequence[str] = ()
    titles: Sequence[str] = ()
    period: int = 100

    @classmethod
    def of(cls, fetch_list: Any, fetch_info: Any, print_period: Any) -> FetchPrinter:
        """From the arguments of `train_from_dataset`."""
        is_single = isinstance(fetch_list, Variable | str)
        fetches = [fetch_list] if is_single else list(fetch_list or ())
        names = [_name(fetch) for fetch in fetches]
        titles = [fetch_info] if isinstance(fetch_info, str) else list(fetch_info or names)
        if len(titles) != len(fetches):
            raise ConfigError(
                f"fetch_info has {len(titles)} titles for {len(fetches)} fetches; give one for each"
            )
        if not isinstance(print_period, int) or print_period < 1:
            raise ConfigError(f"print_period is {print_period!r}; use a whole number of batches, 1 or more")
        return cls(names, titles, print_period)

    def show(self, number: int, values: Sequence[Any]) -> None:
        """Print one line in Paddle's format."""
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        shown = [f"{title}: {_line(value)}" for title, value in zip(self.titles, values, strict=True)]
        print(f"time: [{when}], batch: [{number}], {', '.join(shown)}", flush=True)


@dataclass
class ThreadStats:
    """Counters and times of one training thread."""

    batches: int = 0
    examples: int = 0
    reading_s: float = 0.0
    running_s: float = 0.0


@dataclass
class DatasetRun:
    """One run of a program over all batches of a dataset, in several threads."""

    executor: Executor
    program: Any
    """A Program or a CompiledProgram."""
    scope: Scope
    source: Iterator[Batch]
    printer: FetchPrinter = field(default_factory=FetchPrinter)
    handler: FetchHandler | None = None
    prefetch: Callable[[Batch], None] | None = None
    """Called with each batch before the previous one runs."""
    trains: bool = False
    num_batches: int | None = None
    """How many batches there are, if that is known."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ended = threading.Semaphore(0)
        self._errors: list[BaseException] = []
        self._begun = 0
        self._last_handled = time.monotonic()

    def run(self, threads: int) -> list[ThreadStats]:
        """Run all batches; returns the statistics of each thread."""
        stats = [ThreadStats() for _ in range(threads)]
        try:
            if threads == 1:
                self._work(stats[0])
            else:
                self._run_threads(stats)
        finally:
            self._end()
        return stats

    def _end(self) -> None:
        """Stop all threads, also one that waits for a batch."""
        self._stop.set()
        with contextlib.suppress(ValueError):  # the generator is running in another thread
            getattr(self.source, "close", lambda: None)()

    def _run_threads(self, stats: list[ThreadStats]) -> None:
        cores = torch.get_num_threads()
        cores_each = max(1, cores // len(stats))
        team = [
            threading.Thread(target=self._guarded, args=(own_stats, cores_each), name=f"argosy-train-{i}")
            for i, own_stats in enumerate(stats)
        ]
        with process_effects.during("num-threads"):
            self._run_team(team)
        if self._errors:
            raise self._errors[0]

    def _run_team(self, team: list[threading.Thread]) -> None:
        cores = torch.get_num_threads()
        try:
            for thread in team:
                thread.start()
            for _ in team:  # no join: after a Ctrl-C in it, Python 3.11 considers the thread ended
                while not self._ended.acquire(timeout=0.2):
                    pass
        finally:
            self._end()
            for thread in team:
                if thread.ident is not None:
                    thread.join()
            torch.set_num_threads(cores)

    def _guarded(self, stats: ThreadStats, cores: int) -> None:
        try:
            torch.set_num_threads(cores)  # together as many as a single run uses
            self._work(stats)
            remote.end_thread()
        except BaseException as e:
            self._errors.append(e)
            self._end()
        finally:
            self._ended.release()

    def _work(self, stats: ThreadStats) -> None:
        batch = self._take(stats)
        while batch is not None and not self._stop.is_set():
            number, feed = batch
            following = self._take(stats)
            if following is not None and self.prefetch is not None:
                self.prefetch(following[1])
            began = time.perf_counter()
            self._run_batch(number, feed)
            if self.trains:
                recorder().progress(number, self.num_batches)
            stats.running_s += time.perf_counter() - began
            stats.batches += 1
            stats.examples += len(next(iter(feed.values())))
            batch = following

    def _take(self, stats: ThreadStats) -> tuple[int, Batch] | None:
        """The next batch and its number, starting at 1."""
        began = time.perf_counter()
        with self._lock:
            feed = None if self._stop.is_set() else next(self.source, None)
            self._begun += 1
            number = self._begun
        stats.reading_s += time.perf_counter() - began
        return None if feed is None else (number, feed)

    def _run_batch(self, number: int, feed: Batch) -> None:
        prints = bool(self.printer.fetches) and number % self.printer.period == 0
        handled = self.handler.var_dict if self.handler is not None and self._is_time(self.handler) else {}
        # By name: for inference the program is a copy with other Variables.
        fetches = [*(self.printer.fetches if prints else ()), *map(_name, handled.values())]
        fetched = self.executor.run(
            self.program, feed=feed, fetch_list=fetches, scope=self.scope, return_numpy=False
        )
        values = [to_numpy(v.rows if isinstance(v, LoDTensor) else v) for v in fetched]
        if prints:
            self.printer.show(number, values[: len(self.printer.fetches)])
        if handled and self.handler is not None:
            self.handler.handler(dict(zip(handled, values[-len(handled) :], strict=True)))

    def _is_time(self, handler: FetchHandler) -> bool:
        """True once per period, for the first thread that calls it."""
        with self._lock:
            now = time.monotonic()
            if now - self._last_handled < handler.period_secs:
                return False
            self._last_handled = now
            return True


def run_dataset(
    executor: Executor,
    program: Any,
    prefetch: Callable[[Batch], None] | None,
    dataset: Dataset | None,
    scope: Scope,
    thread: int,
    debug: bool,
    printer: FetchPrinter,
    handler: FetchHandler | None,
    trains: bool = True,
) -> None:
    """Run a program over a dataset in `thread` threads, or as many as the dataset has readers."""
    if dataset is None:
        raise ProgramError("dataset is None; give a QueueDataset or an InMemoryDataset: dataset=…")
    if not hasattr(dataset, "batches") or not hasattr(dataset, "thread_num"):
        raise ConfigError(
            f"dataset is a {type(dataset).__name__}; give a QueueDataset or an InMemoryDataset, or feed batches to run"
        )
    if not isinstance(thread, int) or thread < 0:
        raise ConfigError(
            f"thread is {thread!r}; use a number of threads, or 0 for as many as the dataset has readers"
        )
    if handler is not None and not isinstance(handler, FetchHandler):
        raise ConfigError(
            f"fetch_handler is {handler!r}; give an object of a class that extends FetchHandler"
        )
    threads = thread or dataset.thread_num
    if threads > 1 and thread == 0 and executor.is_synchronous(program):
        logger.log(
            NOTICE, "the program waits for other workers in every step: %d readers, one thread", threads
        )
        threads = 1
    if threads > 1 and executor.is_synchronous(program):
        raise ConfigError(
            f"{threads} threads, but the program waits for other workers in every step, and collectives must run in "
            "the same order on all of them; use thread=1, and start more workers instead"
        )
    periods = getattr(program, "program", program).training.periods
    if threads > 1 and periods:
        if thread:
            raise ConfigError(
                f"{threads} threads, but nodes of the program run {periods[0]} ({periods[0].name}), which threads "
                "cannot count together; use thread=1"
            )
        logger.log(NOTICE, "%s counts the steps: %d readers, one thread", periods[0].name, threads)
        threads = 1
    if threads > 1 and env.timeline() is not None:
        raise ConfigError(f"{threads} threads, but a timeline supports one; use thread=1, or omit --timeline")
    began = time.perf_counter()
    batches, num_batches = dataset.batches(), _num_batches(dataset)
    dataset_run = DatasetRun(
        *(executor, program, scope, batches, printer, handler, prefetch, trains, num_batches),
    )
    stats = dataset_run.run(threads)
    if debug:
        _show_times(stats, time.perf_counter() - began)


def _num_batches(dataset: Dataset) -> int | None:
    """The number of batches of a dataset that is in memory."""
    if not hasattr(dataset, "get_memory_data_size") or not hasattr(dataset, "batch_size"):
        return None
    return -(-int(dataset.get_memory_data_size()) // int(dataset.batch_size))


def _show_times(stats: Sequence[ThreadStats], seconds: float) -> None:
    for i, thread in enumerate(stats):
        print(
            f"thread {i}: {thread.batches} batches, {thread.examples} examples; "
            f"{thread.reading_s:.3f} s for batches, {thread.running_s:.3f} s for steps"
        )
    examples = sum(thread.examples for thread in stats)
    rate = examples / seconds if seconds else 0.0
    print(f"all: {examples} examples in {seconds:.3f} s, {rate:.1f} examples/s", flush=True)


def _name(fetch: Any) -> str:
    return fetch.name if isinstance(fetch, Variable) else str(fetch)


def _line(value: Any) -> str:
    """[0.69 0.70]: all elements on one line."""
    return np.array2string(np.asarray(value).reshape(-1), max_line_width=10**9)
