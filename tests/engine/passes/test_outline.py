"""outline: which nodes go together, and that what must keep its place does."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import fx

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.show import op_name
from argosy.engine.passes.base import rewrite
from argosy.engine.passes.outline import outline


def net(drop: bool = False) -> Any:
    """A loss behind three layers."""
    h = paddle.static.data("x", [None, 8])
    for _ in range(2):
        h = paddle.static.nn.fc(h, 16, activation="relu")
        h = paddle.nn.functional.dropout(h, 0.5) if drop else h
    return paddle.static.nn.fc(h, 2).mean()


def calls() -> list[fx.Node]:
    return [n for n in default_main_program().graph.nodes if n.op != "placeholder"]


def shown(parts: list[Any]) -> list[str]:
    """The names of the ops; a group is called 'group'."""
    return [op_name(one) if isinstance(one, fx.Node) else "group" for one in parts]


def nodes_of(parts: list[Any]) -> list[fx.Node]:
    return [n for one in parts for n in ([one] if isinstance(one, fx.Node) else one)]


def is_in_order(nodes: list[fx.Node]) -> bool:
    seen = set(default_main_program().graph.find_nodes(op="placeholder"))
    for node in nodes:
        if not seen.issuperset(node.all_input_nodes):
            return False
        seen.add(node)
    return True


def two_rank_program(overlap: bool) -> None:
    """What `minimize` makes on two ranks, with gradients in two groups."""
    loss = net()
    _, pairs = paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    strategy = fleet.DistributedStrategy()
    strategy._fuse_grad_size_in_TFLOPS, strategy.sync_nccl_allreduce = 2, not overlap
    rewrite(default_main_program(), training_passes(strategy, loss.program, pairs, ranks=2))


def test_forward_and_backward_of_one_process_are_one_group_before_the_updates() -> None:
    paddle.optimizer.SGD(0.1).minimize(net())
    parts = outline(calls())
    names = shown(parts)
    assert names.count("group") == 1
    assert names[names.index("group") + 1 :] == ["sgd"] * 6
    assert is_in_order(nodes_of(parts))
    assert sorted(nodes_of(parts), key=lambda n: n.name) == sorted(calls(), key=lambda n: n.name)


def test_random_numbers_are_drawn_outside_and_in_their_order() -> None:
    paddle.optimizer.SGD(0.1).minimize(net(drop=True))
    parts = outline(calls())
    drawn = [n for n in parts if isinstance(n, fx.Node) and "dropout" in op_name(n)]
    assert drawn == [n for n in calls() if n.target is torch.ops.aten.native_dropout.default]
    assert shown(parts).count("group") == 3
    assert is_in_order(nodes_of(parts))


def test_exchanges_and_waits_keep_their_places_and_nothing_crosses_them() -> None:
    two_rank_program(overlap=True)
    plain, actual = calls(), nodes_of(outline(calls()))

    def before_each(nodes: list[fx.Node]) -> list[tuple[str, set[str]]]:
        cuts = [i for i, n in enumerate(nodes) if op_name(n) in ("all_reduce_fused", "wait")]
        return [(nodes[i].name, {n.name for n in nodes[:i]}) for i in cuts]

    assert len(before_each(plain)) == 4
    assert before_each(actual) == before_each(plain)
    assert is_in_order(actual)


def test_gradients_are_put_behind_the_group_that_makes_them_not_between() -> None:
    two_rank_program(overlap=True)
    names = shown(outline(calls()))
    assert names.count("group") == 2, "one for each all-reduce"
    assert names.index("all_reduce_fused") < len(names) - 1 - names[::-1].index("group"), (
        "backward continues after it"
    )


def test_a_view_of_memory_that_changes_stays_outside() -> None:
    paddle.optimizer.SGD(0.1).minimize(net())
    views = [n for n in outline(calls()) if isinstance(n, fx.Node) and op_name(n) == "t"]
    assert views, "the transposed weights, which the updates change"
    assert all(n.args[0].op == "placeholder" for n in views)


def test_a_single_computation_is_left_alone() -> None:
    net_of_one = paddle.static.data("x", [None, 8]).exp()
    assert shown(outline([net_of_one.node])) == ["exp"]


def test_what_is_outlined_twice_is_outlined_alike() -> None:
    two_rank_program(overlap=True)
    parts = outline(calls())
    assert shown(outline(nodes_of(parts))) == shown(parts)
