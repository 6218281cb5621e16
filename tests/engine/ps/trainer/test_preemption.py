"""Workers agree on the boundary at which they stop, through a server."""

# SPDX-License-Identifier: Apache-2.0
import time
from collections.abc import Callable
from typing import TypeVar

from argosy.engine.collective.preemption import NEVER
from argosy.engine.ps.trainer.preemption import ServerChannel
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import SETTINGS, served

T = TypeVar("T")


def eventually(value: Callable[[], T | None]) -> T:
    """The value, as soon as it is there."""
    until = time.monotonic() + 20
    while not (current := value()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return current


def test_the_decision_is_the_maximum_and_known_to_all() -> None:
    with served(trainers=2) as (_, plan):
        trainers = [Trainer(plan, number, SETTINGS) for number in (0, 1)]
        one, other = (ServerChannel(trainer.connection) for trainer in trainers)
        assert not one.is_requested()
        other.publish(8)
        assert eventually(one.is_requested)
        assert other.decision() is None
        one.publish(7)
        assert eventually(one.decision) == eventually(other.decision) == 8
        for trainer in trainers:
            trainer.close()


def test_a_worker_does_not_stop_after_another_has_left_the_job() -> None:
    with served(trainers=2) as (_, plan):
        trainers = [Trainer(plan, number, SETTINGS) for number in (0, 1)]
        channel = ServerChannel(trainers[0].connection)
        channel.publish(7)
        trainers[1].leave()
        assert eventually(channel.decision) == NEVER
        trainers[0].close()


def test_a_signalled_server_serves_until_all_workers_have_left() -> None:
    with served(trainers=2) as (service, plan):
        trainers = [Trainer(plan, number, SETTINGS) for number in (0, 1)]
        service.request_preemption()
        assert all(ServerChannel(trainer.connection).is_requested() for trainer in trainers)
        trainers[0].leave(is_preempted=True)
        assert not service.is_preempted
        trainers[1].leave(is_preempted=True)
        assert service.is_preempted


def test_a_job_whose_workers_leave_at_the_end_was_not_preempted() -> None:
    with served(trainers=1) as (service, plan):
        Trainer(plan, 0, SETTINGS).leave()
        assert not service.is_preempted
