"""reduce_to_owner: who owns what, which updates stay, what is sent, and what is refused."""

# SPDX-License-Identifier: Apache-2.0
import operator
from typing import Any

import pytest
import torch
from torch import fx

import argosy as paddle
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.ops.collectives import all_reduce, broadcast, reduce, updated_by_owner, wait
from argosy.engine.ops.updates import update_op
from argosy.engine.passes.base import Report, rewrite
from argosy.engine.passes.insert_all_reduce import InsertAllReduce
from argosy.engine.passes.reduce_to_owner import ReduceToOwner, is_divided, owners
from argosy.engine.runtime.compile import compile_program

MOMENTUM = update_op("momentum")


def net(sizes: tuple[int, ...] = (8, 8, 2)) -> Any:
    x = paddle.static.data("x", [None, 4], "float32")
    for size in sizes:
        x = paddle.static.nn.fc(x, size)
    return x.mean()


def minimize(loss: Any, optimizer: Any = None, **options: Any) -> list[Any]:
    """Backward, updates and sums; the passes that follow, still to be run."""
    _, pairs = (optimizer or paddle.optimizer.Momentum(0.1, 0.9)).minimize(loss)
    program = loss.program
    place = {node: number for number, node in enumerate(program.graph.nodes)}
    gradients = sorted(((g.name, g.node) for _, g in pairs), key=lambda one: place[one[1]])
    rewrite(program, [InsertAllReduce(tuple(gradients), overlap=options.pop("overlap", False))])
    trained = tuple((p.name, program.recorder.placeholder_of[p.value], g.name) for p, g in pairs)
    return [ReduceToOwner(trained, **{"rank": 0, "ranks": 2} | options)]


def built(**options: Any) -> tuple[Program, Report]:
    program = default_main_program()
    (report,) = rewrite(program, minimize(net(), **options))
    return program, report


def on_rank(rank: int, **options: Any) -> Program:
    """A new program of one of two ranks."""
    with paddle.static.program_guard(Program("main"), Program()), paddle.utils.unique_name.guard():
        return built(rank=rank, **options)[0]


def nodes(program: Program, target: object) -> list[fx.Node]:
    return [n for n in program.graph.nodes if n.target is target]


def parameters(program: Program) -> dict[str, int]:
    """The owners of the parameters alone."""
    return {name: owner for name, owner in owners(program).items() if "velocity" not in name}


def test_each_gradient_goes_to_the_rank_with_the_fewest_elements_so_far() -> None:
    """In the order of backward: 16, 2, 64, 8, 32, 8 elements; the first of two equal ranks wins."""
    program, report = built()
    actual = [(node.args[3], node.args[1]) for node in nodes(program, reduce)]
    assert actual == [
        ("fc_2.w_0@GRAD", 0),  # 16, 0
        ("fc_2.b_0@GRAD", 1),  # 16, 2
        ("fc_1.w_0@GRAD", 1),  # 16, 66
        ("fc_1.b_0@GRAD", 0),  # 24, 66
        ("fc_0.w_0@GRAD", 0),  # 56, 66
        ("fc_0.b_0@GRAD", 0),  # 64, 66
    ]
    assert report == Report(6, "6 gradients to 2 ranks, 64, 66 elements; rank 0 updates 4 of 6 parameters")
    assert not nodes(program, all_reduce)


def test_of_one_ops_gradients_the_last_comes_first_as_in_paddle() -> None:
    x = paddle.static.data("x", [None, 4], "float32")
    rewrite(
        default_main_program(), minimize(torch.nn.functional.layer_norm(x, [4], *scale_and_shift()).mean())
    )
    (item,) = {n.target for start in nodes(default_main_program(), reduce) for n in start.all_input_nodes}
    assert item is operator.getitem
    assert parameters(default_main_program()) == {"scale": 1, "shift": 0}


def scale_and_shift() -> list[Any]:
    initial = paddle.nn.initializer.Normal()
    return [
        paddle.static.create_parameter([4], "float32", name=name, default_initializer=initial)
        for name in ("scale", "shift")
    ]


def test_the_owner_updates_and_the_others_leave_it_to_it() -> None:
    for rank in (0, 1):
        program = on_rank(rank)
        mine = {str(node.args[0]) for node in nodes(program, MOMENTUM)}
        left = {str(node.args[0][0]): node for node in nodes(program, updated_by_owner)}
        owned = {name.replace(".", "_") for name, owner in parameters(program).items() if owner == rank}
        assert mine == owned
        assert len(mine) + len(left) == 6
        for node in left.values():
            assert node.args[2] == 1 - rank
            assert node.meta["role"] == "optimize"
            assert [one.target for one in node.args[1]] == [wait]


def test_the_state_has_the_owner_of_its_parameter() -> None:
    owner_of = owners(built()[0])
    assert owner_of["fc_1.w_0"] == owner_of["fc_1.w_0_velocity_0"] == 1
    assert owner_of["fc_2.w_0"] == owner_of["fc_2.w_0_velocity_0"] == 0
    assert "learning_rate_0" not in owner_of
    assert len(owner_of) == 12


def test_it_can_be_read_in_the_printed_program() -> None:
    text = str(built()[0])
    assert "communicate reduce = reduce(mm_1, 0, dp, fc_2.w_0@GRAD)" in text
    assert "communicate fc_2.w_0@GRAD = wait(reduce)" in text
    assert "updated_by_owner([fc_1.w_0, fc_1.w_0_velocity_0], [fc_1.w_0@GRAD], 1)" in text
    assert "communicate fc_1.w_0 = broadcast(fc_1.w_0, 1, dp, fc_1.w_0)" in text


