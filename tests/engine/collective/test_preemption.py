"""Preemption: whichever process is signalled, all processes stop at the same boundary, and none waits forever."""

# SPDX-License-Identifier: Apache-2.0
import itertools
import random
import threading
import time

import pytest

from argosy.engine import collective
from argosy.engine.collective import preemption
from argosy.engine.collective.preemption import NEVER, Preemption, SingleProcess, StoreChannel
from argosy.engine.errors import CollectiveError
from tests.ranks import ForkServer


class MemoryChannel:
    """The boundaries of processes that are threads of the test."""

    def __init__(self, boundaries: dict[int, int], size: int, number: int) -> None:
        self._boundaries, self._size, self._number = boundaries, size, number

    def is_requested(self) -> bool:
        return bool(self._boundaries)

    def publish(self, boundary: int) -> None:
        self._boundaries[self._number] = boundary

    def decision(self) -> int | None:
        return max(self._boundaries.values()) if len(self._boundaries) == self._size else None


@pytest.mark.parametrize("seed", range(6))
def test_all_stop_at_the_same_boundary_though_every_step_waits_for_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption, "_PERIOD_S", 0.002)
    draw, size, boundaries = random.Random(seed), 3, dict[int, int]()
    processes = [Preemption(MemoryChannel(boundaries, size, number)) for number in range(size)]
    collective_op, stopped = threading.Barrier(size), dict[int, int]()
    until = time.monotonic() + 60
    signalled = {draw.randrange(size): draw.randrange(1, 20) for _ in range(1 + seed % 2)}

    def train(number: int) -> None:
        for step in itertools.count(1):
            assert time.monotonic() < until
            if signalled.get(number) == step:
                assert processes[number].request()
            time.sleep(0.002 * (number == step % size))
            collective_op.wait(timeout=20)
            if processes[number].at_boundary():
                stopped[number] = step
                return

    threads = [threading.Thread(target=train, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert len(stopped) == size, "one of them waits, or was not stopped"
    assert len(set(stopped.values())) == 1


def test_a_single_process_stops_at_its_next_boundary() -> None:
    process = Preemption(SingleProcess())
    assert [process.at_boundary() for _ in range(3)] == [False] * 3
    assert process.request()
    assert process.request()  # a repeated signal changes nothing
    process._thread.join(20)
    assert process.at_boundary()


class LostChannel(SingleProcess):
    def publish(self, boundary: int) -> None:
        raise CollectiveError("rank 1 failed")


def test_an_error_of_another_process_is_raised_only_after_a_request() -> None:
    process = Preemption(LostChannel())
    assert not process.at_boundary()
    process.request()
    process._thread.join(20)
    with pytest.raises(CollectiveError, match="rank 1 failed"):
        process.at_boundary()


def ranks_stop_together() -> None:
    """Rank 1 alone is signalled; a barrier is the collective of each step."""
    world = collective.connect()
    util, process = world.group("util"), Preemption(StoreChannel(world))
    for step in itertools.count(1):
        if (world.rank, step) == (1, 3):
            process.request()
        util.barrier("step")
        if process.at_boundary():
            break
    stopped = [bytes_.decode() for bytes_ in util.all_gather_bytes(str(step).encode())]
    assert stopped[0] == stopped[1], stopped


def rank_1_has_finished() -> None:
    world = collective.connect()
    channel = StoreChannel(world)
    world.group("util").barrier("connected")
    if world.rank == 1:
        collective.disconnect()
        return
    assert not channel.is_requested()
    channel.publish(5)
    assert channel.is_requested()
    until = time.monotonic() + 30
    while (decision := channel.decision()) is None:
        assert time.monotonic() < until
    assert decision == NEVER


def test_ranks_stop_together_through_the_store(ranks: ForkServer) -> None:
    ranks.check(2, ranks_stop_together)


def test_a_rank_does_not_wait_for_one_that_has_finished(ranks: ForkServer) -> None:
    ranks.check(2, rank_1_has_finished)
