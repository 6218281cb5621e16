"""broadcast_startup: every variable gets a broadcast behind all initialisers, once."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np

from argosy import static
from argosy.engine.ir.program import Program, default_startup_program
from argosy.engine.ops.collectives import broadcast
from argosy.engine.passes.base import rewrite
from argosy.engine.passes.broadcast_startup import BroadcastStartup
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope


def net() -> Program:
    """The startup program of two layers."""
    static.nn.fc(static.nn.fc(static.data("x", [None, 4]), 8), 2)
    return default_startup_program()


def values(startup: Program, *names: str) -> BroadcastStartup:
    wanted = names or tuple(startup.persistables())
    return BroadcastStartup(tuple((name, startup.var(name).node) for name in wanted))


def test_every_variable_is_broadcast_behind_all_initialisers() -> None:
    startup = net()
    (report,) = rewrite(startup, [values(startup)])
    assert (report.changed, report.text) == (4, "4 variables are initialized with rank 0's values")
    nodes = list(startup.graph.nodes)
    assert [n.target for n in nodes[-4:]] == [broadcast] * 4
    assert all(n.target is not broadcast for n in nodes[:-4])
    assert [n.args[1:] for n in nodes[-4:]] == [(0, "dp", name) for name in startup.persistables()]
    assert {n.meta["role"] for n in nodes[-4:]} == {"communicate"}
    assert all(startup.var(n.args[3]).node is n for n in nodes[-4:]), "the variable is what was broadcast"


def test_leaves_the_others_alone() -> None:
    startup = net()
    rewrite(startup, [values(startup, "fc_0.w_0")])
    assert [n.args[3] for n in startup.graph.find_nodes(op="call_function", target=broadcast)] == ["fc_0.w_0"]


def test_a_second_run_changes_nothing() -> None:
    startup = net()
    rewrite(startup, [values(startup)])
    once = str(startup)
    (report,) = rewrite(startup, [values(startup)])
    assert (report.changed, str(startup)) == (0, once)


def test_layers_that_come_later_are_broadcast_by_a_later_run() -> None:
    startup = net()
    rewrite(startup, [values(startup)])
    static.nn.fc(static.data("z", [None, 3]), 2)
    (report,) = rewrite(startup, [values(startup)])
    assert report.changed == 2


def test_nothing_to_broadcast_in_an_empty_program_is_no_error() -> None:
    (report,) = rewrite(Program(), [BroadcastStartup(())])
    assert report.changed == 0


def test_alone_the_values_are_those_that_were_drawn() -> None:
    startup = net()
    startup.random_seed = 3
    Executor().run(startup)
    drawn = {name: global_scope().get(name).numpy().copy() for name in startup.persistables()}
    rewrite(startup, [values(startup)])
    Executor().run(startup)
    for name, value in drawn.items():
        np.testing.assert_array_equal(global_scope().get(name).numpy(), value)
