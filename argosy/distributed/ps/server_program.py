"""Build a parameter server's programs: the user's optimizer, applied to blocks.

    listen_and_serv('127.0.0.1:6174', trainers=2, 'sync', ['w.block0', 'b'], [])
    w@GRAD.block0 = merge_gradients([w@GRAD.block0.trainer_0, w@GRAD.block0.trainer_1])
    momentum(w.block0, w@GRAD.block0, w.block0_velocity_0, learning_rate_0, …)

The optimizer is a copy of the one that minimized the program, so that clipping, decay, per-parameter rates and
accumulators are the same; accumulators have the size of their block. A startup program initializes a variable as the
single-process program does, from the same seed, and stores only the rows of its blocks.
"""

# SPDX-License-Identifier: Apache-2.0
import copy
import re
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.distributed.ps.trainer_program import forget
from argosy.engine.ir import names
from argosy.engine.ir.clone import clone
from argosy.engine.ir.program import OptimizerCall, Program, program_guard
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
from argosy.engine.runtime.server_loop import ServerSpec, ShardOf
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.nn.clip import ClipGradByGlobalNorm
from argosy.optimizer import AdamW, Optimizer


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
    spec = ServerSpec(plan, number)
    local_blocks = {block.name for _, block in plan.blocks_of(number)}
    with program_guard(main, first), names.guard():
        for group, call in enumerate(program.optimizer_calls):
            built = [
                _block(program, main, first, plan, variable, block)
                for variable, block in plan.blocks_of(number)
                if variable.name in call.parameters
            ]
            if built:
                _update(program, main, plan, call, built, spec, group)
        _listen(main, plan, number, [block.name for _, block in plan.blocks_of(number)])
    needed = set(main.persistables()) | local_blocks
    parameters = {p.name for p in program.all_parameters()} - {table.name for table in plan.tables}
    # Keep the initialization of other servers' parameters: it advances the random generator as in a single process.
    forget(first, [name for name in first.vars if name not in needed and name not in parameters])
    main.lr_schedulers, main.optimizer_calls, first.optimizer_calls = [], [], []
    spec.on_trainers = tuple(on_trainers(program, plan))
    main.server_spec = spec
    return main, first


def on_trainers(program: Program, plan: JobPlan) -> list[str]:
    """The variables of the single-process program that no server stores: each trainer has a copy."""
    states = {n for call in program.optimizer_calls for n in call.optimizer._states.get(program, {}).values()}
    on_servers = {variable.name for variable in plan.dense} | {table.name for table in plan.tables}
    on_servers |= states | {call.rate for call in program.optimizer_calls}
    return [name for name in program.persistables() if name not in on_servers]


Built = tuple[Dense, VariableBlock, Parameter, Variable]


def _block(
    program: Program, main: Program, first: Program, plan: JobPlan, variable: Dense, block: VariableBlock
) -> Built:
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
        return variable, block, parameter, _named(main, name, merge_gradients, (parts,))
    received = main.data(f"{name}.delta" if plan.mode == "geo" else name, block.shape, whole.dtype)
    return variable, block, parameter, received


def _named(main: Program, name: str, op: Any, args: tuple[Any, ...]) -> Variable:
    with main.recording("optimize"), torch.no_grad():
        value = op(*main.unwrap(args))
    return main.add(Variable(main, name, value))


def _update(
    program: Program,
    main: Program,
    plan: JobPlan,
    call: OptimizerCall,
    built: list[Built],
    spec: ServerSpec,
    group: int,
) -> None:
    spec.gradients |= {block.name: gradient.name for _, block, _, gradient in built}
    if plan.mode == "geo":
        with main.recording("optimize"), torch.no_grad():
            for _, _, parameter, delta in built:
                add_delta(parameter.value, delta.value)
        spec.shards |= {b.name: ShardOf(v.name, b.first) for v, b, _, _ in built}
        return
    pairs = [
        (parameter, _compensated(main, plan, spec, block, parameter, gradient))
        for _, block, parameter, gradient in built
    ]
    optimizer = _block_optimizer(call.optimizer, plan, group)
    optimizer.apply_gradients(pairs)
    spec.rates |= {block.name: optimizer._rates[main] for _, block, _, _ in built}
    whole = call.optimizer._states.get(program, {})
    for variable, block, _, _ in built:
        spec.shards[block.name] = ShardOf(variable.name, block.first)
    blocks = {block.name: (variable, block) for variable, block, _, _ in built}
    for (name, slot), state in optimizer._states.get(main, {}).items():
        variable, block = blocks[name]
        is_cut = main.var(state).shape == block.shape
        spec.shards[state] = ShardOf(whole[variable.name, slot], block.first if is_cut else None)
        if slot == "fp32_master":
            spec.masters[name] = state


def _compensated(
    main: Program,
    plan: JobPlan,
    spec: ServerSpec,
    block: VariableBlock,
    parameter: Parameter,
    gradient: Variable,
) -> Variable:
    if plan.compensation is None:
        return gradient
    backup = main.data(f"{block.name}@BACKUP", block.shape, parameter.dtype)
    spec.backups[block.name] = backup.name
    square = None
    if plan.compensation.decay is not None:
        square = create_state(f"{block.name}_mean_square", list(block.shape), parameter.dtype, Constant(0.0))
    args = (gradient, parameter, backup, square, plan.compensation.strength, plan.compensation.decay or 0.0)
    return _named(main, f"{gradient.name}.compensated", dc_asgd, args)


def _block_optimizer(source: Optimizer, plan: JobPlan, group: int) -> Optimizer:
    """A copy of the optimizer for blocks, without the state of the single-process program."""
    optimizer = copy.copy(source)
    optimizer._rates, optimizer._states = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
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
