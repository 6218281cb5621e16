"""fused_sgd, fused_momentum, fused_adam, fused_adamw: the updates of many parameters as one call.

    before    momentum(w1, g1, v1, rate, 1.0, 0.9, False, 1e-4)
              momentum(b1, g2, v2, rate, 2.0, 0.9, False, 0.0)
    after     fused_momentum([w1, b1], [g1, g2], [v1, v2], rate, [1.0, 2.0], 0.9, False, [1e-4, 0.0], [])

The tensors are not moved. float32 tensors with the same layout go to Argosy's C++ kernel, all at once; the others, and
all of them where that kernel is unavailable, go to torch's, which takes lists of equal rate and decay. `masters` are
float32 copies of 16-bit parameters: the masters are updated, and the parameters are set to their rounded values.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int
from functools import partial

import torch
from torch import Tensor
from torch._ops import OpOverload

from argosy.engine.kernels import unavailable
from argosy.engine.kernels.updates import FUSED_ADAMW, FUSED_MOMENTUM, FUSED_SGD, Row, have_same_layout
from argosy.engine.ops.adam import adam, adamw, adamw_lists
from argosy.engine.ops.match_layout import match_layout
from argosy.engine.ops.momentum import momentum
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.sgd import sgd, sgd_lists

Tensors = Sequence[Tensor]
Numbers = Sequence[float]
Lists = Callable[..., None]
"""torch's kernel: lists of tensors, and one rate and one decay for all."""
Native = Callable[[list[Row]], list[Row]]
"""Argosy's C++ kernel: updates the rows that it supports, and returns the others."""


def _fused_sgd(
    params: Tensors, grads: Tensors, rate: Tensor, factors: Numbers, weight_decays: Numbers
) -> None:
    rows = _rows(rate, factors, weight_decays, params, grads)
    _update(rows, FUSED_SGD, sgd_lists)


def _fused_momentum(
    params: Tensors,
    grads: Tensors,
    velocities: Tensors,
    rate: Tensor,
    factors: Numbers,
    mu: float,
    nesterov: bool,
    weight_decays: Numbers,
    masters: Tensors,
) -> None:
    rows = _rows(rate, factors, weight_decays, masters or params, _wide(grads, masters), velocities)

    def native(rows: list[Row]) -> list[Row]:
        return FUSED_MOMENTUM(rows, c_double(mu), c_int(nesterov))

    _update(rows, native if mu else None, partial(sgd_lists, mu=mu, nesterov=nesterov))
    _round(params, masters)


def _fused_adamw(
    params: Tensors,
    grads: Tensors,
    moments1: Tensors,
    moments2: Tensors,
    steps: Tensors,
    rate: Tensor,
    factors: Numbers,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decays: Numbers,
    masters: Tensors,
) -> None:
    rows = _rows(
        rate,
        factors,
        weight_decays,
        masters or params,
        _wide(grads, masters),
        moments1,
        moments2,
        steps=steps,
    )

    def native(rows: list[Row]) -> list[Row]:
        return FUSED_ADAMW(rows, c_double(beta1), c_double(beta2), c_double(epsilon))

    _update(rows, native, partial(adamw_lists, beta1=beta1, beta2=beta2, epsilon=epsilon))
    _round(params, masters)


def _fused_adam(
    params: Tensors,
    grads: Tensors,
    moments1: Tensors,
    moments2: Tensors,
    steps: Tensors,
    rate: Tensor,
    factors: Numbers,
    beta1: float,
    beta2: float,
    epsilon: float,
    masters: Tensors,
) -> None:
    none = [0.0] * len(params)
    _fused_adamw(
        params, grads, moments1, moments2, steps, rate, factors, beta1, beta2, epsilon, none, masters
    )


# --- which kernel -------------------------------------------------------------------------------------


def _rows(rate: Tensor, factors: Numbers, decays: Numbers, *lists: Tensors, steps: Tensors = ()) -> list[Row]:
    lr = rate.item()
    counters = [(step,) for step in steps] if steps else [()] * len(factors)
    columns = zip(factors, decays, zip(*lists, strict=True), counters, strict=True)
    return [Row(lr * factor, decay, tensors, counter) for factor, decay, tensors, counter in columns]


def _wide(grads: Tensors, masters: Tensors) -> Tensors:
    return [g.to(m.dtype) for g, m in zip(grads, masters, strict=True)] if masters else grads


def _update(rows: list[Row], native: Native | None, lists: Lists) -> None:
    """Update each row with the fastest kernel that supports it; `native` is None if only torch's does."""
    same: dict[tuple[float, float, torch.dtype], list[Row]] = {}
    if native is not None and unavailable() is None:
        rows = native(rows)
    for row in rows:
        if have_same_layout(row.tensors):
            same.setdefault((row.rate, row.decay, row.tensors[0].dtype), []).append(row)
        else:
            match_layout(partial(_by_lists, lists, row), *row.tensors)
    for (rate, decay, _), alike in same.items():
        columns = [
            list(column) for column in zip(*((*row.tensors, *row.steps) for row in alike), strict=True)
        ]
        lists(*columns, lr=rate, weight_decay=decay)


def _by_lists(lists: Lists, row: Row, *tensors: Tensor) -> None:
    """Update one row with torch's kernel; the tensors are the row's, or copies with the same layout."""
    lists(*([t] for t in (*tensors, *row.steps)), lr=row.rate, weight_decay=row.decay)


def _round(params: Tensors, masters: Tensors) -> None:
    for param, master in zip(params, masters, strict=bool(masters)):
        param.copy_(master)


# --- the ops ------------------------------------------------------------------------------------------

_LISTS = "Tensor(a!)[] params, Tensor[] grads"
_RATE = "Tensor rate, float[] factors"
_ADAM = f"{_LISTS}, Tensor(b!)[] moments1, Tensor(c!)[] moments2, Tensor(d!)[] steps, {_RATE}"
_BETAS = "float beta1, float beta2, float epsilon"
_DECAYS, _MASTERS = "float[] weight_decays", "Tensor(m!)[] masters"


def _nothing(*args: object) -> None:
    pass


fused_sgd = declare(f"fused_sgd({_LISTS}, {_RATE}, {_DECAYS}) -> ()", _fused_sgd, _nothing)
fused_momentum = declare(
    f"fused_momentum({_LISTS}, Tensor(b!)[] velocities, {_RATE}, float mu, bool nesterov, {_DECAYS}, {_MASTERS}) -> ()",
    _fused_momentum,
    _nothing,
)
fused_adam = declare(f"fused_adam({_ADAM}, {_BETAS}, {_MASTERS}) -> ()", _fused_adam, _nothing)
fused_adamw = declare(f"fused_adamw({_ADAM}, {_BETAS}, {_DECAYS}, {_MASTERS}) -> ()", _fused_adamw, _nothing)

SPECS = (
    OpSpec(fused_sgd, _fused_sgd),
    OpSpec(fused_momentum, _fused_momentum),
    OpSpec(fused_adam, _fused_adam),
    OpSpec(fused_adamw, _fused_adamw),
)
FUSED: dict[OpOverload, OpOverload] = {
    sgd: fused_sgd,
    momentum: fused_momentum,
    adam: fused_adam,
    adamw: fused_adamw,
}
"""Each update and its fused op, which has the same arguments; those that differ between parameters are lists."""
