"""SIGTERM to a job of a test, without assumptions about time."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import time

from argosy.engine.runtime import preemption


def terminate(pid: int) -> None:
    """Send SIGTERM to this process or its launcher; returns when this process knows that the job is to stop."""
    os.kill(pid, signal.SIGTERM)
    await_request()


def await_request() -> None:
    """Return when this process knows that the job is to stop."""
    assert preemption._preemption is not None, "this process does not handle SIGTERM"
    _, job = preemption._preemption
    until = time.monotonic() + 60
    while not job.is_requested:
        assert time.monotonic() < until, "SIGTERM was not handled"
        time.sleep(0.005)
