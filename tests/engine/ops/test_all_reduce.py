"""all_reduce and wait: the value, the memory, the shape."""

# SPDX-License-Identifier: Apache-2.0
import os

import torch

from argosy.engine import collective
from argosy.engine.ir.program import Program
from argosy.engine.ops.collectives import all_reduce, all_reduce_fused, wait
from argosy.engine.ops.op_spec import OpSpec
from tests.ranks import ForkServer

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64)


def sums() -> None:
    """On every rank: the sum replaces the tensor's values in place, for every dtype and memory format."""
    collective.connect()
    world = collective.world()
    for dtype in DTYPES:
        x = torch.arange(6, dtype=dtype).reshape(2, 3) + world.rank
        for mine in (x.clone(), x.t().contiguous().t()):
            work = OpSpec.known[all_reduce].kernel(mine, "dp", "x@GRAD")
            assert work.tensor is mine
            assert OpSpec.known[wait].kernel(work) is mine
            wanted = sum(torch.arange(6, dtype=dtype).reshape(2, 3) + rank for rank in range(world.size))
            assert torch.equal(mine, wanted), f"{dtype}: {mine}"
    several = [torch.full((1000,), float(world.rank + i)) for i in range(8)]
    started = [OpSpec.known[all_reduce].kernel(x, "dp", f"x_{i}") for i, x in enumerate(several)]
    for i, pending in reversed(list(enumerate(started))):  # in any order
        assert torch.equal(OpSpec.known[wait].kernel(pending), torch.full((1000,), 1.0 + 2 * i))


def test_two_ranks_get_the_sum_in_place(ranks: ForkServer) -> None:
    ranks.check(2, sums)


def test_alone_the_sum_is_the_tensor_itself() -> None:
    x = torch.ones(3)
    assert OpSpec.known[wait].kernel(OpSpec.known[all_reduce].kernel(x, "dp", "x")) is x
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_in_a_program_both_values_lie_in_the_memory_of_the_input() -> None:
    program = Program()
    x = program.data("x", [None, 3]).value
    with program.recording():
        y = wait(all_reduce(x, "dp", "x"))
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert y.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_ranks_must_agree_on_the_sum_and_not_on_the_wait() -> None:
    assert OpSpec.known[all_reduce].is_collective
    assert not OpSpec.known[wait].is_collective


def sum_without_a_plane_in_shared_memory() -> None:
    """The group could not share memory, and the buffer could."""
    os.environ["ARGOSY_SHM"] = "0"
    world = collective.connect()
    assert world.group("dp").shm is None
    os.environ["ARGOSY_SHM"] = "1"
    buffer = world.flat_buffer("test", 128, torch.float32, "dp")
    assert buffer.segment is not None
    buffer.local.fill_(world.rank + 1.0)
    actual = OpSpec.known[wait].kernel(OpSpec.known[all_reduce_fused].kernel(buffer, 64, 64, "dp", "x@GRAD"))
    assert actual.tolist() == [3.0] * 64


def test_a_sum_is_where_the_group_made_it(ranks: ForkServer) -> None:
    ranks.check(2, sum_without_a_plane_in_shared_memory)
