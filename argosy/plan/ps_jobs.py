"""Measure a script with parameter servers: three small jobs on this machine, which take turns.

    this process ──▶ 1 server + 1 worker, 2 servers + 1 worker, 1 server + 2 workers: `argosy.plan.ps_process`
                 ──▶ FOLDER/turn: the job whose workers may train; the others wait
                 ◀── FOLDER/JOB.worker0.result, and the records of the servers

Servers have the first core, workers the others. Needs no torch. No process is left behind when this one ends.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.launch.ports import free_ports
from argosy.engine.planner.data_files import from_data, write_text
from argosy.engine.planner.ps_measured import Handled, MeasuredJob, MeasuredStep, Mode, PsMeasured

JOBS = {"one": (1, 1), "servers": (2, 1), "workers": (1, 2)}
_START_S, _END_S, _POLL_S = 300.0, 10.0, 0.05
_TURN_S = 0.75
Process = subprocess.Popen[bytes]


@dataclass
class _PsJob:
    name: str
    servers: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)


def measure(
    script: Path, words: Sequence[str], mode: Mode, k_steps: int = 1, seconds: float = 5.0, threads: int = 1
) -> PsMeasured:
    """Measure a script in a mode, each of the jobs for so many seconds."""
    if not script.is_file():
        raise ConfigError(f"{script} is not a file; give the training script")
    cores = sorted(os.sched_getaffinity(0))
    of_servers, of_workers = (cores[:1], cores[1:]) if len(cores) > 1 else (cores, cores)
    with tempfile.TemporaryDirectory(prefix="argosy-plan-") as directory, ExitStack() as stack:
        folder = Path(directory)
        jobs = []
        for name, (servers, workers) in JOBS.items():
            job = _PsJob(name)
            stack.callback(_end, job)
            jobs.append(job)
            command = [sys.executable, "-m", "argosy.plan.ps_process", directory, name, mode, str(k_steps)]
            environments = environments_of(servers, workers, folder / name, threads)
            for number, environ in enumerate(environments):
                pinned = of_servers if number < servers else of_workers
                log = stack.enter_context((folder / f"{name}.log{number}").open("wb"))
                process = subprocess.Popen(
                    [*command, ",".join(map(str, pinned)), str(script), *words],
                    env=environ, stdout=log, stderr=log,
                )  # fmt: skip
                (job.servers if number < servers else job.workers).append(process)
            (folder / f"{name}.pids").write_text(" ".join(str(p.pid) for p in job.servers))
        _take_turns(folder, jobs, seconds)
        time.sleep(1.1)  # the last records of the servers
        results = {job.name: _result(folder, job.name, k_steps) for job in jobs}
        return PsMeasured(
            mode,
            **results,
            k_steps=k_steps,
            examples=_examples(folder),
            cores=len(of_workers),
            name=script.name,
        )


def environments_of(servers: int, workers: int, metrics: Path, threads: int) -> list[dict[str, str]]:
    """The variables of each server, then of each worker, as fleetrun sets them."""
    ports = free_ports("127.0.0.1", servers + workers)
    common = {**env.variables(), **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))}
    common |= {
        "PADDLE_TRAINERS_NUM": str(workers),
        "PADDLE_WITH_GLOO": "0",
        "POD_IP": "127.0.0.1",
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"127.0.0.1:{port}" for port in ports[:servers]),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(f"127.0.0.1:{port}" for port in ports[servers:]),
        "ARGOSY_JOB_TOKEN": secrets.token_hex(16),
        "ARGOSY_METRICS_DIR": str(metrics),
        "ARGOSY_BACKGROUND_SEARCH": "0",
    }
    of_servers = [common | {"TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(port)} for port in ports[:servers]]
    of_workers = [
        common | {"TRAINING_ROLE": "TRAINER", "PADDLE_PORT": str(port), "PADDLE_TRAINER_ID": str(number)}
        for number, port in enumerate(ports[servers:])
    ]
    return [*of_servers, *of_workers]


def _take_turns(folder: Path, jobs: Sequence[_PsJob], seconds: float) -> None:
    ends = time.monotonic() + _START_S
    ready = [folder / f"{job.name}.ready{n}" for job in jobs for n in range(len(job.workers))]
    while not all(path.exists() for path in ready):
        _check_alive(folder, jobs)
        if time.monotonic() > ends:
            raise ConfigError(
                f"the script has not trained for {_START_S:.0f} s; it must train a program of fleet with servers"
            )
        time.sleep(_POLL_S)
    (folder / "measured_from").write_text(str(time.time()))
    for _ in range(max(2, round(seconds / _TURN_S))):
        for job in jobs:
            write_text(folder / "turn", job.name)
            time.sleep(_TURN_S)
            write_text(folder / "turn", "")
            time.sleep(0.1)
            _check_alive(folder, jobs)


def _check_alive(folder: Path, jobs: Sequence[_PsJob]) -> None:
    for job in jobs:
        for number, process in enumerate((*job.servers, *job.workers)):
            if process.poll() is not None:
                log = (folder / f"{job.name}.log{number}").read_text(errors="replace")[-2000:]
                who = "server" if number < len(job.servers) else "worker"
                raise ConfigError(
                    f"a {who} of the measured job ended with {process.returncode}; the script must train for as long "
                    f"as it is measured. The end of its output:\n{log}"
                )


def _result(folder: Path, name: str, k_steps: int) -> MeasuredJob:
    servers, workers = JOBS[name]
    results: list[dict[str, Any]] = []
    for number in range(workers):
        path = folder / f"{name}.worker{number}.result"
        if not path.exists():
            raise ConfigError(
                f"worker {number} has done no step in its turns; give more time (--seconds), or a smaller batch"
            )
        results.append(json.loads(path.read_text()))
    first = results[0]
    num_steps = sum(result["num_steps"] for result in results)
    counts, cpu = _handled(folder / name, servers, float((folder / "measured_from").read_text()))
    # Records of a second are not aligned with turns: requests, which a step has a known number of, count the steps.
    seen = _num_steps_seen(counts, first, k_steps)
    return MeasuredJob(
        servers=servers,
        workers=workers,
        step_ms=first["mean_ms"] if len(first["steps"]) > 1 else first["step_ms"],
        steps=tuple(from_data(MeasuredStep, step, "a measured step") for step in first["steps"]),
        main_ms=first["main_ms"],
        transport_ms=first["transport_ns"] / 1e6 / first["num_steps"],
        server_ms=first["server_ns"] / 1e6 / num_steps,
        handlers={kind: Handled(counts[kind] / seen, cpu[kind] / seen) for kind in counts},
    )


def _num_steps_seen(counts: dict[str, int], result: dict[str, Any], k_steps: int) -> float:
    """How many steps of a worker the servers' records are of."""
    in_step: dict[str, float] = {}
    steps = result["steps"]
    periodic = [step for step in steps if step.get("is_periodic")]
    for step in periodic or steps[:1]:
        for operation in step["operations"]:
            if operation["verb"] == "start":
                in_step[operation["kind"]] = in_step.get(operation["kind"], 0) + 1
    kind = next((k for k in ("push", "push_rows", *in_step) if k in in_step and k in counts), "")
    if not kind:
        raise ConfigError("the servers have recorded no requests of a step; give more time (--seconds)")
    return counts[kind] / in_step[kind] * (k_steps if periodic else 1)


def _handled(folder: Path, servers: int, since: float) -> tuple[dict[str, int], dict[str, float]]:
    """By kind, how many requests the servers have handled since then, and the core time of their handlers."""
    counts: dict[str, int] = {}
    cpu: dict[str, float] = {}
    for number in range(servers):
        (path,) = folder.rglob(f"server{number}.jsonl")
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "tables" and record["time"] > since + 1:
                for kind, fields in record["requests"].items():
                    counts[kind] = counts.get(kind, 0) + fields["count"]
                    cpu[kind] = cpu.get(kind, 0.0) + fields["cpu_ms"]
    return counts, cpu


def _examples(folder: Path) -> int:
    """The batch, as the worker's records have it."""
    for path in sorted((folder / "one").rglob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "steps" and record["steps"]:
                return int(record["examples"]) // int(record["steps"])
    return 0


def _end(job: _PsJob) -> None:
    for process in (*job.workers, *job.servers):
        if process.poll() is None:
            process.kill()
    for process in (*job.workers, *job.servers):
        process.wait(_END_S)
