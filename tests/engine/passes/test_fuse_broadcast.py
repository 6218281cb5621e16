"""fuse_broadcast: what travels together, and what stays as it is."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import fx

from argosy.engine.ir.infer import infer
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.ops.collectives import broadcast, broadcast_fused
from argosy.engine.passes.base import Report, rewrite
from argosy.engine.passes.fuse_broadcast import FuseBroadcast


def state(name: str) -> fx.Node:
    program = default_main_program()
    variable = program.state(name, [3], "float32", trainable=True)
    return program.recorder.placeholder_of[variable.value]  # type: ignore[no-any-return]  # a table of torch's


def send(node: fx.Node, source: int, group: str = "dp") -> None:
    sent = node.graph.create_node("call_function", broadcast, (node, source, group, node.name))
    sent.meta = {"role": "communicate", "source": None}
    sent.meta["val"] = infer(sent)
    default_main_program().recorder.rebind(node, sent)


def fused() -> tuple[Program, list[Any]]:
    program = default_main_program()
    (report,) = rewrite(program, [FuseBroadcast()])
    return program, [report, *program.graph.find_nodes(op="call_function", target=broadcast_fused)]


def test_broadcasts_behind_each_other_become_one() -> None:
    a, b, c = map(state, "abc")
    for node, source in ((a, 0), (b, 1), (c, 0)):
        send(node, source)
    program, (report, made) = fused()
    assert report == Report(1, "3 broadcasts in 1 collectives")
    assert made.args == ([a, b, c], [0, 1, 0], "dp", "a … c")
    assert "communicate broadcast_fused = broadcast_fused([a, b, c], [0, 1, 0], dp, a … c)" in str(program)
    assert not program.graph.find_nodes(op="call_function", target=broadcast)
    assert [program.var(name).node for name in "abc"] == [a, b, c]
    assert str(from_dict(to_dict(program))) == str(program)


def test_one_alone_stays_as_it_is() -> None:
    send(state("a"), 1)
    _, (report,) = fused()
    assert report == Report(0, "1 broadcasts in 1 collectives")


def test_a_node_between_them_prevents_fusion() -> None:
    """It may read what the first has brought."""
    a, b = map(state, "ab")
    send(a, 0)
    with default_main_program().recording():
        default_main_program().var("a").value * 2
    send(b, 0)
    _, (report,) = fused()
    assert report.changed == 0


def test_two_groups_stay_apart() -> None:
    for name, group in (("a", "dp"), ("b", "dp"), ("c", "dp.1")):
        send(state(name), 0, group)
    _, (report, made) = fused()
    assert report == Report(1, "3 broadcasts in 2 collectives")
    assert made.args[2] == "dp"


def test_first_values_in_a_startup_program_stay_alone() -> None:
    program = default_main_program()
    for name in "ab":
        program.define(name, lambda: torch.zeros(3))
        send(program.var(name).node, 0)
    _, (report,) = fused()
    assert report == Report(0, "0 broadcasts in 0 collectives")


def test_a_second_run_changes_nothing() -> None:
    for name in "ab":
        send(state(name), 0)
    program, _ = fused()
    before = str(program)
    assert fused()[1][0].changed == 0
    assert str(program) == before
