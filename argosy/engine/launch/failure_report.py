"""The failure report of a job: which process failed first, how it ended, what it raised, the end of its log.

A process that failed only because another one was lost, or did not join, blames that one in its error file. The
launcher follows the blame to the root cause, also if that process exited with 0 or still runs.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from argosy.engine.launch import logs
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger
from argosy.engine.launch.rank_env import ProcessSpec

_LINES = 20
_HINTS: dict[int, str] = {
    signal.SIGKILL: "killed from outside, often the kernel for lack of memory; see dmesg",
    signal.SIGSEGV: "a crash in native code; PYTHONFAULTHANDLER=1 shows the Python line",
    signal.SIGBUS: "often /dev/shm is full; see df /dev/shm",
    signal.SIGTERM: "terminated from outside, not by fleetrun",
}
_EARLY_SERVER = (
    "it exited while workers still ran; a server must stay in fleet.run_server() until it is terminated"
)
_CONNECTIONS = (
    *("CollectiveError", "PeerLostError", "DeadlineError", "DistNetworkError", "DistBackendError"),
    *("ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "TimeoutError"),
    "gaierror",
)
"""Exceptions of a lost connection or of a timeout."""
_SHARED_MEMORY = ("shared memory", "/dev/shm", "bus error", "no space left on device")
"""In messages about shared memory that cannot be allocated, as torch's DataLoader writes them."""
_DOCTOR = "  to check hosts, links and shared memory: fleetrun --doctor, with the --ips or --on of the job"
STOPPED = "is stopped"
_STATES = {
    "left": "has left the job without error",
    "failed": "has failed",
    "lost": "has lost its connections",
    "unresponsive": "runs, but sends no heartbeat",
    "late": "is alive, but did not join the others",
}
"""The state of a process that still runs, as reported by the others."""


@dataclass(frozen=True)
class ErrorRecord:
    """The exception that ended a process."""

    type: str
    """With its module, unless that is builtins or the script."""
    message: str
    where: str
    """The innermost line of the user's code."""
    traceback: str
    exit_code: int
    """Negative: the number of a signal."""
    pid: int
    time: float
    """By time.time()."""
    step: int | None
    """Steps that the rank had finished; None if unknown."""
    ranks: tuple[int, ...] = ()
    """The ranks that it blames: they were lost, or did not join."""
    state: str = ""
    """The state of those ranks, as far as it is known: left, failed, lost, unresponsive or late."""

    @property
    def what(self) -> str:
        """Type and first line of the message."""
        first = self.message.partition("\n")[0]
        return f"{self.type}: {first}" if first else self.type


