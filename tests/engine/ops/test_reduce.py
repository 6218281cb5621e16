"""reduce and updated_by_owner: the sum on one rank, the memory, and that ranks must agree."""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.engine import collective
from argosy.engine.ir.program import Program
from argosy.engine.ops.collectives import reduce, updated_by_owner, wait
from argosy.engine.ops.op_spec import OpSpec
from tests.ranks import ForkServer


def sums() -> None:
    """The sum replaces the root's values in place, for every dtype and memory format."""
    collective.connect()
    world = collective.world()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        x = torch.arange(6, dtype=dtype).reshape(2, 3)
        for root in range(world.size):
            mine = (x + world.rank).t().contiguous().t()
            work = OpSpec.known[reduce].kernel(mine, root, "dp", "x@GRAD")
            assert OpSpec.known[wait].kernel(work) is mine
            if world.rank == root:
                assert torch.equal(mine, 2 * x + 1), f"{dtype}: {mine}"
    several = [torch.full((1000,), float(world.rank + i)) for i in range(4)]
    started = [OpSpec.known[reduce].kernel(x, i % 2, "dp", f"x_{i}") for i, x in enumerate(several)]
    for i, pending in enumerate(started):
        work = OpSpec.known[wait].kernel(pending)
        assert world.rank != i % 2 or torch.equal(work, torch.full((1000,), 1.0 + 2 * i))


def test_one_rank_gets_the_sum_in_place(ranks: ForkServer) -> None:
    ranks.check(2, sums)
    ranks.check(2, sums, ARGOSY_SHM="0")


def test_alone_the_sum_is_the_tensor_itself() -> None:
    x = torch.ones(3)
    assert OpSpec.known[wait].kernel(OpSpec.known[reduce].kernel(x, 0, "dp", "x")) is x


def test_in_a_program_the_result_aliases_the_input() -> None:
    program = Program()
    x = program.data("x", [None, 3]).value
    with program.recording():
        y = wait(reduce(x, 1, "dp", "x"))
        updated_by_owner([x], [y], 1)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert y.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_leaving_an_update_changes_nothing() -> None:
    x = torch.ones(3)
    OpSpec.known[updated_by_owner].kernel([x], [torch.zeros(3)], 1)
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_ranks_must_agree_on_the_sum_and_not_on_what_they_leave() -> None:
    assert OpSpec.known[reduce].is_collective
    assert not OpSpec.known[updated_by_owner].is_collective
