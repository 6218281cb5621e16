"""Signals to a server; what it computes is tested in tests/distributed/ps."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
from types import SimpleNamespace
from typing import cast

import pytest

from argosy.engine.ps.server.service import Service
from argosy.engine.runtime.server_loop import _stopped_by_signals


class Calls(list[str]):
    """What the signal handlers call of a server with these live trainers."""

    def __init__(self, trainers: set[int]) -> None:
        self.membership = SimpleNamespace(live=trainers)

    def stop(self) -> None:
        self.append("stop")

    def request_preemption(self) -> None:
        self.append("preempt")


def calls_after(*numbers: signal.Signals, trainers: set[int]) -> list[str]:
    calls = Calls(trainers)
    with _stopped_by_signals(cast(Service, calls)):
        for number in numbers:
            os.kill(os.getpid(), number)
    return calls


def test_a_server_is_stopped_by_sigterm_and_sigint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARGOSY_REQUEUE_CODE", raising=False)
    assert calls_after(signal.SIGTERM, signal.SIGINT, trainers={0}) == ["stop", "stop"]


def test_in_a_job_with_a_grace_period_sigterm_preempts_while_trainers_are_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ARGOSY_REQUEUE_CODE", "75")
    assert calls_after(signal.SIGTERM, signal.SIGINT, trainers={0}) == ["preempt", "stop"]
    assert calls_after(signal.SIGTERM, trainers=set()) == ["stop"]
