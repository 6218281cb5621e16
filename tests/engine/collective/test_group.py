"""Collectives of two and three real ranks against the same on one process; where they listen."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import psutil  # type: ignore[import-untyped]  # it has no annotations
import pytest
import torch

from argosy.engine import collective
from argosy.engine.errors import CollectiveError, ConfigError
from tests.ranks import ForkServer

KINDS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def parts(size: int, *shape: int, kind: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """The tensors of all ranks, the same on each of them."""
    torch.manual_seed(7)
    return [(torch.randn(shape) * 8).abs().to(kind) for _ in range(size)]


def same(actual: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(actual, wanted, rtol=1e-6 if wanted.dtype.itemsize > 2 else 0.02, atol=0)


def all_collectives() -> None:
    world = collective.connect()
    group = world.group("util")
    rank, size = world.rank, world.size
    for kind in KINDS:
        every = parts(size, 3, 4, kind=kind)
        stacked = torch.stack([t.double() for t in every])
        for op, wanted in (("sum", stacked.sum(0)), ("max", stacked.amax(0)), ("min", stacked.amin(0))):
            mine = every[rank].clone()
            assert group.all_reduce(mine, op) is mine
            same(mine, wanted.to(kind))
        for source in range(size):
            same(group.broadcast(every[rank].clone(), source), every[source])
        for gathered, wanted in zip(group.all_gather(every[rank]), every, strict=True):
            same(gathered, wanted)
    flags = group.all_gather(torch.tensor([rank == 1]))
    assert [bool(f) for f in flags] == [r == 1 for r in range(size)]
    assert group.all_reduce(torch.zeros(0, 3)).shape == (0, 3)


def rows_and_bytes() -> None:
    world = collective.connect()
    group, rank, size = world.group("util"), world.rank, world.size
    for counts in ([2, 0, 3], [0, 1, 0], [0, 0, 0]):
        every = [t[: counts[r]] for r, t in enumerate(parts(size, 3, 5))]
        same(group.all_gather_rows(every[rank]), torch.cat(every))
        # Rows that are not contiguous in memory.
        same(group.all_gather_rows(every[rank].T.contiguous().T), torch.cat(every))
    for data in ([b"", b"one", b"\0\xff"], [b"", b"", b""], [b"abc", b"", b""]):
        assert group.all_gather_bytes(data[rank]) == data[:size]


def odd_layouts() -> None:
    world = collective.connect()
    group, rank, size = world.group("util"), world.rank, world.size
    every = [t.contiguous(memory_format=torch.channels_last) for t in parts(size, 2, 3, 4, 5)]
    mine = every[rank].clone()
    group.all_reduce(mine)
    assert mine.is_contiguous(memory_format=torch.channels_last)
    same(mine, torch.stack(every).sum(0))
    same(group.broadcast(every[rank].clone(), 1), every[1])
    same(group.all_gather(every[rank])[1], every[1])
    same(group.all_reduce(parts(size, 4, 6)[rank].T), torch.stack(parts(size, 4, 6)).sum(0).T)
    with pytest.raises(CollectiveError, match=r"strides \[6, 2\] has gaps; .* make it contiguous"):
        group.all_reduce(torch.zeros(4, 6)[:, ::2])
    with pytest.raises(CollectiveError, match="does not support tensors of this dtype .*; convert it"):
        group.all_reduce(torch.zeros(4, dtype=torch.int16))
    with pytest.raises(ConfigError, match="op='mean'; use one of sum, max, min"):
        group.all_reduce(torch.zeros(4), "mean")


def groups_and_order() -> None:
    world = collective.connect()
    rank, size = world.rank, world.size
    assert world.group("a") is world.group("a")
    sums = {}
    started: list[collective.Work] = []
    for name in ("a", "b", "a", "c"):
        mine = torch.full((1000,), float(rank + len(started)))
        started.append(world.group(name).start_all_reduce(mine, what=f"number {len(started)}"))
        sums[started[-1]] = (mine, size * len(started) - size + sum(range(size)))
    for work in reversed(started):  # waited for in another order than started
        work.wait()
        work.wait()  # a second wait has nothing to do
        mine, wanted = sums[work]
        assert mine.eq(wanted).all(), (work.what, mine[0], wanted)
    gradient = torch.ones(4)
    work = world.group("a").start_broadcast(gradient, source=1)
    assert world.group("b").all_reduce(torch.ones(1)).item() == size  # while the other is in flight
    work.wait()


def barrier() -> None:
    world = collective.connect()
    world.group("util").barrier()  # creates the group, which is a barrier itself
    if world.rank == 1:
        time.sleep(0.5)
    print(time.monotonic())
    world.group("util").barrier("the end of an epoch")
    print(time.monotonic())


def listening() -> None:
    world = collective.connect()
    world.group("dp").barrier()
    open_at = [c.laddr.ip for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert len(open_at) >= (2 if world.rank == 0 else 1), open_at  # the store, the group
    assert set(open_at) == {"127.0.0.1"}, open_at
    world.group("dp").barrier()


def test_two_ranks_get_what_one_process_computes(ranks: ForkServer) -> None:
    ranks.check(2, all_collectives, FULL_EXIT="1")


def test_three_ranks_get_what_one_process_computes(ranks: ForkServer) -> None:
    ranks.check(3, all_collectives)


def test_rows_and_bytes_may_be_of_different_numbers_and_none(ranks: ForkServer) -> None:
    ranks.check(3, rows_and_bytes)


def test_a_tensor_keeps_its_layout_and_unsupported_tensors_are_rejected(ranks: ForkServer) -> None:
    ranks.check(2, odd_layouts)


def test_several_groups_run_concurrently_in_any_order_of_waits(ranks: ForkServer) -> None:
    ranks.check(3, groups_and_order)


def test_a_barrier_returns_when_the_last_rank_has_joined(ranks: ForkServer) -> None:
    times = [[float(t) for t in said.split()] for said in ranks.check(3, barrier)]
    assert min(after for _, after in times) >= max(before for before, _ in times)


def test_on_one_host_only_the_loopback_is_listened_on(ranks: ForkServer) -> None:
    ranks.check(2, listening)


def test_collectives_of_a_single_rank_return_its_tensors() -> None:
    group = collective.world().group("util")
    tensor = torch.arange(6.0).view(2, 3)
    assert (group.size, group.name) == (1, "util")
    same(group.all_reduce(tensor.clone()), tensor)
    same(group.broadcast(tensor.clone()), tensor)
    same(group.all_gather_rows(tensor), tensor)
    assert [t.tolist() for t in group.all_gather(tensor)] == [tensor.tolist()]
    assert group.all_gather_bytes(b"mine") == [b"mine"]
    group.start_all_reduce(tensor).wait()
    group.barrier()


def test_gathered_tensors_are_no_views_of_the_input() -> None:
    tensor = torch.zeros(2)
    group = collective.world().group("util")
    group.all_gather(tensor)[0].add_(1)
    group.all_gather_rows(tensor).add_(1)
    assert tensor.sum() == 0