def read_error(path: str) -> ErrorRecord | None:
    """Read the record of a process; None if there is no readable file."""
    try:
        with open(path) as file:
            fields = json.load(file)
        return ErrorRecord(**fields | {"ranks": tuple(fields["ranks"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as e:
        logger.warning("cannot read the error file %s (%s); see the log of that process", path, e)
        return None


@dataclass(frozen=True)
class ProcessExit:
    """How a process ended, or that it has not."""

    spec: ProcessSpec
    pid: int
    code: int | None
    """None: it still runs."""
    log: str
    error: ErrorRecord | None = None
    """The error file that it has written, if any."""
    at: float = 0.0
    """When it failed, by time.time()."""
    state: str = ""
    """The state of a process that still runs."""

    @property
    def blamed(self) -> tuple[int, ...]:
        """The ranks that it has lost, or that did not join."""
        return () if self.error is None else self.error.ranks

    @property
    def hint(self) -> str:
        """The usual reason for such an exit code."""
        if self.spec.role == "server" and self.code == 0:
            return _EARLY_SERVER
        code = self.code or 0
        number = code - 128 if code > 128 else -code  # 137: SIGKILL, reported by a shell in between
        return _HINTS.get(number, "")

    @property
    def described(self) -> str:
        """`ended with exit code 1`, `is stopped`."""
        return self.state if self.code is None else f"ended with {self}"

    def __str__(self) -> str:
        if self.code is None:
            return self.state
        if self.code >= 0:
            return f"exit code {self.code}"
        return (
            signal.Signals(-self.code).name if -self.code in list(signal.Signals) else f"signal {-self.code}"
        )


@dataclass(frozen=True)
class Cause:
    """The root cause of a failure."""

    exit: ProcessExit
    victim: ProcessExit | None = None
    """The first process that blames it, if it has not failed by itself."""
    remote: tuple[int, ...] = ()
    """The ranks of other hosts that it blames."""

    @property
    def is_certain(self) -> bool:
        """False while the blamed process may still exit and write an error file."""
        if self.victim is None or self.exit.code is not None:
            return True
        assert self.victim.error is not None, "it blames another"
        return self.victim.error.state in ("left", "unresponsive", "late")


def cause(failures: Sequence[ProcessExit], others: Sequence[ProcessExit] = ()) -> Cause:
    """The first process that failed by itself; else the one at the end of the chain of blame.

    `others`: the processes of this host that have not failed, exited ones first.
    """
    in_order = sorted(failures, key=lambda f: f.at)
    if independent := [f for f in in_order if not f.blamed]:
        return Cause(independent[0])
    victim, seen = in_order[0], {in_order[0].spec}
    while True:
        assert victim.error is not None, "it blames another"
        blamed = [e for e in (*others, *in_order) if _is_blamed(victim, e) and e.spec not in seen]
        if not blamed:  # it is on another host, or they blame each other
            local = {e.spec.rank for e in (*others, *in_order)}
            return Cause(victim, remote=tuple(rank for rank in victim.blamed if rank not in local))
        if blamed[0] in others:
            state = blamed[0].state or _STATES.get(victim.error.state, "")
            return Cause(replace(blamed[0], state=state), victim)
        victim = blamed[0]
        seen.add(victim.spec)


def _is_blamed(victim: ProcessExit, other: ProcessExit) -> bool:
    return other.spec.rank in victim.blamed and other.spec.role == victim.spec.role


def text(
    failures: Sequence[ProcessExit],
    size: int,
    terminated: Sequence[ProcessSpec],
    others: Sequence[ProcessExit] = (),
) -> str:
    """The report. `size`: the number of processes with the role of the cause; `terminated`: those fleetrun ends."""
    root = cause(failures, others)
    first = root.exit
    number = f", first of {len(failures)} failures" if len(failures) > 1 and root.victim is None else ""
    out = [
        f"{first.spec.role.capitalize()}Failed: {first.spec.name} of {size} on {socket.gethostname()} "
        f"{first.described} (pid {first.pid}){number}; log: {first.log}"
    ]
    out += _explanation(root)
    out += _log_tail(first)
    out += [_also(f, first) for f in failures if f is not first]
    if terminated:
        out.append(f"  terminated by fleetrun for that reason: {names(terminated)}")
    if _may_be_the_host(root):
        out.append(_DOCTOR)
    return "\n".join(out)


def is_reported(config: Configuration, failures: Sequence[ProcessExit]) -> bool:
    """True if the ranks have printed the failure themselves: those of --doctor, which exit with 1 then."""
    return config.doctor and all(
        f.error is not None and (f.error.type, f.error.exit_code) == ("SystemExit", 1) for f in failures
    )


def _may_be_the_host(root: Cause) -> bool:
    """True for bus errors, timeouts, lost connections and a lack of shared memory; not if a rank failed otherwise."""
    first = root.exit
    if first.code in (-signal.SIGBUS, 128 + signal.SIGBUS):
        return True
    error = first.error or (root.victim.error if root.victim is not None else None)
    if error is None or first.code == 0 or error.state in ("left", "failed"):
        return False
    is_connection = error.type.rpartition(".")[2] in _CONNECTIONS
    return is_connection or any(words in error.message.lower() for words in _SHARED_MEMORY)


def _explanation(root: Cause) -> list[str]:
    first, victim = root.exit, root.victim
    out = [f"  {first.hint}"] if first.hint else []
    if victim is not None and victim.error is not None:
        out.append(f"  {victim.spec.name} was waiting for it: {victim.error.what}")
    if first.error is not None:
        out += [f"  raised: {first.error.what}", f"  at:     {first.error.where}"]
        out += [f"  after:  {first.error.step} steps"] if first.error.step else []
    if root.remote:
        lost = names([replace(first.spec, rank=rank) for rank in root.remote])
        out.append(f"  it needed {lost}, on another host: the cause is in the logs there")
    return out


def _log_tail(first: ProcessExit) -> list[str]:
    """The end of its log; and the traceback, if the log does not have it."""
    tail = logs.last_lines(first.log, _LINES)
    out = ["  the end of its log:" if tail else "  its log is empty", *(f"    | {line}" for line in tail)]
    if first.error is not None and first.error.type != "SystemExit":
        lines = first.error.traceback.splitlines()
        if lines and lines[-1] not in tail:
            out += ["  its traceback:", *(f"    | {line}" for line in lines[-_LINES:])]
    if logs.disk_is_full(first.log):
        out.append(
            "  the disk of the logs is full, they are incomplete; free some space, or choose another --log_dir"
        )
    return out


def _also(other: ProcessExit, first: ProcessExit) -> str:
    what = f": {other.error.what}" if other.error else ""
    if other.error and first.error and other.error.what == first.error.what:
        what = ": the same"
    return f"  also: {other.spec.name} ended with {other} (pid {other.pid}){what}; log: {other.log}"


def names(specs: Sequence[ProcessSpec]) -> str:
    """`ranks 0, 2`, or `server 1, workers 0, 2`."""
    by_role = {
        role: [str(s.rank) for s in specs if s.role == role] for role in sorted({s.role for s in specs})
    }
    return ", ".join(
        f"{role}{'s' * (len(numbers) > 1)} {', '.join(numbers)}" for role, numbers in by_role.items()
    )
