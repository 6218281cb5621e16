"""What the launcher shows of a running job: a live block on a terminal, else a line every 30 s."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping

from argosy.engine.launch import console
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger
from argosy.engine.launch.guard import guard_pid
from argosy.engine.metrics import summary
from argosy.engine.metrics.job_view import JobView
from argosy.engine.metrics.summary import Job

PLAIN_S = 30.0


class Live:
    """The block at the bottom of a terminal."""

    def __init__(self, screen: console.ScreenLike, title: str) -> None:
        self._screen, self._title = screen, title

    def update(self, job: Job, view: JobView, now: float) -> None:
        """Draw the state of the job; a failed one has no block: its report is shown instead."""
        is_shown = summary.is_running(job) and job.get("failure") is None
        self._screen.show(summary.lines(job, view, now) if is_shown else [], self._title)


class PlainLines:
    """A line of the launcher's log every PLAIN_S, once the job has made a step."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PLAIN_S

    def update(self, job: Job, view: JobView, now: float) -> None:
        """Log a line if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLAIN_S
        if view.step or view.progress or any(server.tables for server in view.servers.values()):
            logger.info("%s", summary.plain(job, view, now))


@contextlib.contextmanager
def display(config: Configuration, environ: Mapping[str, str]) -> Iterator[Live | PlainLines | None]:
    """How this launcher shows the job; None with --quiet. On a terminal all its output goes through a Screen."""
    if config.quiet or config.doctor:
        yield None
    elif not has_terminal(environ):
        yield PlainLines()
    else:
        from argosy.engine.launch.screen import Screen  # imports rich

        screen = Screen(sys.stdout.fileno(), guard_pid(), no_color=bool(environ.get("NO_COLOR")))
        with console.on_screen(screen):
            yield Live(screen, os.path.basename(config.script) or config.script)


def has_terminal(environ: Mapping[str, str]) -> bool:
    """True if stdout is a terminal that can move its cursor."""
    try:
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
    except ValueError:  # it is closed
        return False
    return is_terminal and environ.get("TERM", "dumb") not in ("dumb", "")
