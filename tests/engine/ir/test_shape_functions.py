"""Shape functions of ours give the shapes and strides that the kernels give."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine.ir.shape_functions import fake_result

aten = torch.ops.aten
CASES: dict[Any, tuple[Any, ...]] = {
    aten.elu_backward.default: (1.0, 1, 1, False),
    aten.native_dropout_backward.default: (2.0,),
    aten.hardswish_backward.default: (),
    aten.softplus_backward.default: (1, 20),
    aten.hardtanh_backward.default: (-1, 1),
    aten.hardsigmoid_backward.default: (),
    aten.logit_backward.default: (1e-6,),
}


def arguments(op: Any, dy: torch.Tensor, x: torch.Tensor) -> tuple[Any, ...]:
    if op is aten.elu_backward.default:
        return (dy, *CASES[op], x)
    return (dy, x > 0.5 if op is aten.native_dropout_backward.default else x, *CASES[op])


@pytest.mark.parametrize("is_transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("op", CASES, ids=str)
def test_a_gradient_has_the_strides_of_the_kernel(op: Any, is_transposed: tuple[bool, bool]) -> None:
    dy, x = (torch.rand(7, 5, 4).transpose(1, 2) if t else torch.rand(7, 4, 5) for t in is_transposed)
    args = arguments(op, dy, x)
    wanted = op(*args)
    with FakeTensorMode() as mode:
        fakes = tuple(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args)
        found = fake_result(op, fakes, {}, mode)
    assert (found.shape, found.stride(), found.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)


def described(tensor: torch.Tensor | None) -> Any:
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("order", ["contiguous", "channels_last", "transposed"])
def test_batch_norm_has_the_strides_of_the_kernel(order: str, training: bool) -> None:
    x = torch.randn(4, 3, 5, 6).transpose(1, 3) if order == "transposed" else torch.randn(4, 6, 5, 3)
    x = x.contiguous(memory_format=torch.channels_last) if order == "channels_last" else x
    weight = torch.ones(6)
    args = (x, weight, weight, torch.zeros(6), torch.ones(6), training, 0.1, 1e-5)
    y, mean, invstd = aten.native_batch_norm(*args)
    backward = (y, x, weight, args[3], args[4], mean, invstd, training, 1e-5, [True, True, False])
    for op, given in (
        (aten.native_batch_norm.default, args),
        (aten.native_batch_norm_backward.default, backward),
    ):
        wanted = op(*given)
        with FakeTensorMode() as mode:
            fakes = tuple(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in given)
            found = fake_result(op, fakes, {}, mode)
        assert [described(t) for t in found] == [described(t) for t in wanted]
