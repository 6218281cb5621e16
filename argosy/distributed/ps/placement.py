"""Place the variables and tables of a minimized program on parameter servers."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from argosy.distributed.ps.row_specs import table_of
from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.training_info import OptimizerCall
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ps.protocol.job_plan import Compensation, Dense, JobPlan
from argosy.engine.ps.protocol.slicing import MIN_BLOCK_SIZE, VariableBlock, round_robin, split_variable
from argosy.engine.ps.table.table_spec import TableSpec
from argosy.nn.clip import ClipGradByNorm
from argosy.optimizer.optimizer import optimizer_of
from argosy.optimizer.spec_optimizer import SpecOptimizer

Dispatch = Callable[[Sequence[VariableBlock], int], list[VariableBlock]]


@dataclass(frozen=True)
class Slicing:
    """How variables are split into blocks and placed on servers."""

    cuts: bool = True
    min_block_size: int = MIN_BLOCK_SIZE
    dispatch: Dispatch = round_robin


def make_plan(
    program: Program,
    endpoints: Sequence[str],
    trainers: int,
    mode: str,
    slicing: Slicing = Slicing(),
    *,
    compensation: Compensation | None = None,
    k_steps: int = 1,
    merged_steps: int = 1,
    pull_every: int = 1,
    initialised_by_trainer: bool = False,
) -> JobPlan:
    """The plan of a job. It is deterministic: every process computes the same plan from the same program."""
    if not program.training.optimizer_calls:
        raise ConfigError(
            f"{program.name} has no updates to move to the servers; call optimizer.minimize(loss) in this process "
            "before transpiling (a loaded program has lost its optimizer)"
        )
    _check_tables(program)
    trained = [
        (program.var(p), g, call)
        for call in program.training.optimizer_calls
        for p, g in zip(call.parameters, call.gradients, strict=True)
    ]
    dense = _dense(
        [entry for entry in trained if not is_table(entry[0])], slicing, len(endpoints), mode, program
    )
    tables = tuple(_table(program, p, call) for p, _, call in trained if is_table(p))
    return JobPlan(
        tuple(endpoints),
        trainers,
        mode,
        dense,
        tables,
        compensation,
        k_steps,
        merged_steps,
        pull_every,
        tuple(_norm_servers(program, call, dense) for call in program.training.optimizer_calls),
        tuple(_optimizer_text(call) for call in program.training.optimizer_calls),
        initialised_by_trainer,
    )


def _dense(
    trained: list[tuple[Variable, str, OptimizerCall]],
    slicing: Slicing,
    servers: int,
    mode: str,
    program: Program,
) -> tuple[Dense, ...]:
    """Split the variables into blocks, and place the blocks on the servers."""
    if not slicing.cuts:  # as in Paddle: a random order, so that no server gets all large variables
        order = np.random.RandomState(program.random_seed).permutation(len(trained))
        trained = [trained[i] for i in order]
    cuts = [
        split_variable(
            p.name,
            p.shape,
            servers if slicing.cuts and not _is_whole(call, mode) else 1,
            slicing.min_block_size,
        )
        for p, _, call in trained
    ]
    placed = iter(slicing.dispatch([block for blocks in cuts for block in blocks], servers))
    return tuple(
        Dense(p.name, g, tuple(p.shape), call.rate, tuple(next(placed) for _ in blocks))
        for (p, g, call), blocks in zip(trained, cuts, strict=True)
    )


def _norm_servers(program: Program, call: OptimizerCall, dense: Sequence[Dense]) -> tuple[int, ...]:
    """The servers that hold a block which this optimizer clips by the global norm."""
    clip = optimizer_of(call).grad_clip
    clipped = {
        name
        for name in call.parameters
        if clip is not None
        and isinstance(parameter := program.var(name), Parameter)
        and clip.applies_to(parameter)
    }
    return tuple(sorted({block.server for v in dense if v.name in clipped for block in v.blocks}))


def _optimizer_text(call: OptimizerCall) -> str:
    """The optimizer and its settings as text, without the learning rate, which trainers send."""
    optimizer = optimizer_of(call)
    plain = {n: v for n, v in vars(optimizer).items() if isinstance(v, bool | int | float | str)}
    settings = ", ".join(f"{n}={v!r}" for n, v in sorted(plain.items()) if n != "learning_rate")
    clip, decay = optimizer.grad_clip, optimizer.regularization
    parts = [settings, *(f"{type(x).__name__}({vars(x)})" for x in (clip, decay) if x is not None)]
    return f"{type(optimizer).__name__}({', '.join(filter(None, parts))})"


def is_table(parameter: object) -> bool:
    """True if the parameter is a table: the servers store its rows by id."""
    return isinstance(parameter, Parameter) and (parameter.is_sparse or parameter.is_distributed)


def _check_tables(program: Program) -> None:
    for p in program.all_parameters():
        if is_table(p) and len(p.shape) != 2:
            raise ConfigError(
                f"the table {p.name!r} has shape {list(p.shape)}; a table is two-dimensional: use [rows, columns]"
            )


def _is_whole(call: OptimizerCall, mode: str) -> bool:
    """True if an update needs a norm over the whole parameter, so that it must not be split."""
    optimizer = optimizer_of(call)
    clips = mode == "sync" and isinstance(optimizer.grad_clip, ClipGradByNorm)
    return clips or (isinstance(optimizer, SpecOptimizer) and not optimizer.spec.is_elementwise)


def _table(program: Program, parameter: object, call: OptimizerCall) -> TableSpec:
    assert isinstance(parameter, Parameter), "a table is a parameter"
    optimizer = optimizer_of(call)
    clip = optimizer.grad_clip
    if clip is not None and clip.applies_to(parameter):
        raise ConfigError(
            f"{type(clip).__name__} would clip the gradient of the table {parameter.name!r}, which no process holds; "
            "build it with ParamAttr(need_clip=False)"
        )
    memory = env.number("ARGOSY_TABLE_MEMORY_ROWS")
    return table_of(parameter, optimizer, parameter.initializer, program.random_seed, memory)


def describe(plan: JobPlan) -> list[str]:
    """A line for every block: its size and its server."""
    lines = [
        f"{block.name} {list(block.shape)} ({block.size:,} elements) -> {plan.endpoints[block.server]}"
        for variable in plan.dense
        for block in variable.blocks
    ]
    tables = [
        f"table {table.name} (rows of {table.dim}, {table.optimizer.kind}) -> all {len(plan.endpoints)} servers, by id"
        for table in plan.tables
    ]
    return [*lines, *tables]
