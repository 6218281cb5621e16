"""Build a parameter server's programs: the user's optimizer, applied to blocks.

    listen_and_serv('127.0.0.1:6174', trainers=2, 'sync', ['w.block0', 'b'], [])
    w@GRAD.block0 = merge_gradients([w@GRAD.block0.trainer_0, w@GRAD.block0.trainer_1])
    momentum(w.block0, w@GRAD.block0, w.block0_velocity_0, learning_rate_0, …)

The optimizer is a copy of the one that minimized the program, so that clipping, decay, per-parameter rates and
accumulators are the same; accumulators have the size of their block. A startup program initializes a variable as the
single-process program does, from the same seed, and stores only the rows of its blocks.
"""

# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from argosy.distributed.ps.trainer_program import remove_variables
from argosy.engine.ir import names
from argosy.engine.ir.clone import clone
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.record import unwrap
from argosy.engine.ir.roles import ServedBlock, ServerRole, ShardOf
from argosy.engine.ir.training_info import OptimizerCall, TrainingInfo
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ops.server_ops import (
    add_delta,
    dc_asgd,
    listen_and_serv,
    merge_gradients,
    sum_over_servers,
)
from argosy.engine.ps.protocol.job_plan import Dense, JobPlan
from argosy.engine.ps.protocol.slicing import VariableBlock
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.nn.clip import ClipGradByGlobalNorm
from argosy.optimizer import AdamW, Optimizer
from argosy.optimizer.optimizer import optimizer_of


class _GlobalNormOfServers(ClipGradByGlobalNorm):
    """Clips by the norm over the gradients of all servers; `group` is the index of the optimizer call."""

    group = 0

    def _norm(self, grads: Sequence[Tensor]) -> Tensor:
        squares = torch.stack([torch.linalg.vector_norm(grad) for grad in grads]).square().sum()
        return sum_over_servers(squares, self.group).sqrt()  # type: ignore[no-any-return]


def to_server(program: Program, startup: Program, plan: JobPlan, number: int) -> tuple[Program, Program]:
    """(main, startup) of a server, from the minimized single-process `program` and its `startup` program."""
    main = Program(f"pserver_{number}")
    first = clone(startup, for_test=False)
    first.name = f"pserver_{number}_startup"
    main.random_seed = first.random_seed = program.random_seed or startup.random_seed
    served: dict[str, ServedBlock] = {}
    shards: dict[str, ShardOf] = {}
    local_blocks = {block.name for _, block in plan.blocks_of(number)}
    with program_guard(main, first), names.guard():
        for group, call in enumerate(program.training.optimizer_calls):
            blocks = [
                _add_block(program, main, first, plan, variable, block)
                for variable, block in plan.blocks_of(number)
                if variable.name in call.parameters
            ]
            if blocks:
                of_call, shards_of_call = _add_updates(main, plan, call, blocks, group)
                served |= of_call
                shards |= shards_of_call
        _listen(main, plan, number, [block.name for _, block in plan.blocks_of(number)])
    needed = set(main.persistables()) | local_blocks
    parameters = {p.name for p in program.all_parameters()} - {table.name for table in plan.tables}
    # Keep the initialization of other servers' parameters: it advances the random generator as in a single process.
    remove_variables(first, [name for name in first.vars if name not in needed and name not in parameters])
    main.training = first.training = TrainingInfo()
    main.role = ServerRole(plan, number, served, shards, tuple(on_trainers(program, plan)))
    return main, first


def on_trainers(program: Program, plan: JobPlan) -> list[str]:
    """The variables of the single-process program that no server stores: each trainer has a copy."""
    calls = program.training.optimizer_calls
    on_servers = {variable.name for variable in plan.dense} | {table.name for table in plan.tables}
    on_servers |= {call.rate for call in calls} | {name for call in calls for name in call.states.values()}
    return [name for name in program.persistables() if name not in on_servers]


@dataclass(frozen=True)
class _BlockVariables:
    """A block and its variables in the server's program."""

    variable: Dense
    block: VariableBlock
    parameter: Parameter
    gradient: Variable
    """What the trainers send: their mean gradient; under geo their change."""


