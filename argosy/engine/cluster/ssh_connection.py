"""One ssh process: its lines go to a queue, its exit code and its messages become a reason."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Mapping

from argosy.engine.launch.signals import PREEMPT

STARTED = "argosy-launcher-starts"
"""What the host prints when the connection is open and the launcher starts; not shown."""
_SSH_FAILED = 255
_HINTS = (
    ("Host key verification failed", "its key is unknown, or another one; connect once by hand: ssh {host}"),
    (
        "Permission denied",
        "it accepts none of your keys; install one (ssh-copy-id {host}) or load it (ssh-add)",
    ),
    ("Could not resolve", "the name is unknown here; correct --hosts, or add it to ~/.ssh/config"),
    ("Connection refused", "no sshd listens there; start it, or set its Port in ~/.ssh/config"),
    ("No route", "the host is down or not reachable from here"),
    ("unreachable", "the host is down or not reachable from here"),
    ("timed out", "the host is down, or a firewall drops the connection"),
)
_MOST_LINES = 20

Event = tuple[int, str | None]
"""The number of the connection, and a line of its output, or None at the end."""


class SshConnection:
    """A running ssh to one host."""

    def __init__(
        self,
        number: int,
        host: str,
        command: list[str],
        environ: Mapping[str, str],
        events: "queue.SimpleQueue[Event]",
    ) -> None:
        self.number, self.host = number, host
        self.has_started = False
        """True once the launcher starts on the host."""
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        threading.Thread(target=self._read, args=(events,), name=f"ssh {host}", daemon=True).start()
        self._send(environ)

    def _send(self, environ: Mapping[str, str]) -> None:
        """The variables, one per line, and an empty line; standard input stays open."""
        assert self._process.stdin is not None, "a pipe"
        text = "".join(f"{name}={value}\n" for name, value in environ.items()) + "\n"
        with contextlib.suppress(BrokenPipeError):  # ssh has failed: its exit code says so
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()

    def _read(self, events: "queue.SimpleQueue[Event]") -> None:
        assert self._process.stdout is not None, "a pipe"
        with self._process.stdout as output:
            for line in output:
                events.put((self.number, line.decode(errors="replace").rstrip("\r\n")))
        events.put((self.number, None))

    def records(self, line: str) -> bool:
        """Take note of a line of output; False if it is not for the user."""
        if line == STARTED:
            self.has_started = True
            return False
        self._lines.append(line)
        return True

    def finish(self) -> int:
        """Wait for ssh, which has closed its output; its exit code."""
        code = self._process.wait()
        self.close()
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Close standard input: the launcher ends its processes, then itself."""
        assert self._process.stdin is not None, "a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def preempt(self) -> None:
        """Let the launcher handle SIGTERM: with --grace, the job saves a checkpoint."""
        assert self._process.stdin is not None, "a pipe"
        with contextlib.suppress(BrokenPipeError, ValueError):  # ssh has ended, or it is closed
            self._process.stdin.write(PREEMPT + b"\n")
            self._process.stdin.flush()

    def wait(self, timeout_s: float) -> None:
        """Wait so long for ssh to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, timeout_s))

    def kill(self) -> None:
        """End ssh itself; the launcher sees the end of its standard input, unless the network is down."""
        self._process.kill()
        self._process.wait()

    def reason(self) -> str:
        """Why this host has failed, and what to do about it."""
        code = self.finish()
        last = self._lines[-1].rstrip(".") if self._lines else "no message"
        if code != _SSH_FAILED:
            return f"host {self.host}: exit code {code}" + ("" if self.has_started else f" ({last})")
        if self.has_started:
            return f"host {self.host}: the connection was lost ({last})"
        hints = [hint.format(host=self.host) for text, hint in _HINTS if text in last]
        advice = hints[0] if hints else f"try by hand: ssh -o BatchMode=yes {self.host} true"
        return f"host {self.host}: ssh failed: {last}; {advice}"
