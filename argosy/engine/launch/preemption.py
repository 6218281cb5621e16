"""The grace period of a job (--grace): after SIGTERM its ranks or workers save a checkpoint, and exit to be requeued.

SIGTERM ──▶ forwarded to ranks or workers ──▶ all exit with the requeue code ──▶ exit with it      requeue the job
                                         ├──▶ one was terminated, or failed ──▶ terminate all      143, no checkpoint
                                         ├──▶ the grace period is over ───────▶ terminate all      143, no checkpoint
                                         └──▶ another signal ─────────────────▶ terminate all      128 + its number

Ranks that were signalled on another host stop those of this one, too, which then exit with the requeue code.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger
from argosy.engine.launch.failure_report import ProcessExit
from argosy.engine.launch.guard import is_orphan

REPEAT_S = 3.0
"""SIGTERM again within this time is the same request: service managers signal the guard and the launcher."""


@dataclass
class GracePeriod:
    """Whether a job is being preempted, until when, and what its processes have saved."""

    config: Configuration
    until: float = float("inf")
    """By time.monotonic(): when the processes are killed."""
    _has_saved: bool = False
    """True once a process has ended with the requeue code: the checkpoint is complete on all of them."""
    _saved: str = "preempted"
    """What that process reported."""
    _signalled_at: float = float("-inf")

    @property
    def has_begun(self) -> bool:
        return self.until < float("inf")

    def begin(self, number: int, pids: Iterable[int]) -> bool:
        """Forward SIGTERM to these processes, and begin the grace period; False if the signal ends the job at once."""
        now = time.monotonic()
        if number != signal.SIGTERM or self.config.grace_s is None or is_orphan():
            return False
        if self._signalled_at + REPEAT_S >= now:
            return True
        if self._signalled_at > float("-inf"):
            return False
        self._signalled_at = now
        self._start(now)
        logger.warning(
            "SIGTERM: waiting at most %g s until the job has saved a checkpoint; SIGTERM again ends it at once",
            self.config.grace_s,
        )
        for pid in pids:  # not their groups: the children, such as readers, are needed until then
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)  # a stopped process would not handle it
        return True

    def is_requeue(self, exit: ProcessExit) -> bool:
        """True if a process ends with the requeue code, which is not a failure; begins the grace period of the others.

        It has saved: what happens after its error file was written, such as a signal at its exit, does not matter.
        """
        code = exit.code if exit.error is None else exit.error.exit_code
        if self.config.grace_s is None or code != self.config.requeued_with:
            return False
        self._start(time.monotonic())
        self._has_saved = True
        if exit.error is not None:
            self._saved = exit.error.message
        return True

    def was_terminated(self, exit: ProcessExit) -> bool:
        """True if SIGTERM has ended a process in the grace period: its script does not save a checkpoint."""
        if not self.has_begun or exit.code != -signal.SIGTERM:
            return False
        logger.warning(
            "%s was terminated by SIGTERM: its script was not in the loop of a fleet.Checkpoint, which would save one",
            exit.spec.name,
        )
        return True

    def has_failed(self, has_failures: bool, is_running: bool) -> bool:
        """When the supervision ends: True if the job was not preempted in time, and counts as terminated by SIGTERM."""
        return self.has_begun and (has_failures or (is_running and not self._has_saved))

    def exit_code(self, signal_number: int | None, has_failures: bool) -> int | None:
        """Log the outcome; the launcher's exit code, or None if the job was not preempted, or not in time.

        `signal_number`: the signal with which the job was terminated, if it was.
        """
        if not self.has_begun:
            return None
        if self._has_saved and not has_failures and signal_number in (None, signal.SIGTERM):
            code = self.config.requeued_with
            logger.warning("%s; exit code %d: start the job again to resume", self._saved, code)
            return code
        if signal_number is not None:
            after = f"{self.config.grace_s:g} s" if time.monotonic() >= self.until else "SIGTERM"
            nothing = f"no checkpoint was completed after {after}; earlier ones are unchanged"
            logger.warning("%s", self._saved if self._has_saved else nothing)
        return None

    def _start(self, now: float) -> None:
        if not self.has_begun and self.config.grace_s is not None:
            self.until = now + self.config.grace_s
