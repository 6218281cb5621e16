"""Backward: torch's autograd runs on the program's fake tensors, and the recorder records its operators.

    forward  ──▶ loss ──▶ loss@GRAD = 1 ──▶ torch.autograd.grad ──▶ w@GRAD, b@GRAD, …

The formulas are torch's own. A variable with `stop_gradient`, or in `no_grad_set`, stops the flow: its gradient is
dropped before the formula of the operator that computed it runs.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch.autograd.graph import _engine_run_backward
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from argosy.engine.errors import ArgosyError, ArgumentTypeError, ConfigError, ProgramError, UnsupportedError
from argosy.engine.ir.block_recorder import BlockRecorder
from argosy.engine.ir.build_errors import why
from argosy.engine.ir.effects import nodes_inside
from argosy.engine.ir.gc_pause import paused_gc
from argosy.engine.ir.gradient_hooks import after_accumulation, tensor_hooks
from argosy.engine.ir.program import Program
from argosy.engine.ir.source import user_line
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ir.verify import describe
from argosy.engine.log import logger

Names = Iterable[Variable | str]


def append_backward(
    loss: Variable,
    parameter_list: Names | None = None,
    no_grad_set: Names | None = None,
    callbacks: Any = None,
) -> list[tuple[Parameter, Variable]]:
    """Add the nodes that compute the gradient of `loss`; returns (parameter, gradient) pairs.

    `parameter_list`: only these (default: every trainable parameter that the loss depends on).
    `no_grad_set`: variables that gradients do not flow through.
    """
    if callbacks is not None:
        raise UnsupportedError(
            "append_backward: callbacks are not supported; rewrite the program after it is built"
        )
    _check_target(loss)
    blocked = _names(no_grad_set)
    program = loss.program
    parameters = [p for p in _parameters(program, parameter_list) if p.trainable and p.name not in blocked]
    if not parameters:
        raise ProgramError(
            f"{program.name} has no trainable parameter; create one, or set stop_gradient=False"
        )
    grads = _gradients([loss], list(parameters), [None], blocked, create_graph=False)
    pairs = [(p, g) for p, g in zip(parameters, grads, strict=True) if g is not None]
    unused = [p.name for p, g in zip(parameters, grads, strict=True) if g is None]
    if not pairs:
        raise ProgramError(
            f"loss {loss.name!r} depends on none of the {len(parameters)} parameters; if the model uses "
            "torch.utils.checkpoint, give it use_reentrant=False"
        )
    if unused:
        logger.warning("loss %r does not depend on %s; they are not trained", loss.name, ", ".join(unused))
    return pairs


def gradients(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Names | None = None,
) -> list[Variable | None]:
    """The gradient of the sum of `targets` with respect to each of `inputs`; None where it does not depend on it.

    Feeds have `stop_gradient=True`; set it to False before using one to differentiate for it.
    """
    outs, ins = _listed(targets), _listed(inputs)
    seeds = [None] * len(outs) if target_gradients is None else _listed(target_gradients)
    if len(seeds) != len(outs):
        raise ConfigError(
            f"{len(outs)} targets but {len(seeds)} target_gradients; give one for each, or None"
        )
    return _gradients(outs, ins, seeds, _names(no_grad_set), create_graph=True)


@paused_gc()
def _gradients(
    outs: list[Variable],
    ins: list[Variable],
    target_gradients: list[Variable | None],
    blocked: Collection[str],
    create_graph: bool,
) -> list[Variable | None]:
    """`create_graph`: the gradients can be differentiated again."""
    program = outs[0].program
    if isinstance(program.recorder, BlockRecorder):
        raise ProgramError(
            f"the gradient of {outs[0].name!r} at {user_line()} is inside a branch or a loop; call minimize after it"
        )
    if not program.recorder.has_history:
        raise ProgramError(
            f"{program.name} cannot be differentiated: it was loaded or cloned for testing; "
            "call minimize on the program that the model's code built"
        )
    for variable in (*outs, *ins, *(g for g in target_gradients if g is not None)):
        program.check_owner(variable)
    _check_arrays(outs)
    pairs = [(o, g) for o, g in zip(outs, target_gradients, strict=True) if o.value.requires_grad]
    sources = [i for i in ins if i.value.requires_grad and not (i.stop_gradient and i.value.is_leaf)]
    if not pairs or not sources:
        return [None] * len(ins)
    targets, leaves = [o.value for o, _ in pairs], [i.value for i in sources]
    try:
        with program.recording("backward"), stopped(program.vars.values(), blocked), tensor_hooks(program):
            seeds = [torch.ones_like(o.value) if g is None else g.value for o, g in pairs]
            if create_graph:
                values = _differentiable(program, targets, leaves, seeds)
            else:  # like loss.backward() in eager mode, which accumulates; torch.autograd.grad does not
                values = [
                    None if g is None else after_accumulation(program, i.name, g)
                    for i, g in zip(sources, autograd(targets, leaves, seeds, False), strict=True)
                ]
    except Exception as e:  # of torch: a value that backward needs was mutated; or of a hook
        is_ours = isinstance(e, ArgosyError)
        reason = program.symbols.without_symbols(str(e)) if is_ours else why(e, program.symbols)
        raise ProgramError(
            f"the gradient of {outs[0].name!r} at {user_line()} cannot be built: {reason}"
        ) from e
    seed_names = tuple(
        _add_gradient(program, f"{out.name}@GRAD", seed).name
        for (out, target_gradient), seed in zip(pairs, seeds, strict=True)
        if target_gradient is None
    )
    by_name = {i.name: v for i, v in zip(sources, values, strict=True) if v is not None}
    grads = [
        _add_gradient(program, f"{i.name}@GRAD", by_name[i.name]) if i.name in by_name else None for i in ins
    ]
    are_ones = len(seed_names) == len(pairs)
    seeds_of = {g.name: seed_names if are_ones else () for g in grads if g is not None}
    program.training = program.training.with_seeds(seeds_of)
    return grads


def _check_arrays(targets: Sequence[Variable]) -> None:
    """Raise if a target depends on an array of the step that a variable with a gradient was written to."""
    todo = [target.node for target in targets]
    visited = set(todo)
    while todo:
        node = todo.pop()
        if node.meta.get("drops_gradient"):
            raise ProgramError(
                f"{targets[0].name!r} depends on an array that {describe(node)} writes in a loop, through which "
                "gradients cannot flow; carry the value in while_loop, or set stop_gradient on what is written"
            )
        new = [n for n in (*node.all_input_nodes, *nodes_inside(node)) if n not in visited]
        visited.update(new)
        todo += new


def record_seeds(gradient: Variable) -> None:
    """Record the seeds of a variable that was computed from gradients: it has the seeds of all of them."""
    program = gradient.program
    recorded = program.training.seeds
    if gradient.name in recorded:
        return
    known = {program.vars[name].node: seeds for name, seeds in recorded.items() if name in program.vars}
    seeds: dict[str, None] = {}
    visited = {gradient.node}
    todo = [gradient.node]
    while todo:
        node = todo.pop()
        if node in known:
            if not known[node]:
                seeds = {}
                break
            seeds |= dict.fromkeys(known[node])
            continue
        new = [source for source in node.all_input_nodes if source not in visited]
        visited.update(new)
        todo += new
    program.training = program.training.with_seeds({gradient.name: tuple(seeds)})


def _differentiable(
    program: Program,
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor | None]:
    """Gradients that can be differentiated again, or that raise when they are.

    Some of torch's formulas (scatter_reduce with "prod") read values to find out whether a second derivative exists.
    """
    try:
        with program.recorder.attempt():
            return autograd(outputs, inputs, seeds, True)
    except GuardOnDataDependentSymNode:
        first = autograd(outputs, inputs, seeds, False)
        message = "torch's formula of the second derivative reads values; differentiate it only once"
        return [None if g is None else differentiable_once(g, inputs, message) for g in first]


def differentiable_once(gradient: torch.Tensor, inputs: Sequence[torch.Tensor], message: str) -> torch.Tensor:
    """The gradient with respect to `inputs`; its own derivative raises ProgramError with this message."""
    result: torch.Tensor = _DifferentiableOnce.apply(message, gradient, *inputs)  # type: ignore[no-untyped-call]
    return result


class _DifferentiableOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, message: str, gradient: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.message = message
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> NoReturn:
        raise ProgramError(ctx.message)


def autograd(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
    create_graph: bool,
) -> Sequence[torch.Tensor | None]:
    """torch.autograd.grad, below the torch functions that `Lowering` replaces.

    Code that autograd calls still sees the replacements: hooks, and modules that torch.utils.checkpoint recomputes.
    """
    with torch._C.DisableTorchFunction():
        grads = torch.autograd._make_grads(outputs, seeds, is_grads_batched=False)
    computed: Sequence[torch.Tensor | None] = _engine_run_backward(
        tuple(outputs), grads, True, create_graph, tuple(inputs), True, accumulate_grad=False
    )
    return computed


def _add_gradient(program: Program, name: str, value: torch.Tensor) -> Variable:
    number = 0
    unused = name
    while unused in program.vars:  # a second call of gradients(): w@GRAD@1
        number += 1
        unused = f"{name}@{number}"
    return program.add(Variable(program, unused, value, stop_gradient=not value.requires_grad))


@contextmanager
def stopped(variables: Iterable[Variable], names: Collection[str]) -> Iterator[None]:
    """Drop the gradients that arrive at stopped variables inside the graph."""
    handles = []
    for variable in variables:
        function = variable.value.grad_fn
        if function is not None and (variable.stop_gradient or variable.name in names):
            handles.append(function.register_prehook(_dropping(variable.value.output_nr)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _dropping(output: int) -> Any:
    """A hook that drops the gradient of one of an operator's outputs."""
    return lambda grads: tuple(None if i == output else g for i, g in enumerate(grads))


def _check_target(loss: Any) -> None:
    if not isinstance(loss, Variable):
        raise ArgumentTypeError(
            f"the loss is a {type(loss).__name__}; give the Variable that a loss function returned"
        )
    if loss.value.numel() != 1:
        raise ConfigError(
            f"loss {loss.name!r} has shape {list(loss.shape)}; minimize needs one number: take its mean or its sum"
        )


def _parameters(program: Program, wanted: Names | None) -> list[Parameter]:
    if wanted is None:
        return program.all_parameters()
    variables = [program.check_owner(w) if isinstance(w, Variable) else program.var(w) for w in wanted]
    for variable in variables:
        if not isinstance(variable, Parameter):
            raise ArgumentTypeError(f"parameter_list: {variable.name!r} is not a parameter of {program.name}")
    return [v for v in variables if isinstance(v, Parameter)]


def _names(variables: Names | None) -> set[str]:
    return {v.name if isinstance(v, Variable) else str(v) for v in variables or ()}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
