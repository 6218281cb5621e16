"""`python -m argosy.plan servers`: measure a script with parameter servers, and choose servers, workers and mode.

SCRIPT ──▶ three small jobs in each mode (ps_jobs) ──▶ PsMeasured ──▶ simulation of each setting ──▶ a table
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.prediction import Prediction
from argosy.engine.planner.ps_measured import Mode, PsMeasured, read_ps_measured, setup_of, trace_of
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.step_trace import StepTrace
from argosy.engine.planner.topology import Topology, read_topology
from argosy.plan import ps_jobs

MODES: tuple[Mode, ...] = ("sync", "half_async", "async", "geo")
_WIDE = 140
_FULL = 0.85
"""A resource that is used for more of the step than this bounds it."""
_CONVERGENCE = (
    "async, half_async and geo change the convergence: gradients are of older parameters (async, half_async), or the "
    "workers train apart for k steps (geo). Compare the loss, not only the examples per second."
)


@dataclass(frozen=True)
class PsSetting:
    """A job: how many servers and workers, in which mode."""

    mode: Mode
    k_steps: int
    servers: int
    workers: int

    def text(self) -> str:
        """For tables."""
        return f"geo, k = {self.k_steps}" if self.mode == "geo" else self.mode

    def lines(self) -> list[str]:
        """How to start it, and what to write into the script."""
        configs = {"geo": f"{{'k_steps': {self.k_steps}}}", "half_async": "{'half_async': True}"}.get(
            self.mode
        )
        return [
            f"fleetrun --server_num={self.servers} --worker_num={self.workers} SCRIPT",
            f"strategy.a_sync = {self.mode != 'sync'}",
            *([f"strategy.a_sync_configs = {configs}"] if configs else []),
        ]


@dataclass(frozen=True)
class PsChoice:
    """A setting with its prediction."""

    setting: PsSetting
    prediction: Prediction
    bound: str

    def to_data(self) -> dict[str, Any]:
        """For JSON."""
        p, s = self.prediction, self.setting
        return {
            "mode": s.mode,
            "k_steps": s.k_steps,
            "servers": s.servers,
            "workers": s.workers,
            "step_ms": p.step_ms,
            "examples_per_s": p.examples_per_s,
            "exposed_ms": p.exposed_ms,
            "bound": self.bound,
            "lines": s.lines(),
        }


def add_to(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument(
        "script", metavar="SCRIPT", type=Path, nargs="?", help="a script of fleet with parameter servers"
    )
    p.add_argument("--hosts", metavar="FILE", type=Path, required=True, help="the cluster: a TOML file")
    p.add_argument(
        "--servers", metavar="N", type=int, nargs="+", default=[1, 2], help="try so many; default: 1 2"
    )
    p.add_argument(
        "--workers", metavar="N", type=int, nargs="+", help="try so many; default: the ranks of the cluster"
    )
    p.add_argument("--modes", choices=MODES, nargs="+", default=["sync", "async", "geo"], help="try these")
    p.add_argument("--k-steps", metavar="K", type=int, nargs="+", default=[10], help="of geo; default: 10")
    p.add_argument(
        "--server-cores", metavar="N", type=int, default=0, help="of a server's host; default: as a worker's"
    )
    p.add_argument("--seconds", metavar="S", type=float, default=5.0, help="to measure a job; default: 5")
    p.add_argument("--top", metavar="N", type=int, default=5, help="how many settings to show; default: 5")
    p.add_argument("--write", metavar="DIR", type=Path, help="write what was measured")
    p.add_argument("--measured", metavar="DIR", type=Path, help="read that instead of measuring a script")
    p.add_argument("--json", action="store_true", help="print the settings as JSON")


def run(known: argparse.Namespace, words: Sequence[str]) -> int:
    """Measure, or read what was measured; predict, and print."""
    _check(known)
    topology = read_topology(known.hosts)
    found = []
    for measured in _measured(known, words, topology):
        found += choices(measured, topology, known.servers, known.workers, known.server_cores)
    found.sort(key=lambda choice: (-round(choice.prediction.examples_per_s, -1), choice.setting.servers))
    if known.json:
        print(json.dumps([choice.to_data() for choice in found[: known.top]], indent=1))
    else:
        show(found[: known.top])
    return 0


def _check(known: argparse.Namespace) -> None:
    for name in ("servers", "workers", "k_steps"):
        for value in getattr(known, name) or ():
            if value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} {value}; use 1 or more")
    if known.top < 1 or known.seconds < 1:
        raise ConfigError(f"--top {known.top}, --seconds {known.seconds}; use 1 or more")
    if (known.script is None) == (known.measured is None):
        raise ConfigError("give either a script to measure, or --measured with what was measured before")


def _measured(known: argparse.Namespace, words: Sequence[str], topology: Topology) -> Iterator[PsMeasured]:
    if known.measured is not None:
        paths = sorted(known.measured.glob("*.json"))
        if not paths:
            raise ConfigError(f"{known.measured} has no *.json; write it with --write")
        yield from (measured for measured in map(read_ps_measured, paths) if measured.mode in known.modes)
        return
    for mode in known.modes:
        for k_steps in known.k_steps if mode == "geo" else [1]:
            print(f"measuring {known.script} in {mode} mode", file=sys.stderr)
            measured = ps_jobs.measure(
                known.script, words, mode, k_steps, known.seconds, topology.hosts[0].threads
            )
            if known.write is not None:
                known.write.mkdir(parents=True, exist_ok=True)
                measured.write(known.write / f"{mode}{k_steps if mode == 'geo' else ''}.json")
            yield measured


def choices(
    measured: PsMeasured,
    topology: Topology,
    servers: Sequence[int],
    workers: Sequence[int] | None = None,
    server_cores: int = 0,
) -> list[PsChoice]:
    """The predictions of a measured script for these numbers of servers and workers."""
    found = []
    for count in workers or [topology.num_ranks]:
        cluster = with_workers(topology, count)
        for number in servers:
            setup = setup_of(measured, number, server_cores or topology.hosts[0].cores)
            trace = trace_of(measured, number, count)
            prediction = predict(trace, cluster, setup, repeats=1)
            setting = PsSetting(measured.mode, measured.k_steps, number, count)
            found.append(PsChoice(setting, prediction, bound_of(trace, setup, cluster, prediction)))
    return found


def with_workers(topology: Topology, count: int) -> Topology:
    """The first hosts of the cluster, with so many workers in all."""
    kind = topology.hosts[0]
    if len(topology.hosts) > 1 or count > topology.num_ranks:
        raise ConfigError(
            f"{count} workers on a cluster of {topology.num_ranks} ranks with {len(topology.hosts)} kinds of hosts; "
            "give a cluster with one kind of hosts, and enough ranks"
        )
    hosts = -(-count // kind.ranks)
    if count % hosts:
        raise ConfigError(f"{count} workers on {hosts} hosts; use a multiple of {kind.ranks} workers")
    return replace(topology, hosts=(replace(kind, count=hosts, ranks=count // hosts),))


def bound_of(trace: StepTrace, setup: PsSetup, topology: Topology, prediction: Prediction) -> str:
    """What bounds the step: the resource that is in use for most of it."""
    used = usage(trace, setup, topology, prediction.step_ms)
    name, part = max(used.items(), key=lambda entry: entry[1])
    if part >= _FULL:
        return f"{name}, in use for {min(part, 1.0):.0%} of the step"
    waits = "the slowest worker and the servers" if setup.is_synchronous else "the servers"
    waited = f"{prediction.exposed_ms:.1f} of {prediction.step_ms:.1f} ms"
    return f"waits for {waits}: {waited}; {name}: {part:.0%} in use"


def usage(trace: StepTrace, setup: PsSetup, topology: Topology, step_ms: float) -> dict[str, float]:
    """The part of a step in which each resource is in use."""
    workers, kind = topology.num_ranks, topology.hosts[0]
    link, per_host = topology.links[kind.link], min(setup.servers_per_host, setup.servers)
    compute = sent = received = of_server = of_worker = 0.0
    for node in trace.nodes:
        compute += node.ms * _share(node.period, trace)
    periods = _periods_of_requests(trace)
    for request in trace.requests:
        share = _share(periods.get(request.id, ""), trace)
        total = request.sent_bytes + request.received_bytes
        sent, received = sent + request.sent_bytes * share, received + request.received_bytes * share
        service = (request.service_us or 0.0) / 1e3 + total / setup.servers * (
            request.service_s_per_gb or 0.0
        ) / 1e6
        message = 2 * setup.server_message_us / 1e3 + total / setup.servers * setup.server_s_per_gb / 1e6
        of_server += (service + message) * share * workers
        of_worker += share * (
            2 * setup.servers * setup.worker_message_us / 1e3 + total * setup.worker_s_per_gb / 1e6
        )
    pushed = sum(r.sent_bytes for r in trace.requests if r.kind == "push") / setup.servers
    if setup.is_synchronous:
        per_gb = setup.update_s_per_gb + (workers - 1) * setup.mean_s_per_gb
        of_server += setup.update_us / 1e3 + pushed * per_gb / 1e6
    bytes_per_ms = link.bytes_per_s / 1e3
    cores = min(kind.cores / kind.ranks, 1.0)
    return {
        "the workers' own computation": (compute + of_worker) / cores / step_ms,
        "the servers' CPU": of_server * per_host / max(setup.cores, 1) / step_ms,
        "the NIC of a server": max(sent, received)
        * workers
        / setup.servers
        * per_host
        / bytes_per_ms
        / step_ms,
        "the NIC of a worker's host": max(sent, received) * kind.ranks / bytes_per_ms / step_ms,
    }


def _share(period: str, trace: StepTrace) -> float:
    """In how many of the steps the nodes of a period run."""
    if not period:
        return 1.0
    every = (trace.periods or {})[period.removeprefix("!")]
    return 1 - 1 / every if period.startswith("!") else 1 / every


def _periods_of_requests(trace: StepTrace) -> dict[str, str]:
    return {
        action.split()[1]: node.period
        for node in trace.nodes
        for action in node.actions
        if action.startswith("start")
    }


def show(found: Sequence[PsChoice]) -> None:
    """Print a table of settings, and what to write for the first."""
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDE)
    table = Table(
        title="predicted jobs with parameter servers, the fastest first",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if console.is_terminal else box.ASCII,
    )
    for column in ("", "mode", "servers", "workers", "step ms", "examples/s", "what bounds it"):
        table.add_column(column, justify="left" if column in ("mode", "what bounds it") else "right")
    for place, choice in enumerate(found, 1):
        s, p = choice.setting, choice.prediction
        table.add_row(
            *(str(place), s.text(), str(s.servers), str(s.workers)),
            *(f"{p.step_ms:.1f}", f"{p.examples_per_s:,.0f}", choice.bound),
        )
    console.print(table)
    lines = found[0].setting.lines()
    console.print("To use the first:", markup=False)
    for line in lines:
        console.print(f"    {line}", markup=False, highlight=False, soft_wrap=True)
    if any(choice.setting.mode != "sync" for choice in found):
        console.print(_CONVERGENCE, markup=False, highlight=False, soft_wrap=True)
