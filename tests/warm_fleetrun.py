"""fleetrun for tests of whole jobs: its process is forked from the fork server, and the ranks are forked from it.

    fork server ──fork──▶ guard ──fork──▶ launcher ──fork──▶ ranks

The launcher is the real one, and so are its ranks, their sessions, environment, logs and exit codes; only `exec` is
left out, after which each rank would import torch for seconds. Some jobs are started as users start them: those of
test_launchers.py, and of the tutorial in tests/docs.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, NoReturn

from tests.ranks import ROOT, ForkServer, end_process, leave_job


class WarmFleetrun:
    """As much of subprocess.Popen, with text and a pipe for each of stdout and stderr, as tests use.

    `host`: the network namespace of the job, as benchmarks/lab names it.
    """

    def __init__(
        self,
        ranks: ForkServer,
        *words: str,
        cwd: Path,
        environ: Mapping[str, str] | None = None,
        host: str = "",
    ) -> None:
        self._opened = contextlib.ExitStack()
        folder = self._opened.enter_context(tempfile.TemporaryDirectory())
        pipes = [f"{folder}/{name}" for name in ("out", "err")]
        for path in pipes:
            os.mkfifo(path)
        request = {
            "words": words,
            "cwd": str(cwd),
            "pipes": pipes,
            "environ": dict(environ or {}),
            "host": host,
        }
        start = ranks.start(1, be_fleetrun, BE_FLEETRUN=json.dumps(request))
        self._job = self._opened.enter_context(start)
        self.stdout: IO[str] = self._opened.enter_context(open(pipes[0]))  # noqa: SIM115  (in this stack)
        self.stderr: IO[str] = self._opened.enter_context(open(pipes[1]))  # noqa: SIM115
        self.args, self.pid = words, self._job.pids[0]
        self.returncode: int | None = None

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """What it prints until its end."""
        until, texts = time.monotonic() + timeout, ["", ""]

        def read(number: int, pipe: IO[str]) -> None:
            texts[number] = pipe.read()

        readers = [
            threading.Thread(target=read, args=(number, pipe), daemon=True)
            for number, pipe in enumerate((self.stdout, self.stderr))
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(max(0.0, until - time.monotonic()))
        if any(reader.is_alive() for reader in readers):
            self.kill()
            raise subprocess.TimeoutExpired(self.args, timeout, *texts)
        self.wait(timeout)
        return texts[0], texts[1]

    def wait(self, timeout: float = 60.0) -> int:
        """Its exit code, as soon as it has ended."""
        if self.returncode is None:
            self.returncode = self._job.end_of(0, timeout).code
            self._opened.close()
        return self.returncode

    def kill(self) -> None:
        """SIGKILL, unless it has been waited for."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


# --- in the processes ---------------------------------------------------------------------------------


def be_fleetrun() -> None:
    """On a rank of the fork server: the command `fleetrun`."""
    from argosy.engine.cluster import cli
    from argosy.engine.launch import processes

    request = json.loads(os.environ.pop("BE_FLEETRUN"))
    leave_job()
    os.environ.update(request["environ"])
    for path, number in zip(request["pipes"], (1, 2), strict=True):
        pipe = os.open(path, os.O_WRONLY)
        os.dup2(pipe, number)
        os.close(pipe)
    os.chdir(request["cwd"])
    if request["host"]:
        sys.path.insert(0, str(ROOT / "benchmarks"))
        importlib.import_module("lab").setns(request["host"])
    processes.subprocess = SimpleNamespace(  # type: ignore[assignment]  # what this file uses of it
        Popen=ForkedRank, DEVNULL=subprocess.DEVNULL, SubprocessError=subprocess.SubprocessError
    )
    sys.exit(cli.main(request["words"]))


class ForkedRank:
    """Popen of a rank in the launcher: a fork that runs the bootstrap of these words."""

    def __init__(
        self,
        words: list[str],
        *,
        stdin: int,
        stdout: IO[bytes],
        stderr: IO[bytes],
        env: Mapping[str, str],
        pass_fds: Collection[int],
        start_new_session: bool,
    ) -> None:
        assert start_new_session
        assert stdin == subprocess.DEVNULL
        assert stdout is stderr
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _become_rank(words[3:], stdout.fileno(), dict(env), pass_fds)
            finally:
                os._exit(1)

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


def _become_rank(words: list[str], log: int, environ: dict[str, str], keep: Collection[int]) -> NoReturn:
    from argosy.engine.launch import bootstrap

    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for new, old in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(new, old)
    # Not closed: an object of the launcher that is closed later, a log's for instance, would close a file of the rank.
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in (nothing, *keep):
            os.dup2(nothing, number, inheritable=False)
    # A new one: a thread of the launcher may have held the lock of the old one.
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115  (until the end)
    sys.stdout.reconfigure(write_through=True)  # as python -u
    os.environ.clear()
    os.environ.update(environ)
    end_process(lambda: bootstrap.main(words))
