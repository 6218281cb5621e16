"""insert_all_reduce: where the sums stand, which gradients are copied first, and that nothing else changes."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

import argosy as paddle
from argosy.engine.errors import ProgramError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.ops.collectives import all_reduce, wait
from argosy.engine.passes.base import Report, rewrite
from argosy.engine.passes.insert_all_reduce import InsertAllReduce
from argosy.engine.runtime.compile import compile_program
from argosy.engine.runtime.executor import Executor


def parameter(name: str, shape: list[int]) -> Any:
    initial = paddle.nn.initializer.Normal()
    return paddle.static.create_parameter(shape, "float32", name=name, default_initializer=initial)


def x() -> Any:
    return paddle.static.data("x", [None, 4], "float32")


def minimize(loss: Any, **options: Any) -> InsertAllReduce:
    """Backward and updates by Momentum; the pass for its gradients, in the order of backward."""
    _, pairs = paddle.optimizer.Momentum(0.1, 0.9, **options).minimize(loss)
    place = {node: i for i, node in enumerate(loss.program.graph.nodes)}
    return InsertAllReduce(tuple(sorted(((g.name, g.node) for _, g in pairs), key=lambda g: place[g[1]])))


def run(one: InsertAllReduce) -> Report:
    (report,) = rewrite(default_main_program(), [one])
    return report


def two_layers() -> InsertAllReduce:
    return minimize(paddle.static.nn.fc(paddle.static.nn.fc(x(), 8, activation="relu"), 2).mean())


def targets() -> list[Any]:
    return [node.target for node in default_main_program().graph.nodes]


def sums() -> list[fx.Node]:
    return list(default_main_program().graph.find_nodes(op="call_function", target=all_reduce))


def is_copied(name: str) -> bool:
    (collective,) = [node for node in sums() if node.args[2] == name]
    return collective.args[0].target is torch.ops.aten.clone.default


def test_each_gradient_is_summed_where_it_is_made_and_waited_for_behind() -> None:
    insertion = two_layers()
    report = run(insertion)
    assert (report.changed, report.text) == (4, "4 gradients are all-reduced over group 'dp'")
    assert [node.args[2] for node in sums()] == [
        "fc_1.w_0@GRAD",
        "fc_1.b_0@GRAD",
        "fc_0.w_0@GRAD",
        "fc_0.b_0@GRAD",
    ]
    for node, (_, gradient) in zip(sums(), insertion.gradients, strict=True):
        assert (node.args[:2], node.prev, node.next.target) == ((gradient, "dp"), gradient, wait)
        assert node.meta["role"] == node.next.meta["role"] == "communicate"
        assert node.meta["source"] == gradient.meta["source"]
    assert "communicate fc_0.w_0@GRAD = wait(all_reduce_2)" in str(default_main_program())


def test_the_optimizer_reads_the_sums_and_backward_does_not() -> None:
    run(two_layers())
    for node in default_main_program().graph.nodes:
        read = [source.target for source in node.all_input_nodes]
        assert (wait in read) == (node.target is torch.ops.argosy.momentum.default)


def test_with_overlap_each_wait_precedes_the_first_reader() -> None:
    insertion = two_layers()
    (report,) = rewrite(default_main_program(), [InsertAllReduce(insertion.gradients, overlap=True)])
    assert report.changed == 4
    order = targets()
    first_wait = order.index(wait)
    assert all(place < first_wait for place, target in enumerate(order) if target is all_reduce)
    assert order[first_wait:] == [wait, torch.ops.argosy.momentum.default] * 4


def test_with_overlap_clipping_by_the_global_norm_waits_for_all() -> None:
    loss = paddle.static.nn.fc(x(), 2).mean()
    insertion = minimize(loss, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
    rewrite(default_main_program(), [InsertAllReduce(insertion.gradients, overlap=True)])
    norms = [n for n in default_main_program().graph.nodes if "vector_norm" in str(n.target)]
    assert [n.args[0].target for n in norms[:2]] == [wait, wait]


def test_a_second_run_changes_nothing() -> None:
    run(two_layers())
    once = str(default_main_program())
    names = [str(node.args[2]) for node in sums()]
    again = InsertAllReduce(tuple((name, default_main_program().var(name).node) for name in names))
    report = run(again)
    assert (report.changed, str(default_main_program())) == (0, once)
    assert "4 are reduced already" in report.text


def test_a_gradient_that_was_gathered_by_rows_is_left_alone() -> None:
    insertion = two_layers()
    insertion.gradients[0][1].meta["reduced"] = True
    report = run(insertion)
    assert report.text == "3 gradients are all-reduced over group 'dp'; 1 are reduced already"
    assert "fc_1.w_0@GRAD" not in [node.args[2] for node in sums()]


def test_plain_gradients_are_not_copied() -> None:
    run(two_layers())
    assert not any(is_copied(node.args[2]) for node in sums())


def test_a_gradient_that_backward_reads_again_is_copied() -> None:
    """The gradient of w2 is computed from that of w1."""
    w = parameter("w1", [4, 3]) + parameter("w2", [4, 3]) * 0.5
    report = run(minimize(paddle.matmul(x(), w).mean()))
    assert is_copied("w1@GRAD")
    assert not is_copied("w2@GRAD")
    assert "1 of them in a copy" in report.text


def test_a_gradient_that_is_spread_without_memory_of_its_own_is_copied() -> None:
    run(minimize(parameter("w", [4, 3]).sum() + paddle.static.nn.fc(x(), 2).mean()))
    assert is_copied("w@GRAD")


def test_gradients_that_are_parts_of_one_tensor_are_copied() -> None:
    w = torch.cat([parameter("left", [4, 3]), parameter("right", [4, 2])], 1)
    run(minimize(paddle.matmul(x(), w).mean()))
    assert is_copied("left@GRAD")
    assert is_copied("right@GRAD")


def test_a_transposed_gradient_is_summed_where_it_lies() -> None:
    run(minimize(paddle.matmul(x(), parameter("w", [3, 4]), transpose_y=True).mean()))
    assert not is_copied("w@GRAD")


def test_two_parameters_with_one_gradient_need_one_sum() -> None:
    both = parameter("b1", [3]) + parameter("b2", [3])
    report = run(minimize((paddle.static.nn.fc(x(), 3, bias_attr=False) + both).mean()))
    assert report.changed == 2
    assert len(sums()) == 2
    program = default_main_program()
    assert program.var("b1@GRAD").node is program.var("b2@GRAD").node
    assert program.var("b1@GRAD").node.target is wait


def test_what_reads_a_gradient_afterwards_reads_the_sum() -> None:
    run(two_layers())
    reader = paddle.tanh(default_main_program().var("fc_0.w_0@GRAD"))
    assert reader.node.args[0].target is wait


def test_the_program_for_testing_has_no_trace_of_it() -> None:
    insertion = two_layers()
    before = str(default_main_program().clone(for_test=True)).splitlines()[1:]
    run(insertion)
    assert str(default_main_program().clone(for_test=True)).splitlines()[1:] == before


def test_a_copy_of_the_program_has_the_same_sums() -> None:
    run(two_layers())
    copied = default_main_program().clone()
    assert str(copied).splitlines()[1:] == str(default_main_program()).splitlines()[1:]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_program_that_was_saved_and_loaded_is_the_same_and_wants_its_ranks(overlap: bool) -> None:
    insertion = two_layers()
    rewrite(default_main_program(), [InsertAllReduce(insertion.gradients, overlap=overlap)])
    loaded = from_dict(to_dict(default_main_program()))
    assert str(loaded) == str(default_main_program())
    exe = Executor()
    exe.run(default_startup_program())
    with pytest.raises(ProgramError, match="was built for several ranks, and this process is the only one"):
        exe.run(loaded, {"x": np.ones((3, 4), "float32")})


def schedule(program: Program, fetches: list[str], **options: Any) -> tuple[str, ...]:
    return compile_program(program, [program.var(name) for name in fetches], **options).schedule


def test_the_schedule_is_the_same_whatever_is_fetched() -> None:
    run(two_layers())
    program = default_main_program()
    plain = schedule(program, [])
    assert len(plain) == 4
    assert plain[0] == "all_reduce dp of fc_1.w_0@GRAD float32[8, 2]"
    assert schedule(program, ["mean_0.tmp_0", "fc_0.w_0@GRAD"]) == plain


def test_without_updates_only_what_is_fetched_is_exchanged() -> None:
    run(two_layers())
    program = default_main_program()
    assert schedule(program, ["mean_0.tmp_0"], with_updates=False) == ()
    assert len(schedule(program, ["fc_0.w_0@GRAD"], with_updates=False)) == 1
