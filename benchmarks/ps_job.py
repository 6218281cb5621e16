"""A job of servers and workers for a benchmark: separate processes, which train on command.

    with running("async", [sys.executable, "worker.py"], workers=2) as job:
        job.order("30")          all workers train 30 steps at once; gives what each of them answers

Role and addresses are in the environment, as fleetrun sets them; with no servers it is a collective job. In a lab
the servers are on host 0 and the workers on host 1. What a worker does is in benchmarks/orders.py.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import functools
import json
import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from lab.namespaces import inside
from lab.network import Lab

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CPU_NUM")
END_S = 300
LOOPBACK = "127.0.0.1"
Process = subprocess.Popen[str]


@dataclass
class Job:
    """Servers, and workers which wait for orders."""

    name: str
    folder: Path
    lab: Lab | None = None
    servers: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)

    def order(self, text: str) -> list[dict[str, float]]:
        """What all workers answer; they begin together."""
        for worker in self.workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{text}\n")
            worker.stdin.flush()
        return [json.loads(self.line(worker)) for worker in self.workers]

    def line(self, worker: Process) -> str:
        """The next line that is meant for us: Paddle prints others."""
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.startswith(("ready", "{")):
                return line
        raise self._failed()

    def end(self) -> None:
        """Let the workers end by themselves."""
        for worker in self.workers:
            assert worker.stdin is not None
            worker.stdin.close()
        if any(worker.wait(END_S) for worker in self.workers):
            raise self._failed()

    def _failed(self) -> RuntimeError:
        logs = "\n".join(f"{p.name}:\n{p.read_text()[-2000:]}" for p in sorted(self.folder.iterdir()))
        return RuntimeError(f"a worker of {self.name!r} has failed; the ends of the logs:\n{logs}")


@contextlib.contextmanager
def running(
    name: str,
    words: Sequence[str],
    workers: int,
    servers: int = 1,
    lab: Lab | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Job]:
    """A job whose workers are ready; it is ended on leaving. `environ`: more variables for the servers."""
    of_servers, of_workers = _environments(workers, servers, lab)
    of_servers = [one | dict(environ or {}) for one in of_servers]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:

        def start(who: str, host: int, environ: dict[str, str], **pipes: int) -> Process:
            log = opened.enter_context((Path(folder) / who).open("w"))
            launch: Any = subprocess.Popen if lab is None else functools.partial(lab.start, host)
            process: Process = launch(words, env=environ, cwd=folder, stderr=log, text=True, **pipes)
            opened.callback(_end, process)
            return process

        job = Job(name, Path(folder), lab)
        for i, one in enumerate(of_servers):
            job.servers.append(start(f"server{i}", 0, one, stdout=subprocess.DEVNULL))
        for i, one in enumerate(of_workers):
            job.workers.append(start(f"worker{i}", 1, one, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for worker in job.workers:
            job.line(worker)
        yield job
        job.end()


def _environments(
    workers: int, servers: int, lab: Lab | None
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The variables of each server and of each worker, as fleetrun sets them."""
    serving, working = (LOOPBACK, LOOPBACK) if lab is None else lab.addresses[:2]
    with contextlib.nullcontext() if lab is None else inside(lab.names[0]):
        ports = [str(harness.free_port()) for _ in range(servers + workers)]
    places = [f"{serving}:{port}" for port in ports[:servers]]
    common = os.environ | dict.fromkeys(THREADS, "1")
    common |= {"PADDLE_TRAINERS_NUM": str(workers), "PADDLE_WITH_GLOO": "0"}
    common["PADDLE_TRAINER_ENDPOINTS"] = ",".join(f"{working}:{port}" for port in ports[servers:])
    common["ARGOSY_JOB_TOKEN"] = secrets.token_hex(16)
    if servers:
        common["PADDLE_PSERVERS_IP_PORT_LIST"] = ",".join(places)
    of_server = {"TRAINING_ROLE": "PSERVER", "POD_IP": serving}
    of_worker = {"TRAINING_ROLE": "TRAINER", "POD_IP": working}
    numbered = enumerate(ports[servers:])
    return (
        [common | of_server | {"PADDLE_PORT": port} for port in ports[:servers]],
        [common | of_worker | {"PADDLE_PORT": port, "PADDLE_TRAINER_ID": str(i)} for i, port in numbered],
    )


def _end(process: Process) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # it has failed, and said so
                pipe.close()
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
