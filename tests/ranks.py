"""Real ranks for tests: processes with fleetrun's environment that run a function of a test file.

To import torch takes seconds, so one process, the fork server, imports it and forks the ranks of all tests:

    pytest ──request──▶ fork server ──fork──▶ job ──fork──▶ rank 0, rank 1, …     each writes directory/N.txt
           ◀─ directory/pids, directory/N.end (exit code and time) ── job

Nothing is left: the kernel ends ranks whose job ends, and a test that is over ends what still runs.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from argosy.engine.launch.ports import stable_ports

ROOT = Path(__file__).parents[1]
FOREIGN = (
    "PADDLE_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "GROUP_",
    "NODE_",
    "MASTER_",
    "ARGOSY_",
    "FLAGS_",
    "OMP_",
)
FOREIGN += ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "TRAINING_ROLE", "GLOO_", "CUDA_")
_PR_SET_PDEATHSIG = 1
_MOST_BYTES = 1 << 20


def clean_environ() -> dict[str, str]:
    """This process's environment without what a launcher or a user may have left in it; kernels are not searched."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    return environ | {"PYTHONPATH": str(ROOT), "ARGOSY_BACKGROUND_SEARCH": "0"}


def free_endpoints(count: int) -> tuple[str, ...]:
    """Endpoints on this host that are free, all different, and not in the ephemeral range.

    The kernel gives an ephemeral port that is free now to any connection of another test.
    """
    return tuple(f"127.0.0.1:{port}" for port in stable_ports("127.0.0.1", count))


def free_endpoint() -> str:
    """An endpoint on this host that is free."""
    return free_endpoints(1)[0]


@dataclass(frozen=True)
class Ended:
    """How a rank ended."""

    code: int
    """The exit code, or the negative number of the signal."""
    at: float
    """By time.monotonic(), which is the same clock for all processes."""
    said: str


