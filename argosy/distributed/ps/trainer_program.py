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
    states = set(program.persistables()) - {p.name for p in program.all_parameters()}
    placeholder = program.recorder.placeholder_of
    table_names = {table.name for table in plan.tables}
    remote = frozenset(placeholder[program.var(n).value] for n in table_names)
    dense = {variable.name: variable for variable in plan.dense}
    rates = {done.rate for done in program.minimized}
    tables, sent = [], []
    for done in program.minimized:
        rate = program.var(done.rate).node
        for name, gradient, clipped in zip(done.parameters, done.gradients, done.clipped, strict=True):
            parameter = program.var(name)
            node = program.var(gradient).node
            if name in table_names:
                assert isinstance(parameter, Parameter), "a table is a parameter"
                factor = float(parameter.learning_rate)
                tables.append(
                    RemoteTable(name, parameter.shape[1], placeholder[parameter.value], node, rate, factor)
                )
            else:
                node = node if plan.mode == "sync" else program.recorder.node(clipped)
                sent.append(Sent(dense[name], node, rate, placeholder[parameter.value]))
    passes: list[Pass] = []
    if plan.mode == "geo":
        passes = [LeaveUpdates(remote), RemoteTables(tuple(tables))] if tables else []
        passes.append(ExchangeChanges(tuple((s.dense.name, s.parameter) for s in sent), plan.k_steps))
    else:
        trained = remote | {s.parameter for s in sent}
        kept = frozenset(s.gradient for s in sent)
        passes = [LeaveUpdates(trained, kept)]
        passes += [RemoteTables(tuple(tables))] if tables else []
        passes.append(SendGradients(tuple(sent)))
    rewrite(program, passes)
    gone = table_names | {n for n in states - rates if not _node(program, n).users}
    gradients = {
        g
        for d in program.minimized
        for p, g in zip(d.parameters, d.gradients, strict=True)
        if p in table_names
    }
    forget(program, gone | gradients)
    program.minimized = []
    program.prefetch = _prefetch(program)
    program.remote = (plan, number)
    forget(startup, gone)
    if not plan.initialised_by_trainer:
        startup.remote = (plan, number)
        values = tuple((variable, startup.var(variable.name).node) for variable in plan.dense)
        rewrite(startup, [FetchStartup(values)])


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
