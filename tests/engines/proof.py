"""What every engine has to prove: the weights of fleetrun alone, failures with a cause, nothing left behind.

reference.check("resnet18", job.directory / "weights.npz")       bit-equal to fleetrun on this host
job.start("--on=mpi", …, *holding("resnet18"))                   a job whose workers wait before step 2
job.pid("worker.1"), job.wait_until_held(2)
job.check_nothing_left()                                         processes, /dev/shm, temporary files
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import fcntl
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]  # it has no annotations

from tests.engine.launch.conftest import Fleetrun

FOLDER = Path(__file__).parent
SCRIPTS = {
    "resnet18": str(FOLDER / "train_resnet18.py"),
    "wide_and_deep": str(FOLDER / "train_wide_and_deep.py"),
}
WAIT = str(FOLDER / "wait.py")
"""A script that needs no torch, for kills: each process writes its pid to pids/worker.I, and waits."""
ONE_HOST = {"resnet18": ["--nproc_per_node=2"], "wide_and_deep": ["--server_num=2", "--worker_num=2"]}
"""The options of a job with two ranks, or two servers and two workers, on this host."""
TWO_NODES = {"resnet18": ["--nproc_per_node=1"], "wide_and_deep": ["--server_num=2", "--worker_num=2"]}
"""The options of the same job on two nodes, besides --on and those of the engine."""
HOLDING = ["--pids=pids", "--hold_at=2"]
"""Arguments of the scripts: write pids, wait before step 2 for ever."""
NAMED_WITHIN_S = 30.0
"""From a kill to its report in the output of fleetrun, on a busy machine; benchmarks/failure_notice.py measures it."""
TIMEOUT_S = 600.0
"""For one whole job; the machine may be busy."""


class EngineJob(Fleetrun):
    """fleetrun in a directory of its own, with a directory for temporary files."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.temporary = Path(tempfile.mkdtemp(prefix="argosy-"))  # short: paths of sockets have a limit
        self.prefix: list[str] = []
        """A command that runs fleetrun elsewhere, such as `ip netns exec NAME`."""
        self._process: subprocess.Popen[str] | None = None
        self._segments = set(_segments())
        self.environ |= {"OMP_NUM_THREADS": "1", "TMPDIR": str(self.temporary)}
        self.environ["ARGOSY_CHECK_PASSES"] = (
            "0"  # other tests check them; here they would cost a sixth of each job
        )

    def start(self, *words: str, **environ: str) -> "subprocess.Popen[str]":
        """fleetrun with these words; stdout and stderr are files, so that no pipe fills up."""
        command = [*self.prefix, sys.executable, "-W", "error", "-m", "argosy.distributed.launch", *words]
        with (self.directory / "out").open("w") as out, (self.directory / "err").open("w") as err:
            self._process = subprocess.Popen(
                command, cwd=self.directory, env=self.environ | environ, stdout=out, stderr=err, text=True
            )
        return self._process

    def run(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        """fleetrun with these words until it has ended."""
        return self.finish(self.start(*words, **environ))

    def finish(self, process: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
        """Wait until it has ended; its output."""
        try:
            code = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            raise AssertionError(f"fleetrun did not end within {TIMEOUT_S} s: {self.output()}") from None
        return subprocess.CompletedProcess(process.args, code, *self.output())

    def output(self) -> tuple[str, str]:
        """What fleetrun has printed so far."""
        return (self.directory / "out").read_text(), (self.directory / "err").read_text()

    def wait_for(self, name: str, timeout_s: float = TIMEOUT_S) -> str:
        """What a process has written to this file, as soon as it exists; fails if fleetrun reports a failure first."""
        path = self.directory / name
        wait_until(lambda: path.exists() or self._has_failed(), timeout_s, lambda: f"{name}: {self.output()}")
        assert path.exists(), f"fleetrun has failed before it wrote {name}: {self.output()}"
        return path.read_text().strip()

    def wait_until_named(self, pattern: str) -> None:
        """Return when fleetrun has printed the cause of a failure; the test has just killed something."""
        wait_until(lambda: self.names(pattern), NAMED_WITHIN_S, lambda: str(self.output()))

    def names(self, pattern: str) -> bool:
        """True if fleetrun has printed something that matches."""
        return re.search(pattern, "".join(self.output())) is not None

    def _has_failed(self) -> bool:
        return self._process is not None and bool(self._process.poll())

    def pid(self, role: str) -> int:
        """The pid of a process of a holding job: `worker.1`, `server.0`; waits until it has started."""
        return int(self.wait_for(f"pids/{role}"))

    def wait_until_held(self, workers: int = 2) -> None:
        """Return when all workers wait before their step."""
        for worker in range(workers):
            self.wait_for(f"pids/worker.{worker}.holding")

    def check_nothing_left(self, within_s: float = 15.0, killed_host: str = "none") -> None:
        """Fail if the job has left processes, segments in /dev/shm or temporary files.

        Allowed are directories with the name of a killed host, which cannot remove them, and torch's cache.
        """
        wait_until(lambda: not self.alive(), within_s, lambda: f"processes are left: {self.alive()}")
        wait_until(lambda: not self._new_segments(), within_s, lambda: f"/dev/shm has {self._new_segments()}")
        names = (str(p.relative_to(self.temporary)) for p in self.temporary.rglob("*"))
        files = sorted(n for n in names if killed_host not in n and not n.startswith("torchinductor_"))
        assert not files, f"temporary files are left: {files}"

    def _new_segments(self) -> list[str]:
        """Segments that were created since the start and that no process has open: not those of other jobs."""
        new = set(_segments()) - self._segments
        return sorted(new - _open_segments()) if new else []

    def end(self) -> None:
        """Kill what is left, and remove the temporary files."""
        for process in self.alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._process is not None:
            self._process.wait()
        shutil.rmtree(self.temporary, ignore_errors=True)


class Reference:
    """The weights of fleetrun alone on this host; each script runs once for all processes that share the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._weights: dict[str, dict[str, np.ndarray[Any, Any]]] = {}

    def weights(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """By the name of the variable."""
        if name not in self._weights:
            directory = self._folder / name
            directory.mkdir(exist_ok=True)
            with (self._folder / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not (directory / "weights.npz").exists():
                    self._train(name, directory)
            self._weights[name] = dict(np.load(directory / "weights.npz"))
        return self._weights[name]

    def _train(self, name: str, directory: Path) -> None:
        with engine_job(directory) as job:
            done = job.run(*ONE_HOST[name], SCRIPTS[name])
        assert done.returncode == 0, done.stdout + done.stderr

    def check(self, name: str, path: Path) -> None:
        """Fail unless the weights in this file are bit-equal to the reference."""
        expected, weights = self.weights(name), dict(np.load(path))
        assert weights.keys() == expected.keys()
        different = [n for n, value in expected.items() if value.tobytes() != weights[n].tobytes()]
        assert not different, f"not bit-equal: {different}"


@contextlib.contextmanager
def engine_job(directory: Path) -> Iterator[EngineJob]:
    """A job in this directory; what it has left is killed at the end."""
    job = EngineJob(directory)
    try:
        yield job
    finally:
        job.end()


def wait_until(
    condition: Callable[[], object], within_s: float = TIMEOUT_S, problem: Callable[[], str] = lambda: ""
) -> None:
    """Return when the condition is true; fail with the problem after so many seconds."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, f"not within {within_s:g} s: {problem()}"
        time.sleep(0.05)


def _segments() -> list[str]:
    return [path.name for path in Path("/dev/shm").iterdir()]


def _open_segments() -> set[str]:
    """The segments in /dev/shm that a process has mapped."""
    names = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            names |= {
                line.partition("/dev/shm/")[2].split()[0]
                for line in maps.read_text().splitlines()
                if "/dev/shm/" in line
            }
    return names