def test_the_parameters_are_sent_at_the_end() -> None:
    program, _ = built()
    *_, a, b, c, d, e, f = program.graph.nodes
    assert {n.target for n in (a, b, c, d, e, f)} == {broadcast}
    assert [n.args[3] for n in (a, f)] == ["fc_0.w_0", "fc_2.b_0"]
    assert [n.args[1] for n in (a, b, c, d, e, f)] == [0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("overlap", [False, True])
def test_the_ranks_differ_in_the_updates_alone_and_exchange_the_same(overlap: bool) -> None:
    programs = [on_rank(rank, overlap=overlap) for rank in (0, 1)]
    lines = [[line for line in str(p).splitlines()[1:] if not line.startswith("optimize")] for p in programs]
    assert [line.split() for line in lines[0]] == [line.split() for line in lines[1]]
    schedules = [compile_program(p, []).schedule for p in programs]
    assert schedules[0] == schedules[1]
    assert len(schedules[0]) == 12, "a reduce whose sum another rank reads is not pruned"


def test_with_overlap_a_sum_is_waited_for_where_it_is_used_or_left() -> None:
    program = on_rank(1, overlap=True)
    order = [n.target for n in program.graph.nodes if n.target in (wait, MOMENTUM, updated_by_owner, reduce)]
    assert order[:6] == [reduce] * 6
    assert order[6::2] == [wait] * 6


def test_gradients_take_turns_on_the_communicators() -> None:
    program, _ = built(groups=("dp", "dp.1", "dp.2"))
    assert [n.args[2] for n in nodes(program, reduce)] == ["dp", "dp.1", "dp.2"] * 2
    assert {n.args[2] for n in nodes(program, broadcast)} == {"dp"}


def test_a_rank_may_own_nothing_and_still_trains() -> None:
    loss = net((1,))
    (report,) = rewrite(loss.program, minimize(loss, rank=3, ranks=4))
    assert report.text == "2 gradients to 4 ranks, 4, 1, 0, 0 elements; rank 3 updates 0 of 2 parameters"
    assert compile_program(loss.program, []).trains


def test_a_second_run_changes_nothing() -> None:
    program = default_main_program()
    (one,) = minimize(net())
    rewrite(program, [one])
    before = str(program)
    assert rewrite(program, [one]) == [Report(0, "no all_reduce")]
    assert str(program) == before


def test_a_gradient_that_is_equal_on_all_ranks_has_no_owner() -> None:
    loss = net()
    (one,) = minimize(loss)
    (start,) = [n for n in nodes(loss.program, all_reduce) if n.args[2] == "fc_1.w_0@GRAD"]
    (arrived,) = start.users
    arrived.replace_all_uses_with(start.args[0])
    loss.program.recorder.rebind(arrived, start.args[0])
    for node in (arrived, start):
        loss.program.graph.erase_node(node)
    rewrite(loss.program, [one])
    assert "fc_1.w_0" not in owners(loss.program)
    assert len(nodes(loss.program, broadcast)) == 5
    assert "fc_1_w_0" in {str(node.args[0]) for node in nodes(loss.program, MOMENTUM)}


def test_two_parameters_with_one_gradient_have_one_owner() -> None:
    both = torch.add(*scale_and_shift())
    loss = (paddle.static.nn.fc(paddle.static.data("x", [None, 4]), 4, bias_attr=False) + both).mean()
    rewrite(loss.program, minimize(loss))
    values = parameters(loss.program)
    assert values["scale"] == values["shift"]
    assert len(nodes(loss.program, reduce)) == 2
    assert len(nodes(loss.program, broadcast)) == 3


def test_what_clips_each_gradient_by_itself_goes_with_its_update() -> None:
    clip = paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByNorm(1.0))
    loss = net()
    rewrite(loss.program, minimize(loss, clip))
    norms = [n for n in loss.program.graph.nodes if "vector_norm" in str(n.target)]
    assert len(norms) == 4
    assert len(nodes(loss.program, updated_by_owner)) == 2


def test_clipping_by_the_global_norm_is_refused() -> None:
    clip = paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
    loss = net()
    wanted = (
        r"pass reduce_to_owner: stack \(.*\) depends on fc_0.w_0@GRAD \(rank 0\) and fc_1.w_0@GRAD \(rank 1\)"
        r".*clipping by the global norm.*use ReduceStrategy.AllReduce"
    )
    with pytest.raises(ConfigError, match=wanted):
        rewrite(loss.program, minimize(loss, clip))


def test_a_second_minimize_by_the_same_optimizer_finds_the_owners_of_the_first() -> None:
    hidden = paddle.static.nn.fc(paddle.static.data("x", [None, 4]), 3)
    program, optimizer = default_main_program(), paddle.optimizer.Momentum(0.1, 0.9)
    rewrite(program, minimize(hidden.mean(), optimizer))
    first = owners(program)
    rewrite(program, minimize((paddle.static.nn.fc(hidden, 1)).mean(), optimizer))
    assert first.items() <= owners(program).items()
    assert [len(nodes(program, target)) for target in (reduce, broadcast)] == [6, 6]


def test_copies_and_saved_programs_know_the_owners() -> None:
    program, _ = built()
    for copied in (program.clone(), from_dict(to_dict(program))):
        assert owners(copied) == owners(program)
        assert is_divided(copied)
        assert str(copied).splitlines()[1:] == str(program).splitlines()[1:]


def test_the_program_for_testing_is_whole() -> None:
    loss = net()
    passes = minimize(loss)
    before = str(loss.program.clone(for_test=True)).splitlines()[1:]
    rewrite(loss.program, passes)
    test_program = loss.program.clone(for_test=True)
    assert str(test_program).splitlines()[1:] == before
    assert not is_divided(test_program)
