"""Shape functions of ours give the shapes and strides that the kernels give."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy.engine.ir.shape_functions import fake_result
from argosy.engine.runtime.safe_kernels import SAFE

aten = torch.ops.aten
GRADIENTS: dict[Any, tuple[Any, ...]] = {
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
        return (dy, *GRADIENTS[op], x)
    return (dy, x > 0.5 if op is aten.native_dropout_backward.default else x, *GRADIENTS[op])


def described(tree: Any) -> list[Any]:
    tensors = (t for t in tree_leaves(tree) if t is not None)
    return [(t.shape, t.stride(), t.dtype) for t in tensors]


def check(op: Any, args: Any, kernel: Any = None) -> None:
    wanted = (kernel or op)(*args)
    with FakeTensorMode() as mode:
        actual = fake_result(op, tree_map_only(torch.Tensor, mode.from_tensor, args), {}, mode)
    assert described(actual) == described(wanted)


BOTH = pytest.mark.parametrize(
    "is_transposed", [(False, False), (True, False), (False, True), (True, True)], ids=str
)


def two(is_transposed: tuple[bool, bool]) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = (torch.rand(7, 5, 4).transpose(1, 2) if t else torch.rand(7, 4, 5) for t in is_transposed)
    return a, b


@BOTH
@pytest.mark.parametrize("op", GRADIENTS, ids=str)
def test_a_gradient_has_the_strides_of_the_kernel(op: Any, is_transposed: tuple[bool, bool]) -> None:
    check(op, arguments(op, *two(is_transposed)))


LOSSES: dict[Any, tuple[Any, ...]] = {
    aten.mse_loss_backward.default: (),
    aten.smooth_l1_loss_backward.default: (1.0,),
    aten.huber_loss_backward.default: (1.0,),
}


@BOTH
@pytest.mark.parametrize("op", LOSSES, ids=str)
def test_the_gradient_of_a_loss_has_the_strides_of_the_kernel(
    op: Any, is_transposed: tuple[bool, bool]
) -> None:
    x, target = two(is_transposed)
    check(op, (x, x, target, 0, *LOSSES[op]))
    check(op, (torch.ones(()), x, target, 1, *LOSSES[op]))


@BOTH
def test_binary_cross_entropy_has_the_strides_of_the_kernel(is_transposed: tuple[bool, bool]) -> None:
    x, target = two(is_transposed)
    for reduction in (0, 1):
        check(aten.binary_cross_entropy.default, (x, target, None, reduction))
    for dy, reduction in ((torch.ones(()), 1), (target, 0)):
        check(aten.binary_cross_entropy_backward.default, (dy, x, target, None, reduction))


@BOTH
def test_gradients_of_softmax_and_noise_have_the_strides_of_the_kernel(
    is_transposed: tuple[bool, bool],
) -> None:
    dy, x = two(is_transposed)
    check(aten._log_softmax_backward_data.default, (dy, x, 1, torch.float32))
    for training in (False, True):
        check(aten.rrelu_with_noise_backward.default, (dy, x, x, 0.1, 0.3, training, False))


@BOTH
def test_gradients_of_norms_have_the_strides_of_the_kernel(is_transposed: tuple[bool, bool]) -> None:
    dy, x = two(is_transposed)
    statistics = torch.rand(7, 4, 1), torch.rand(7, 4, 1)
    check(
        aten.native_layer_norm_backward.default, (dy, x, [5], *statistics, None, None, [True, False, False])
    )
    of_groups = torch.rand(7, 2), torch.rand(7, 2)
    op = aten.native_group_norm_backward.default
    check(op, (dy, x, *of_groups, None, 7, 4, 5, 2, [True, False, False]), kernel=SAFE[op])


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
        check(op, given)
