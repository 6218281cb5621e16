"""A Slurm cluster in the lab (benchmarks/lab): munged, slurmctld and one slurmd per host, each in its namespace.

    host 0  login: munged, slurmctld, sbatch, fleetrun        host 1  n0: slurmd        host 2  n1: slurmd

Every host has its own host name, and a hosts file with the names of all.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from lab import Lab  # noqa: E402  (a folder of scripts)

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "nsenter", "unshare")
NODES = ("n0", "n1")
WAIT_S = 120.0
_SETTINGS = """\
ClusterName=lab
SlurmctldHost=login({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
MinJobAge=300
SlurmdTimeout=300
KillWait=60
InactiveLimit=0
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why no cluster can be started here; empty if it can."""
    if os.geteuid() != 0:
        return "namespaces and Slurm's daemons need root"
    absent = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    return f"not installed: {', '.join(absent)} (packages slurm-wlm and munge)" if absent else ""


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class SlurmCluster:
    """A controller and two nodes of two cores; a context manager."""

    def __init__(self) -> None:
        # munged demands that all users can reach its socket: not a directory of pytest.
        self.folder = Path(tempfile.mkdtemp(prefix="argosy-slurm-"))
        self.folder.chmod(0o755)
        self.lab = Lab(len(NODES) + 1, rate=None)
        self.environ = {**os.environ, "PATH": _path(), "SLURM_CONF": str(self.folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "SlurmCluster":
        self.lab.__enter__()
        try:
            self._configure()
            self._start("login", "munged", "-F", *self._munge_options())
            self.wait((self.folder / "munge.sock").exists, "munged")
            self._start("login", "slurmctld", "-D", "-c")
            for node in NODES:
                self.start_node(node)
            self.wait(lambda: self.node_states() == {"idle"}, "idle nodes")
        except BaseException as e:
            self.__exit__(type(e), e, e.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.lab.__exit__(kind, error, at)  # ends all processes in the namespaces
        for daemon in self._daemons:
            daemon.wait()
        shutil.rmtree(self.folder)

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node; also again, after `kill_node`."""
        (self.folder / "spool" / node).mkdir(parents=True, exist_ok=True)
        self._start(node, "slurmd", "-D", "-N", node)

    def run(
        self, *command: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login host."""
        with self.popen(*command, environ=environ, cwd=cwd) as process:
            out, err = process.communicate(timeout=3 * WAIT_S)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def popen(
        self, *command: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start a command on the login host."""
        return subprocess.Popen(
            self.inside("login", command),
            env={**self.environ, **(environ or {})},
            cwd=cwd or self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def slurm(self, *command: str) -> str:
        """Run a command of Slurm, which must succeed; returns its output."""
        done = self.run(*command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def node_states(self) -> set[str]:
        done = self.run("sinfo", "--noheader", "--Node", "--format=%T")
        return set(done.stdout.split()) if done.returncode == 0 else set()

    def start_requeued(self, job_id: str, *changes: str) -> None:
        """Let a requeued job start soon, and not after Slurm's delay; its nodes must have ended the run before.

        Not at once: a slurmd that has ended a job rejects credentials of the same second as revoked, and Slurm then
        fails the job.
        """
        self.wait(lambda: self.node_states() == {"idle"}, "idle nodes")
        self.slurm("scontrol", "update", f"JobId={job_id}", "StartTime=now+2", *changes)

    def job(self, job_id: str) -> dict[str, str]:
        """The fields of `scontrol show job`."""
        text = self.slurm("scontrol", "--oneliner", "show", "job", job_id)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def processes(self, node: str) -> dict[int, str]:
        """The processes of jobs on a node: pids and command lines; Slurm's daemons are not among them."""
        from lab import namespaces

        commands = {}
        for pid in namespaces.processes([self._namespace(node)]):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if text and not text.startswith(("slurmd -D", "slurmctld -D", "munged -F")):
                    commands[pid] = text
        return commands

    def kill_node(self, node: str) -> None:
        """Kill all processes of a node at once, as a power failure does."""
        from lab import namespaces

        while pids := namespaces.processes([self._namespace(node)]):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def wait(self, is_reached: Callable[[], bool], what: str) -> None:
        """Poll a condition."""
        deadline = time.monotonic() + WAIT_S
        while not is_reached():
            assert time.monotonic() < deadline, f"no {what} within {WAIT_S:g} s{self._messages()}"
            time.sleep(0.05)

    def _messages(self) -> str:
        """The last lines of all daemons."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("*.out")]
        return "".join(f"\n{path.name}: {path.read_text()[-2000:]}" for path in files)

    @contextlib.contextmanager
    def kill_wait(self, seconds: int) -> Iterator[None]:
        """For the sruns that start inside: how long they wait for a step that they have ended."""
        path = self.folder / "slurm.conf"
        before = path.read_text()
        path.write_text(re.sub("KillWait=.*", f"KillWait={seconds}", before))
        try:
            yield
        finally:
            path.write_text(before)

    def _configure(self) -> None:
        names = ("login", *NODES)
        lines = [f"{address} {name}" for name, address in zip(names, self.lab.addresses, strict=True)]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        nodes = [
            f"NodeName={name} NodeAddr={address} CPUs=2 State=UNKNOWN"
            for name, address in zip(NODES, self.lab.addresses[1:], strict=True)
        ]
        text = _SETTINGS.format(address=self.lab.addresses[0], folder=self.folder, nodes="\n".join(nodes))
        (self.folder / "slurm.conf").write_text(text)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        (self.folder / "state").mkdir()

    def _munge_options(self) -> Sequence[str]:
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid"}
        files |= {"log-file": "munged.log", "seed-file": "munged.seed"}
        return [f"--{option}={self.folder / name}" for option, name in files.items()]

    def _start(self, host: str, *command: str) -> None:
        with open(self.folder / f"{command[0]}-{host}.out", "ab") as out:
            self._daemons.append(
                subprocess.Popen(
                    self.inside(host, command),
                    env=self.environ,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                )
            )

    def inside(self, host: str, command: Sequence[str]) -> list[str]:
        """The command on a host: its network, its name and the hosts file.

        Not `ip netns exec`, which mounts another /sys, in which slurmd finds no cgroups.
        """
        enter = [
            "nsenter",
            f"--net=/run/netns/{self._namespace(host)}",
            "unshare",
            "--uts",
            "--mount",
            "sh",
            "-c",
        ]
        hosts = shlex.quote(str(self.folder / "hosts"))
        return [*enter, f'hostname {host} && mount --bind {hosts} /etc/hosts && exec "$@"', "sh", *command]

    def _namespace(self, host: str) -> str:
        return self.lab.names[("login", *NODES).index(host)]
