"""Output of the launcher: log lines in the format of Argosy's log, but always from INFO on, and also in fleetrun.log.

While a live block is shown (screen.py), everything that goes to the terminal goes through its Screen.
If they cannot be written (full disk, closed pipe), the job continues without them.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TextIO

from argosy.engine import log
from argosy.engine.metrics.summary import Line

logger = log.logger.getChild("launch")
logger.setLevel(logging.INFO)  # Paddle's launcher always shows these, whatever ARGOSY_LOG is


_is_quiet = False


class ScreenLike(Protocol):
    """screen.Screen, which imports rich."""

    def output(self, data: bytes) -> None: ...
    def lines(self, text: str) -> None: ...
    def show(self, lines: Sequence[Line], title: str = "") -> None: ...
    def hide(self) -> None: ...
    def close(self) -> None: ...


_screen: ScreenLike | None = None


class _LauncherLogHandler(logging.FileHandler):
    """Writes to a file until a write fails."""

    def handleError(self, record: logging.LogRecord) -> None:
        logger.removeHandler(self)
        _warn_unwritable(self.baseFilename, sys.exc_info()[1])


@contextmanager
def logged_to(path: str) -> Iterator[None]:
    """Write the launcher's lines to this file, too."""
    handler = _LauncherLogHandler(path, delay=True)  # a failure to open it is handled as one to write
    handler.setFormatter(log.logger.handlers[0].formatter)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # a warning about the unwritten rest was logged
            handler.close()


@contextmanager
def quiet(is_quiet: bool) -> Iterator[None]:
    """If `is_quiet`, the launcher's lines below WARNING go to its log file only, and `print_line` prints nothing."""
    global _is_quiet  # noqa: PLW0603  (one launcher per process)
    handler, before = log.logger.handlers[0], _is_quiet

    def is_shown(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.name != logger.name

    _is_quiet = is_quiet
    if is_quiet:
        handler.addFilter(is_shown)
    try:
        yield
    finally:
        _is_quiet = before
        handler.removeFilter(is_shown)


@contextmanager
def on_screen(screen: ScreenLike) -> Iterator[None]:
    """Write everything that goes to the terminal through this screen, which is closed at the end."""
    global _screen  # noqa: PLW0603  (one launcher per process)
    handler = log.logger.handlers[0]
    assert isinstance(handler, logging.StreamHandler), "log.py installs it"
    stream = handler.stream
    _screen = screen
    if _is_terminal(stream):
        handler.setStream(_ScreenStream(stream))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the terminal is closed
            screen.close()
        _screen = None
        handler.setStream(stream)


class _ScreenStream:
    """A stream for the log that writes above the block of the screen."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        if _screen is None:
            self._stream.write(text)
        else:
            _screen.lines(text)

    def flush(self) -> None:
        self._stream.flush()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def write_output(data: bytes) -> None:
    """Write output of a process to stdout; raises OSError if it is closed."""
    if _screen is not None:
        _screen.output(data)
        return
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]


def print_line(text: str) -> None:
    """Print a line on stdout, which may be a closed pipe (`fleetrun … | head -3`) or on a full disk."""
    if _is_quiet:
        return
    try:
        if _screen is not None:
            _screen.lines(f"{text}\n")
        else:
            print(text, flush=True)
    except OSError as e:
        if not isinstance(e, BrokenPipeError):
            _warn_unwritable("stdout", e)
        with open(os.devnull, "w") as devnull:
            os.dup2(devnull.fileno(), 1)  # else flushing at exit fails, too


def print_block(text: str, path: str) -> None:
    """Print lines without the log's prefix on stderr, and append them to the launcher's log."""
    with contextlib.suppress(OSError):  # there is no other place to report it
        if _screen is not None:
            _screen.hide()
        if _screen is not None and _is_terminal(sys.stderr):
            _screen.lines(f"{text}\n")
        else:
            print(text, file=sys.stderr, flush=True)
    append(text, path)


def append(text: str, path: str) -> None:
    """Append lines without the log's prefix to the launcher's log."""
    try:
        with open(path, "a") as f:
            f.write(text + "\n")
    except OSError as e:
        _warn_unwritable(path, e)


def _warn_unwritable(name: str, error: BaseException | None) -> None:
    reason = error.strerror if isinstance(error, OSError) else error
    logger.warning("cannot write to %s (%s); the job continues without it", name, reason)
