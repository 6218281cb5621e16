"""fleetrun as a real command in a temporary directory; no process that it started may outlive the test."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no annotations
import pytest

from tests.ranks import clean_environ


class Fleetrun:
    """Writes scripts, starts jobs in `directory`, and finds all their processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = uuid.uuid4().hex
        self.environ = clean_environ() | {"TEST_MARK": self.mark}

    def script(self, text: str, name: str = "train.py") -> str:
        (self.directory / name).write_text(
            "import os, sys, time, signal, subprocess\nrank = os.environ.get('RANK')\n" + text
        )
        return name

    def start(self, *words: str, **environ: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "argosy.distributed.launch", *words],
            cwd=self.directory,
            env=self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*words, **environ)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def log(self, local_rank: int, old: str = "", kind: str = "worker") -> str:
        return (self.directory / "log" / f"{kind}log.{local_rank}{old}").read_text()

    def wait_for(self, name: str, timeout_s: float = 30.0) -> str:
        """What a rank has written to this file, as soon as it exists."""
        until = time.monotonic() + timeout_s
        path = self.directory / name
        while not (path.exists() and path.read_text().endswith("\n")):
            assert time.monotonic() < until, f"{name} was not written"
            time.sleep(0.02)
        return path.read_text().strip()

    def alive(self) -> list[psutil.Process]:
        """All processes that carry the mark of this test, without zombies."""
        processes = []
        for process in psutil.process_iter():
            try:
                # A process that was forked from the fork server has the environment of the fork server in /proc.
                is_ours = process.environ().get("TEST_MARK") == self.mark or self._is_inside(process.cwd())
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
            except psutil.Error:
                continue
        return processes

    def _is_inside(self, folder: str) -> bool:
        return Path(folder).is_relative_to(self.directory)

    def all_gone(self, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while self.alive() and time.monotonic() < until:
            time.sleep(0.05)
        return not self.alive()


@pytest.fixture
def fleetrun(tmp_path: Path) -> Iterator[Fleetrun]:
    launcher = Fleetrun(tmp_path)
    yield launcher
    left = launcher.alive()
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may exit meanwhile
            process.kill()
    assert not left, f"left behind: {left}"
