"""The update ops, declared from the descriptions of the optimizers: one op each, and for some a fused op.

    before    momentum(w1, g1, v1, rate, 1.0, 0.9, False, 1e-4)
              momentum(b1, g2, v2, rate, 2.0, 0.9, False, 0.0)
    after     fused_momentum([w1, b1], [g1, g2], [v1, v2], rate, [1.0, 2.0], 0.9, False, [1e-4, 0.0], [])

The arguments are parameter, gradient, slots, rate, factor, settings, master, skip. `master` is a float32 copy of a
16-bit parameter: the master is updated, and the parameter is set to its rounded value. A 16-bit gradient of a float32
parameter or master is widened. Nothing is updated if `skip` is not 0: gradients overflowed (see ops/loss_scaling.py).

A fused op does not move the tensors. float32 tensors with the same layout go to Argosy's C++ kernel, all at once, which
converts bfloat16 gradients and parameters in the same pass over memory; the others, and all of them where that kernel
is unavailable, go to torch's, which takes lists of equal rate and decay.

A gradient may be a RankGradient (ops/host_updates.py): then this rank sums and updates, its shard of the parameters or
all that it was given.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from argosy.engine.kernels import unavailable
from argosy.engine.kernels.updates import Row, have_same_layout
from argosy.engine.ops import verifiers
from argosy.engine.ops.host_updates import RankGradient, rows_of_rank, summed
from argosy.engine.ops.memory_format import match_layout
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.optimizers import OPTIMIZERS, optimizer_spec
from argosy.engine.optimizers.spec import OptimizerSpec, Update

Tensors = Sequence[Tensor]
Gradient = Tensor | RankGradient
Kernel = Callable[..., None]
_DECAY = "weight_decay"
_IN_KERNEL = torch.bfloat16
"""The 16-bit type that the C++ kernels convert; float16 is converted by torch."""
_UPDATES: dict[str, OpOverload] = {}
FUSED: dict[OpOverload, OpOverload] = {}
"""Each update and its fused op, which has the same arguments; those that differ between parameters are lists."""


def update_op(name: str) -> OpOverload:
    """The update op of an optimizer; the first call declares it, and its fused op."""
    if name not in _UPDATES:
        spec = optimizer_spec(name)
        slots = [slot.op_name or slot.name for slot in spec.slots]
        op = _UPDATES[name] = _declare(_schema(spec), _kernel(spec), verifiers.update(slots))
        if spec.is_fused:
            FUSED[op] = _declare(
                _schema(spec, fused=True), _fused_kernel(spec), verifiers.fused_update(slots)
            )
    return _UPDATES[name]


def _declare(schema: str, kernel: Kernel, verify: verifiers.Verifier) -> OpOverload:
    return OpSpec(declare(schema, kernel, lambda *args, **kwargs: None), kernel, verify=verify).target


def _schema(spec: OptimizerSpec, fused: bool = False) -> str:
    many = "[]" if fused else ""
    slots = [
        f"Tensor({letter}!){'?' * bool(slot.used_if)}{many} {slot.op_name or slot.name}"
        for letter, slot in zip("bcdefghijkl", spec.slots, strict=False)
    ]
    settings = [
        f"{'bool' if isinstance(default, bool) else 'float'}{many if name == _DECAY else ''} {name}"
        for name, default in _arguments(spec)
    ]
    tensors = [f"Tensor(a!){many} param", f"Tensor{many} grad", *slots]
    arguments = [*tensors, "Tensor rate", f"float{many} factor", *settings]
    arguments += ["Tensor(m!)[] master" if fused else "Tensor(m!)? master=None", "Tensor? skip=None"]
    return f"{'fused_' * fused}{spec.name}({', '.join(arguments)}) -> ()"


def _arguments(spec: OptimizerSpec) -> list[tuple[str, float]]:
    """The names and defaults of the op's settings."""
    settings = [(s.op_name or s.name, s.default) for s in spec.settings if s.in_op]
    return [*settings, (_DECAY, 0.0)] if spec.folds_l2 else settings


# --- one parameter ------------------------------------------------------------------------------------


def _kernel(spec: OptimizerSpec) -> Kernel:
    num_slots, num_states = len(spec.slots), len(spec.slots) - spec.has_count
    first, last = num_slots + 2, num_slots + 2 + len(_arguments(spec))  # the settings
    formula, takes_lists, has_count = spec.update, spec.takes_lists, spec.has_count
    has_decay = _DECAY in dict(_arguments(spec))

    def kernel(param: Tensor, grad: Gradient, *arguments: Any, skip: Tensor | None = None) -> None:
        if skip is not None and skip.item():
            return
        lr = arguments[num_slots].item() * arguments[num_slots + 1]
        settings = arguments[first:last]
        master = arguments[last] if len(arguments) > last else None
        target = param if master is None else master
        if isinstance(grad, RankGradient):
            decay = settings[-1] if has_decay else 0.0
            tensors, counts = (
                (target, grad.parts[0], *arguments[:num_states]),
                arguments[num_states:num_slots],
            )
            row = Row(lr, decay, tensors, counts, None if master is None else param, grad.parts)
            rest = settings[:-1] if has_decay else settings
            _update_by_lists(formula, _rows_of_rank([row], [grad]), rest)
            return
        grad = grad.to(target.dtype)
        if takes_lists:
            tensors, counts = (target, grad, *arguments[:num_states]), arguments[num_states:num_slots]
            _update_in_one_layout(formula, tensors, counts, lr, settings)
        else:
            if has_count:
                arguments[num_states].add_(1.0)
            formula(target, grad, *arguments[:num_slots], lr, *settings)
        if master is not None:
            param.copy_(master)

    return kernel


