"""A parameter server's programs: the user's optimizer, applied to blocks.

    listen_and_serv('127.0.0.1:6174', trainers=2, 'sync', ['w.block0', 'b'], [])
    w@GRAD.block0 = merge_gradients([w@GRAD.block0.trainer_0, w@GRAD.block0.trainer_1])
    momentum(w.block0, w@GRAD.block0, w.block0_velocity_0, learning_rate_0, …)

The optimizer is the one that minimized the program, so that clipping, decay, per-parameter rates and accumulators
come along; accumulators are as large as their block. A startup program computes a variable as the single-process
program would, from the same seed, and keeps its own rows.
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
from argosy.engine.ir.program import Minimized, Program, program_guard
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ops.serve import add_delta, dc_asgd, listen_and_serv, merge_gradients, sum_over_servers
from argosy.engine.ps.plan import Dense, Plan
from argosy.engine.ps.slicing import Block
from argosy.engine.runtime.serve import Origin, Serving
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.nn.clip import ClipGradByGlobalNorm
from argosy.optimizer import AdamW, Optimizer


class _GlobalNormOfServers(ClipGradByGlobalNorm):
    """The norm over the gradients of all servers; `group`: which optimizer's."""

    group = 0

    def _norm(self, grads: Sequence[Tensor]) -> Tensor:
        squares = torch.stack([torch.linalg.vector_norm(grad) for grad in grads]).square().sum()
        return sum_over_servers(squares, self.group).sqrt()  # type: ignore[no-any-return]


def to_server(program: Program, startup: Program, plan: Plan, number: int) -> tuple[Program, Program]:
    """(main, startup) of a server; `program` and `startup` are those of one process, as they were minimized."""
    main = Program(f"pserver_{number}")
    first = clone(startup, for_test=False)
    first.name = f"pserver_{number}_startup"
    main.random_seed = first.random_seed = program.random_seed or startup.random_seed
    serving = Serving(plan, number)
    mine = {block.name for _, block in plan.blocks_of(number)}
    with program_guard(main, first), names.guard():
        for group, done in enumerate(program.minimized):
            built = [
                _block(program, main, first, plan, variable, block)
                for variable, block in plan.blocks_of(number)
                if variable.name in done.parameters
            ]
            if built:
                _update(program, main, plan, done, built, serving, group)
        _listen(main, plan, number, [block.name for _, block in plan.blocks_of(number)])
    kept = set(main.persistables()) | mine
    parameters = {p.name for p in program.all_parameters()} - {table.name for table in plan.tables}
    # Parameters of other servers stay: they are drawn, so that what follows is drawn as in one process.
    forget(first, [name for name in first.vars if name not in kept and name not in parameters])
    main.lr_schedulers, main.minimized, first.minimized = [], [], []
    serving.on_trainers = tuple(on_trainers(program, plan))
    main.serving = serving
    return main, first


def on_trainers(program: Program, plan: Plan) -> list[str]:
    """The variables of the program of one process that no server keeps: each trainer has its own."""
    states = {n for done in program.minimized for n in done.optimizer._states.get(program, {}).values()}
    there = {variable.name for variable in plan.dense} | {table.name for table in plan.tables}
    there |= states | {done.rate for done in program.minimized}
    return [name for name in program.persistables() if name not in there]


Built = tuple[Dense, Block, Parameter, Variable]


def _block(
    program: Program, main: Program, first: Program, plan: Plan, variable: Dense, block: Block
) -> Built:
    """The block, its first value, and the gradient that the optimizer gets."""
    whole = program.var(variable.name)
    assert isinstance(whole, Parameter), "what is trained is a parameter"
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
        made = op(*main.unwrap(args))
    return main.add(Variable(main, name, made))


def _update(
    program: Program,
    main: Program,
    plan: Plan,
    done: Minimized,
    built: list[Built],
    serving: Serving,
    group: int,
) -> None:
    serving.gradients |= {block.name: gradient.name for _, block, _, gradient in built}
    if plan.mode == "geo":
        with main.recording("optimize"), torch.no_grad():
            for _, _, parameter, delta in built:
                add_delta(parameter.value, delta.value)
        serving.origins |= {b.name: Origin(v.name, b.first) for v, b, _, _ in built}
        return
    pairs = [
        (parameter, _compensated(main, plan, serving, block, parameter, gradient))
        for _, block, parameter, gradient in built
    ]
    optimizer = _moved(done.optimizer, plan, group)
    optimizer.apply_gradients(pairs)
    serving.rates |= {block.name: optimizer._rates[main] for _, block, _, _ in built}
    whole = done.optimizer._states.get(program, {})
    for variable, block, _, _ in built:
        serving.origins[block.name] = Origin(variable.name, block.first)
    blocks = {block.name: (variable, block) for variable, block, _, _ in built}
    for (name, slot), state in optimizer._states.get(main, {}).items():
        variable, block = blocks[name]
        is_cut = main.var(state).shape == block.shape
        serving.origins[state] = Origin(whole[variable.name, slot], block.first if is_cut else None)
        if slot == "fp32_master":
            serving.masters[name] = state


def _compensated(
    main: Program, plan: Plan, serving: Serving, block: Block, parameter: Parameter, gradient: Variable
) -> Variable:
    if plan.compensation is None:
        return gradient
    backup = main.data(f"{block.name}@BACKUP", block.shape, parameter.dtype)
    serving.backups[block.name] = backup.name
    square = None
    if plan.compensation.decay is not None:
        square = create_state(f"{block.name}_mean_square", list(block.shape), parameter.dtype, Constant(0.0))
    args = (gradient, parameter, backup, square, plan.compensation.strength, plan.compensation.decay or 0.0)
    return _named(main, f"{gradient.name}.compensated", dc_asgd, args)


def _moved(given: Optimizer, plan: Plan, group: int) -> Optimizer:
    """The optimizer for blocks: without what it knows of the program of one process."""
    made = copy.copy(given)
    made._rates, made._states = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
    if plan.mode != "sync":
        made.grad_clip = None  # a trainer clips before it sends
    elif isinstance(given.grad_clip, ClipGradByGlobalNorm):
        made.grad_clip = _GlobalNormOfServers(given.grad_clip.clip_norm)
        made.grad_clip.group = group
    decays = given.apply_decay_param_fun if isinstance(given, AdamW) else None
    if isinstance(made, AdamW) and decays is not None:
        made.apply_decay_param_fun = lambda name: decays(re.sub(r"\.block\d+$", "", name))
    return made


def _listen(main: Program, plan: Plan, number: int, blocks: list[str]) -> None:
    graph = main.graph
    calls = (node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    tables = [table.name for table in plan.tables]
    args = (plan.endpoints[number], plan.trainers, plan.mode, blocks, tables)
    with graph.inserting_before(next(calls, graph._root)):
        made = graph.create_node("call_function", listen_and_serv, args, {}, "listen_and_serv")
    made.meta = {"role": "communicate", "source": None, "val": None}
    main.touch()
