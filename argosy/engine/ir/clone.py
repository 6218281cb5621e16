"""Copies of a program.

for_test=True keeps the forward part and switches it to inference mode. The nodes of Argosy's layers are rewritten:

    native_batch_norm(x, training)   ──▶  native_batch_norm(x, running_mean, running_var)
    sync_batch_norm(x)               ──▶  the same
    update_running_stats(…)          ──▶  removed
    native_dropout(x, p)             ──▶  x
    seeded_dropout(ones, p)          ──▶  ones

For torch modules, `replay.py` records the modules again in evaluation mode.
"""

# SPDX-License-Identifier: Apache-2.0
import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import fx

from argosy.engine.errors import ProgramError
from argosy.engine.ir import names
from argosy.engine.ir.blocks import Block, BlockCall, Branch
from argosy.engine.ir.build import Build
from argosy.engine.ir.effects import is_random, mutated_inputs
from argosy.engine.ir.program import Program
from argosy.engine.ir.replay import replay
from argosy.engine.ir.roles import TrainerRole
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ir.verify import describe
from argosy.engine.log import logger
from argosy.engine.ops.batch_norm import sync_batch_norm, update_running_stats
from argosy.engine.ops.seeded import seeded_dropout

aten = torch.ops.aten


def clone(program: Program, for_test: bool) -> Program:
    """A copy with variables of the same names; nodes and Variables are copied.

    Values in the scope and the attached readers are shared.
    """
    if not for_test:
        return copy_nodes(program, list(program.graph.nodes), names.generate(f"{program.name}_clone"))
    forward = copy_nodes(program, _forward(program.graph), names.generate(f"{program.name}_test"))
    _to_inference(forward)
    evaluation = replay(forward)
    _remove_dead(evaluation)
    _warn_if_random(evaluation)
    evaluation.build = replace(evaluation.build, fusions=(), recompute=None)
    evaluation.training = replace(evaluation.training, schedulers=(), periods=())
    if isinstance(evaluation.role, TrainerRole):
        # No prefetch: prefetched rows have the values after the next training step.
        evaluation.role = replace(evaluation.role, fed_lookups=())
    return evaluation


def _forward(graph: fx.Graph) -> list[fx.Node]:
    """The forward nodes and what they depend on, which may include a gradient that forward uses."""
    needed: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.meta["role"] == "forward" or node in needed:
            needed.update((node, *node.all_input_nodes))
    return [node for node in graph.nodes if node in needed]


def copy_nodes(program: Program, nodes: list[fx.Node], name: str) -> Program:
    """A program of only these nodes, with the variables that they compute or read."""
    copied = Program(name)
    node_map: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        node_map[node] = copied.graph.node_copy(node, lambda n: node_map[n])
    copied.symbols = program.symbols
    copied.recorder = program.recorder.copy_to(copied.graph, node_map)
    copied.copy_attachments(program)
    for variable in program.vars.values():
        if variable.value in copied.recorder.node_of:
            copied.register(_copy_variable(variable, copied))
    copied.keep_readers_of_feeds()
    periods = tuple(p for p in program.training.periods if copied.vars.keys() >= set(p.variables()))
    if periods != program.training.periods:  # the copy has no nodes of the others
        copied.training = replace(copied.training, periods=periods)
    return copied


def fused(program: Program, build: Build) -> Program:
    """A copy of the program after the fusions of this build; the program itself if the build has none."""
    if not build.passes:
        return program
    copied = copy_nodes(program, list(program.graph.nodes), program.name)
    copied.build = Build()
    for fusion in build.passes:
        fusion.with_sizes(program.symbols.size_of(program.symbols.planned)).run(copied.graph)
    return copied


def _copy_variable(variable: Variable, program: Program) -> Variable:
    copied = copy.copy(variable)
    copied.program = program
    return copied


# --- the layers of Argosy -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Editor:
    """A graph, and how to replace and remove its nodes."""

    graph: fx.Graph
    rebind: Callable[[fx.Node, fx.Node], None]
    """Let what had the first node's value have the second one's."""
    remove: Callable[[fx.Node], None]


def _to_inference(program: Program) -> None:
    _edit(_Editor(program.graph, program.recorder.rebind, lambda node: _remove(program, node)))


