"""average_parameters: what it appends, alone and in buckets."""

# SPDX-License-Identifier: Apache-2.0
import pytest

import argosy as paddle
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.show import op_name
from argosy.engine.passes.average_parameters import AverageParameters
from argosy.engine.passes.base import Pass, rewrite
from argosy.engine.passes.fuse_all_reduce import FuseAllReduce


def averaged(*passes: Pass, period: str = "", overlap: bool = False) -> Program:
    loss = paddle.mean(paddle.static.nn.fc(paddle.static.data("x", [None, 3]), 2))
    paddle.optimizer.Momentum(0.1).minimize(loss)
    program = default_main_program()
    placeholder = program.recorder.placeholder_of
    trained = tuple((p.name, placeholder[p.value]) for p in program.all_parameters())
    rewrite(program, [AverageParameters(trained, 2, period=period, overlap=overlap), *passes])
    return program


def appended(program: Program) -> list[str]:
    return [op_name(n) for n in program.graph.nodes if n.meta["role"] == "communicate"]


@pytest.mark.parametrize("overlap", [False, True])
def test_parameters_are_summed_in_a_copy_and_divided(overlap: bool) -> None:
    each = ["clone", "all_reduce"] if overlap else ["clone", "all_reduce", "wait"]
    last = ["wait", "store_mean"] if overlap else ["store_mean"]
    assert appended(averaged(overlap=overlap)) == [*each, *each, *last, *last]


def test_a_bucket_takes_the_place_of_the_copies() -> None:
    program = averaged(FuseAllReduce(), period="localsgd")
    assert appended(program) == [
        "gradient_buffer",
        "copy_into_bucket",
        "copy_into_bucket",
        "all_reduce_fused",
        "wait",
        "bucket_view",
        "bucket_view",
        "store_mean",
        "store_mean",
    ]
    nodes = [n for n in program.graph.nodes if n.meta["role"] == "communicate"]
    assert {n.meta["period"] for n in nodes} == {"localsgd"}


def test_what_the_optimizer_changes_is_of_each_rank() -> None:
    program = averaged()
    rank_local = [n.name for n in program.graph.find_nodes(op="placeholder") if n.meta.get("rank_local")]
    assert rank_local == ["fc_0_w_0", "fc_0_b_0", "fc_0_w_0_velocity_0", "fc_0_b_0_velocity_0"]