class Job:
    """The ranks of one run."""

    def __init__(self, directory: Path, size: int) -> None:
        self.directory, self.size = directory, size
        self.pids: list[int] = json.loads(self._text("pids", 240.0))  # the fork server may still import

    def wait_for(self, rank: int, word: str, timeout_s: float = 30.0) -> None:
        """Return as soon as a rank has printed this."""
        self._until(lambda: word in self.said(rank), timeout_s, f"rank {rank} did not say {word!r}")

    def said(self, rank: int) -> str:
        path = self.directory / f"{rank}.txt"
        return path.read_text() if path.exists() else ""

    def kill(self, rank: int, number: signal.Signals) -> float:
        """Send a signal; gives the time."""
        os.kill(self.pids[rank], number)
        return time.monotonic()

    def end_of(self, rank: int, timeout_s: float = 200.0) -> Ended:
        code, at = self._text(f"{rank}.end", timeout_s).split()
        return Ended(int(code), float(at), self.said(rank))

    def close(self) -> None:
        for rank, pid in enumerate(self.pids):
            if not (self.directory / f"{rank}.end").exists():  # then its number is still its own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self.end_of(rank, 60.0)

    def _text(self, name: str, timeout_s: float) -> str:
        path = self.directory / name
        self._until(path.exists, timeout_s, f"{name} did not come")
        return path.read_text()

    def _until(self, happened: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        until = time.monotonic() + timeout_s
        while not happened():
            if time.monotonic() > until:
                said = "\n".join(f"rank {r}: {self.said(r)}" for r in range(self.size))
                raise AssertionError(f"{otherwise} within {timeout_s:g} s\n{said}")
            time.sleep(0.01)


class ForkServer:
    """Starts jobs. `address`: a server that another process has started; without it, this one starts its own."""

    def __init__(self, address: str = "") -> None:
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._process: subprocess.Popen[bytes] | None = None
        self.address = address
        if address:
            return
        self._folder = tempfile.TemporaryDirectory()
        self.address = f"{self._folder.name}/requests"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(self.address)
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", __file__, str(receiver.fileno())],
                env=clean_environ() | {"OMP_NUM_THREADS": "1"},
                pass_fds=[receiver.fileno()],
            )

    @contextlib.contextmanager
    def start(self, size: int, function: Callable[[], None], **environ: str) -> Iterator[Job]:
        """Run a function without arguments, of the top level of a file, on so many ranks."""
        with tempfile.TemporaryDirectory() as directory:
            request = {"size": size, "file": function.__code__.co_filename, "function": function.__name__}
            message = json.dumps(request | {"environ": environ, "directory": directory})
            self._sender.sendto(message.encode(), self.address)
            job = Job(Path(directory), size)
            try:
                yield job
            finally:
                job.close()

    def run(
        self, size: int, function: Callable[[], None], timeout_s: float = 200.0, **environ: str
    ) -> list[Ended]:
        """Start so many ranks and wait for them all; gives how they ended."""
        with self.start(size, function, **environ) as job:
            return [job.end_of(rank, timeout_s) for rank in range(size)]

    def check(
        self, size: int, function: Callable[[], None], timeout_s: float = 200.0, **environ: str
    ) -> list[str]:
        """Run, and all must end well; gives what each rank printed."""
        ends = self.run(size, function, timeout_s, **environ)
        failed = [f"rank {rank} ended with {e.code}:\n{e.said}" for rank, e in enumerate(ends) if e.code]
        assert not failed, "\n".join(failed)
        return [e.said for e in ends]

    def python(
        self, *words: str, cwd: Path | str = ROOT, timeout_s: float = 200.0, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """`python -W error` with these words, in a process that has imported torch and Argosy already.

        For scripts that need a process of their own, but not a new interpreter: -c code, -m module, or a file.
        """
        with tempfile.NamedTemporaryFile("r") as errors:
            request = {"words": words, "cwd": str(cwd), "errors": errors.name, "environ": environ}
            full = {name: environ[name] for name in environ.keys() & {"FULL_EXIT"}}
            (end,) = self.run(1, be_python, timeout_s, BE_PYTHON=json.dumps(request), **full)
            return subprocess.CompletedProcess(words, end.code, end.said, errors.read())

    def close(self) -> None:
        if self._process is not None:
            self._sender.sendto(b"", self.address)
            self._process.wait(timeout=200)  # on a busy machine it may still import torch
            self._folder.cleanup()
        self._sender.close()


_SERVER = pytest.StashKey[ForkServer]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of pytest-xdist's processes, the controller starts one fork server for all workers."""
    if _SERVER not in node.config.stash:
        node.config.stash[_SERVER] = ForkServer()
    node.workerinput["fork_server"] = node.config.stash[_SERVER].address


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SERVER in config.stash:
        config.stash[_SERVER].close()


@pytest.fixture(scope="session")
def ranks(request: pytest.FixtureRequest) -> Iterator[ForkServer]:
    fork_server = ForkServer(getattr(request.config, "workerinput", {}).get("fork_server", ""))
    yield fork_server
    fork_server.close()


def leave_job() -> None:
    """On a rank: forget what the fork server has said about its place in a job."""
    for name in [n for n in os.environ if n.startswith(("PADDLE_", "LOCAL_WORLD_", "ARGOSY_CONNECT_"))]:
        del os.environ[name]
    os.close(int(os.environ.pop("ARGOSY_STORE_FD")))


def be_python() -> None:
    """On a rank of `ForkServer.python`."""
    request = json.loads(os.environ.pop("BE_PYTHON"))
    leave_job()
    os.environ.update(request["environ"])
    os.dup2(os.open(request["errors"], os.O_WRONLY | os.O_APPEND), 2)
    os.chdir(request["cwd"])
    option, *words = request["words"]
    main = sys.modules["__main__"] = ModuleType("__main__")
    sys.argv = [option, *words]
    if option == "-c":
        sys.argv, sys.path[0] = ["-c", *words[1:]], ""
        exec(compile(words[0], "<string>", "exec"), main.__dict__)
    elif option == "-m":
        sys.argv, sys.path[0] = words, os.getcwd()
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(option).resolve().parent)
        runpy.run_path(option, run_name="__main__")


# --- in the fork server -----------------------------------------------------------------------------------


