"""The worker's side of benchmarks/ps_job.py: train on order.

A worker prints `ready` when it is warm. Then each line of its standard input is an order, answered with a line of
JSON (seconds, loss, resident memory): a number trains so many steps, a name trains the batches of that name. It
ends when its standard input does. This file runs under Paddle's Python, too: it needs nothing of ours.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Batch = dict[str, Any]
WARM_UP = 5


def follow(
    step: Callable[[Batch], float], batches: Iterator[Batch], **named: Callable[[], Iterable[Batch]]
) -> None:
    """Train as the lines of standard input say; `step` trains one batch and gives its loss."""

    def train(some: Iterable[Batch]) -> dict[str, float]:
        began, loss = time.perf_counter(), 0.0
        for batch in some:
            loss = step(batch)
        return {"seconds": time.perf_counter() - began, "loss": loss, "mib": resident_mib()}

    train(itertools.islice(batches, WARM_UP))
    print("ready", flush=True)
    for order in map(str.strip, sys.stdin):
        some = named[order]() if order in named else itertools.islice(batches, int(order))
        print(json.dumps(train(some)), flush=True)


def resident_mib(pid: int | str = "self") -> float:
    """What a process holds in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20
