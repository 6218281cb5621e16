"""broadcast: every rank gets the tensor of one of them, in place."""

# SPDX-License-Identifier: Apache-2.0

import torch

from argosy.engine import collective
from argosy.engine.ir.program import Program
from argosy.engine.ops.collectives import broadcast, broadcast_fused
from argosy.engine.ops.op_spec import OpSpec
from tests.ranks import ForkServer

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32)
DTYPES += (torch.uint8, torch.int8, torch.int16, torch.bool, torch.complex64)


def spread() -> None:
    """Values of any dtype, with the elements in any order in memory, empty ones and single numbers."""
    collective.connect()
    rank = collective.world().rank
    for dtype in DTYPES:
        x = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
        for wanted in (x, x.t().contiguous().t()):
            mine = wanted.clone() if rank == 0 else torch.zeros_like(wanted)
            assert OpSpec.known[broadcast].kernel(mine, 0, "dp", "w") is mine
            assert torch.equal(mine, wanted), f"{dtype}: {mine}"
    single = torch.tensor(float(rank))
    assert OpSpec.known[broadcast].kernel(single, 1, "dp", "single").item() == 1.0
    assert OpSpec.known[broadcast].kernel(torch.empty(0, 3), 0, "dp", "nothing").shape == (0, 3)


def test_two_ranks_get_the_values_of_one(ranks: ForkServer) -> None:
    ranks.check(2, spread)


def spread_several() -> None:
    """Tensors of several dtypes and sources, in any order in memory."""
    collective.connect()
    rank = collective.world().rank
    wanted = [torch.arange(6).reshape(2, 3).to(dtype).t() for dtype in DTYPES]
    sources = [place % 2 for place in range(len(wanted))]
    mine = [x.clone() if rank == s else torch.zeros_like(x) for x, s in zip(wanted, sources, strict=True)]
    OpSpec.known[broadcast_fused].kernel(mine, sources, "dp", "several")
    for actual, value in zip(mine, wanted, strict=True):
        assert torch.equal(actual, value), f"{value.dtype}: {actual}"


def test_several_are_spread_in_one_exchange(ranks: ForkServer) -> None:
    ranks.check(2, spread_several)
    ranks.check(2, spread_several, ARGOSY_SHM="0")


def test_alone_the_value_is_the_tensor_itself() -> None:
    x = torch.ones(3)
    assert OpSpec.known[broadcast].kernel(x, 0, "dp", "w") is x


def test_in_a_program_the_result_aliases_the_input() -> None:
    program = Program()
    x = program.data("x", [None, 3]).value
    with program.recording():
        y = broadcast(x, 0, "dp", "x")
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert y.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_ranks_must_agree_on_it() -> None:
    assert OpSpec.known[broadcast].is_collective
    assert OpSpec.known[broadcast_fused].is_collective
