"""Processes that the launcher starts beside the job: the dashboard while it runs, the writer of the report at its end.

They are no part of the job: it does not fail with them, and they have a lower priority than its ranks. They end with
the launcher, or with its guard.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import IO

from argosy.engine.errors import ConfigError
from argosy.engine.launch import logs, ports
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger, print_line
from argosy.engine.launch.guard import keep_child, kill_group
from argosy.engine.launch.job_record import JobRecord
from argosy.engine.launch.processes import Events, SignalEvent
from argosy.engine.metrics.job_view import JobView

REPORT_S = 20.0
"""How long writing the report may take."""
_SHORT_S = 3.0
"""A shorter job without steps has no report."""
_NICE = 10
_DASHBOARD, _REPORT = "argosy.dashboard", "argosy.report"
_ANNOUNCEMENT = "dashboard: "
"""What the dashboard prints before its URL."""


@contextlib.contextmanager
def dashboard(config: Configuration, record: JobRecord) -> Iterator[None]:
    """Serve the dashboard inside, if the user wants it; its output goes to dashboard.log. Raises ConfigError."""
    if config.dashboard is None:
        yield
        return
    missing = [name for name in (_DASHBOARD, "starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--dashboard needs {', '.join(missing)}; install it: pip install 'argosy[dashboard]'"
        )
    words = [os.path.abspath(config.log_dir), "--host", config.dashboard_host]
    if config.dashboard:  # else its default port, or a free one
        ports.listen(config.dashboard_host, config.dashboard, option="--dashboard").close()
        words += ["--port", str(config.dashboard)]
    path = os.path.join(config.log_dir, "dashboard.log")
    with open(path, "ab") as log:
        process = _start(_DASHBOARD, words, log)
    ending = threading.Event()
    watcher = threading.Thread(target=_announce, args=(process, path, record, ending), name="dashboard")
    watcher.start()
    try:
        yield
    finally:
        ending.set()
        watcher.join()
        _end(process)


def _announce(
    process: subprocess.Popen[bytes], path: str, record: JobRecord, ending: threading.Event
) -> None:
    """Print the dashboard's URL, as soon as it serves; or that it has ended before the job."""
    is_announced = False
    while not ending.wait(1.0 if is_announced else 0.1):
        if not is_announced:
            lines = logs.last_lines(path, 100)
            url = next((line for line in lines if line.startswith(_ANNOUNCEMENT)), None)
            if url is not None:
                is_announced = True
                record.set(dashboard=url.removeprefix(_ANNOUNCEMENT))
                print_line(url)
        if process.poll() is not None:
            lines = logs.last_lines(path, 1)
            last = f" ({lines[-1]:.200})" if lines else ""
            logger.warning(
                "the dashboard has ended with exit code %d%s; the job continues without it; see %s",
                *(process.returncode, last, path),
            )
            return


def write_report(config: Configuration, record: JobRecord, view: JobView, events: Events) -> None:
    """Write log/report.html; a signal, or REPORT_S, ends it. What fails is only logged."""
    content = record.content()
    is_short = content["ended"] - content["started"] < _SHORT_S
    if (is_short and not view.step) or config.doctor or find_spec(_REPORT) is None:
        return
    with tempfile.TemporaryFile() as output:
        try:
            process = _start(_REPORT, [os.path.abspath(config.log_dir), "--quiet"], output)
        except OSError as e:
            logger.info("no report: cannot start its writer (%s)", e.strerror)
            return
        try:
            problem = _wait_for_report(process, events)
        finally:
            _end(process)
        if process.returncode and not problem:
            output.seek(0)
            last = output.read().decode(errors="replace").splitlines()[-1:]
            problem = f"exit code {process.returncode}{f' ({last[0]:.200})' if last else ''}"
    if problem:
        logger.info("no report: %s; write it with: python -m argosy.report %s", problem, config.log_dir)


def _wait_for_report(process: subprocess.Popen[bytes], events: Events) -> str:
    """Wait until it has ended; returns why that took too long, or ''."""
    until = time.monotonic() + REPORT_S
    while process.poll() is None:
        if time.monotonic() > until:
            return f"it was not written within {REPORT_S:g} s"
        with contextlib.suppress(queue.Empty):
            if isinstance(events.get(timeout=0.05), SignalEvent):
                return "a signal ended the launcher"
    return ""


def _start(module: str, words: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a module; in the main thread, since the kernel kills it with the thread that has started it."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "argosy.engine.launch.companion", str(os.getpid()), module, *words],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    keep_child(process.pid)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        kill_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
    if process.poll() is None:
        kill_group(process.pid, signal.SIGKILL)
        process.wait()
    keep_child(process.pid, False)
