"""A thread of the launcher that reads the records of the job, and passes them to all that show or export them.

metrics/*.jsonl ──▶ JobDirectory.poll ──▶ JobView ──▶ live block, Prometheus, TensorBoard
                                     └──▶ stragglers ──▶ events.jsonl, the launcher's log
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from argosy.engine.launch.console import logger
from argosy.engine.launch.job_record import JobRecord
from argosy.engine.metrics.job_directory import JobDirectory, Record
from argosy.engine.metrics.job_view import JobView
from argosy.engine.metrics.stragglers import StragglerDetector

POLL_S = 1.0
NICE = 10
"""The priority of this thread."""


class Sink(Protocol):
    """Gets all records of a job."""

    def update(self, job: dict[str, Any], view: JobView, records: Sequence[Record]) -> None:
        """Called in the monitor's thread after each poll; `view` includes the new records."""

    def close(self) -> None:
        """The job has ended."""


class Display(Protocol):
    """Shows the state of a job."""

    def update(self, job: dict[str, Any], view: JobView, now: float) -> None: ...


class Monitor:
    """Polls the job directory until `stop`. What fails in a sink ends that sink, never the job."""

    def __init__(
        self,
        log_dir: str,
        record: JobRecord,
        display: Display | None,
        sinks: Sequence[Sink] = (),
        lock: "threading.Lock | None" = None,
    ) -> None:
        """`lock`: held while the view is changed, for sinks that read it in other threads."""
        self._lock = lock or threading.Lock()
        self.view = JobView()
        self._directory = JobDirectory(Path(log_dir))
        self._record, self._display, self._sinks = record, display, list(sinks)
        self._detector: StragglerDetector | None = StragglerDetector()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Read what is left, and close the sinks; waits for it, but not for a blocked terminal."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # of this thread alone, on Linux: the ranks need the cores
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while not self._stopping.wait(POLL_S):
            self._poll()
        self._poll()
        for sink in self._sinks:
            self._guarded(sink, "close")

    def _poll(self) -> None:
        records = self._directory.poll()
        job = self._record.content()
        with self._lock:
            self.view.update(records)
        if self._detector is not None and not self._guarded(self._detector, "update", records):
            self._detector = None
        for sink in list(self._sinks):
            if not self._guarded(sink, "update", job, self.view, records):
                self._sinks.remove(sink)
        display = self._display
        if display is not None and not self._guarded(display, "update", job, self.view, time.time()):
            self._display = None

    def _guarded(self, consumer: object, method: str, *args: object) -> bool:
        """Call a method; False, with a warning, if it raises."""
        try:
            events = getattr(consumer, method)(*args)
        except Exception as e:
            name = type(consumer).__name__
            logger.warning("%s has failed (%s: %s); the job continues without it", name, type(e).__name__, e)
            return False
        if consumer is self._detector:
            for event in events:
                self._record.append(event)
                logger.warning("%s", event["text"])
        return True
