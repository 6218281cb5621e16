"""Slots of gradients in a flat buffer, so that a bucket of them is all-reduced as one tensor.

    buffer = gradient_buffer(1024, float32, 'dp', …)     the same memory in every step
    p      = copy_into_bucket(buffer, g, 64)             copies g to the slot at element 64
    p      = mm_into_bucket(buffer, a, b, 64)            computes a × b into the slot: no copy
    …        all_reduce_fused(buffer, …), wait           all-reduces a span of the buffer, the bucket
    r      = bucket_view(sum, p, 64)                     a view of the slot in the sum, in the shape of p

In a program a buffer is a tensor. At run time it is a FlatBuffer, which the ranks of a host share. Paddle's op for the
buffer is `coalesce_tensor`.
"""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor, dtype, empty, mm
from torch._prims_common import make_contiguous_strides_for

from argosy.engine.collective import FlatBuffer, world
from argosy.engine.kernels.signatures import is_dense
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import product_fits, slot_fits


def _buffer(numel: int, dtype: dtype, group: str, name: str) -> FlatBuffer:
    return world().flat_buffer(name, numel, dtype, group)


def _fake_buffer(numel: int, dtype: dtype, group: str, name: str) -> Tensor:
    return empty(numel, dtype=dtype)


def _copy(buffer: FlatBuffer, gradient: Tensor, first: int) -> Tensor:
    return slot(buffer.local, gradient, first).copy_(gradient)


def _mm(buffer: FlatBuffer, a: Tensor, b: Tensor, first: int) -> Tensor:
    slot = buffer.local.narrow(0, first, a.shape[0] * b.shape[1]).view(a.shape[0], b.shape[1])
    return mm(a, b, out=slot)


def _fake_mm(buffer: Tensor, a: Tensor, b: Tensor, first: int) -> Tensor:
    return buffer.as_strided((a.shape[0], b.shape[1]), (b.shape[1], 1), first)


def slot(flat: Tensor, like: Tensor, first: int) -> Tensor:
    """A view of a flat tensor in the shape of `like`, and with its strides if those are dense and row by row."""
    if _has_own_strides(like):
        return flat.as_strided(like.shape, like.stride(), flat.storage_offset() + first)
    return flat.narrow(0, first, like.numel()).view(like.shape)


def _fake_slot(flat: Tensor, like: Tensor, first: int) -> Tensor:
    """The same view by one op: a program has one for each gradient, and two ops cost four times as much to infer."""
    strides = like.stride() if _has_own_strides(like) else make_contiguous_strides_for(like.shape)
    return flat.as_strided(like.shape, strides, flat.storage_offset() + first)


def _has_own_strides(like: Tensor) -> bool:
    return not like.is_contiguous() and is_dense(like) and like.stride(0) == max(like.stride())


gradient_buffer = declare(
    "gradient_buffer(int numel, ScalarType dtype, str group, str name) -> Tensor", _buffer, _fake_buffer
)
copy_into_bucket = declare(
    "copy_into_bucket(Tensor(a!) buffer, Tensor gradient, int first) -> Tensor(a!)", _copy, _fake_slot
)
mm_into_bucket = declare(
    "mm_into_bucket(Tensor(a!) buffer, Tensor a, Tensor b, int first) -> Tensor(a!)",
    _mm,
    _fake_mm,
)
bucket_view = declare("bucket_view(Tensor(a) sum, Tensor like, int first) -> Tensor(a)", slot, _fake_slot)
SPEC = OpSpec(gradient_buffer, _buffer, is_collective=True, persistent=True)
MM_SPEC = OpSpec(mm_into_bucket, _mm, verify=product_fits)
COPY_SPEC = OpSpec(copy_into_bucket, _copy, verify=slot_fits)
VIEW_SPEC = OpSpec(bucket_view, slot, verify=slot_fits)
