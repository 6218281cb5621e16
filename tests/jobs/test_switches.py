"""Whatever two communication switches are combined, training ends with the parameters of the plain run.

The ranks of one job train one small net after the other, each with another strategy, and compare. The strategies are
so few that each value of a switch is combined with each value of all others. Where the order of the sums is the same,
the parameters are bitwise equal.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import os
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.ir.program import Program
from argosy.engine.runtime.scope import Scope
from tests.ranks import ForkServer

pytestmark = pytest.mark.slow

STEPS = 5
Arrays = dict[str, np.ndarray[Any, Any]]
Switches = dict[str, Any]

FUSION: tuple[Switches, ...] = (
    {"fuse_all_reduce_ops": False},
    {},
    {"fuse_grad_size_in_MB": 0},
    {"_fuse_grad_size_in_TFLOPS": 3},
)
OVERLAP: tuple[Switches, ...] = ({}, {"sync_nccl_allreduce": False})
COMMUNICATORS: tuple[Switches, ...] = ({}, {"nccl_comm_num": 2})
HIERARCHY: tuple[Switches, ...] = (
    {},
    {"use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": 2},
    {
        "use_hierarchical_allreduce": True,
        "hierarchical_allreduce_inter_nranks": 2,
        "hierarchical_allreduce_algorithm": "leaders",
    },
)
SIXTEEN: tuple[Switches, ...] = (
    {},
    {"fp16_allreduce": True},
    {"fp16_allreduce": True, "fp16_allreduce_configs": {"dtype": "bfloat16"}},
)
REDUCE: tuple[Switches, ...] = (
    {},
    {"reduce_strategy": paddle.static.BuildStrategy.ReduceStrategy.Reduce},
    {"reduce_strategy": paddle.static.BuildStrategy.ReduceStrategy.Reduce, "fuse_broadcast_ops": True},
)
BOUND = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.5e-2}


def strategy(switches: Switches) -> fleet.DistributedStrategy:
    chosen = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(chosen if name in chosen.fields else chosen.build_strategy, name, value)
    return chosen


def train(switches: Switches) -> Arrays:
    """Two layers and a table, five steps of Momentum; every rank has its own data."""
    rank = fleet.worker_index()
    with (
        paddle.static.program_guard(Program("main"), Program("startup")),
        paddle.utils.unique_name.guard(),
        paddle.static.scope_guard(Scope()),
    ):
        startup = paddle.static.default_startup_program()
        startup.random_seed = 5
        ids = paddle.static.data("ids", [4], "int64")
        x = paddle.static.data("x", [4, 6], "float32")
        rows = paddle.static.nn.embedding(ids, [11, 5], is_sparse=True)
        h = paddle.static.nn.fc(paddle.concat([x, rows], axis=1), 9, activation="tanh")
        loss = (paddle.static.nn.fc(h, 3) ** 2).mean()
        inner = paddle.optimizer.Momentum(0.1, 0.9, weight_decay=paddle.regularizer.L2Decay(1e-3))
        fleet.distributed_optimizer(inner, strategy(switches)).minimize(loss)
        main, exe = paddle.static.default_main_program(), paddle.static.Executor()
        exe.run(startup)
        draw = np.random.RandomState(rank)
        for _ in range(STEPS):
            feed = {"x": draw.rand(4, 6).astype("float32"), "ids": draw.randint(0, 11, 4)}
            exe.run(main, feed=feed)
        scope = paddle.static.global_scope()
        return {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}


def pairwise(table: list[tuple[Switches, ...]]) -> list[Switches]:
    """Few strategies that contain each possible pair of parts; greedily, most new pairs first."""
    can = [parts for parts in itertools.product(*(range(len(row)) for row in table)) if is_used(table, parts)]
    pairs = {parts: set(itertools.combinations(enumerate(parts), 2)) for parts in can}
    missing, chosen = set[Any]().union(*pairs.values()), []
    while missing:
        best = max(can, key=lambda parts: len(pairs[parts] & missing))
        missing -= pairs[best]
        chosen.append(merged(table, best))
    return chosen


def merged(table: list[tuple[Switches, ...]], parts: tuple[int, ...]) -> Switches:
    return {name: value for row, i in zip(table, parts, strict=True) for name, value in row[i].items()}


def is_used(table: list[tuple[Switches, ...]], parts: tuple[int, ...]) -> bool:
    """Reduce mode uses neither fusion nor hierarchy, and warns about it: that is tested with its passes."""
    switches = merged(table, parts)
    return "reduce_strategy" not in switches or not (
        "use_hierarchical_allreduce" in switches or table[0][parts[0]]
    )


def is_same_order(switches: Switches, through_memory: bool) -> bool:
    """Two summands have one order; shared-memory collectives always sum in rank order."""
    if "fp16_allreduce" in switches:
        return False
    if fleet.worker_num() == 2:
        return True
    return through_memory and "use_hierarchical_allreduce" not in switches


def compare_all() -> None:
    fleet.init(is_collective=True)
    through_memory = os.environ.get("ARGOSY_SHM") != "0"
    plain = train({"fuse_all_reduce_ops": False})
    if fleet.worker_num() == 2:
        table = [FUSION, OVERLAP, COMMUNICATORS, HIERARCHY[:1], SIXTEEN, REDUCE]
    elif through_memory:
        table = [FUSION[:3], OVERLAP, COMMUNICATORS, HIERARCHY, SIXTEEN[:2], REDUCE]
    else:
        table = [FUSION[1:3], OVERLAP, COMMUNICATORS, HIERARCHY, SIXTEEN[:1], REDUCE]
    chosen = pairwise(table)
    for switches in chosen:
        trained = train(switches)
        dtype = "float32"
        if "fp16_allreduce" in switches:
            dtype = switches.get("fp16_allreduce_configs", {"dtype": "float16"})["dtype"]
        for name, value in plain.items():
            what = f"{name} with {switches}"
            if is_same_order(switches, through_memory):
                assert np.array_equal(trained[name], value), what
            np.testing.assert_allclose(trained[name], value, rtol=0, atol=BOUND[dtype], err_msg=what)
            everyone = fleet.util.all_gather(trained[name].tobytes().hex())
            assert len(set(everyone)) == 1, f"{what}: the ranks differ"
    print(len(chosen), "strategies")


def test_any_two_switches_on_two_ranks_give_the_plain_parameters(ranks: ForkServer) -> None:
    said = ranks.check(2, compare_all, timeout_s=200)
    assert "16 strategies" in said[0]


def test_any_two_switches_on_four_ranks_give_the_plain_parameters(ranks: ForkServer) -> None:
    said = ranks.check(4, compare_all, timeout_s=250)
    assert "13 strategies" in said[0]


def test_any_two_switches_on_four_ranks_through_sockets_give_the_plain_parameters(ranks: ForkServer) -> None:
    said = ranks.check(4, compare_all, timeout_s=250, ARGOSY_SHM="0")
    assert "10 strategies" in said[0]