def _update_in_one_layout(
    formula: Update, tensors: Tensors, counts: Tensors, lr: float, settings: Sequence[float]
) -> None:
    """Update one parameter with a formula over lists, whose tensors must have the same layout."""

    def update(*converted: Tensor) -> None:
        for count in counts:
            count.add_(1.0)
        formula(*[[t] for t in (*converted, *counts)], lr, *settings)

    match_layout(update, *tensors)


# --- many parameters ----------------------------------------------------------------------------------


def _fused_kernel(spec: OptimizerSpec) -> Kernel:
    num_slots, num_states = len(spec.slots), len(spec.slots) - spec.has_count
    has_decay = _DECAY in dict(_arguments(spec))

    def kernel(
        params: Tensors, grads: Sequence[Gradient], *arguments: Any, skip: Tensor | None = None
    ) -> None:
        if skip is not None and skip.item():
            return
        states, counts = arguments[:num_states], arguments[num_states:num_slots]
        rate, factors, *settings = arguments[num_slots:]
        masters = settings.pop()
        targets = masters or params
        decays = settings.pop() if has_decay else [0.0] * len(params)
        steps = zip(*counts, strict=True) if counts else [()] * len(params)
        lr = rate.item()
        summands = [g.parts if isinstance(g, RankGradient) else () for g in grads]
        wide = [_in_kernel(g, t.dtype) for g, t in zip(grads, targets, strict=True)]
        copies = [p if masters and p.dtype is _IN_KERNEL else None for p in params]
        tensors = zip(targets, wide, *states, strict=True)
        columns = zip(factors, decays, tensors, steps, copies, summands, strict=True)
        rows = [Row(lr * factor, *row) for factor, *row in columns]
        rows = _rows_of_rank(rows, grads)
        if spec.native is not None and unavailable() is None:
            rows = spec.native(rows, *settings)
        _update_by_lists(spec.update, rows, settings)
        for param, master in zip(params, masters, strict=bool(masters)):
            if param.dtype is not _IN_KERNEL:
                param.copy_(master)

    return kernel


def _in_kernel(grad: Gradient, dtype: torch.dtype) -> Tensor:
    """The gradient in a dtype that the C++ kernels take; of several ranks' gradients, the first as it is."""
    if isinstance(grad, RankGradient):
        return grad.parts[0]
    return grad if grad.dtype is _IN_KERNEL else grad.to(dtype)


def _rows_of_rank(rows: list[Row], grads: Sequence[Gradient]) -> list[Row]:
    """This rank's shard of the rows whose updates the ranks divide, and all others."""
    index = next((grad.index for grad in grads if isinstance(grad, RankGradient)), None)
    if index is None:
        return rows
    whole = [row for row in rows if not row.summands]
    return whole + rows_of_rank([row for row in rows if row.summands], index)


def _update_by_lists(formula: Update, rows: Sequence[Row], settings: Sequence[float]) -> None:
    """Update with torch's kernel, in lists of equal rate, decay and dtype."""
    alike: dict[tuple[float, float, torch.dtype], list[Row]] = {}
    for row in map(_with_wide_gradient, rows):
        if have_same_layout(row.tensors):
            alike.setdefault((row.rate, row.decay, row.tensors[0].dtype), []).append(row)
        else:
            _update_in_one_layout(formula, row.tensors, row.steps, row.rate, [*settings, row.decay])
    for (lr, decay, _), group in alike.items():
        for count in (step for row in group for step in row.steps):
            count.add_(1.0)
        columns = map(list, zip(*((*row.tensors, *row.steps) for row in group), strict=True))
        formula(*columns, lr, *settings, decay)
    for row in rows:
        if row.copy is not None:
            row.copy.copy_(row.tensors[0])


def _with_wide_gradient(row: Row) -> Row:
    param, grad, *states = row.tensors
    if row.summands:
        grad = summed(row.summands)
        row = row._replace(tensors=(param, grad, *states), summands=())
    return row if grad.dtype is param.dtype else row._replace(tensors=(param, grad.to(param.dtype), *states))


UPDATES = frozenset(map(update_op, OPTIMIZERS))
"""The update ops of all optimizers, of one parameter each."""
