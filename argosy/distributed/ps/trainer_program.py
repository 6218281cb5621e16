"""Rewrite a single-process program for a trainer: the same model, with the updates on the servers."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import fx

from argosy.engine.ir.program import Program
from argosy.engine.ir.roles import FedLookup, TrainerRole
from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.trainer_ops import lookup_table
from argosy.engine.passes.base import Pass, rewrite
from argosy.engine.passes.remote_tables import RemoteTable, RemoteTables
from argosy.engine.passes.send_gradients import (
    DenseGradient,
    DropLocalUpdates,
    FetchStartup,
    InsertGeoSync,
    SendGradients,
)
from argosy.engine.ps.protocol.job_plan import JobPlan


def to_trainer(program: Program, startup: Program, plan: JobPlan, number: int) -> None:
    """Rewrite a minimized program, and its startup program, for trainer `number`."""
    parameters = {p.name for p in program.all_parameters()}
    rates = {call.rate for call in program.training.optimizer_calls}
    states = set(program.persistables()) - parameters - rates
    table_names = {table.name for table in plan.tables}
    gradients = {
        gradient
        for call in program.training.optimizer_calls
        for name, gradient in zip(call.parameters, call.gradients, strict=True)
        if name in table_names
    }
    rewrite(program, _passes(plan, _tables(program, plan), _sent(program, plan)))
    removed = table_names | {name for name in states if not _node(program, name).users}
    remove_variables(program, removed | gradients)
    program.training = replace(program.training, optimizer_calls=())
    program.role = TrainerRole(plan, number, _fed_lookups(program))
    remove_variables(startup, removed)
    if not plan.initialised_by_trainer:
        startup.role = TrainerRole(plan, number)
        values = tuple((variable, startup.var(variable.name).node) for variable in plan.dense)
        rewrite(startup, [FetchStartup(values)])


def _tables(program: Program, plan: JobPlan) -> tuple[RemoteTable, ...]:
    """The parameters whose lookups become lookups on the servers."""
    names, remote = {table.name for table in plan.tables}, []
    for call in program.training.optimizer_calls:
        rate = program.var(call.rate).node
        for name, gradient in zip(call.parameters, call.gradients, strict=True):
            if name in names:
                parameter = program.var(name)
                assert isinstance(parameter, Parameter), "a table is a parameter"
                placeholder, grad = _node(program, name), program.var(gradient).node
                factor = float(parameter.learning_rate)
                remote.append(RemoteTable(name, parameter.shape[1], placeholder, grad, rate, factor))
    return tuple(remote)


def _sent(program: Program, plan: JobPlan) -> tuple[DenseGradient, ...]:
    """The dense gradients to send: unclipped in sync mode, where the servers clip; else clipped by the trainer."""
    dense, sent = {variable.name: variable for variable in plan.dense}, []
    for call in program.training.optimizer_calls:
        rate = program.var(call.rate).node
        for name, gradient, clipped in zip(call.parameters, call.gradients, call.clipped, strict=True):
            if name in dense:
                node = program.var(gradient).node if plan.mode == "sync" else program.recorder.node(clipped)
                sent.append(DenseGradient(dense[name], node, rate, _node(program, name)))
    return tuple(sent)


def _passes(plan: JobPlan, tables: tuple[RemoteTable, ...], sent: tuple[DenseGradient, ...]) -> list[Pass]:
    """geo mode keeps the dense updates local and synchronizes changes; other modes move all updates to the servers."""
    remote = frozenset(table.table for table in tables)
    lookups: list[Pass] = [RemoteTables(tables)] if tables else []
    if plan.mode == "geo":
        geo_sync = InsertGeoSync(
            tuple((gradient.dense.name, gradient.parameter) for gradient in sent), plan.k_steps
        )
        return [*([DropLocalUpdates(remote)] if tables else []), *lookups, geo_sync]
    trained = remote | {gradient.parameter for gradient in sent}
    gradients = frozenset(gradient.gradient for gradient in sent)
    return [DropLocalUpdates(trained, gradients), *lookups, SendGradients(sent)]


def to_infer(program: Program, plan: JobPlan, number: int) -> None:
    """Rewrite a program that does not train: tables are looked up on the servers."""
    placeholder = program.recorder.placeholder_of
    known = [t for t in plan.tables if t.name in program.vars]
    tables = [RemoteTable(t.name, t.dim, placeholder[program.var(t.name).value], None, None) for t in known]
    if tables:
        rewrite(program, [RemoteTables(tuple(tables))])
        remove_variables(program, {table.name for table in tables})
    program.role = TrainerRole(plan, number)


def remove_variables(program: Program, names: Iterable[str]) -> None:
    """Remove variables, and the nodes that only they used."""
    candidates = []
    for name in names:
        variable = program.vars.pop(name, None)
        if variable is not None:
            candidates += [
                program.recorder.placeholder_of.get(variable.value),
                program.recorder.node_of.get(variable.value),
            ]
    pending = [node for node in candidates if isinstance(node, fx.Node)]
    while pending:
        node = pending.pop()
        if not node._erased and not node.users:
            pending += node.all_input_nodes
            program.graph.erase_node(node)
    program.touch()


def _node(program: Program, name: str) -> fx.Node:
    return program.recorder.placeholder_of[program.var(name).value]  # type: ignore[no-any-return]


def _fed_lookups(program: Program) -> tuple[FedLookup, ...]:
    """The lookups whose ids are fed, of tables that are looked up once."""
    fed = {program.recorder.placeholder_of[v.value]: name for name, v in program.feeds().items()}
    lookups = []
    for node in program.graph.find_nodes(op="call_function", target=lookup_table):
        ids, table, _ = node.args
        if isinstance(ids, Sequence) and all(i in fed for i in ids):
            lookups.append(FedLookup(str(table), tuple(fed[i] for i in ids)))
    tables = [lookup.table for lookup in lookups]
    return tuple(lookup for lookup in lookups if tables.count(lookup.table) == 1)
