"""Copies of a program.

for_test=True keeps the forward part and turns what trains into what infers:

    native_batch_norm(x, training)   ──▶  native_batch_norm(x, running_mean, running_var)
    sync_batch_norm(x)               ──▶  the same
    update_running_stats(…)          ──▶  gone
    native_dropout(x, p)             ──▶  x
"""

# SPDX-License-Identifier: Apache-2.0
import copy
from dataclasses import replace

import torch
from torch import fx

from argosy.engine.ir import names
from argosy.engine.ir.effects import changed_inputs, is_random
from argosy.engine.ir.infer import infer
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.ops.sync_batch_norm import sync_batch_norm
from argosy.engine.ops.update_running_stats import update_running_stats

aten = torch.ops.aten


def clone(program: Program, for_test: bool) -> Program:
    """A copy with variables of the same names; they share no node and no Variable, only the scope's values."""
    kept = _forward(program.graph) if for_test else list(program.graph.nodes)
    made = copy_nodes(program, kept, names.generate(f"{program.name}_{'test' if for_test else 'clone'}"))
    if for_test:
        _to_inference(made)
        made.build = replace(made.build, fusions=())
        made.has_history = False
        made.lr_schedulers = []
        made.prefetch = None  # rows that come ahead are those after the next step
    return made


def _forward(graph: fx.Graph) -> list[fx.Node]:
    """The forward nodes and what they need, which may be a gradient that forward uses."""
    kept: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.meta["role"] == "forward" or node in kept:
            kept.update((node, *node.all_input_nodes))
    return [node for node in graph.nodes if node in kept]


def copy_nodes(program: Program, nodes: list[fx.Node], name: str) -> Program:
    """A program of these nodes alone, with the variables that they make or read."""
    made = Program(name)
    node_map: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        node_map[node] = made.graph.node_copy(node, lambda n: node_map[n])
    made.symbols = program.symbols
    made.recorder = program.recorder.copy_to(made.graph, node_map)
    made.random_seed = program.random_seed
    made.lr_schedulers = list(program.lr_schedulers)
    made.adopted = dict(program.adopted)
    made.module_names = dict(program.module_names)
    made.has_history = program.has_history
    made.minimized = list(program.minimized)
    made.initializers = program.initializers
    made.remote, made.prefetch = program.remote, program.prefetch
    made.build = program.build
    for variable in program.vars.values():
        if variable.value in made.recorder.node_of:
            made.vars[variable.name] = _copy_variable(variable, made)
    return made


def _copy_variable(variable: Variable, program: Program) -> Variable:
    made = copy.copy(variable)
    made.program = program
    return made


def _to_inference(program: Program) -> None:
    graph = program.graph
    _normalise_by_running_statistics(program)
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        for item in list(node.users):
            program.recorder.rebind(item, node.args[0])
            item.replace_all_uses_with(node.args[0])  # the mask has no reader left: backward is gone
            graph.erase_node(item)
        graph.erase_node(node)
    for node in reversed(graph.nodes):
        is_size = isinstance(node.meta.get("val"), torch.SymInt)  # read by backward alone
        if node.meta.get("train_only"):
            for source in changed_inputs(node):
                program.recorder.rebind(node, source)
                node.replace_all_uses_with(source)
        if (node.meta.get("train_only") or is_size) and not node.users:
            graph.erase_node(node)
    for node in graph.nodes:  # values lie in other memory now: what dropout made is its input
        if node.op == "call_function" and not isinstance(node.meta.get("val"), torch.SymInt):
            node.meta["val"] = infer(node)
    _drop_unread(program)
    for node in graph.nodes:
        if is_random(node):
            logger.warning(
                "%s (%s) still draws random numbers in the program for testing",
                node.name,
                node.meta.get("source"),
            )


def _normalise_by_running_statistics(program: Program) -> None:
    graph = program.graph
    for node in graph.find_nodes(op="call_function", target=sync_batch_norm):
        _to_this_rank(node)
    for node in graph.find_nodes(op="call_function", target=update_running_stats):
        mean, var, batch_mean = node.args[:3]
        norm = batch_mean.args[0]  # batch_mean = norm[1]
        graph.erase_node(node)
        x, weight, bias, _, _, _, momentum, eps = norm.args
        norm.args = (x, weight, bias, mean, var, False, momentum, eps)
        norm.meta["val"] = infer(norm)
        for item in [
            n for n in norm.users if n.args[1] != 0 and not n.users
        ]:  # statistics of a batch are empty now
            _drop(program, item)


def _to_this_rank(norm: fx.Node) -> None:
    """Testing exchanges nothing: ranks may test different numbers of batches."""
    x, weight, bias, eps, _ = norm.args
    norm.target, norm.args = aten.native_batch_norm.default, (x, weight, bias, None, None, True, 0.0, eps)
    norm._rename("native_batch_norm")


def _drop(program: Program, node: fx.Node) -> None:
    """Take out a node that nothing reads, and its variables."""
    for name, variable in list(program.vars.items()):
        if program.recorder.node_of.get(variable.value) is node:
            del program.vars[name]
    for value in [v for v, entry in program.recorder.node_of.items() if entry is node]:
        del program.recorder.node_of[value]
    program.graph.erase_node(node)


def _drop_unread(program: Program) -> None:
    """Take out the optimizer's variables, which nothing reads any more."""
    for name, variable in list(program.vars.items()):
        if variable.persistable and not isinstance(variable, Parameter) and not variable.node.users:
            program.graph.erase_node(variable.node)
            del program.vars[name]
