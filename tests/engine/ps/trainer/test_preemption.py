"""Workers agree on the boundary at which they stop, through a server."""

# SPDX-License-Identifier: Apache-2.0
import time

from argosy.engine.collective.preemption import NEVER
from argosy.engine.ps.trainer.preemption import ServerChannel
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import SETTINGS, served


def decision(channel: ServerChannel) -> int:
    until = time.monotonic() + 20
    while (boundary := channel.decision()) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    return boundary


def test_the_decision_is_the_maximum_and_known_to_all() -> None:
    with served(trainers=2) as (_, plan):
        trainers = [Trainer(plan, number, SETTINGS) for number in (0, 1)]
        one, other = (ServerChannel(trainer.connection) for trainer in trainers)
        assert not one.is_requested()
        other.publish(8)
        assert one.is_requested()
        assert other.decision() is None
        one.publish(7)
        assert decision(one) == decision(other) == 8
        for trainer in trainers:
            trainer.close()


def test_a_worker_does_not_stop_after_another_has_left_the_job() -> None:
    with served(trainers=2) as (_, plan):
        trainers = [Trainer(plan, number, SETTINGS) for number in (0, 1)]
        channel = ServerChannel(trainers[0].connection)
        channel.publish(7)
        trainers[1].leave()
        assert decision(channel) == NEVER
        trainers[0].close()
