"""Copy the logs of processes to the console while they grow, with a prefix that names the process."""

# SPDX-License-Identifier: Apache-2.0
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from argosy.engine.launch.console import logger, write_output

_PAUSE_S = 0.05


@dataclass
class _TeedFile:
    fd: int
    prefix: bytes
    whole_lines: bool
    """Buffer incomplete lines, so that lines of several ranks do not mix."""
    incomplete: bytes = b""

    def read(self) -> bytes:
        """The new output that may be printed."""
        data = os.read(self.fd, 1 << 16)
        if not self.whole_lines:
            return data
        text = self.incomplete + data
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self.incomplete = text[end:]
        return self._prefixed(text[:end])

    def rest(self) -> bytes:
        """A last line without a newline."""
        line, self.incomplete = self.incomplete, b""
        return self._prefixed(line + b"\n") if line else b""

    def _prefixed(self, text: bytes) -> bytes:
        return (
            b"".join(self.prefix + line for line in text.splitlines(keepends=True)) if self.prefix else text
        )


class Tee:
    """A thread that copies logs to stdout until `finish`; it never blocks the ranks."""

    def __init__(self, paths: Sequence[tuple[str, str]]) -> None:
        """`paths`: prefix and log of each process to copy."""
        self._several = len(paths) > 1
        self._tails: list[_TeedFile] = []
        for prefix, path in paths:
            self.add(prefix, path)
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tee", daemon=True)
        self._thread.start()

    def add(self, prefix: str, path: str) -> None:
        """Copy this log, too: a process was restarted and writes to a new file."""
        self._tails.append(_TeedFile(os.open(path, os.O_RDONLY), prefix.encode(), self._several))

    def finish(self, timeout_s: float) -> bool:
        """The ranks have exited: copy the rest; returns True once all is copied, False after the timeout."""
        self._finishing.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._copy()
        except OSError as e:
            logger.warning(
                "stdout is closed (%s); the job continues, its output is in the log directory", e.strerror
            )
        finally:
            for tail in self._tails:
                os.close(tail.fd)

    def _copy(self) -> None:
        while True:
            last = self._finishing.is_set()
            has_new = False
            for tail in self._tails:
                before = os.lseek(tail.fd, 0, os.SEEK_CUR)
                write_output(tail.read())
                has_new |= os.lseek(tail.fd, 0, os.SEEK_CUR) > before
            if last and not has_new:
                break
            if not has_new:
                self._finishing.wait(_PAUSE_S)
        for tail in self._tails:
            write_output(tail.rest())
