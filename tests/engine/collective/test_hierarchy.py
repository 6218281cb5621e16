"""Sums in two stages, and of flat buffers: right, equal everywhere, in any phase without a rank that hangs."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
import torch

from argosy.engine import collective
from argosy.engine.collective import world as the_world
from argosy.engine.collective.flat_buffer import FlatBuffer
from tests.ranks import Nursery

SIZES = (64, 128, 1000, 3_000_000)
SPARE = 64


def filled(buffer: FlatBuffer, rank: int, size: int) -> None:
    torch.manual_seed(100 * rank + size)
    buffer.own.copy_(torch.randn(buffer.own.numel()))


def wanted_sum(size: int, numel: int) -> torch.Tensor:
    """What NumPy's order does not matter for: the sum in double precision."""
    total = torch.zeros(numel, dtype=torch.float64)
    for rank in range(the_world().size):
        torch.manual_seed(100 * rank + size)
        total += torch.randn(numel)
    return total.float()


def check_everywhere(found: torch.Tensor) -> None:
    for other in the_world().group("util").all_gather(found):
        assert torch.equal(other, found), "the ranks differ"


def sums_in_two_stages() -> None:
    world = collective.connect()
    on_plane = os.environ.get("ARGOSY_HOST_PLANE") != "0"
    for size in SIZES:
        for by_leaders in (False, True):
            for name in ("dp", "dp.1"):
                stages = world.hierarchy(name, 2, by_leaders)
                assert (stages.inner.plane is not None) == on_plane
                buffer = world.flat_buffer("test", size + SPARE, torch.float32, "dp/inner2")
                assert (buffer.shared is not None) == on_plane
                filled(buffer, world.rank, size)
                before = buffer.own[:SPARE].clone()
                pending = stages.start(buffer, SPARE, size, "a span")
                pending.wait()
                pending.wait()  # a second time does nothing
                found = buffer.result[SPARE:].clone()
                torch.testing.assert_close(
                    found, wanted_sum(size, size + SPARE)[SPARE:], rtol=1e-5, atol=1e-5
                )
                assert torch.equal(buffer.own[:SPARE], before), "what is outside of the span stays"
                check_everywhere(found)


def sums_of_spans() -> None:
    world = collective.connect()
    group = world.group("dp")
    buffer = world.flat_buffer("test", 5000, torch.float32, "dp")
    assert world.flat_buffer("test", 5000, torch.float32, "dp") is buffer
    assert world.flat_buffer("test", 5001, torch.float32, "dp") is not buffer
    assert (buffer.shared is not None) == (group.plane is not None)
    for step in range(20):  # the next step writes into the buffer while another rank may still read the sum
        filled(buffer, world.rank, step)
        started = [group.start_all_reduce_span(buffer, at, 1000, f"span {at}") for at in range(0, 5000, 1000)]
        for one in started:
            one.wait()
        torch.testing.assert_close(buffer.result, wanted_sum(step, 5000), rtol=1e-5, atol=1e-5)
        check_everywhere(buffer.result.clone())
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        other = world.flat_buffer("test", 640, dtype, "dp")
        other.own.fill_(1.5)
        group.start_all_reduce_span(other, 0, 640).wait()
        assert bool((other.result == 1.5 * world.size).all())


def two_communicators_beside_each_other() -> None:
    """On sockets the second arrives although the first, on another communicator, is held up by nobody's wait."""
    world = collective.connect()
    tensors = [torch.ones(200_000) for _ in range(4)]
    groups = [world.group(collective.communicator("dp", number % 2)) for number in range(4)]
    assert groups[0] is groups[2] is not groups[1]
    pending = [g.start_all_reduce(t) for g, t in zip(groups, tensors, strict=True)]
    for one in reversed(pending):
        one.wait()
    assert all(bool((t == world.size).all()) for t in tensors)


def reduces_and_broadcasts() -> None:
    world = collective.connect()
    group = world.group("dp")
    for size in (1, 1000, 300_001):
        tensor = torch.full((size,), world.rank + 1.0)
        group.start_reduce(tensor, 1, "to rank 1").wait()
        if world.rank == 1:
            assert bool((tensor == sum(range(1, world.size + 1))).all())
        parts = [torch.full((size,), 10.0 * world.rank), torch.tensor([world.rank == 1]), torch.zeros(0)]
        group.start_broadcast_of(parts, [1, 1, 0], "fused").wait()
        assert bool((parts[0] == 10.0).all())
        assert bool(parts[1])


def lose_a_rank_in_a_phase() -> None:
    """Rank 1 ends in the middle of the collective that PHASE names; the others must say so and end."""
    world = collective.connect()
    phase = os.environ["PHASE"]
    buffer = world.flat_buffer("test", 4096, torch.float32, "dp/inner2")
    stages = world.hierarchy("dp", 2, by_leaders=phase == "leaders")
    for _ in range(3):
        stages.start(buffer, 0, 4096, "warm").wait()
    dies = world.rank == 1
    if dies and phase in ("before", "leaders"):
        os.kill(os.getpid(), signal.SIGKILL)
    pending = stages.start(buffer, 0, 4096, "a span")
    if dies and phase == "under way":
        os.kill(os.getpid(), signal.SIGKILL)
    pending.wait()
    if dies and phase == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(1000):
        stages.start(buffer, 0, 4096, "later").wait()
        time.sleep(0.01)


def test_sums_in_two_stages_are_right_through_shared_memory(ranks: Nursery) -> None:
    ranks.check(4, sums_in_two_stages)


def test_sums_in_two_stages_are_right_through_sockets(ranks: Nursery) -> None:
    ranks.check(4, sums_in_two_stages, ARGOSY_HOST_PLANE="0")


@pytest.mark.parametrize("plane", ["1", "0"])
def test_spans_of_flat_buffers_are_summed_in_every_step(ranks: Nursery, plane: str) -> None:
    ranks.check(3, sums_of_spans, ARGOSY_HOST_PLANE=plane)


@pytest.mark.parametrize("plane", ["1", "0"])
def test_reduce_and_fused_broadcast_have_their_roots(ranks: Nursery, plane: str) -> None:
    ranks.check(3, reduces_and_broadcasts, ARGOSY_HOST_PLANE=plane)


def test_communicators_are_waited_for_in_any_order(ranks: Nursery) -> None:
    ranks.check(2, two_communicators_beside_each_other, ARGOSY_HOST_PLANE="0")


@pytest.mark.parametrize("plane", ["1", "0"])
@pytest.mark.parametrize("phase", ["before", "under way", "after", "leaders"])
def test_a_rank_that_dies_in_any_phase_ends_the_others_by_name(
    ranks: Nursery, phase: str, plane: str
) -> None:
    ends = ranks.run(4, lose_a_rank_in_a_phase, PHASE=phase, ARGOSY_HOST_PLANE=plane)
    assert ends[1].code == -signal.SIGKILL
    others = [ends[rank] for rank in (0, 2, 3)]
    assert all(end.code == 1 for end in others), "\n".join(end.said for end in others)
    assert "rank 1" in ends[0].said
    # Rank 0 may have ended before the others could ask the store that it holds: its log has the reason.
    named = re.compile("rank 1|rank 0, which holds the job's store, is gone; see its log")
    assert all(named.search(end.said) for end in others), "\n".join(end.said for end in others)
    assert max(end.at for end in others) - ends[1].at < 20  # some 3 s on a quiet machine
    assert not list(Path("/dev/shm").glob("*argosy*"))
