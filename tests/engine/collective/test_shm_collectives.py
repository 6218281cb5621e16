"""Shared-memory collectives: the same sums as with sockets, equal on all ranks; no leaked segment; lost ranks."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from argosy.engine import collective
from argosy.engine.collective import shm
from argosy.engine.collective.shm_collectives import barrier_rounds
from argosy.engine.errors import CollectiveError
from tests.ranks import ForkServer

pytestmark = pytest.mark.skipif(not shm.is_supported(), reason="shared memory needs Linux on x86-64")
SIZES = (0, 1, 3, 1000, 262_144, 262_145, 700_001)
KINDS = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8)


def sums_in_shm() -> None:
    world = collective.connect()
    group, plain = world.group("dp"), world.group("util")
    assert group.shm is not None
    assert plain.shm is None
    for kind in KINDS:
        for size in SIZES:
            torch.manual_seed(size + world.rank)
            mine = (torch.randn(size) * 4).abs().to(kind)
            reduced, wanted = mine.clone(), mine.clone()
            group.all_reduce(reduced)
            plain.all_reduce(wanted)
            bound = {"rtol": 0.02, "atol": 0.1} if kind is torch.bfloat16 else {"rtol": 1e-6, "atol": 1e-6}
            torch.testing.assert_close(reduced, wanted, **bound)
            for other in plain.all_gather(reduced):
                assert torch.equal(other, reduced), f"{size} x {kind} differs between ranks"
    for op, wanted_value in (("max", world.size - 1), ("min", 0)):
        assert group.all_reduce(torch.tensor([float(world.rank)]), op).item() == wanted_value
    image = torch.full((2, 3, 4, 5), 1.0).contiguous(memory_format=torch.channels_last)
    assert bool((group.all_reduce(image) == world.size).all())
    for chosen in (group, plain):
        parts = [torch.full((n,), float(world.rank)) for n in (3, 0, 300_000, 5, 262_144)]
        parts.append(torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last))
        work = chosen.start_all_reduce_coalesced(parts, what="all of them")
        work.wait()
        work.wait()  # a second time does nothing: one for each gradient
        for part in parts[:-1]:
            assert bool((part == sum(range(world.size))).all())
        assert bool((parts[-1] == world.size).all())
    flag = group.start_all_reduce(torch.ones(3))
    second = group.start_all_reduce(torch.ones(4))
    flag.wait()
    second.wait()


def rounds_of_barriers() -> None:
    """More ranks than one round of a barrier connects; without a correct barrier a rank reads a half too early."""
    world = collective.connect()
    group = world.group("dp")
    assert group.shm is not None
    for number in range(40):
        reduced = group.all_reduce(torch.full((5,), float(world.rank + number)))
        assert reduced.tolist() == [sum(range(world.size)) + world.size * number] * 5
        gathered = torch.empty(world.size, 3, dtype=torch.int32)
        group.start_all_gather(torch.full((3,), world.rank * number, dtype=torch.int32), gathered).wait()
        assert gathered[:, 1].tolist() == [rank * number for rank in range(world.size)]


def killed_among_many() -> None:
    world = collective.connect()
    group = world.group("dp")
    group.all_reduce(torch.ones(3))
    if world.rank == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    group.all_reduce(torch.ones(3), what="w@GRAD")


def different_tensors() -> None:
    group = collective.connect().group("dp")
    grown = group.all_reduce(torch.ones(2, requires_grad=True))
    assert grown.tolist() == [2, 2]
    with pytest.raises(CollectiveError, match="has .* elements in its collective 2, and this rank"):
        group.all_reduce(torch.ones(3 + collective.world().rank))


def waits_in_another_order() -> None:
    world = collective.connect()
    works = [world.group("dp").start_all_reduce(torch.ones(4)) for _ in range(2)]
    if world.rank == 1:
        works.reverse()
    with pytest.raises(CollectiveError, match="on the same tensors in the same order"):
        works[0].wait()


def no_shm_when_disabled() -> None:
    group = collective.connect().group("dp")
    assert group.shm is None
    assert group.all_reduce(torch.ones(1)).item() == 2


def lose_rank_1() -> None:
    world = collective.connect()
    group = world.group("dp")
    group.all_reduce(torch.ones(10))
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    group.all_reduce(torch.ones(10), what="grad")


@pytest.mark.parametrize("size", [2, 3])
def test_sums_equal_those_over_sockets_and_are_the_same_on_all_ranks(ranks: ForkServer, size: int) -> None:
    ranks.check(size, sums_in_shm)


@pytest.mark.parametrize("job", [different_tensors, waits_in_another_order])
def test_different_tensors_are_never_summed(ranks: ForkServer, job: Callable[[], None]) -> None:
    ranks.check(2, job)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 20, 64, 65, 100, 600])
def test_a_barrier_waits_for_every_rank(size: int) -> None:
    """Each round adds what the ranks waited for know after the round before."""
    rounds = [barrier_rounds(rank, size) for rank in range(size)]
    known = [{rank} for rank in range(size)]
    for number in range(len(rounds[0])):
        known = [known[r].union(*(known[other] for other in rounds[r][number])) for r in range(size)]
    assert all(len(ranks) == size for ranks in known)
    assert all(len(others) < 8 for others in rounds[0])


def test_ten_ranks_pass_barriers_of_two_rounds(ranks: ForkServer) -> None:
    ranks.check(10, rounds_of_barriers)


@pytest.mark.slow
def test_of_ten_ranks_the_killed_one_is_reported(ranks: ForkServer) -> None:
    ends = ranks.run(10, killed_among_many)
    assert ends[5].code == -signal.SIGKILL
    for rank, end in enumerate(ends):
        if rank != 5:
            assert end.code == 1
            assert "the process of rank 5 has exited" in end.said, end.said


def test_it_can_be_disabled(ranks: ForkServer) -> None:
    ranks.check(2, no_shm_when_disabled, ARGOSY_SHM="0")


def test_a_killed_rank_ends_the_others_wait(ranks: ForkServer) -> None:
    first, second = ranks.run(2, lose_rank_1)
    assert second.code == -signal.SIGKILL
    assert first.code == 1
    assert "rank 1" in first.said
    assert "PeerLostError" in first.said
    assert first.at - second.at < 10  # about 1 s on a quiet machine


def test_no_segment_is_ever_in_the_file_system() -> None:
    descriptor = shm._create(4096)
    try:
        assert Path(f"/proc/self/fd/{descriptor}").readlink().name.startswith("memfd:argosy-shm")
    finally:
        os.close(descriptor)
    assert not list(Path("/dev/shm").glob("argosy*"))
