"""The processes of the accuracy benchmark: for one model, a set of ranks for every place, and single processes."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import multiprocessing as mp
import os
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import harness
from lab.network import Lab

from argosy.distributed.auto.node_times import NodeTimes, scaled
from planner.cases import Case
from planner.rank import serve

PLACES = ("1x2", "1x4", "2x1", "2x2")
_PROCESSES = 4


class Jobs:
    """All processes of a model; only those that are told to work use a core."""

    def __init__(self, model: str, cases: Sequence[Case], lab: Lab, pins: bool = True) -> None:
        self.model, self.lab = model, lab
        self._rate = "none"
        plain = [Case(1, 1, "", cases[0].setting)]
        self._single = [
            _start_process(model, plain, [] if i else cases, {}, None, [i % 2]) for i in range(_PROCESSES)
        ]
        self._by_place: dict[str, list[tuple[BaseProcess, Connection]]] = {"1x1": self._single[:1]}
        self.cases: dict[str, list[Case]] = {"1x1": plain}
        for place in PLACES:
            mine = [case for case in cases if case.place == place]
            if mine:
                self.cases[place] = mine
                self._by_place[place] = self._start(mine, pins)
        self.everyone = list(
            dict.fromkeys([*self._single, *(p for ps in self._by_place.values() for p in ps)])
        )
        for _, connection in self.everyone:
            assert connection.recv() == "ready"

    def _start(self, cases: Sequence[Case], pins: bool) -> list[tuple[BaseProcess, Connection]]:
        first = cases[0]
        lab = self.lab if first.hosts > 1 else None
        started = []
        for rank, (environ, host) in enumerate(harness._places(first.ranks, lab)):
            number = rank // (first.ranks // first.hosts)
            cores = [number] if lab and pins else sorted(os.sched_getaffinity(0))
            started.append(_start_process(self.model, cases, [], environ, host, cores))
        return started

    def ask(self, place: str, *command: Any) -> list[Any]:
        """What every process of a place answers."""
        return _ask(self._by_place[place], command)

    def set_rate(self, rate: str) -> None:
        """Of the links of the lab."""
        if rate and rate != self._rate:
            for host in range(len(self.lab.names)):
                self.lab.unlimit(host) if rate == "none" else self.lab.limit(host, rate)
            self._rate = rate

    def node_times(self, seconds: float) -> dict[int, NodeTimes]:
        """By number of processes: alone, one on each core, two on each core."""
        found: dict[int, NodeTimes] = {}
        for count in (1, 2):
            for _, connection in self._single[1:count]:
                connection.send(("work", 1.3 * seconds + 0.5))
            found[count] = _ask(self._single[:1], ("measure", seconds, count))[0]
            for _, connection in self._single[1:count]:
                connection.recv()
        steps = _ask(self._single, ("work", seconds))
        each_ms = 1e3 * seconds * 2 / sum(steps)
        found[4] = replace(scaled(found[2], each_ms / found[2].step_ms), processes=4)
        return found

    def predict(self, case: Case, times: NodeTimes, topology: Any) -> dict[str, Any]:
        return dict(_ask(self._single[:1], ("predict", case, times, topology))[0])

    def own_cpu_s(self) -> float:
        """Core seconds of all processes so far."""
        total = 0.0
        for process, _ in self.everyone:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def end(self) -> None:
        for _, connection in self.everyone:
            with contextlib.suppress(OSError):
                connection.send(("end",))
        for process, _ in self.everyone:
            process.join(5)
            if process.is_alive():
                process.kill()


def _start_process(*arguments: Any) -> tuple[BaseProcess, Connection]:
    """A rank, forked from a process that has imported what it needs."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch", "argosy", "argosy.distributed.fleet", "planner.rank"])
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _ask(processes: Sequence[tuple[BaseProcess, Connection]], command: Sequence[Any]) -> list[Any]:
    for _, connection in processes:
        connection.send(tuple(command))
    return [connection.recv() for _, connection in processes]


def busy_s() -> float:
    """Core seconds of all processes of this machine so far: user and system."""
    user, nice, system = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")
