"""Show on the console what processes write to their logs, with a prefix where it is not clear whose it is."""

# SPDX-License-Identifier: Apache-2.0
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from argosy.engine.launch.say import logger

_PAUSE_S = 0.05


@dataclass
class _Tail:
    fd: int
    prefix: bytes
    whole_lines: bool
    """Hold back the beginning of a line, so that lines of several ranks do not mix."""
    held: bytes = b""

    def read(self) -> bytes:
        """What is new and may be shown."""
        data = os.read(self.fd, 1 << 16)
        if not self.whole_lines:
            return data
        text = self.held + data
        cut = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self.held = text[cut:]
        return self._prefixed(text[:cut])

    def rest(self) -> bytes:
        """A last line without an end."""
        held, self.held = self.held, b""
        return self._prefixed(held + b"\n") if held else b""

    def _prefixed(self, text: bytes) -> bytes:
        return (
            b"".join(self.prefix + line for line in text.splitlines(keepends=True)) if self.prefix else text
        )


class Mirror:
    """A thread that copies logs to stdout until `finish`; the ranks never wait for it."""

    def __init__(self, paths: Sequence[tuple[str, str]]) -> None:
        """`paths`: prefix and log of each process to show."""
        self._several = len(paths) > 1
        self._tails: list[_Tail] = []
        for prefix, path in paths:
            self.add(prefix, path)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    def add(self, prefix: str, path: str) -> None:
        """Show this log, too: a process was started anew and writes to a new file."""
        self._tails.append(_Tail(os.open(path, os.O_RDONLY), prefix.encode(), self._several))

    def finish(self, timeout_s: float) -> bool:
        """The ranks have ended: show what is left; True as soon as all is shown."""
        self._ended.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._copy()
        except OSError as e:
            logger.warning(
                "stdout is gone (%s); the job goes on, its output is in the log directory", e.strerror
            )
        finally:
            for tail in self._tails:
                os.close(tail.fd)

    def _copy(self) -> None:
        while True:
            last = self._ended.is_set()
            found = False
            for tail in self._tails:
                before = os.lseek(tail.fd, 0, os.SEEK_CUR)
                _write(tail.read())
                found |= os.lseek(tail.fd, 0, os.SEEK_CUR) > before
            if last and not found:
                break
            if not found:
                self._ended.wait(_PAUSE_S)
        for tail in self._tails:
            _write(tail.rest())


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
