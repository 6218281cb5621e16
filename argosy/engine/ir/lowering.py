"""Torch functions that reach the program in another form than torch would give them.

F.dropout       native_dropout, one node with a mask, which `clone(for_test=True)` can find and take out
F.batch_norm    native_batch_norm on the batch, and one node that moves the running statistics:

                    y, mean, invstd = native_batch_norm(x)
                    update_running_stats(running_mean, running_var, mean, invstd)

                so that every change of the scope is a node of its own.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from argosy.engine.ops.order import order_of
from argosy.engine.ops.update_running_stats import update_running_stats


def dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """x with each element zero with probability p, the others scaled by 1 / (1 - p)."""
    if not training or p == 0.0:
        return x
    out = torch.native_dropout(x, p, True)[0]
    return x.copy_(out) if inplace else out


def native_batch_norm(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """torch's op under its own name; the python dispatcher would give it another for each case.

    A transposed input is copied: torch's kernel gives contiguous results for it, and its fake one does not.
    """
    order = order_of(x)
    if not x.is_contiguous(memory_format=order):
        x = x.contiguous(memory_format=order)
    with torch._C._DisablePythonDispatcher():
        out: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.native_batch_norm(x, *args)
        return out


def batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    unbiased: bool = True,
) -> torch.Tensor:
    """Batch normalisation; `momentum` is torch's (the share of the new batch), `unbiased` torch's too."""
    if not training:
        return native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)[0]
    out, mean, invstd = native_batch_norm(input, weight, bias, None, None, True, momentum, eps)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            count = input.numel() // input.shape[1]
            update_running_stats(
                running_mean, running_var, mean, invstd, momentum, eps, count if unbiased else 0
            )
    return out


_LOWERED: dict[Callable[..., Any], Callable[..., Any]] = {F.dropout: dropout, F.batch_norm: batch_norm}


class Lowering(TorchFunctionMode):
    """Puts the functions above in the place of torch's."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _LOWERED.get(func, func)(*args, **(kwargs or {}))
