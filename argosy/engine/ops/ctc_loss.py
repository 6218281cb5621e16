"""ctc_loss: connectionist temporal classification with lengths that are known only at run time.

torch's op returns a table whose size depends on the longest target, so its shape is unknown while a program is built.
This op returns only the loss; backward recomputes the table.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine.ops.autograd import gradients_by_rerun, not_differentiable_twice, register_autograd
from argosy.engine.ops.op_spec import OpSpec, declare

_NO_REDUCTION = 0


def _kernel(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> Tensor:
    labels = log_probs.shape[-1]
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < labels:
        raise ValueError(
            f"ctc_loss: the targets are {int(targets.min())} to {int(targets.max())}; they must be labels, 0 to "
            f"{labels - 1}, as log_probs has {labels}"
        )  # torch's kernel would read outside of log_probs
    return torch.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)


def _fake(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> Tensor:
    is_batch = log_probs.ndim == 3 and reduction == _NO_REDUCTION
    return log_probs.new_empty([log_probs.shape[1]] if is_batch else [])


def _backward_kernel(dy: Tensor, log_probs: Tensor, *rest: Any) -> Tensor:
    return gradients_by_rerun(lambda x: (_kernel(x, *rest),), [log_probs], [dy])[0]


def _backward_fake(dy: Tensor, log_probs: Tensor, *rest: Any) -> Tensor:
    return log_probs.new_empty(log_probs.shape)


_ARGUMENTS = (
    "Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, int reduction, "
    "bool zero_infinity"
)
ctc_loss = declare(f"ctc_loss({_ARGUMENTS}) -> Tensor", _kernel, _fake)
ctc_loss_backward = declare(
    f"ctc_loss_backward(Tensor dy, {_ARGUMENTS}) -> Tensor", _backward_kernel, _backward_fake
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.blank, ctx.reduction, ctx.zero_infinity = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    dx = ctc_loss_backward(dy, *ctx.saved_tensors, ctx.blank, ctx.reduction, ctx.zero_infinity)
    return dx, *[None] * 6


register_autograd(ctc_loss, _save, _gradient)
register_autograd(ctc_loss_backward, lambda ctx, inputs, output: None, not_differentiable_twice("CTC losses"))
SPEC = OpSpec(ctc_loss, _kernel)
BACKWARD_SPEC = OpSpec(ctc_loss_backward, _backward_kernel)
