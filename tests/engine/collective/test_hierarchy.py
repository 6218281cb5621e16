"""Hierarchical all-reduce, and all-reduce of flat buffers: correct, equal on all ranks; a lost rank hangs no other."""

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
from argosy.engine.collective import FlatBuffer
from argosy.engine.collective import world as the_world
from tests.ranks import ForkServer

SIZES = (64, 128, 1000)
LARGE = 2_200_000
"""More than one chunk of a hierarchical all-reduce."""
SPARE = 64


def filled(buffer: FlatBuffer, rank: int, size: int) -> None:
    torch.manual_seed(100 * rank + size)
    buffer.local.copy_(torch.randn(buffer.local.numel()))


def wanted_sum(size: int, numel: int) -> torch.Tensor:
    """The sum in double precision, for which the order does not matter."""
    total = torch.zeros(numel, dtype=torch.float64)
    for rank in range(the_world().size):
        torch.manual_seed(100 * rank + size)
        total += torch.randn(numel)
    return total.float()


def check_everywhere(reduced: torch.Tensor) -> None:
    for other in the_world().group("util").all_gather(reduced):
        assert torch.equal(other, reduced), "the ranks differ"


def hierarchical_sums() -> None:
    world = collective.connect()
    in_shm = os.environ.get("ARGOSY_SHM") != "0"
    for size in (*SIZES, LARGE):
        for by_leaders in (False, True):
            for name in ("dp", "dp.1") if size < LARGE else ("dp",):
                hierarchy = world.hierarchy(name, 2, by_leaders)
                assert (hierarchy.intra.shm is not None) == in_shm
                buffer = world.flat_buffer("test", size + SPARE, torch.float32, "dp/intra2")
                assert (buffer.segment is not None) == in_shm
                filled(buffer, world.rank, size)
                before = buffer.local[:SPARE].clone()
                work = hierarchy.start(buffer, SPARE, size, "a span")
                work.wait()
                work.wait()  # a second time does nothing
                reduced = buffer.result[SPARE:].clone()
                torch.testing.assert_close(
                    reduced, wanted_sum(size, size + SPARE)[SPARE:], rtol=1e-5, atol=1e-5
                )
                assert torch.equal(buffer.local[:SPARE], before), "what is outside of the span stays"
                check_everywhere(reduced)


def sums_of_spans() -> None:
    world = collective.connect()
    group = world.group("dp")
    buffer = world.flat_buffer("test", 5000, torch.float32, "dp")
    assert world.flat_buffer("test", 5000, torch.float32, "dp") is buffer
    assert world.flat_buffer("test", 5001, torch.float32, "dp") is not buffer
    assert (buffer.segment is not None) == (group.shm is not None)
    for step in range(20):  # the next step writes into the buffer while another rank may still read the sum
        filled(buffer, world.rank, step)
        started = [group.start_all_reduce_span(buffer, at, 1000, f"span {at}") for at in range(0, 5000, 1000)]
        for work in started:
            work.wait()
        torch.testing.assert_close(buffer.result, wanted_sum(step, 5000), rtol=1e-5, atol=1e-5)
        check_everywhere(buffer.result.clone())
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        other = world.flat_buffer("test", 640, dtype, "dp")
        other.local.fill_(1.5)
        group.start_all_reduce_span(other, 0, 640).wait()
        assert bool((other.result == 1.5 * world.size).all())


def two_concurrent_communicators() -> None:
    """On sockets the second completes although the first, on another communicator, is not waited for."""
    world = collective.connect()
    tensors = [torch.ones(200_000) for _ in range(4)]
    groups = [world.group(collective.communicator("dp", number % 2)) for number in range(4)]
    assert groups[0] is groups[2] is not groups[1]
    works = [g.start_all_reduce(t) for g, t in zip(groups, tensors, strict=True)]
    for work in reversed(works):
        work.wait()
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
        group.start_broadcast_coalesced(parts, [1, 1, 0], "fused").wait()
        assert bool((parts[0] == 10.0).all())
        assert bool(parts[1])
        gathered = torch.zeros(world.size, size, dtype=torch.int32)
        group.start_all_gather(torch.full((size,), world.rank, dtype=torch.int32), gathered, "rows").wait()
        assert bool((gathered == torch.arange(world.size).unsqueeze(1)).all())


def lose_a_rank_in_a_phase() -> None:
    """Rank 1 exits in the phase of the collective that PHASE names; the others must report it and exit."""
    world = collective.connect()
    phase = os.environ["PHASE"]
    buffer = world.flat_buffer("test", 4096, torch.float32, "dp/intra2")
    hierarchy = world.hierarchy("dp", 2, by_leaders=phase == "leaders")
    for _ in range(3):
        hierarchy.start(buffer, 0, 4096, "warm").wait()
    dies = world.rank == 1
    if dies and phase in ("before", "leaders"):
        os.kill(os.getpid(), signal.SIGKILL)
    work = hierarchy.start(buffer, 0, 4096, "a span")
    if dies and phase == "in flight":
        os.kill(os.getpid(), signal.SIGKILL)
    work.wait()
    if dies and phase == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(1000):
        hierarchy.start(buffer, 0, 4096, "later").wait()
        time.sleep(0.01)


def test_hierarchical_sums_through_shared_memory_are_correct(ranks: ForkServer) -> None:
    ranks.check(4, hierarchical_sums)


def test_hierarchical_sums_through_sockets_are_correct(ranks: ForkServer) -> None:
    ranks.check(4, hierarchical_sums, ARGOSY_SHM="0")


@pytest.mark.parametrize("shm", ["1", "0"])
def test_spans_of_flat_buffers_are_summed_in_every_step(ranks: ForkServer, shm: str) -> None:
    ranks.check(3, sums_of_spans, ARGOSY_SHM=shm)


@pytest.mark.parametrize("shm", ["1", "0"])
def test_reduce_and_fused_broadcast_have_their_roots_and_all_gather_the_order_of_the_ranks(
    ranks: ForkServer, shm: str
) -> None:
    ranks.check(3, reduces_and_broadcasts, ARGOSY_SHM=shm)


def test_communicators_are_waited_for_in_any_order(ranks: ForkServer) -> None:
    ranks.check(2, two_concurrent_communicators, ARGOSY_SHM="0")


@pytest.mark.parametrize(
    ("phase", "shm"),
    [
        ("in flight", "0"),
        *(
            pytest.param(phase, shm, marks=pytest.mark.slow)
            for phase in ("before", "in flight", "after", "leaders")
            for shm in ("1", "0")
            if (phase, shm) != ("in flight", "0")
        ),
    ],
)
def test_a_rank_that_dies_in_any_phase_is_reported_by_the_others(
    ranks: ForkServer, phase: str, shm: str
) -> None:
    ends = ranks.run(4, lose_a_rank_in_a_phase, PHASE=phase, ARGOSY_SHM=shm)
    assert ends[1].code == -signal.SIGKILL
    others = [ends[rank] for rank in (0, 2, 3)]
    assert all(end.code == 1 for end in others), "\n".join(end.said for end in others)
    assert "rank 1" in ends[0].said
    # Rank 0 may have exited before the others could query the store that it hosts: its log has the reason.
    named = re.compile("rank 1|rank 0, which hosts the job's store, has exited; see its log")
    assert all(named.search(end.said) for end in others), "\n".join(end.said for end in others)
    assert max(end.at for end in others) - ends[1].at < 20  # some 3 s on a quiet machine
    assert not list(Path("/dev/shm").glob("*argosy*"))
