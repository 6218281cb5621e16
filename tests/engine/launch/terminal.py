"""A command on a real pseudo-terminal, and what a user sees on it."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyte


class Terminal:
    """Runs a command as the foreground job of a terminal of its own."""

    def __init__(
        self, command: list[str], cwd: Path, environ: Mapping[str, str], columns: int = 90, rows: int = 40
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=1.0)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.raw = b""
        self._master, slave = pty.openpty()
        self._set_size(columns, rows)
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**environ, "TERM": environ.get("TERM", "xterm-256color")},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  (it takes no lock)
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the last process has closed the terminal
            while data := os.read(self._master, 1 << 16):
                with self._lock:
                    self.raw += data
                    self._stream.feed(data)

    def resize(self, columns: int, rows: int) -> None:
        with self._lock:
            self._set_size(columns, rows)
            self._screen.resize(rows, columns)

    def text(self) -> str:
        """Everything on the screen, without trailing spaces."""
        with self._lock:
            lines = [line.rstrip() for line in self._screen.display]
        return "\n".join(lines).rstrip()

    def wait_for(self, condition: Callable[[str], object], timeout_s: float = 60.0) -> str:
        """The screen, as soon as it fulfils a condition."""
        until = time.monotonic() + timeout_s
        while not condition(text := self.text()):
            assert time.monotonic() < until, f"the screen shows:\n{text}"
            time.sleep(0.02)
        return text

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def end(self, timeout_s: float = 60.0) -> tuple[int, str]:
        """The exit code and the final screen."""
        code = self.process.wait(timeout_s)
        until = time.monotonic() + 10
        while select.select([self._master], [], [], 0.1)[0] and self._reader.is_alive():
            assert time.monotonic() < until, "a process still writes"
        return code, self.text()

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
            self.process.wait(30)
        self._reader.join(10)
        os.close(self._master)
