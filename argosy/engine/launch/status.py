"""`fleetrun status [DIR]` and `fleetrun top [DIR]`: what a job does, from its log directory, once or live."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import json
import os
import select
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from typing import NoReturn

from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.launch.live import has_terminal
from argosy.engine.metrics import summary
from argosy.engine.metrics.job_directory import JobDirectory
from argosy.engine.metrics.job_view import JobView
from argosy.engine.metrics.summary import Fact, Job, Line

REFRESH_S = 0.5
_STATE_STYLES = {"running": "good", "completed": "good", "failed": "bad"}


class _SubcommandParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")


def parser(name: str) -> argparse.ArgumentParser:
    """The options of a subcommand."""
    text = {
        "status": "Show what a job does or did, once.",
        "top": "Show a running job live, until it ends, or q or Ctrl-C is pressed.",
    }
    p = _SubcommandParser(prog=f"fleetrun {name}", description=text[name], allow_abbrev=False)
    p.add_argument(
        "directory", nargs="?", default="log", metavar="DIR", help="--log_dir of the job (default: log)"
    )
    if name == "status":
        p.add_argument("--json", action="store_true", help="print all of it as JSON")
    return p


def main(name: str, words: Sequence[str]) -> int:
    """0: shown. 2: there is no job in the directory."""
    given = parser(name).parse_args(words)
    watched = WatchedJob(JobDirectory.find(given.directory))
    if name == "top":
        return _top(watched)
    watched.poll()
    if given.json:
        content = summary.as_json(watched.job, watched.view, str(watched.directory.path)) | {
            "state": watched.state
        }
        print(json.dumps(content, indent=2))
    else:
        _print(watched)
    return 0


class WatchedJob:
    """The job of a directory, as far as it was read."""

    def __init__(self, directory: JobDirectory) -> None:
        self.directory, self.view = directory, JobView()
        self.job: Job = {}
        self._started: float | None = None

    def poll(self) -> None:
        """Read what is new; from the start if the directory has a new job."""
        self.job = self.directory.job() or self.job
        started = self.job.get("started")
        if self._started is not None and started != self._started:
            self.directory, self.view = JobDirectory(self.directory.path), JobView()
        self._started = started
        self.view.update(self.directory.poll())

    @property
    def state(self) -> str:
        """That of job.json, or `killed`: it has not ended, but its launcher does not exist."""
        is_killed = summary.launcher_is_gone(self.job, socket.gethostname())
        return "killed" if is_killed else str(self.job.get("state", "unknown"))

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    def head(self) -> Line:
        """`running · fleetrun --nproc_per_node=2 train.py`."""
        state = self.state
        line = [Fact(state, _STATE_STYLES.get(state, "warning"))]
        if (code := self.job.get("exit_code")) is not None:
            line.append(Fact(f"exit code {code}"))
        line.append(Fact(str(self.job.get("command", self.directory.path))))
        return line

    def lines(self) -> list[Line]:
        """The facts of the job as lines."""
        lines = [self.head(), *summary.lines(self.job, self.view, time.time())]
        if url := self.job.get("dashboard"):
            lines += [[Fact(f"dashboard {url}")]] if self.is_running else []
        return lines

    def failure(self) -> str:
        """The report of the failure, or ''."""
        return str((self.job.get("failure") or {}).get("text") or "")


def table(rows: Sequence[Sequence[str]], columns: Sequence[str] = summary.RANK_COLUMNS) -> list[str]:
    """Aligned lines; columns without content are left out."""
    shown = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in rows)]
    every = [columns, *rows]
    widths = [max(len(row[i]) for row in every) for i in shown]
    is_number = [i in range(2, 8) for i in shown]
    out = []
    for row in every:
        cells = zip((row[i] for i in shown), widths, is_number, strict=True)
        out.append("  ".join(t.rjust(w) if right else t.ljust(w) for t, w, right in cells).rstrip())
    return out


def _print(watched: WatchedJob) -> None:
    print(f"directory: {watched.directory.path}")
    if has_terminal(env.variables()):
        from argosy.engine.launch.screen import Screen

        screen = Screen(sys.stdout.fileno(), no_color=bool(env.variables().get("NO_COLOR")))
        shown = screen.rendered(watched.lines(), screen.size[0])
    else:
        shown = ["; ".join(fact.text for fact in line) for line in watched.lines()]
    rows = summary.rank_rows(watched.job, watched.view)
    print("\n".join([*shown, *(["", *table(rows)] if rows else [])]))
    if failure := watched.failure():
        print(f"\n{failure}")


def _top(watched: WatchedJob) -> int:
    if not has_terminal(env.variables()):
        raise ConfigError("fleetrun top needs a terminal; use fleetrun status, or watch -n 1 fleetrun status")
    from argosy.engine.launch.screen import Screen

    screen = Screen(sys.stdout.fileno(), os.getpid(), no_color=bool(env.variables().get("NO_COLOR")))
    with _keys() as keys, contextlib.suppress(KeyboardInterrupt):
        while True:
            watched.poll()
            if not watched.is_running:
                break
            rows = [[Fact(line)] for line in table(summary.rank_rows(watched.job, watched.view))]
            rows[:1] = [[Fact(rows[0][0].text, "dim")]]
            screen.show([*watched.lines(), *rows, [Fact("q: quit", "dim")]], str(watched.directory.path))
            if keys.wait(REFRESH_S) in ("q", "Q"):
                break
    screen.close()
    _print(watched)
    return 0


class _Keys:
    """Keys of the terminal, read without waiting for Enter."""

    def wait(self, timeout_s: float) -> str:
        """The next key, or '' after the timeout."""
        if not sys.stdin.isatty():
            time.sleep(timeout_s)
            return ""
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], timeout_s)
        if not ready:
            return ""
        data = os.read(sys.stdin.fileno(), 1)
        if not data:  # the terminal is closed
            raise KeyboardInterrupt
        return data.decode(errors="replace")


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    """Read single keys inside, without their echo; the terminal is restored, also after SIGTERM."""
    if not sys.stdin.isatty():
        yield _Keys()
        return

    def terminate(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before, old = termios.tcgetattr(sys.stdin), signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, terminate)
    try:
        tty.setcbreak(sys.stdin)
        yield _Keys()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, old)
