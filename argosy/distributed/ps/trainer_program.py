"""A trainer's programs: the same model, with the updates left to the servers."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import fx

from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.send import lookup_table
from argosy.engine.passes.base import Pass
from argosy.engine.passes.remote_tables import RemoteTable, RemoteTables
from argosy.engine.passes.rewrite import rewrite
from argosy.engine.passes.send_gradients import (
    ExchangeChanges,
    FetchStartup,
    LeaveUpdates,
    SendGradients,
    Sent,
)
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.trainer.trainer import current


def to_trainer(program: Program, startup: Program, plan: Plan, number: int) -> None:
    """Rewrite a minimized program, and its startup program, for trainer `number`."""
    parameters = {p.name for p in program.all_parameters()}
    rates = {done.rate for done in program.minimized}
    states = set(program.persistables()) - parameters - rates
    table_names = {table.name for table in plan.tables}
    gradients = {
        gradient
        for done in program.minimized
        for name, gradient in zip(done.parameters, done.gradients, strict=True)
        if name in table_names
    }
    rewrite(program, _passes(plan, _tables(program, plan), _sent(program, plan)))
    gone = table_names | {name for name in states if not _node(program, name).users}
    forget(program, gone | gradients)
    program.minimized = []
    program.prefetch = _prefetch(program)
    program.remote = (plan, number)
    forget(startup, gone)
    if not plan.initialised_by_trainer:
        startup.remote = (plan, number)
        values = tuple((variable, startup.var(variable.name).node) for variable in plan.dense)
        rewrite(startup, [FetchStartup(values)])


def _tables(program: Program, plan: Plan) -> tuple[RemoteTable, ...]:
    """What was a lookup in a parameter, and is one on the servers."""
    names, found = {table.name for table in plan.tables}, []
    for done in program.minimized:
        rate = program.var(done.rate).node
        for name, gradient in zip(done.parameters, done.gradients, strict=True):
            if name in names:
                parameter = program.var(name)
                assert isinstance(parameter, Parameter), "a table is a parameter"
                place, grad = _node(program, name), program.var(gradient).node
                factor = float(parameter.learning_rate)
                found.append(RemoteTable(name, parameter.shape[1], place, grad, rate, factor))
    return tuple(found)


def _sent(program: Program, plan: Plan) -> tuple[Sent, ...]:
    """What is sent of the dense variables: under sync the servers clip, else the trainer does."""
    dense, found = {variable.name: variable for variable in plan.dense}, []
    for done in program.minimized:
        rate = program.var(done.rate).node
        for name, gradient, clipped in zip(done.parameters, done.gradients, done.clipped, strict=True):
            if name in dense:
                node = program.var(gradient).node if plan.mode == "sync" else program.recorder.node(clipped)
                found.append(Sent(dense[name], node, rate, _node(program, name)))
    return tuple(found)


def _passes(plan: Plan, tables: tuple[RemoteTable, ...], sent: tuple[Sent, ...]) -> list[Pass]:
    """geo: the dense updates stay, and changes are exchanged; else all updates go to the servers."""
    remote = frozenset(one.table for one in tables)
    lookups: list[Pass] = [RemoteTables(tables)] if tables else []
    if plan.mode == "geo":
        exchange = ExchangeChanges(tuple((one.dense.name, one.parameter) for one in sent), plan.k_steps)
        return [*([LeaveUpdates(remote)] if tables else []), *lookups, exchange]
    trained, kept = remote | {one.parameter for one in sent}, frozenset(one.gradient for one in sent)
    return [LeaveUpdates(trained, kept), *lookups, SendGradients(sent)]


def to_infer(program: Program, plan: Plan, number: int) -> None:
    """Rewrite a program that does not train: its lookups are answered by the servers."""
    placeholder = program.recorder.placeholder_of
    known = [t for t in plan.tables if t.name in program.vars]
    tables = [RemoteTable(t.name, t.dim, placeholder[program.var(t.name).value], None, None) for t in known]
    if tables:
        rewrite(program, [RemoteTables(tuple(tables))])
        forget(program, {table.name for table in tables})
    program.remote = (plan, number)


def forget(program: Program, names: Iterable[str]) -> None:
    """Take variables out, with the nodes that only they needed."""
    doomed = []
    for name in names:
        variable = program.vars.pop(name, None)
        if variable is not None:
            doomed += [
                program.recorder.placeholder_of.get(variable.value),
                program.recorder.node_of.get(variable.value),
            ]
    todo = [node for node in doomed if isinstance(node, fx.Node)]
    while todo:
        node = todo.pop()
        if not node._erased and not node.users:
            todo += node.all_input_nodes
            program.graph.erase_node(node)
    program.touch()


def _node(program: Program, name: str) -> fx.Node:
    return program.recorder.placeholder_of[program.var(name).value]  # type: ignore[no-any-return]


def _prefetch(program: Program) -> Any:
    """A function of the next feed: asks for its rows, of the tables whose ids are fed."""
    fed = {program.recorder.placeholder_of[v.value]: name for name, v in program.feeds().items()}
    wanted: list[tuple[str, list[str]]] = []
    for node in program.graph.find_nodes(op="call_function", target=lookup_table):
        ids, table, _ = node.args
        if isinstance(ids, Sequence) and all(i in fed for i in ids):
            wanted.append((str(table), [fed[i] for i in ids]))
    names = [table for table, _ in wanted]
    wanted = [(table, ids) for table, ids in wanted if names.count(table) == 1]
    if not wanted:
        return None

    def prefetch(feed: Mapping[str, Any]) -> None:
        for table, names in wanted:
            current().lookups.prefetch(table, [feed[name] for name in names])

    return prefetch
