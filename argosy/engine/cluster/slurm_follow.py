"""Follow a job of Slurm: its log, across requeues, and the changes of its state."""

# SPDX-License-Identifier: Apache-2.0
import os
import time
from collections.abc import Iterator

from argosy.engine.cluster import slurm_status
from argosy.engine.cluster.slurm_status import JobStatus, Unreachable
from argosy.engine.launch.console import logger

POLL_S = 1.0
"""How often Slurm is asked for the state, and the log is read."""


class Follower:
    """Reads the log of a job until it has ended; `status` is then its last status."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.status = slurm_status.status(job_id)
        self._running = self.status if self.status.state == "RUNNING" else None
        """The last status in which the job was running."""
        self._is_unreachable = False
        self._report(None)

    def lines(self) -> Iterator[str]:
        """The lines of the log, without line ends; changes of the state are logged."""
        log = GrowingFile()
        while True:
            # After the state: the log of an ended job is complete.
            yield from log.new_lines(self.status.output)
            if self._has_ended():
                yield from log.last_line()
                return
            time.sleep(POLL_S)
            self._poll()

    def _has_ended(self) -> bool:
        """True if the job has ended.

        While a node does not respond, an ended job is COMPLETING until Slurm gives the node up, minutes later. If its
        batch script has failed and the job was not requeued, then it has ended, too.
        """
        status, running = self.status, self._running
        has_failed = status.state == "COMPLETING" and status.exit_code > 0
        return status.has_ended or (
            has_failed and running is not None and running.restarts == status.restarts
        )

    def _poll(self) -> None:
        previous = self.status
        try:
            self.status = slurm_status.status(self.job_id)
        except Unreachable as e:
            if not self._is_unreachable:
                logger.warning("%s; the job is not affected, trying again until it responds", e)
            self._is_unreachable = True
            return
        self._is_unreachable = False
        if self.status.state == "RUNNING":
            self._running = self.status
        self._report(previous)

    def _report(self, previous: JobStatus | None) -> None:
        """Log what has changed; the end is reported by the caller."""
        status = self.status
        if previous is not None and status.restarts > previous.restarts:
            logger.warning("job %s was requeued (restart %d)", self.job_id, status.restarts)
        shown = (status.state, status.reason, status.nodelist)
        if status.has_ended or (
            previous is not None and shown == (previous.state, previous.reason, previous.nodelist)
        ):
            return
        if status.state == "PENDING":
            logger.info("job %s is pending%s", self.job_id, f": {status.reason}" if status.reason else "")
        elif status.state == "RUNNING":
            logger.info("job %s is running on %s", self.job_id, status.nodelist)
        else:
            logger.info("job %s is %s on %s", self.job_id, status.state.lower(), status.nodelist or "no node")


class GrowingFile:
    """The new lines of a growing file, which may not exist yet."""

    def __init__(self) -> None:
        self._offset = 0
        self._partial = b""

    def new_lines(self, path: str) -> Iterator[str]:
        """The lines that were completed since the last call."""
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0  # --open-mode=truncate, and the job was requeued
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return
        self._offset += len(added)
        *lines, self._partial = (self._partial + added).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)

    def last_line(self) -> Iterator[str]:
        """The last line, if it has no end."""
        if self._partial:
            yield self._partial.decode(errors="replace")
