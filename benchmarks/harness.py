"""Contenders that take turns: each in a process of its own, one at a time, many short rounds.

These machines are noisy by a factor of two, so only ratios within one run count. Every contender is built
and warmed up first; then rounds go round the table. A contender is a function that makes a step function.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import datetime
import json
import multiprocessing as mp
import os
import platform
import resource
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from lab.namespaces import inside, setns
from lab.network import INTERFACE, Lab

from argosy.engine.errors import ConfigError

Step = Callable[[], object]
RESULTS = Path(__file__).parent / "results"


@dataclass
class Measured:
    """What one contender did."""

    seconds: list[float] = field(default_factory=list)
    build_s: float = 0.0
    peak_mib: float = 0.0
    cpu_s: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def _serve(
    connection: Connection,
    make: Callable[..., Step],
    arguments: dict[str, Any],
    environ: dict[str, str],
    host: str | None,
) -> None:
    if host is not None:
        setns(host)  # before gloo starts its threads
    os.environ.update(environ)
    if environ:
        import torch

        torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(environ["WORLD_SIZE"])))
    began = time.perf_counter()
    step = make(**arguments)
    step()
    built = time.perf_counter() - began
    step()
    connection.send(built)
    while (count := connection.recv()) is not None:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        connection.send((times, peak))


def measure(
    contenders: Mapping[str, Callable[..., Step]],
    rounds: int,
    steps: int = 1,
    ranks: int = 1,
    hosts: Lab | None = None,
    **arguments: Any,
) -> dict[str, Measured]:
    """Let the contenders take turns: in each round each runs `steps` steps while the others wait.

    With several `ranks` a contender is so many processes, which step together; the slowest one's time counts.
    With a lab as `hosts` the ranks are spread over its hosts, equally many on each, in order.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch misses a name server in a lab
    results = {name: Measured() for name in contenders}
    running: dict[str, list[tuple[BaseProcess, Connection]]] = {}
    try:
        for name, make in contenders.items():
            running[name] = []
            for environ, host in _places(ranks, hosts):
                running[name].append(start(_serve, make, arguments, environ, host))
            results[name].build_s = max(connection.recv() for _, connection in running[name])
        for _ in in_rounds(rounds):
            for name, processes in running.items():
                for _, connection in processes:
                    connection.send(steps)
                answers = [connection.recv() for _, connection in processes]
                results[name].seconds += [max(times) for times in zip(*(a[0] for a in answers), strict=True)]
                results[name].peak_mib = max(a[1] for a in answers)
    finally:
        everyone = [pair for processes in running.values() for pair in processes]
        for _, connection in everyone:
            with contextlib.suppress(OSError):  # it has failed, and said so
                connection.send(None)
        for process, _ in everyone:
            process.join(20)
    return results


def start(target: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """A process that runs `target` with its end of a pipe and the arguments; and our end."""
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def in_rounds(rounds: int) -> Iterator[int]:
    """Count rounds, and show on the console how many are done."""
    for number in range(rounds):
        yield number
        print(f"\r  round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _places(ranks: int, hosts: Lab | None) -> list[tuple[dict[str, str], str | None]]:
    """For each rank the variables of torchrun and of fleetrun, and its host; none for a single process."""
    if ranks == 1 and hosts is None:
        return [({}, None)]
    names: list[str | None] = [None] if hosts is None else [*hosts.names]
    addresses = ["127.0.0.1"] if hosts is None else hosts.addresses
    if ranks % len(names):
        raise ConfigError(f"{ranks} ranks do not divide over {len(names)} hosts; use a multiple of it")
    each = ranks // len(names)
    with inside(names[0]) if names[0] else contextlib.nullcontext():
        ports = [free_port() for _ in range(each + 1)]
    common = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(each),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(ports[each]),
        "PADDLE_TRAINERS_NUM": str(ranks),
        # Only rank 0's is listened at: the others' ports need not be free.
        "PADDLE_TRAINER_ENDPOINTS": ",".join(f"{a}:{port}" for a in addresses for port in ports[:each]),
        **({"GLOO_SOCKET_IFNAME": INTERFACE} if hosts else {}),
    }
    return [(common | _of_rank(rank, rank % each), names[rank // each]) for rank in range(ranks)]


def _of_rank(rank: int, local_rank: int) -> dict[str, str]:
    variables = {"RANK": rank, "LOCAL_RANK": local_rank}
    variables |= {"PADDLE_TRAINER_ID": rank, "PADDLE_RANK_IN_NODE": local_rank}
    return {name: str(number) for name, number in variables.items()}


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def table(title: str, results: Mapping[str, Measured], base: str) -> str:
    """A Markdown table: times, and how many times as fast as each other the base is."""
    reference = results[base]
    lines = [
        f"### {title}",
        "",
        f"| contender | best ms | median ms | {base} is faster by (best) | (median) | peak MiB | build s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, m in results.items():
        ratios = f"{m.best / reference.best:.3f} | {m.median / reference.median:.3f}"
        times = f"{1000 * m.best:.2f} | {1000 * m.median:.2f}"
        rest = " | ".join(
            f"{value:{kind}}" if value else "" for value, kind in ((m.peak_mib, ".0f"), (m.build_s, ".1f"))
        )
        lines.append(f"| {name} | {times} | {ratios} | {rest} |")
    return "\n".join(lines) + "\n"


def speed(count: int, measured: Measured, what: str) -> str:
    """How many a second, if a step does so many."""
    best, median = count / measured.best, count / measured.median
    return f"{best:,.0f} {what}/s at best, {median:,.0f} in the median"


def write(name: str, text: str, results: Mapping[str, Mapping[str, Measured]]) -> Path:
    """Keep a dated result: the tables, the command, the machine, every single time."""
    import torch

    RESULTS.mkdir(exist_ok=True)
    today = datetime.date.today().isoformat()
    machine = (
        f"{_cpu()}, {os.cpu_count()} cores, torch {torch.__version__}, Python {platform.python_version()}"
    )
    path = RESULTS / f"{today}-{name}.md"
    path.write_text(f"# {name}, {today}\n\n`{' '.join(['python', *sys.argv])}` on {machine}.\n\n{text}")
    raw = {case: {who: vars(m) for who, m in one.items()} for case, one in results.items()}
    path.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
    print(text)
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return path


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
