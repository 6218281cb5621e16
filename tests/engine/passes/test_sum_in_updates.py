"""sum_in_updates: which buckets are summed in their updates, and that the collectives stay the same."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from typing import Any

import pytest

import argosy as paddle
from argosy import nn
from argosy.engine.ops.gradient_buckets import bucket_view
from argosy.engine.ops.sharding import reduce_scatter, shard_gradient, shard_rows
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.runtime.compile import Compiled, compile_program
from tests.engine.passes.test_shard_optimizer import on_rank


def num_calls(compiled: Compiled, target: object) -> int:
    return sum(node.target is target for node in compiled.step.nodes)


def compiled_on(rank: int, optimizer: Any = None) -> Compiled:
    return compile_program(on_rank(rank, optimizer)[0], [])


@pytest.mark.parametrize("fuses", [True, False])
def test_updates_read_the_gradients_of_all_ranks(fuses: bool) -> None:
    main, _ = on_rank(0)
    without = frozenset() if fuses else frozenset({FuseOptimizer.name})
    compiled = compile_program(main, [], build=replace(main.build, without_passes=without))
    (start,) = [node for node in compiled.step.nodes if node.target is reduce_scatter]
    assert start.kwargs == {"sums": False}
    gradients = [node for node in compiled.step.nodes if node.target is shard_gradient]
    assert len(gradients) > 1
    assert num_calls(compiled, bucket_view) == 0
    for node in gradients:
        assert node.meta["val"].shape[0] == node.args[5] - node.args[4]
    assert num_calls(compiled, shard_rows) == len(gradients), "of the parameters only"


def test_the_collectives_do_not_depend_on_where_a_rank_sums() -> None:
    main, _ = on_rank(0)
    in_updates = compile_program(main, [])
    before_them = compile_program(main, [], check=lambda *_: None)  # a check of all values needs the sums
    assert num_calls(before_them, shard_gradient) == 0
    assert in_updates.schedule == before_them.schedule == compiled_on(1).schedule


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: paddle.optimizer.Momentum(0.1, 0.9, grad_clip=nn.ClipGradByGlobalNorm(1.0)),
        lambda: paddle.optimizer.Momentum(0.1, 0.9, grad_clip=nn.ClipGradByValue(1.0)),
        lambda: paddle.optimizer.Adagrad(0.1),
    ],
)
def test_a_sum_that_anything_else_reads_is_computed_before(optimizer: Any) -> None:
    compiled = compiled_on(0, optimizer())
    assert num_calls(compiled, shard_gradient) == 0
    (start,) = [node for node in compiled.step.nodes if node.target is reduce_scatter]
    assert not start.kwargs