def _edit(editor: _Editor) -> None:
    graph = editor.graph
    for node in graph.nodes:
        if isinstance(node.target, BlockCall):
            node.target = node.target.with_blocks([_block_to_inference(b) for b in node.target.blocks])
        if isinstance(node.target, Branch):
            # There is no backward, which would repeat the random numbers.
            node.target = replace(node.target, saves_state=False)
    _normalise_by_running_statistics(editor)
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        if "call" in node.meta:
            continue
        for item in list(node.users):
            editor.rebind(item, node.args[0])
            item.replace_all_uses_with(node.args[0])  # the mask has no users: backward was removed
            graph.erase_node(item)
        graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=seeded_dropout):
        editor.rebind(node, node.args[0])
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    for node in reversed(graph.nodes):
        is_size = isinstance(node.meta.get("val"), torch.SymInt) and node.op == "call_function"
        if node.meta.get("train_only"):
            for source in mutated_inputs(node):
                editor.rebind(node, source)
                node.replace_all_uses_with(source)
        if (node.meta.get("train_only") or is_size) and not node.users:  # a size may be read by backward only
            graph.erase_node(node)


def _block_to_inference(block: Block) -> Block:
    """A copy of a branch or a loop's body in inference mode."""
    copied, _ = block.copy()
    outputs = list(copied.outputs)
    for node in copied.nodes:
        if node.meta.get("is_training"):
            raise ProgramError(
                f"{describe(node)} is a torch module in training mode inside a branch or a loop, which cannot be "
                "switched to inference; build a program for testing with the module in eval()"
            )

    def rebind(old: fx.Node, new: fx.Node) -> None:
        if old in outputs and new in copied.inputs:  # a result must not alias an input
            with copied.graph.inserting_before(old):
                new = copied.graph.call_function(aten.clone.default, (new,))
            new.meta = dict(old.meta)
        outputs[:] = [new if node is old else node for node in outputs]

    _edit(_Editor(copied.graph, rebind, copied.graph.erase_node))
    return Block(copied.graph, copied.inputs, tuple(outputs))


def _normalise_by_running_statistics(editor: _Editor) -> None:
    graph = editor.graph
    for node in graph.find_nodes(op="call_function", target=sync_batch_norm):
        if "call" not in node.meta:
            _to_this_rank(node)
    for node in graph.find_nodes(op="call_function", target=update_running_stats):
        if "call" in node.meta:
            continue
        mean, var, batch_mean = node.args[:3]
        norm = batch_mean.args[0]  # batch_mean = norm[1]
        graph.erase_node(node)
        x, weight, bias, _, _, _, momentum, eps = norm.args
        norm.args = (x, weight, bias, mean, var, False, momentum, eps)
        unused = [n for n in norm.users if n.args[1] != 0 and not n.users]  # batch statistics are empty now
        for item in unused:
            editor.remove(item)


def _to_this_rank(norm: fx.Node) -> None:
    """Use no collectives for testing: ranks may test different numbers of batches."""
    x, weight, bias, eps, _ = norm.args
    norm.target, norm.args = aten.native_batch_norm.default, (x, weight, bias, None, None, True, 0.0, eps)
    norm._rename("native_batch_norm")


def _remove(program: Program, node: fx.Node) -> None:
    """Erase a node without users, and its variables."""
    for name, variable in list(program.vars.items()):
        if program.recorder.node_of.get(variable.value) is node:
            del program.vars[name]
    program.recorder.erase(node)


def _remove_dead(program: Program) -> None:
    """Erase the optimizer's variables, constants and sizes that have no users left."""
    for name, variable in list(program.vars.items()):
        is_state = variable.persistable and not isinstance(variable, Parameter)
        if is_state and variable.node.op == "placeholder" and not variable.node.users:
            program.graph.erase_node(variable.node)
            del program.vars[name]
    named = {variable.node for variable in program.vars.values()}
    for node in reversed(program.graph.nodes):
        is_size = node.op == "call_function" and isinstance(node.meta["val"], torch.SymInt)
        if (node.op == "get_attr" or is_size) and not node.users and node not in named:
            program.recorder.erase(node)


def _warn_if_random(program: Program) -> None:
    for node in program.graph.nodes:
        if is_random(node) and "call" not in node.meta:
            logger.warning(
                "%s (%s) is still random in the program for testing",
                node.name,
                node.meta.get("source"),
            )