def _add_block(
    program: Program, main: Program, first: Program, plan: JobPlan, variable: Dense, block: VariableBlock
) -> _BlockVariables:
    """Add a block, its initial value, and the gradient that the optimizer gets."""
    whole = program.var(variable.name)
    assert isinstance(whole, Parameter), "only parameters are trained"
    parameter = main.state(
        block.name,
        block.shape,
        whole.dtype,
        True,
        learning_rate=whole.learning_rate,
        regularizer=whole.regularizer,
        need_clip=whole.need_clip,
    )
    assert isinstance(parameter, Parameter), "trainable state is a parameter"
    if not block.is_whole:
        value = first.var(variable.name).value
        first.define(block.name, lambda: value.narrow(0, block.first, block.rows).clone())
    name = variable.gradient + block.name.removeprefix(variable.name)
    if plan.mode == "sync":
        parts = [main.data(f"{name}.trainer_{i}", block.shape, whole.dtype) for i in range(plan.trainers)]
        return _BlockVariables(variable, block, parameter, _named(main, name, merge_gradients, (parts,)))
    received = main.data(f"{name}.delta" if plan.mode == "geo" else name, block.shape, whole.dtype)
    return _BlockVariables(variable, block, parameter, received)


def _named(main: Program, name: str, op: Any, args: tuple[Any, ...]) -> Variable:
    with main.recording("optimize"), torch.no_grad():
        value = op(*unwrap(main, args))
    return main.add(Variable(main, name, value))


def _add_updates(
    main: Program, plan: JobPlan, call: OptimizerCall, blocks: list[_BlockVariables], group: int
) -> tuple[dict[str, ServedBlock], dict[str, ShardOf]]:
    """Add the updates of the blocks; returns the variables of each block, and what their shards belong to."""
    shards = {b.block.name: ShardOf(b.variable.name, b.block.first) for b in blocks}
    if plan.mode == "geo":
        with main.recording("optimize"), torch.no_grad():
            for b in blocks:
                add_delta(b.parameter.value, b.gradient.value)
        return {b.block.name: ServedBlock(b.gradient.name) for b in blocks}, shards
    compensated = [_compensated(main, plan, b) for b in blocks]
    pairs = [(b.parameter, gradient) for b, (gradient, _) in zip(blocks, compensated, strict=True)]
    _block_optimizer(optimizer_of(call), plan, group).apply_gradients(pairs)
    applied = main.training.optimizer_calls[-1]
    of_block = {b.block.name: b for b in blocks}
    for (name, slot), state in applied.states.items():
        b = of_block[name]
        is_cut = main.var(state).shape == b.block.shape
        shards[state] = ShardOf(call.states[b.variable.name, slot], b.block.first if is_cut else None)
    served = {
        b.block.name: ServedBlock(
            b.gradient.name, applied.rate, backup, applied.states.get((b.block.name, "fp32_master"))
        )
        for b, (_, backup) in zip(blocks, compensated, strict=True)
    }
    return served, shards


def _compensated(main: Program, plan: JobPlan, b: _BlockVariables) -> tuple[Variable, str | None]:
    """(gradient with DC-ASGD's compensation, the feed of its backup); (gradient, None) if the plan has none."""
    if plan.compensation is None:
        return b.gradient, None
    name, shape, parameter = b.block.name, b.block.shape, b.parameter
    backup = main.data(f"{name}@BACKUP", shape, parameter.dtype)
    square = None
    if plan.compensation.decay is not None:
        square = create_state(f"{name}_mean_square", list(shape), parameter.dtype, Constant(0.0))
    strength, decay = plan.compensation.strength, plan.compensation.decay or 0.0
    args = (b.gradient, parameter, backup, square, strength, decay)
    return _named(main, f"{b.gradient.name}.compensated", dc_asgd, args), backup.name


def _block_optimizer(source: Optimizer, plan: JobPlan, group: int) -> Optimizer:
    """A copy of the optimizer for blocks, without the state of the single-process program."""
    optimizer = source.copy_without_state()
    if plan.mode != "sync":
        optimizer.grad_clip = None  # a trainer clips before it sends
    elif isinstance(source.grad_clip, ClipGradByGlobalNorm):
        optimizer.grad_clip = _GlobalNormOfServers(source.grad_clip.clip_norm)
        optimizer.grad_clip.group = group
    decays = source.apply_decay_param_fun if isinstance(source, AdamW) else None
    if isinstance(optimizer, AdamW) and decays is not None:
        optimizer.apply_decay_param_fun = lambda name: decays(re.sub(r"\.block\d+$", "", name))
    return optimizer


def _listen(main: Program, plan: JobPlan, number: int, blocks: list[str]) -> None:
    graph = main.graph
    calls = (node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    tables = [table.name for table in plan.tables]
    args = (plan.endpoints[number], plan.trainers, plan.mode, blocks, tables)
    with graph.inserting_before(next(calls, graph._root)):
        listen = graph.create_node("call_function", listen_and_serv, args, {}, "listen_and_serv")
    listen.meta = {"role": "communicate", "source": None, "val": None}
    main.touch()
