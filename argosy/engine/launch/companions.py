"""Processes that the launcher starts beside the job: the dashboard while it runs, the writer of the report at its end.

They are no part of the job: it does not fail with them. They end with the launcher, or with its guard.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec

from argosy.engine.launch import entrypoint, ports
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger, print_line
from argosy.engine.launch.guard import keep_child, kill_group
from argosy.engine.launch.job_record import JobRecord
from argosy.engine.launch.processes import Events, SignalEvent
from argosy.engine.metrics.job_view import JobView
from argosy.engine.net import Endpoint

REPORT_S = 20.0
"""How long writing the report may take."""
_SHORT_S = 3.0
"""A shorter job without steps has no report."""
_NICE = 10
_DASHBOARD, _REPORT = "argosy.dashboard", "argosy.report"


@contextlib.contextmanager
def dashboard(config: Configuration, record: JobRecord) -> Iterator[None]:
    """Serve the dashboard inside, if the user wants it; its output goes to dashboard.log."""
    if config.dashboard is None:
        yield
        return
    port = config.dashboard or ports.free_ports(config.dashboard_host, 1)[0]
    url = f"http://{Endpoint(config.dashboard_host, port)}/"
    words = [os.path.abspath(config.log_dir), "--port", str(port), "--host", config.dashboard_host]
    process = _start(_DASHBOARD, words, os.path.join(config.log_dir, "dashboard.log"))
    keep_child(process.pid)
    record.set(dashboard=url)
    print_line(f"dashboard: {url}")
    try:
        yield
    finally:
        if process.poll() is not None:
            logger.warning(
                "the dashboard has ended with exit code %d before the job; see %s/dashboard.log",
                *(process.returncode, config.log_dir),
            )
        _end(process)


def _start(module: str, words: list[str], log: str) -> subprocess.Popen[bytes]:
    error_file = f"{log.removesuffix('.log')}error"
    with open(log, "ab") as file:
        return subprocess.Popen(
            entrypoint.bootstrap_command(["-m", module, *words], error_file),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    kill_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2.0)
    kill_group(process.pid, signal.SIGKILL)
    process.wait()
    keep_child(process.pid, False)


def write_report(config: Configuration, record: JobRecord, view: JobView, events: Events) -> None:
    """Write log/report.html at low priority; a signal, or REPORT_S, ends it. What fails is only logged."""
    content = record.content()
    is_short = content["ended"] - content["started"] < _SHORT_S
    if (is_short and not view.step) or find_spec(_REPORT) is None:
        return
    command = [sys.executable, "-m", _REPORT, os.path.abspath(config.log_dir), "--quiet"]
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                ["nice", "-n", str(_NICE), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as e:
            logger.info("no report: cannot start its writer (%s)", e.strerror)
            return
        keep_child(process.pid)
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
