"""shard_optimizer: where buckets are cut, what a rank's program has, and what is rejected."""

# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import fx

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.ops.sharding import all_gather_shards, reduce_scatter
from argosy.engine.ops.updates import update_op
from argosy.engine.passes.base import finalize_collectives, rewrite
from argosy.engine.passes.shard_optimizer import adopt_shards, reject_sharded_state, shard_startup
from argosy.engine.passes.shard_plan import BucketSlot, Shard, bucket_bounds, row_bounds, shards
from argosy.engine.runtime.compile import compile_program
from argosy.nn.clip import ClipGradBase


def slots_of(*shapes: tuple[int, ...]) -> list[BucketSlot]:
    """Slots at multiples of 64 elements, one after the other."""
    slots, first = [], 0
    for shape in shapes:
        numel = int(torch.Size(shape).numel())
        slots.append(BucketSlot(first, numel, shape[0]))
        first += -(-numel // 64) * 64
    return slots


@pytest.mark.parametrize("degree", [2, 3, 4, 8])
def test_every_row_has_one_rank_and_cuts_are_aligned(degree: int) -> None:
    slots = slots_of((64, 3, 7, 7), (64,), (1000, 9), (1, 5000), (512, 64), (10,))
    count = 9408 + 64 + 9024 + 5056 + 32768 + 64  # 9000 and 5000 are padded
    bounds = bucket_bounds(slots, count, degree)
    assert bounds[0] == 0
    assert bounds[-1] == count
    assert bounds == sorted(bounds)
    for slot in slots:
        rows = row_bounds(slot, bounds)
        assert (rows[0], rows[-1], len(rows)) == (0, slot.rows, degree + 1)
        assert list(rows) == sorted(rows)
        for (a, b), row in zip(pairwise(bounds), rows[1:-1], strict=False):
            assert row * slot.row_size % 64 == 0 or row == slot.rows, (a, b)
    sizes = [b - a for a, b in pairwise(bounds)]
    assert max(sizes) - min(sizes) <= 2 * 5056, "at most the row that cannot be cut"


def test_a_shard_of_a_number_is_all_or_nothing() -> None:
    shard = Shard((), (0, 1, 1))
    assert shard.of(torch.tensor(3.0), 0).item() == 3.0
    assert shard.of(torch.tensor(3.0), 1).numel() == 0
    assert shard.owners() == [0]
    count = Shard((1,), (0, 0, 4), is_count=True)
    assert count.owners() == [1]
    assert count.of(torch.ones(1), 0).tolist() == [1.0]


def on_rank(rank: int, optimizer: Any = None, build: Any = None, **configs: Any) -> tuple[Program, Program]:
    """The programs of one of two ranks (or `ranks`)."""
    ranks = configs.pop("ranks", 2)
    strategy = fleet.DistributedStrategy()
    strategy.sharding, strategy.sharding_configs = True, configs
    main, startup = Program("main"), Program("startup")
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss = (build or net)()
        for number, one in enumerate(loss if isinstance(loss, tuple) else (loss,)):
            chosen = optimizer[number] if isinstance(optimizer, list) else optimizer
            updates, pairs = (chosen or paddle.optimizer.Momentum(0.1, 0.9)).minimize(one)
            reject_sharded_state(updates)
            rewrite(main, training_passes(strategy, main, pairs, ranks, rank=rank))
            finalize_collectives(main.graph)
            adopt_shards(main)
            shard_startup(main, startup, rank)
    return main, startup


def net() -> Any:
    x = paddle.static.data("x", [None, 3, 8, 8], "float32")
    hidden = paddle.static.nn.conv2d(x, 64, 3, padding=1)
    return paddle.static.nn.fc(paddle.static.nn.fc(hidden, 16), 1).mean()


def nodes(program: Program, target: object) -> list[fx.Node]:
    return [n for n in program.graph.nodes if n.target is target]


def test_the_ranks_have_the_same_collectives_and_different_rows() -> None:
    programs = [on_rank(rank) for rank in (0, 1)]
    (first, _), (second, _) = programs
    assert [n.args[1:] for n in nodes(first, reduce_scatter)] == [
        n.args[1:] for n in nodes(second, reduce_scatter)
    ]
    assert [n.args[2:] for n in nodes(first, all_gather_shards)] == [
        n.args[2:] for n in nodes(second, all_gather_shards)
    ]
    for name, shard in shards(first).items():
        sizes = [main.vars[name].shape[0] for main, _ in programs]
        assert sum(sizes) == shard.shape[0]
        for main, startup in programs:
            assert startup.vars[name].shape == main.vars[name].shape, name
    assert len(nodes(first, update_op("momentum"))) + len(nodes(second, update_op("momentum"))) == 7
    assert str(first).count("shard_rows") >= 2


def test_a_cut_weight_keeps_channels_last_rows() -> None:
    main, _ = on_rank(
        0,
        build=lambda: paddle.static.nn.conv2d(
            paddle.static.nn.conv2d(paddle.static.data("x", [None, 16, 8, 8]), 64, 3), 8, 3
        ).mean(),
    )
    compiled = compile_program(main, [])
    formats = dict(zip(compiled.states, compiled.memory_formats, strict=True))
    assert main.vars["conv2d_0.w_0_velocity_0"].shape[0] not in (0, 64), "the bucket is cut in this weight"
    assert formats["conv2d_0.w_0"] is formats["conv2d_0.w_0_velocity_0"] is torch.channels_last
    assert compiled.shared is not None
    assert set(compiled.shared.names) == {p.name for p in main.all_parameters()}


def test_masters_of_16_bit_parameters_are_sharded() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [None, 64], "bfloat16")
        return paddle.static.nn.fc(x, 8).mean()

    main, startup = on_rank(1, paddle.optimizer.Momentum(0.1, 0.9, multi_precision=True), build)
    name = "fc_0.w_0_fp32_master_0"
    rows = shards(main)[name].rows(1)
    assert main.vars[name].shape == startup.vars[name].shape == (rows[1] - rows[0], 8)
    compile_program(main, [])
    compile_program(startup, [])


