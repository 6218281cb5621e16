"""Which servers keep what of a program that an optimizer has minimized."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from argosy.distributed.ps.rows import table_of
from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Minimized, Program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ps.plan import Compensation, Dense, Plan
from argosy.engine.ps.slicing import MIN_BLOCK_SIZE, Block, cut, round_robin
from argosy.engine.ps.table.spec import TableSpec
from argosy.nn.clip import ClipGradByNorm
from argosy.optimizer import Lamb, LarsMomentum

Dispatch = Callable[[Sequence[Block], int], list[Block]]


@dataclass(frozen=True)
class Slicing:
    """How variables are cut and dealt out."""

    cuts: bool = True
    min_block_size: int = MIN_BLOCK_SIZE
    dispatch: Dispatch = round_robin


def make_plan(
    program: Program,
    endpoints: Sequence[str],
    trainers: int,
    mode: str,
    slicing: Slicing = Slicing(),  # noqa: B008  (frozen)
    *,
    compensation: Compensation | None = None,
    k_steps: int = 1,
    merged_steps: int = 1,
    pull_every: int = 1,
    initialised_by_trainer: bool = False,
) -> Plan:
    """The plan of a job; every process computes the same from the same program."""
    if not program.minimized:
        raise ConfigError(
            f"{program.name} has no updates that servers could do; call optimizer.minimize(loss) in this process "
            "before it is transpiled (a loaded program does not remember its optimizer)"
        )
    _check_tables(program)
    trained = [
        (program.var(p), g, m)
        for m in program.minimized
        for p, g in zip(m.parameters, m.gradients, strict=True)
    ]
    dense = _dense([one for one in trained if not is_table(one[0])], slicing, len(endpoints), mode, program)
    tables = tuple(_table(program, p, m) for p, _, m in trained if is_table(p))
    return Plan(
        tuple(endpoints),
        trainers,
        mode,
        dense,
        tables,
        compensation,
        k_steps,
        merged_steps,
        pull_every,
        tuple(_norm_servers(program, done, dense) for done in program.minimized),
        tuple(_in_words(done) for done in program.minimized),
        initialised_by_trainer,
    )


def _dense(
    trained: list[tuple[Variable, str, Minimized]],
    slicing: Slicing,
    servers: int,
    mode: str,
    program: Program,
) -> tuple[Dense, ...]:
    """Cut the variables into blocks, and deal these out to the servers."""
    if not slicing.cuts:  # as Paddle does, so that the large ones do not meet on one server by their order
        order = np.random.RandomState(program.random_seed).permutation(len(trained))
        trained = [trained[i] for i in order]
    cuts = [
        cut(
            p.name, p.shape, servers if slicing.cuts and not _is_whole(m, mode) else 1, slicing.min_block_size
        )
        for p, _, m in trained
    ]
    placed = iter(slicing.dispatch([block for blocks in cuts for block in blocks], servers))
    return tuple(
        Dense(p.name, g, tuple(p.shape), m.rate, tuple(next(placed) for _ in blocks))
        for (p, g, m), blocks in zip(trained, cuts, strict=True)
    )


def _norm_servers(program: Program, done: Minimized, dense: Sequence[Dense]) -> tuple[int, ...]:
    """The servers with a block that this optimizer clips by the norm of all."""
    clip = done.optimizer.grad_clip
    clipped = {n for n in done.parameters if clip is not None and clip.applies_to(program.var(n))}
    return tuple(sorted({block.server for v in dense if v.name in clipped for block in v.blocks}))


def _in_words(done: Minimized) -> str:
    """The optimizer with its settings; the rate, which trainers send, does not count."""
    plain = {n: v for n, v in vars(done.optimizer).items() if isinstance(v, bool | int | float | str)}
    settings = ", ".join(f"{n}={v!r}" for n, v in sorted(plain.items()) if n != "learning_rate")
    clip, decay = done.optimizer.grad_clip, done.optimizer.regularization
    parts = [settings, *(f"{type(x).__name__}({vars(x)})" for x in (clip, decay) if x is not None)]
    return f"{type(done.optimizer).__name__}({', '.join(filter(None, parts))})"


def is_table(parameter: object) -> bool:
    """True if the parameter's rows lie on the servers, by id."""
    return isinstance(parameter, Parameter) and (parameter.is_sparse or parameter.is_distributed)


def _check_tables(program: Program) -> None:
    for p in program.all_parameters():
        if is_table(p) and len(p.shape) != 2:
            raise ConfigError(
                f"the table {p.name!r} has shape {list(p.shape)}; a table has rows: use [rows, numbers]"
            )


def _is_whole(done: Minimized, mode: str) -> bool:
    """True if an update needs a norm over the whole parameter, so that it must not be cut."""
    clips = mode == "sync" and isinstance(done.optimizer.grad_clip, ClipGradByNorm)
    return clips or isinstance(done.optimizer, LarsMomentum | Lamb)


def _table(program: Program, parameter: object, done: Minimized) -> TableSpec:
    assert isinstance(parameter, Parameter), "a table is a parameter"
    clip = done.optimizer.grad_clip
    if clip is not None and clip.applies_to(parameter):
        raise ConfigError(
            f"{type(clip).__name__} would clip the gradient of the table {parameter.name!r}, which no process has; "
            "build it with ParamAttr(need_clip=False)"
        )
    first = program.initializers.get(parameter.name)
    memory = env.number("ARGOSY_TABLE_MEMORY_ROWS")
    return table_of(parameter, done.optimizer, first, program.random_seed, None, memory)


def describe(plan: Plan) -> list[str]:
    """Every block, its size and its server, a line each."""
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
