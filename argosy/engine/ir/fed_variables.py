"""Feed variables that the program computes: Paddle's `exe.run(feed={hidden.name: array})`.

    before    x ──▶ fc_0 ──▶ hidden ──▶ fc_1 ──▶ loss
    after                    hidden ──▶ fc_1 ──▶ loss        hidden is a feed; fc_0 is not run

Gradients stay as they were recorded: the one of a weight before `hidden` still depends on x.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch
from torch import fx

from argosy.engine.ir.clone import copy_nodes
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Variable

aten = torch.ops.aten


def with_fed_variables(program: Program, names: Sequence[str]) -> Program:
    """A copy of the program that is fed these variables instead of computing them."""
    copied = copy_nodes(program, list(program.graph.nodes), program.name)
    for name in names:
        _make_feed(copied, copied.vars[name])
    # The first variable of a node names it: a feed must have the name that the user feeds.
    copied.vars = {**{name: copied.vars[name] for name in names}, **copied.vars}
    copied.touch()
    return copied


def _make_feed(program: Program, variable: Variable) -> None:
    recorder, computed = program.recorder, variable.node
    feed = recorder.placeholder(variable.name, variable.value)
    computed.replace_all_uses_with(feed)
    recorder.rebind(computed, feed)
    variable.is_data = True
    for node in program.graph.find_nodes(op="call_function", target=aten.sym_size.int):
        _read_size_of(feed, node, program)


def _read_size_of(feed: fx.Node, size: fx.Node, program: Program) -> None:
    """Read a size that the new feed has from it, so that the feed it came from is not needed for the size."""
    replace, wanted = program.symbols.env.replace, size.meta["val"]
    if not isinstance(wanted, torch.SymInt):
        return
    for dim, other in enumerate(feed.meta["val"].shape):
        if isinstance(other, torch.SymInt) and replace(other.node.expr) == replace(wanted.node.expr):
            size.args = (feed, dim)
            return
