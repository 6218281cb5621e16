"""The C functions that update many parameters at once, and the checks of their arguments.

    momentum = UpdateKernel("argosy_fused_momentum", "param grad velocity")
    rest = momentum(rows, mu, nesterov)      updates the supported rows, returns the others

A row is supported if its tensors are float32 on the CPU and dense, with the same shape and layout, and its counters
have one element each. The gradient and the parameter's 16-bit copy may be bfloat16. A gradient may be given as the
gradients of several ranks, which the function adds up in the same pass over memory. Mutated tensors must not overlap
anything else: two threads would update the same memory.
"""

# SPDX-License-Identifier: Apache-2.0
from array import array
from collections.abc import Sequence
from ctypes import c_double, c_int, c_int64, c_void_p
from typing import NamedTuple

import torch
from torch import Tensor

from argosy.engine.kernels.shared_library import library

_FORMATS = (torch.contiguous_format, torch.channels_last)
_GRADIENT = 1
_NARROW = torch.bfloat16


class Row(NamedTuple):
    """One parameter's update."""

    rate: float
    decay: float
    tensors: Sequence[Tensor]
    """Parameter, gradient and states."""
    steps: Sequence[Tensor]
    """The counter of steps, if the optimizer has one."""
    copy: Tensor | None = None
    """A 16-bit tensor that is set to the parameter's rounded value."""
    summands: Sequence[Tensor] = ()
    """Tensors whose sum, in their order, is the gradient; then `tensors` has the first of them in its place."""

    @property
    def grads(self) -> Sequence[Tensor]:
        """The tensors whose sum is the gradient; often one."""
        return self.summands or self.tensors[_GRADIENT : _GRADIENT + 1]


class UpdateKernel:
    """One C function; `tensors` are its tensors per parameter, `steps` the number of step counters."""

    def __init__(self, name: str, tensors: str, steps: int = 0) -> None:
        self.name = name
        self.tensors = tensors.split()
        self.steps = steps

    def __call__(self, rows: Sequence[Row], *numbers: float) -> list[Row]:
        """Update the rows that the function supports; returns the others. A bool is passed as an int."""
        supported: list[Row] = []
        rest: list[Row] = []
        for row in rows:
            (supported if self.supports(row) else rest).append(row)
        for ranks in sorted({len(row.grads) for row in supported}):
            alike = [row for row in supported if len(row.grads) == ranks]
            self._check_overlap(alike)
            self._call(alike, ranks, numbers)
        return rest

    def supports(self, row: Row) -> bool:
        """True if the function supports these tensors."""
        tensors, steps, copies = row.tensors, row.steps, () if row.copy is None else (row.copy,)
        if len(tensors) != len(self.tensors) or len(steps) != self.steps:
            return False
        if not all(t.is_cpu for t in (*tensors, *steps, *copies)):
            return False
        wide = (*tensors[:_GRADIENT], *tensors[_GRADIENT + 1 :], *steps)
        if not all(t.dtype is torch.float32 for t in wide) or any(c.dtype is not _NARROW for c in copies):
            return False
        if tensors[_GRADIENT].dtype not in (torch.float32, _NARROW):
            return False
        if any(grad.dtype is not tensors[_GRADIENT].dtype for grad in row.summands):
            return False
        layouts = (*tensors, *copies, *row.summands)
        return all(step.numel() == 1 for step in steps) and have_same_layout(layouts)

    def _check_overlap(self, rows: Sequence[Row]) -> None:
        spans = [
            (t.data_ptr(), t.nbytes, place != _GRADIENT, number)
            for number, row in enumerate(rows)
            for place, t in enumerate((*row.tensors, *row.steps, row.copy))
            if t is not None
        ]
        spans += [(t.data_ptr(), t.nbytes, False, n) for n, row in enumerate(rows) for t in row.summands[1:]]
        spans.sort()
        end = end_of_written = 0
        for begin, size, is_written, number in spans:
            if size and begin < (end if is_written else end_of_written):
                shape = list(rows[number].tensors[0].shape)
                raise ValueError(
                    f"{self.name}: parameter {number} of {len(rows)}, {shape}, or its gradient or state, overlaps "
                    "another one in memory; update every parameter once, with its own states"
                )
            end = max(end, begin + size)
            end_of_written = max(end_of_written, begin + size) if is_written else end_of_written

    def _call(self, rows: Sequence[Row], ranks: int, numbers: Sequence[float]) -> None:
        columns = zip(*((*row.tensors, *row.steps) for row in rows), strict=True)
        pointers = [array("Q", [t.data_ptr() for t in column]) for column in columns]
        pointers[_GRADIENT] = array("Q", [grad.data_ptr() for row in rows for grad in row.grads])
        pointers.append(array("Q", [0 if row.copy is None else row.copy.data_ptr() for row in rows]))
        pointers.append(array("q", [row.tensors[_GRADIENT].dtype is _NARROW for row in rows]))
        sizes = array("q", [row.tensors[0].numel() for row in rows])
        rates, decays = array("d", [row.rate for row in rows]), array("d", [row.decay for row in rows])
        arrays = [c_void_p(a.buffer_info()[0]) for a in (*pointers, sizes, rates, decays)]
        plain = [c_int(n) if isinstance(n, bool) else c_double(n) for n in numbers]
        getattr(library(), self.name)(c_int64(len(rows)), c_int64(ranks), *arrays, *plain)


def have_same_layout(tensors: Sequence[Tensor]) -> bool:
    """True if they have the same shape and memory format, so that the i-th elements in memory correspond."""
    shape = tensors[0].shape
    if any(t.shape != shape for t in tensors):
        return False
    return any(all(t.is_contiguous(memory_format=order) for t in tensors) for order in _FORMATS)