def _serve() -> dict[str, str]:
    """Fork jobs as they are asked for; returns only in a rank, with what to run."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    requests = socket.socket(fileno=int(sys.argv[1]))
    message = requests.recv(_MOST_BYTES)
    if not message:  # no test has started a job
        os._exit(0)
    _warm_up()
    gc.freeze()  # a rank's collector need not look at all that, and copy its pages
    assert len(os.listdir("/proc/self/task")) == 1, (
        "a fork beside threads may copy a lock that is never released"
    )
    while message:
        if os.fork() == 0:
            requests.close()
            request = json.loads(message)
            _run_job(**request)
            return {name: request[name] for name in ("file", "function")}
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        message = requests.recv(_MOST_BYTES)
    os._exit(0)


def _warm_up() -> None:
    """Import what ranks import, and build programs of the kinds that they build.

    Much of torch is imported, and many caches of torch, sympy and shape functions are filled, only when programs are
    built: a rank that is forked afterwards needs 0.3 s less CPU. Nothing is run: a process that has run a program has
    loaded kernels and changed the allocator, and a rank's environment may ask for other ones.
    """
    import argosy.distributed.fleet.utils.ps_util
    import argosy.engine.ps.trainer.trainer
    import argosy.fluid
    from argosy.engine.ir import names
    from tests import fleet_jobs, servers

    def with_servers(table: bool) -> None:
        argosy.optimizer.Adam(0.1).minimize(fleet_jobs.build(table).loss)

    for build in (
        lambda: with_servers(True),
        lambda: with_servers(False),
        lambda: servers.build({"optimizer": "momentum", "table": True}),
        _convolution,
    ):
        programs = argosy.static.Program(), argosy.static.Program()
        with argosy.static.program_guard(*programs), names.guard():
            build()


def _convolution() -> None:
    """A classifier of images as those of collective jobs: convolution, batch norm, pooling, cross entropy."""
    import argosy

    x, y = argosy.static.data("x", [None, 3, 8, 8]), argosy.static.data("y", [None, 1], "int64")
    h = argosy.static.nn.batch_norm(argosy.static.nn.conv2d(x, 4, 3, padding=1), act="relu")
    h = argosy.flatten(argosy.nn.functional.adaptive_avg_pool2d(h, 1), 1)
    loss = argosy.nn.functional.cross_entropy(argosy.static.nn.fc(h, 3), y)
    argosy.optimizer.Momentum(0.1, 0.9).minimize(argosy.mean(loss))


def _run_job(size: int, environ: dict[str, str], directory: str, **_: str) -> None:
    """Fork the ranks and note their ends; returns only in a rank."""
    store = socket.create_server(("127.0.0.1", 0))
    with contextlib.ExitStack() as others:
        taken = [others.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(1, size)]
        endpoints = [f"127.0.0.1:{s.getsockname()[1]}" for s in (store, *taken)]
    pids: list[int] = []
    for rank in range(size):
        Path(directory, f"{rank}.txt").touch()
        pid = os.fork()
        if pid == 0:
            _become_rank(rank, endpoints, store, environ, directory)
            return
        pids.append(pid)
    store.close()
    _write(directory, "pids", json.dumps(pids))
    for _number in pids:
        pid, status = os.waitpid(-1, 0)
        _write(directory, f"{pids.index(pid)}.end", f"{os.waitstatus_to_exitcode(status)} {time.monotonic()}")
    os._exit(0)


def _become_rank(
    rank: int, endpoints: list[str], store: socket.socket, environ: dict[str, str], directory: str
) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    variables = {
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_RANK_IN_NODE": str(rank),
        "LOCAL_WORLD_SIZE": str(len(endpoints)),
        "ARGOSY_CONNECT_TIMEOUT_S": "30",
    }
    if rank == 0:
        variables["ARGOSY_STORE_FD"] = str(store.detach())
    else:
        store.close()
    os.environ.update(variables | environ)
    out = os.open(f"{directory}/{rank}.txt", os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for new, old in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(new, old)


def _run(file: str, function: str) -> None:
    """Run what was asked for, as the last line of a script."""
    if "FULL_EXIT" in os.environ:
        runpy.run_path(file)[function]()
        return
    end_process(lambda: runpy.run_path(file)[function]())  # noqa: PLW0108  (its errors are the script's, too)


def end_process(run: Callable[[], int | None]) -> NoReturn:
    """Run this and end with its code, as the interpreter does after the last line of a script, but free nothing.

    A process that frees torch's modules one by one copies all their pages: 0.3 s of CPU, more than most ranks compute.
    """
    try:
        code = run() or 0
    except SystemExit as e:
        code = e.code & 0xFF if isinstance(e.code, int) else 0 if e.code is None else 1
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
    except Exception as e:
        sys.last_type, sys.last_value, sys.last_traceback = type(e), e, e.__traceback__
        sys.excepthook(type(e), e, e.__traceback__)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # joins the threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _write(directory: str, name: str, text: str) -> None:
    """Atomically."""
    path = Path(directory, name)
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


if __name__ == "__main__":
    _run(**_serve())