def test_two_optimizers_of_different_parameters() -> None:
    def build() -> Any:
        x = paddle.static.data("x", [None, 64], "float32")
        return paddle.static.nn.fc(x, 8).mean(), paddle.static.nn.fc(x, 8).square().mean()

    optimizers = [paddle.optimizer.Adam(0.1, parameters=[f"fc_{i}.w_0", f"fc_{i}.b_0"]) for i in range(2)]
    main, _ = on_rank(0, optimizers, build)
    ends = [n.args[6] for n in nodes(main, all_gather_shards)]
    assert ends == [True, True], "each optimizer ends with a barrier"
    compile_program(main, [])


def test_a_parameter_that_is_mutated_elsewhere_is_not_shared() -> None:
    main, startup = on_rank(0)
    with paddle.static.program_guard(main, startup):
        weight = main.var("fc_1.w_0")
        paddle.assign(weight.clip(-0.1, 0.1), weight)
    compiled = compile_program(main, [])
    assert compiled.shared is not None
    assert "fc_1.w_0" not in compiled.shared.names
    assert "fc_0.w_0" in compiled.shared.names
    assert compile_program(on_rank(0, shared_weights=False)[0], []).shared is None


def test_state_that_two_minimize_calls_update_is_rejected() -> None:
    def build() -> Any:
        loss = net()
        return loss, loss * 2.0

    optimizer = paddle.optimizer.Momentum(0.1, 0.9)
    with pytest.raises(ConfigError, match=r"is updated by two minimize calls"):
        on_rank(0, [optimizer, optimizer], build)


def test_what_needs_a_whole_gradient_is_rejected() -> None:
    class Clip(ClipGradBase):
        def clip(self, grads: Any) -> Any:
            for grad in grads:
                yield grad - grad.mean()

    with pytest.raises(ConfigError, match=r"needs whole gradients.*turn strategy.sharding off"):
        on_rank(0, paddle.optimizer.SGD(0.1, grad_clip=Clip()))


def test_the_marks_of_shards_are_saved_with_a_program() -> None:
    main, _ = on_rank(1)
    assert shards(from_dict(to_dict(main))) == shards(main)
    assert not shards(main.clone(for_test=True))
