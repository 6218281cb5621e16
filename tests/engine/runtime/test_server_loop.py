"""Signals to a server; what it computes is tested in tests/distributed/ps."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
from typing import cast

import pytest

from argosy.engine.ps.server.service import Service
from argosy.engine.runtime.server_loop import _stopped_by_signals


class Stops:
    """Counts the calls of `stop`."""

    count = 0

    def stop(self) -> None:
        self.count += 1


def stops_after(*numbers: signal.Signals) -> int:
    """How often a server is stopped by these signals."""
    stops = Stops()
    with _stopped_by_signals(cast(Service, stops)):
        for number in numbers:
            os.kill(os.getpid(), number)
    return stops.count


def test_a_server_is_stopped_by_sigterm_and_sigint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARGOSY_REQUEUE_CODE", raising=False)
    assert stops_after(signal.SIGTERM, signal.SIGINT) == 2


def test_in_a_job_with_a_grace_period_only_the_launcher_stops_a_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ARGOSY_REQUEUE_CODE", "75")
    assert stops_after(signal.SIGTERM) == 0  # a scheduler signals all processes of a job
    assert stops_after(signal.SIGTERM, signal.SIGINT) == 1
