"""MPI: `mpirun` of Open MPI or MPICH starts one launcher per node; fleetrun shows its output and waits for it.

    mpirun -np 2 --map-by ppr:1:node --host a,b … python -m argosy.engine.launch --nodes=2 --master=a:PORT train.py

MPI is only used to start processes: a launcher takes its number from OMPI_COMM_WORLD_RANK or PMI_RANK.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import shlex
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from argosy.engine import env
from argosy.engine.cluster.engine import Engine, Outcome
from argosy.engine.cluster.host_jobs import after_setup_words, master, node_environ
from argosy.engine.cluster.job import ClusterJob, host_list
from argosy.engine.errors import ConfigError
from argosy.engine.launch import logs

_END_S = 15.0
"""After SIGTERM: how long mpirun has to end its processes on all nodes."""
_VERSION_S = 30.0
_REPORT_S = 5.0
"""How long the launcher of node 0 may take to report a failure after mpirun itself has failed."""
_LAUNCHER_CODES = (0, 1, 2, 75, 129, 130, 143)
"""mpirun exits with the code of a launcher, unless it has failed itself."""
OPEN_MPI, MPICH = "Open MPI", "MPICH"


class Mpi(Engine):
    """One mpirun, which is a child of this process."""

    name: ClassVar[str] = "mpi"
    settings: ClassVar[tuple[str, ...]] = ("hosts", "hostfile")
    is_guarded: ClassVar[bool] = True

    _process: "subprocess.Popen[str]"
    _hosts: tuple[str, ...] = ()
    _kind = ""
    _log = Path()
    """The log of node 0's launcher."""

    def __init__(self) -> None:
        self._printed: deque[str] = deque(maxlen=200)

    def plan(self, job: ClusterJob) -> str:
        names = ", ".join(sorted(node_environ(job)))
        first = (_hosts(job) or ["FIRST_HOST_OF_THE_ALLOCATION"])[0]
        return f"# variables that are passed to the nodes: {names}\n{shlex.join(command(job, first, kind()))}"

    def submit(self, job: ClusterJob) -> str:
        self._kind = kind()
        self._hosts = tuple(_hosts(job))
        self._log = Path(job.directory, job.config.log_dir, "node-0", logs.LAUNCHER_LOG)
        first = self._hosts[0] if self._hosts else _first_host(job, self._kind)
        self._process = subprocess.Popen(
            command(job, first, self._kind),
            env={**env.variables(), **node_environ(job)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        return str(self._process.pid)

    def nodes(self, job_id: str) -> tuple[str, ...]:
        return self._hosts

    def logs(self, job_id: str) -> Iterator[str]:
        assert self._process.stdout is not None, "submit opened the pipe"
        for line in self._process.stdout:
            self._printed.append(line.rstrip("\n"))
            yield self._printed[-1]
        self._process.stdout.close()

    def wait(self, job_id: str) -> Outcome:
        code = self._process.wait()
        code = code if code >= 0 else 128 - code
        report = "" if code in _LAUNCHER_CODES else self._unprinted_report()
        return Outcome(code, f"mpirun of {self._kind} exited with code {code}{report}")

    def _unprinted_report(self) -> str:
        """What node 0 has written to its log since mpirun has failed, and so no longer prints its output.

        Empty if node 0 has another file system.
        """
        if not self._log.parent.is_dir():
            return ""
        until = time.monotonic() + _REPORT_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
                if unprinted := [line for line in lines if line not in self._printed]:
                    return f"; {' '.join(line.strip() for line in unprinted)}"
            time.sleep(0.05)
        return ""

    def cancel(self, job_id: str) -> None:
        if self._process.poll() is not None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=_END_S)  # reads, so that mpirun is not blocked by a full pipe
        self._process.kill()
        self._process.wait()


def kind() -> str:
    """Open MPI or MPICH, whichever `mpirun` is; raises ConfigError for none and for others."""
    if shutil.which("mpirun") is None:
        raise ConfigError("there is no program mpirun; install Open MPI or MPICH, or load its module")
    try:
        text = subprocess.run(
            ["mpirun", "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ConfigError(f"`mpirun --version` failed: {e}; repair the installation of MPI") from e
    if "Open MPI" in text or "OpenRTE" in text:  # Debian's program prints the latter
        return OPEN_MPI
    if "HYDRA" in text:
        return MPICH
    first = (text.splitlines() or ["nothing"])[0]
    raise ConfigError(
        f"mpirun is neither Open MPI nor MPICH: `mpirun --version` printed {first!r}; put one of them first in PATH"
    )


def command(job: ClusterJob, first: str, implementation: str) -> list[str]:
    """The mpirun command of a job whose node 0 is the host `first`."""
    options = _open_mpi if implementation == OPEN_MPI else _mpich
    launcher = job.node_command(master=master(first, job))
    return ["mpirun", *options(job), *job.arguments, *after_setup_words(job, launcher)]


def _open_mpi(job: ClusterJob) -> list[str]:
    words = ["-np", str(job.nodes), "--map-by", "ppr:1:node"]
    # The default binds a process, and so all ranks of its launcher, to one core.
    words += ["--bind-to", "none", "--wdir", job.directory]
    if "hosts" in job.settings:
        words += ["--host", ",".join(f"{host}:1" for host in _hosts(job))]
    elif "hostfile" in job.settings:
        words += ["--hostfile", job.settings["hostfile"]]
    for name in sorted(node_environ(job)):
        words += ["-x", name]
    return words


def _mpich(job: ClusterJob) -> list[str]:
    words = ["-n", str(job.nodes), "-ppn", "1", "-wdir", job.directory]
    if "hosts" in job.settings:
        words += ["-hosts", ",".join(_hosts(job))]
    elif "hostfile" in job.settings:
        words += ["-f", job.settings["hostfile"]]
    return [*words, "-genvlist", ",".join(sorted(node_environ(job)))]


def _hosts(job: ClusterJob) -> list[str]:
    """The hosts without their numbers of slots, which MPICH writes as host:slots."""
    return [host.partition(":")[0] if host.count(":") == 1 else host for host in host_list(job.settings)]


def _first_host(job: ClusterJob, implementation: str) -> str:
    """The host on which mpirun starts node 0 if no hosts are given: the first of the allocation, else this one."""
    count = "-np" if implementation == OPEN_MPI else "-n"
    asked = ["mpirun", count, "1", *job.arguments, "hostname"]
    done = subprocess.run(asked, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    words = done.stdout.split()
    if done.returncode or not words:
        reason = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        raise ConfigError(
            f"`{shlex.join(asked)}` failed: {reason}; correct the allocation of MPI, or give --hosts"
        )
    return words[-1]
