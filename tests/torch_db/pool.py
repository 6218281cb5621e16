"""Runs tasks in processes of their own, so that one that dies or hangs costs a case and not the rest.

parent ──fork──▶ child: for each case  send its stub ─▶ run it ─▶ send its records
   ▲                      │
   └──────── pipe ────────┘      EOF without the end mark: the case sent last ended the process;
                                 a new child continues with the next case
"""

# SPDX-License-Identifier: Apache-2.0
import logging
import multiprocessing
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from tests.torch_db.outcome import CRASH, RUNNER_FAILS, TIMEOUT, Record
from tests.torch_db.tasks import Case, Task, cases

TIMEOUT_S = 300.0
"""How long a case may take."""
MOST_DEATHS = 8
"""After so many dead processes the rest of a task is given up."""
_END = "end"
_fork = multiprocessing.get_context("fork")  # what the parent has imported need not be imported again


@dataclass
class _Child:
    """A process that runs a task, and how far it is."""

    task: Task
    process: BaseProcess
    pipe: Connection
    done: int
    """Cases that came before this process."""
    deaths: int = 0
    current: Record | None = None
    began: float = 0.0


def run_all(
    tasks: Sequence[Task], jobs: int = 1, progress: Callable[[Task], None] = lambda task: None
) -> Iterator[Record]:
    """The records of all tasks, in the order in which they come."""
    torch.set_num_threads(1)  # no thread exists when children are forked
    _warm_up()
    waiting, running = deque(tasks), list[_Child]()
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(_start(waiting.popleft(), 0, 0))
        ready = wait([child.pipe for child in running], timeout=1.0)
        for child in list(running):
            is_late = child.began > 0 and time.monotonic() - child.began > TIMEOUT_S
            if child.pipe not in ready and not is_late:
                continue
            record, ended = _late(child) if is_late else _read(child)
            if record is not None:
                yield record
            if ended is not None:
                running.remove(child)
                running += ended
                if not ended:
                    progress(child.task)


def _start(task: Task, done: int, deaths: int) -> _Child:
    ours, theirs = _fork.Pipe(duplex=False)
    process = _fork.Process(target=_work, args=(task, done, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Child(task, process, ours, done, deaths, began=time.monotonic())


def _work(task: Task, done: int, pipe: Connection) -> None:
    """The child: run the cases behind the first `done`."""
    logging.disable(logging.WARNING)
    for case in islice(cases(task), done, None):
        pipe.send(case.stub)
        for record in records_of(case):
            pipe.send(record)
    pipe.send(_END)


def records_of(case: Case) -> Iterator[Record]:
    """The case's records; a mistake of the runner itself is one of them."""
    try:
        yield from case.run()
    except Exception as e:
        text = "".join(traceback.format_exception(e)[-2:]).replace("\n", " ")
        yield replace(case.stub, kind=RUNNER_FAILS, detail=text)


def _warm_up() -> None:
    """Let torch load in the parent what every child would load for itself: shape functions, decompositions."""
    for case in islice(cases(Task("ops", "nn.functional.softplus", 1)), 2):
        list(case.run())


def _read(child: _Child) -> tuple[Record | None, list[_Child] | None]:
    """(a record, None), or (the record of a death, what runs instead) if the process has ended."""
    try:
        message = child.pipe.recv()
    except EOFError:
        child.process.join()
        code = child.process.exitcode or 0
        detail = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return _ended(child, CRASH, detail)
    if message == _END:
        child.process.join()
        return None, []
    if message.kind:
        return message, None
    child.current, child.done, child.began = message, child.done + 1, time.monotonic()
    return None, None


def _late(child: _Child) -> tuple[Record | None, list[_Child] | None]:
    with suppress(ProcessLookupError):
        child.process.kill()
    child.process.join()
    return _ended(child, TIMEOUT, f"not done after {TIMEOUT_S:.0f} s")


def _ended(child: _Child, kind: str, detail: str) -> tuple[Record | None, list[_Child] | None]:
    stub = child.current or Record(child.task.group, child.task.name, "samples", "concrete", 0, "")
    record = replace(stub, kind=kind, detail=detail)
    if child.current is None or child.deaths + 1 >= MOST_DEATHS:
        return record, []
    return record, [_start(child.task, child.done, child.deaths + 1)]
