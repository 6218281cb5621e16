"""Say why a job failed: which process was first, how it ended, what it raised, the end of its log."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from argosy.engine.launch import logs
from argosy.engine.launch.layout import Rank

_LINES = 20
_FRAME = re.compile(r'\s+File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_NOT_THE_USERS = ("site-packages", "dist-packages", "<frozen", "<string>", "<argosy", f"lib{os.sep}python")
_ARGOSY = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_HINTS: dict[int, str] = {
    signal.SIGKILL: "killed from outside, often the kernel for lack of memory; see dmesg",
    signal.SIGSEGV: "a crash in native code; PYTHONFAULTHANDLER=1 shows the Python line",
    signal.SIGBUS: "often /dev/shm is full; see df /dev/shm",
    signal.SIGTERM: "ended from outside, not by fleetrun",
}
_EARLY_SERVER = (
    "it ended by itself while workers still ran; a server stays in fleet.run_server() until it is told to end"
)


@dataclass(frozen=True)
class Raised:
    """The last traceback of a log."""

    what: str
    where: str

    @property
    def is_consequence(self) -> bool:
        """True if the rank only noticed that another one had gone."""
        return self._kind == "PeerLostError"

    @property
    def blames_another(self) -> bool:
        """True if it is about another rank: lost, late, stopped or out of data."""
        return self._kind in ("PeerLostError", "CollectiveError")

    @property
    def _kind(self) -> str:
        return self.what.partition(":")[0].rpartition(".")[2]


@dataclass(frozen=True)
class Death:
    """How a process ended."""

    rank: Rank
    pid: int
    code: int
    log: str
    raised: Raised | None

    @property
    def is_consequence(self) -> bool:
        return self.raised is not None and self.raised.is_consequence

    @property
    def hint(self) -> str:
        """What such an end often means."""
        if self.rank.role == "server" and self.code == 0:
            return _EARLY_SERVER
        number = self.code - 128 if self.code > 128 else -self.code  # 137: a shell in between saw SIGKILL
        return _HINTS.get(number, "")

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exit code {self.code}"
        return (
            signal.Signals(-self.code).name if -self.code in list(signal.Signals) else f"signal {-self.code}"
        )


def last_traceback(log: str) -> Raised | None:
    """The exception that a Python process printed last, and the innermost line of the user's code."""
    lines = logs.last_lines(log, count=2000)
    starts = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if not starts:  # an error in the script's own syntax comes without that line
        starts = [i - 1 for i, line in enumerate(lines) if _FRAME.fullmatch(line) and ", in " not in line][
            -1:
        ]
    if not starts:
        return None
    after = lines[starts[-1] + 1 :]
    end = next((i for i, line in enumerate(after) if line and not line[0].isspace()), None)
    if end is None:
        return None
    frames = [m for m in map(_FRAME.fullmatch, after[:end]) if m]
    users = [m for m in frames if not any(part in m["file"] for part in _NOT_THE_USERS)]
    users = [m for m in users if not m["file"].startswith(_ARGOSY)]
    inner = (users or frames)[-1:]
    where = "".join(
        f"{m['file']}:{m['line']}" + (f", in {m['function']}" if m["function"] else "") for m in inner
    )
    return Raised(after[end], where)


def cause(failures: Sequence[Death]) -> Death:
    """The first that died of itself, rather than of another's death; of two that died so, the first."""
    own = [d for d in failures if d.raised is None or not d.raised.blames_another]
    return (own or [d for d in failures if not d.is_consequence] or failures)[0]


def text(failures: Sequence[Death], size: int, ended_by_us: Sequence[Rank]) -> str:
    """The whole report; `failures` in the order in which they happened, `size` is that of the cause's kind."""
    first = cause(failures)
    number = f", first of {len(failures)} failures" if len(failures) > 1 else ""
    out = [
        f"{first.rank.role.capitalize()}Failed: {first.rank.name} of {size} on {socket.gethostname()} "
        f"ended with {first} "
        f"(pid {first.pid}){number}; log: {first.log}"
    ]
    if first.hint:
        out.append(f"  {first.hint}")
    if first.raised:
        out += [f"  raised: {first.raised.what}", f"  at:     {first.raised.where}"]
    if first.is_consequence:
        out.append("  it lost a rank that this host did not start: the cause is in the logs of another host")
    tail = logs.last_lines(first.log, _LINES)
    out.append("  the end of its log:" if tail else "  its log is empty")
    out += [f"    | {line}" for line in tail]
    for death in failures:
        if death is not first:
            what = f": {death.raised.what}" if death.raised else ""
            what = (
                ": the same"
                if death.raised and first.raised and death.raised.what == first.raised.what
                else what
            )
            out.append(
                f"  also: {death.rank.name} ended with {death} (pid {death.pid}){what}; log: {death.log}"
            )
    if ended_by_us:
        out.append(f"  ended by fleetrun for that reason: {names(ended_by_us)}")
    return "\n".join(out)


def names(ranks: Sequence[Rank]) -> str:
    """`ranks 0, 2`, or `server 1, workers 0, 2`."""
    kinds = {role: [str(r.rank) for r in ranks if r.role == role] for role in sorted({r.role for r in ranks})}
    return ", ".join(f"{role}{'s' * (len(found) > 1)} {', '.join(found)}" for role, found in kinds.items())
