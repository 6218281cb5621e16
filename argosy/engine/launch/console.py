"""Output of the launcher: log lines in the format of Argosy's log, but always from INFO on, and also in fleetrun.log.

If they cannot be written (full disk, closed pipe), the job continues without them.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from argosy.engine import log

logger = log.logger.getChild("launch")
logger.setLevel(logging.INFO)  # Paddle's launcher always shows these, whatever ARGOSY_LOG is


_is_quiet = False


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


def print_line(text: str) -> None:
    """Print a line on stdout, which may be a closed pipe (`fleetrun … | head -3`) or on a full disk."""
    if _is_quiet:
        return
    try:
        print(text, flush=True)
    except OSError as e:
        if not isinstance(e, BrokenPipeError):
            _warn_unwritable("stdout", e)
        with open(os.devnull, "w") as devnull:
            os.dup2(devnull.fileno(), 1)  # else flushing at exit fails, too


def print_block(text: str, path: str) -> None:
    """Print lines without the log's prefix on stderr, and append them to the launcher's log."""
    with contextlib.suppress(OSError):  # there is no other place to report it
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
