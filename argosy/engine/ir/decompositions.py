"""Which of torch's Python decompositions recording uses.

Under the python dispatcher torch replaces some ops by Python functions, which keep sizes symbolic where the C++ code
needs numbers. They are made for torch.compile, and some differ from eager mode: multilabel_margin_loss does not mask
targets after -1, the recurrent layers omit dropout between layers.

    COMPARED     used; tests/engine/ir/test_decompositions.py compares each with eager mode
    REJECTED     not used: torch's own kernel and its derivative are recorded instead
    linear       a function of this file: the bias is part of the product, whatever the strides of the input

`lowering.py` records recurrent layers as Argosy's ops.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

aten = torch.ops.aten
KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
"""The dispatch keys at which a decomposition replaces an op before it is recorded."""

REJECTED: tuple[OpOverload, ...] = (
    aten.lstm.input,
    aten.lstm.data,
    aten.gru.input,
    aten.gru.data,
    aten.rnn_tanh.input,
    aten.rnn_tanh.data,
    aten.rnn_relu.input,
    aten.rnn_relu.data,
    aten.multilabel_margin_loss_forward.default,  # wrong after a target of -1, and shape [1] for a vector
    aten.multi_margin_loss.default,
    aten.cudnn_batch_norm.default,
    aten.miopen_batch_norm.default,  # a decomposition of inductor: torch has it once inductor is imported
    aten.upsample_nearest1d.default,
    aten.upsample_nearest2d.default,
    aten.upsample_nearest3d.default,
    aten._upsample_nearest_exact1d.default,
    aten._upsample_nearest_exact2d.default,
    aten._upsample_nearest_exact3d.default,
    aten.upsample_bilinear2d.default,
    aten.upsample_bicubic2d.default,
)
"""Recorded as one node with torch's own derivative, instead of the dozens of nodes of the decomposition."""

COMPARED: tuple[OpOverload, ...] = (
    aten.dropout.default,
    aten.matmul.default,
    aten.matmul.out,
    aten.empty.out,
    aten.native_batch_norm.default,
    aten.broadcast_tensors.default,
    aten.one_hot.default,
    aten.softshrink.default,
    aten.hardshrink.default,
    aten.pad_sequence.default,
    aten.stft.center,
    aten.istft.default,
    aten.tensor_split.tensor_indices_or_sections,
    aten.unsafe_chunk.default,
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
    aten._upsample_nearest_exact1d.vec,
    aten._upsample_nearest_exact2d.vec,
    aten._upsample_nearest_exact3d.vec,
    aten.upsample_linear1d.vec,
    aten.upsample_bilinear2d.vec,
    aten.upsample_trilinear3d.vec,
    aten.upsample_bicubic2d.vec,
    aten._upsample_bilinear2d_aa.vec,
    aten._upsample_bicubic2d_aa.vec,
    aten._upsample_lanczos2d_aa.vec,
)


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """F.linear. torch multiplies a transposed input of three and more dimensions, as that of attention, without the
    bias, and adds it in a second op; a copy of the input is made either way."""
    if bias is not None and bias.dim() == 1 and x.dim() > 2 and not x.is_contiguous():
        x = x.contiguous()
    out: torch.Tensor = aten.linear.default._op_dk(DispatchKey.CompositeImplicitAutograd, x, weight, bias)
    return out


@contextmanager
def recorded_decompositions() -> Iterator[None]:
    """Disable the rejected decompositions, and use those of this file."""
    linear, key = aten.linear.default, DispatchKey.CompositeImplicitAutograd
    if key in linear.py_kernels:  # nested
        yield
        return
    with compared_only():
        linear.py_kernels[key] = _linear
        linear._dispatch_cache.clear()
        try:
            yield
        finally:
            del linear.py_kernels[key]
            linear._dispatch_cache.clear()


@contextmanager
def compared_only() -> Iterator[None]:
    """Disable the rejected decompositions."""
    removed = [(op, {key: op.py_kernels.pop(key) for key in KEYS if key in op.py_kernels}) for op in REJECTED]
    for op, kernels in removed:
        if kernels:
            op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in removed:
            if kernels:
                op.py_kernels.update(kernels)
                op._dispatch_cache.clear()
