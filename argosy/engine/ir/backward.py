"""Backward: torch's autograd runs over the program's fake tensors, and the recorder writes down what it does.

    forward  ──▶ loss ──▶ loss@GRAD = 1 ──▶ torch.autograd.grad ──▶ w@GRAD, b@GRAD, …

The formulas are torch's own. A variable with `stop_gradient`, or in `no_grad_set`, stops the flow: the
gradient that arrives there is dropped before the formula of the operator behind it runs.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import _engine_run_backward

from argosy.engine.errors import ArgosyError, ConfigError, ProgramError
from argosy.engine.ir.gradient_hooks import after_accumulation, tensor_hooks
from argosy.engine.ir.program import Program
from argosy.engine.ir.source import user_line
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ir.why import why
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
    `no_grad_set`: variables that no gradient passes.
    """
    if callbacks is not None:
        raise ConfigError(
            "append_backward: callbacks are not supported; rewrite the program after it is built"
        )
    _check_target(loss)
    blocked = _names(no_grad_set)
    program = loss.program
    parameters = [p for p in _parameters(program, parameter_list) if p.trainable and p.name not in blocked]
    if not parameters:
        raise ProgramError(
            f"{program.name} has no trainable parameter; there is nothing to compute gradients for"
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
        logger.warning("loss %r does not depend on %s: not trained", loss.name, ", ".join(unused))
    return pairs


def gradients(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Names | None = None,
) -> list[Variable | None]:
    """The gradient of the sum of `targets` for each of `inputs`; None where nothing depends on it.

    Feeds have `stop_gradient=True`; set it to False before using one to differentiate for it.
    """
    outs, ins = _listed(targets), _listed(inputs)
    given = [None] * len(outs) if target_gradients is None else _listed(target_gradients)
    if len(given) != len(outs):
        raise ConfigError(
            f"{len(outs)} targets but {len(given)} target_gradients; give one for each, or None"
        )
    return _gradients(outs, ins, given, _names(no_grad_set), create_graph=True)


def _gradients(
    outs: list[Variable],
    ins: list[Variable],
    given: list[Variable | None],
    blocked: Collection[str],
    create_graph: bool,
) -> list[Variable | None]:
    """`create_graph`: the gradients can be differentiated again."""
    program = outs[0].program
    if not program.has_history:
        raise ProgramError(
            f"{program.name} cannot be differentiated: it was loaded or cloned for testing; "
            "call minimize on the program that the model's code built"
        )
    for variable in (*outs, *ins, *(g for g in given if g is not None)):
        program.own(variable)
    pairs = [(o, g) for o, g in zip(outs, given, strict=True) if o.value.requires_grad]
    sources = [i for i in ins if i.value.requires_grad and not (i.stop_gradient and i.value.is_leaf)]
    if not pairs or not sources:
        return [None] * len(ins)
    try:
        with program.recording("backward"), _stopped(program, blocked), tensor_hooks(program):
            seeds = [torch.ones_like(o.value) if g is None else g.value for o, g in pairs]
            found = _autograd([o.value for o, _ in pairs], [i.value for i in sources], seeds, create_graph)
            if (
                not create_graph
            ):  # eager mode's loss.backward(), which accumulates; torch.autograd.grad does not
                found = [
                    None if g is None else after_accumulation(program, i.name, g)
                    for i, g in zip(sources, found, strict=True)
                ]
    except Exception as e:  # torch's: a value that backward needs was changed in place, or a hook's
        is_ours = isinstance(e, ArgosyError)
        reason = program.symbols.without_symbols(str(e)) if is_ours else why(e, program.symbols)
        raise ProgramError(
            f"the gradient of {outs[0].name!r} at {user_line()} cannot be built: {reason}"
        ) from e
    for (out, own), seed in zip(pairs, seeds, strict=True):
        if own is None:
            _enter(program, f"{out.name}@GRAD", seed)
    by_name = {i.name: v for i, v in zip(sources, found, strict=True) if v is not None}
    return [_enter(program, f"{i.name}@GRAD", by_name[i.name]) if i.name in by_name else None for i in ins]


def _autograd(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
    create_graph: bool,
) -> Sequence[torch.Tensor | None]:
    """torch.autograd.grad, below the torch functions that `Lowering` replaces.

    They stay replaced for code that autograd calls: hooks, and modules that torch.utils.checkpoint runs again.
    """
    with torch._C.DisableTorchFunction():
        given = torch.autograd._make_grads(outputs, seeds, is_grads_batched=False)
    found: Sequence[torch.Tensor | None] = _engine_run_backward(
        tuple(outputs), given, True, create_graph, tuple(inputs), True, accumulate_grad=False
    )
    return found


def _enter(program: Program, name: str, value: torch.Tensor) -> Variable:
    number = 0
    free = name
    while free in program.vars:  # a second call of gradients(): w@GRAD@1
        number += 1
        free = f"{name}@{number}"
    made = program.add(Variable(program, free, value))
    made._stop_gradient = not value.requires_grad
    return made


@contextmanager
def _stopped(program: Program, names: Collection[str]) -> Iterator[None]:
    """Drop the gradients that arrive at stopped variables inside the graph."""
    handles = []
    for variable in program.vars.values():
        function = variable.value.grad_fn
        if function is not None and (variable.stop_gradient or variable.name in names):
            handles.append(function.register_prehook(_dropping(variable.value.output_nr)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _dropping(output: int) -> Any:
    """Drops the gradient of one of an operator's outputs."""
    return lambda grads: tuple(None if i == output else g for i, g in enumerate(grads))


def _check_target(loss: Any) -> None:
    if not isinstance(loss, Variable):
        raise ConfigError(
            f"the loss is a {type(loss).__name__}; give the Variable that a loss function returned"
        )
    if loss.value.numel() != 1:
        raise ConfigError(
            f"loss {loss.name!r} has shape {list(loss.shape)}; minimize needs one number: take its mean or its sum"
        )


def _parameters(program: Program, wanted: Names | None) -> list[Parameter]:
    if wanted is None:
        return program.all_parameters()
    found = [program.own(w) if isinstance(w, Variable) else program.var(w) for w in wanted]
    for variable in found:
        if not isinstance(variable, Parameter):
            raise ConfigError(f"parameter_list: {variable.name!r} is not a parameter of {program.name}")
    return [v for v in found if isinstance(v, Parameter)]


def _names(given: Names | None) -> set[str]:
    return {v.name if isinstance(v, Variable) else str(v) for v in given or ()}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
