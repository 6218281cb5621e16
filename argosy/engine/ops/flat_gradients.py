"""Gradients in one flat buffer, each in a slot of its own, so that many of them are exchanged as one tensor.

    buffer = gradient_buffer(1024, float32, 'dp', …)     the same memory in every step
    p      = put_gradient(buffer, g, 64)                 copies g to the elements from 64 on
    p      = put_product(buffer, a, b, 64)               multiplies a and b there: no copy
    …        all_reduce_fused(buffer, …), wait           adds up a span of the buffer over the ranks
    r      = gradient_of(sum, p, 64)                     the slot in the sum, in the shape of p: no copy

In a program a buffer is a tensor. At run time it is a FlatBuffer, which ranks of one host share.
"""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor, dtype, empty, mm

from argosy.engine.collective import FlatBuffer, world
from argosy.engine.ops.spec import OpSpec, declare


def _buffer(numel: int, dtype: dtype, group: str, name: str) -> FlatBuffer:
    return world().flat_buffer(name, numel, dtype, group)


def _fake_buffer(numel: int, dtype: dtype, group: str, name: str) -> Tensor:
    return empty(numel, dtype=dtype)


def _put(buffer: FlatBuffer, gradient: Tensor, first: int) -> Tensor:
    return _slot(buffer.own, gradient, first).copy_(gradient)


def _put_product(buffer: FlatBuffer, a: Tensor, b: Tensor, first: int) -> Tensor:
    slot = buffer.own.narrow(0, first, a.shape[0] * b.shape[1]).view(a.shape[0], b.shape[1])
    return mm(a, b, out=slot)


def _fake_product(buffer: Tensor, a: Tensor, b: Tensor, first: int) -> Tensor:
    return buffer.as_strided((a.shape[0], b.shape[1]), (b.shape[1], 1), first)


def _slot(flat: Tensor, like: Tensor, first: int) -> Tensor:
    """A part of a flat tensor in the shape of `like`, and in its order in memory if that has no gaps."""
    if not like.is_contiguous() and _is_dense(like):
        return flat.as_strided(like.shape, like.stride(), flat.storage_offset() + first)
    return flat.narrow(0, first, like.numel()).view(like.shape)


def _is_dense(value: Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


gradient_buffer = declare(
    "gradient_buffer(int numel, ScalarType dtype, str group, str name) -> Tensor", _buffer, _fake_buffer
)
put_gradient = declare(
    "put_gradient(Tensor(a!) buffer, Tensor gradient, int first) -> Tensor(a!)", _put, _slot
)
put_product = declare(
    "put_product(Tensor(a!) buffer, Tensor a, Tensor b, int first) -> Tensor(a!)", _put_product, _fake_product
)
gradient_of = declare("gradient_of(Tensor(a) sum, Tensor like, int first) -> Tensor(a)", _slot, _slot)
SPEC = OpSpec(gradient_buffer, _buffer, "coalesce_tensor", communicates=True, lasting=True)
PRODUCT_SPEC = OpSpec(put_product, _put_product, "mul")
PUT_SPEC = OpSpec(put_gradient, _put, "assign")
GRADIENT_SPEC = OpSpec(gradient_of, _slot, "slice")
