"""fused_sgd, fused_momentum, fused_adam, fused_adamw: the updates of many parameters as one call.

    before    momentum(w1, g1, v1, rate, 1.0, 0.9, False, 1e-4)
              momentum(b1, g2, v2, rate, 2.0, 0.9, False, 0.0)
    after     fused_momentum([w1, b1], [g1, g2], [v1, v2], rate, [1.0, 2.0], 0.9, False, [1e-4, 0.0], [])

The tensors stay where they are. float32 tensors that lie in one order go to Argosy's own kernel, all at once; the
others, and all where there is no such kernel, to torch's, which takes lists of equal rate and decay. `masters` are
float32 copies of 16-bit parameters: with them, they are updated, and the parameters are what they round to.
"""

# SPDX-License-Identifier: Apache-2.0
from array import array
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int, c_int64, c_void_p
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from argosy.engine.kernels import library, unavailable
from argosy.engine.ops.adam import adam, adamw, adamw_lists
from argosy.engine.ops.in_one_order import in_one_order
from argosy.engine.ops.momentum import momentum
from argosy.engine.ops.sgd import sgd, sgd_lists
from argosy.engine.ops.spec import OpSpec, declare

Tensors = Sequence[Tensor]
Numbers = Sequence[float]
_FORMATS = (torch.contiguous_format, torch.channels_last)


class Row(NamedTuple):
    """One parameter's update."""

    rate: float
    decay: float
    tensors: Tensors
    """Parameter, gradient and states, all of one shape."""
    steps: Tensors
    """The counter of steps, if the optimizer has one."""


Lists = Callable[..., None]
"""torch's kernel: lists of tensors, and one rate and one decay for all."""
Native = Callable[[list[Row]], None]


def _fused_sgd(
    params: Tensors, grads: Tensors, rate: Tensor, factors: Numbers, weight_decays: Numbers
) -> None:
    rows = _rows(rate, factors, weight_decays, params, grads)
    _update(rows, partial(_native, "argosy_fused_sgd", ()), sgd_lists)


def _fused_momentum(  # the list of the schema
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
    native = partial(_native, "argosy_fused_momentum", (c_double(mu), c_int(nesterov)))
    _update(rows, native if mu else None, partial(sgd_lists, mu=mu, nesterov=nesterov))
    _round(params, masters)


def _fused_adamw(  # the list of the schema
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
    native = partial(_native, "argosy_fused_adamw", (c_double(beta1), c_double(beta2), c_double(epsilon)))
    _update(rows, native, partial(adamw_lists, beta1=beta1, beta2=beta2, epsilon=epsilon))
    _round(params, masters)


def _fused_adam(  # the list of the schema
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
    made = zip(factors, decays, zip(*lists, strict=True), counters, strict=True)
    return [Row(lr * factor, decay, tensors, counter) for factor, decay, tensors, counter in made]


def _wide(grads: Tensors, masters: Tensors) -> Tensors:
    return [g.to(m.dtype) for g, m in zip(grads, masters, strict=True)] if masters else grads


def _update(rows: list[Row], native: Native | None, lists: Lists) -> None:
    """Give each row to the fastest kernel that takes it; `native` is None where only torch's will do."""
    ours: list[Row] = []
    same: dict[tuple[float, float, torch.dtype], list[Row]] = {}
    is_native = native is not None and unavailable() is None
    for row in rows:
        if not _lie_in_one_order(row.tensors):
            in_one_order(partial(_by_lists, lists, row), *row.tensors)
        elif is_native and _are_floats(row):
            ours.append(row)
        else:
            same.setdefault((row.rate, row.decay, row.tensors[0].dtype), []).append(row)
    if ours and native is not None:
        native(ours)
    for (rate, decay, _), alike in same.items():
        columns = [
            list(column) for column in zip(*((*row.tensors, *row.steps) for row in alike), strict=True)
        ]
        lists(*columns, lr=rate, weight_decay=decay)


def _lie_in_one_order(tensors: Tensors) -> bool:
    """True if the i-th elements in memory belong together; in_one_order sees to the others, and to wrong shapes."""
    shape = tensors[0].shape
    if any(t.shape != shape for t in tensors):
        return False
    return any(all(t.is_contiguous(memory_format=order) for t in tensors) for order in _FORMATS)


def _are_floats(row: Row) -> bool:
    """True if our kernel, which takes pointers, can have them all."""
    if any(step.numel() != 1 for step in row.steps):
        return False
    return all(t.dtype is torch.float32 and t.is_cpu for t in (*row.tensors, *row.steps))


def _by_lists(lists: Lists, row: Row, *tensors: Tensor) -> None:
    """One row through torch's kernel; the tensors are the row's, or copies in one order."""
    lists(*([t] for t in (*tensors, *row.steps)), lr=row.rate, weight_decay=row.decay)


def _native(name: str, numbers: tuple[c_double | c_int, ...], rows: list[Row]) -> None:
    """Call the C function of this name: pointers, sizes, rates, decays, and what is the same for all."""
    columns = zip(*((*row.tensors, *row.steps) for row in rows), strict=True)
    pointers = [array("Q", [t.data_ptr() for t in column]) for column in columns]
    sizes = array("q", [row.tensors[0].numel() for row in rows])
    rates, decays = array("d", [row.rate for row in rows]), array("d", [row.decay for row in rows])
    arrays = [c_void_p(a.buffer_info()[0]) for a in (*pointers, sizes, rates, decays)]
    getattr(library(), name)(c_int64(len(rows)), *arrays, *numbers)


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
    OpSpec(fused_sgd, _fused_sgd, "fused_sgd"),
    OpSpec(fused_momentum, _fused_momentum, "fused_momentum"),
    OpSpec(fused_adam, _fused_adam, "fused_adam"),
    OpSpec(fused_adamw, _fused_adamw, "fused_adamw"),
)
FUSED: dict[OpOverload, OpOverload] = {
    sgd: fused_sgd,
    momentum: fused_momentum,
    adam: fused_adam,
    adamw: fused_adamw,
}
"""Each update, and the op that does many: the same arguments, of which those that differ are lists."""
