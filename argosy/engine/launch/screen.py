"""A terminal with a block of lines at the bottom that is redrawn; the output of scripts scrolls above it.

    epoch 1: loss 0.5                  output, as it was written
    epoch 2:  30 %|███                 an incomplete line of the output, or a progress bar
    ── train.py ─────────────          the block
    2 ranks up · 12 s                  the cursor is below it: after a crash the terminal is usable

Before anything is written, the block and the incomplete line are erased, and drawn again below it, in one write. The
output itself is not changed. While the launcher is in the background of its terminal, there is no block.
"""

# SPDX-License-Identifier: Apache-2.0
import functools
import io
import os
import re
import threading
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from argosy.engine.metrics.summary import Line

_STYLES = {"good": "green", "warning": "yellow", "bad": "bold red"}
_MAX_INCOMPLETE = 1 << 16
_MIN_ROWS = 4
"""A terminal with fewer rows has no block."""
_CLOSE_S = 2.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b[^\[]|[\x00-\x08\x0b\x0c\x0e-\x1a]")
"""Escape sequences but those of colours, and control characters."""


class Screen:
    """A terminal that several threads write to; raises OSError if it is closed."""

    def __init__(self, descriptor: int, job_control: int | None = None, no_color: bool = False) -> None:
        """`job_control`: a process whose terminal this is: no block is drawn while it is in the background."""
        self._fd, self._job_control, self._no_color = descriptor, job_control, no_color
        self._lock = threading.RLock()
        self._block: list[str] = []
        self._drawn: list[int] = []
        """The widths of the rows that are erased before the next write: the incomplete line, the block."""
        self._incomplete = b""
        """The output since the last newline."""
        self._last: tuple[int, int, list[str]] = (0, 0, [])
        """Size and block of the last `show`."""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            columns, rows = os.get_terminal_size(self._fd)
        except OSError:
            columns, rows = 0, 0
        return columns or 80, rows or 24

    def output(self, data: bytes) -> None:
        """Write output of a script; it may end within a line."""
        if not data:
            return
        with self._lock:
            self._forget_in_background()
            if not self._drawn:
                self._incomplete = _after_newline(self._incomplete + data)
                self._write(data)
                return
            text = self._incomplete + data
            end = text.rfind(b"\n") + 1
            self._incomplete = text[end:][-_MAX_INCOMPLETE:]
            self._write(self._erased() + text[:end] + self._frame())

    def lines(self, text: str) -> None:
        """Write lines of the launcher, above an incomplete line of the output."""
        with self._lock:
            data = text.encode(errors="replace")
            self._forget_in_background()
            if self._drawn:
                self._write(self._erased() + data + self._frame())
            else:
                self._write((b"\n" if self._incomplete else b"") + data)
                self._incomplete = b""

    def show(self, lines: Sequence[Line], title: str = "") -> None:
        """Replace the block; one without lines disappears."""
        columns, rows = self.size
        if lines and rows >= _MIN_ROWS:
            block = self.rendered([*([title] if title else []), *lines], columns)[: rows - 2]
        else:
            block = []
        with self._lock:
            if self._forget_in_background() or (columns, rows, block) == self._last:
                return
            self._last = (columns, rows, block)
            self._block = block
            if self._drawn:
                self._write(self._erased() + self._frame())
            elif block:
                self._write(self._erased_output(columns) + self._frame())

    def hide(self) -> None:
        """Erase the block until the next `show`."""
        self.show([])

    def close(self) -> None:
        """Erase the block; a terminal that does not accept output (Ctrl-S) is left as it is."""
        if self._lock.acquire(timeout=_CLOSE_S):
            try:
                self.hide()
            finally:
                self._lock.release()

    def rendered(self, lines: Sequence[Line | str], columns: int) -> list[str]:
        """Lines with escape sequences, cut to the width; a str is the title of a rule."""
        texts = [_rule(line, columns) if isinstance(line, str) else _text(line) for line in lines]
        return [self._rendered(text, columns) for text in texts]

    def _rendered(self, text: Text, columns: int) -> str:
        text.truncate(max(1, columns - 1), overflow="ellipsis")
        with self._console.capture() as capture:
            self._console.print(text, end="", no_wrap=True, overflow="ignore", crop=False, highlight=False)
        return capture.get()

    @functools.cached_property
    def _console(self) -> Console:
        """Renders single lines, which are cut already."""
        return Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system=None if self._no_color else "standard",
            width=10_000,
            height=10,
            legacy_windows=False,
            _environ={},
        )

    def _forget_in_background(self) -> bool:
        """True in the background; what was drawn is not erased then: a shell has written below it."""
        if self._job_control is None or not is_background(self._job_control):
            return False
        self._block, self._drawn, self._incomplete, self._last = [], [], b"", (0, 0, [])
        return True

    def _erased(self) -> bytes:
        """What erases the rows that were drawn; rows that are wider than a narrowed terminal wrap around."""
        columns, _ = self.size
        rows = sum(max(1, -(-width // columns)) for width in self._drawn)
        return f"\r\x1b[{rows}A\x1b[J".encode() if rows else b""

    def _erased_output(self, columns: int) -> bytes:
        """What erases the incomplete line, which was written as it is."""
        if not self._incomplete:
            return b""
        rows = max(1, -(-self._shown_incomplete(1 << 16).cell_len // columns))
        return b"\r" + (f"\x1b[{rows - 1}A".encode() if rows > 1 else b"") + b"\x1b[J"

    def _frame(self) -> bytes:
        """The incomplete line and the block; sets what `_erased` erases."""
        if not self._block:
            self._drawn = []
            return self._incomplete
        columns, _ = self.size
        shown = list(self._block)
        if self._incomplete:
            shown.insert(0, self._rendered(self._shown_incomplete(columns), columns))
        self._drawn = [Text.from_ansi(line).cell_len for line in shown]
        return "".join(f"{line}\n" for line in shown).encode(errors="replace")

    def _shown_incomplete(self, columns: int) -> Text:
        """What a terminal shows of the incomplete line: the text after its last carriage return."""
        parts = [part for part in self._incomplete.split(b"\r") if part]
        last = parts[-1].decode(errors="ignore") if parts else ""
        text = Text.from_ansi(_CONTROL.sub("", last))
        text.expand_tabs(8)
        text.truncate(columns)
        return text

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]


def _after_newline(text: bytes) -> bytes:
    return text[text.rfind(b"\n") + 1 :][-_MAX_INCOMPLETE:]


def _text(line: Line) -> Text:
    text = Text()
    for number, fact in enumerate(line):
        if number:
            text.append(" · ", "dim")
        text.append(fact.text, _STYLES.get(fact.style, fact.style))
    return text


def _rule(title: str, columns: int) -> Text:
    return Text(f"── {title} {'─' * columns}"[: max(1, min(columns - 1, 78))], "dim")


def is_background(pid: int) -> bool:
    """True if a process has a terminal of which another process group is in the foreground, or is stopped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, group, _, _, foreground = file.read().rpartition(b")")[2].split()[:6]
    except (OSError, ValueError):
        return False
    return state in (b"T", b"t") or (int(foreground) > 0 and foreground != group)
