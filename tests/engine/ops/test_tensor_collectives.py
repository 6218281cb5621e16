"""Collectives on values: one rank gives its own value; two ranks are in tests/distributed/test_collective.py."""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.engine.ops.op_spec import OpSpec
from argosy.engine.ops.tensor_collectives import REDUCTIONS, broadcast_value, gather_values, reduce_value


def test_one_rank_gets_a_copy_of_its_own_value() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for result in (
        *(reduce_value(x, op, "dp", "x") for op in REDUCTIONS),
        broadcast_value(x, 0, "dp", "x"),
        gather_values(x, "dp", "x")[0],
    ):
        torch.testing.assert_close(result, x)
        assert result.data_ptr() != x.data_ptr()


def test_they_are_collectives_that_stay_without_users() -> None:
    for op in (reduce_value, gather_values, broadcast_value):
        assert OpSpec.known[op].is_collective
        assert OpSpec.known[op].has_side_effects
