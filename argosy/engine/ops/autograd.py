"""Derivatives of Argosy's ops, and kernels that use torch's autograd while a step runs."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload

from argosy.engine.errors import ProgramError

_KEYS = (
    DispatchKey.AutogradFunctionality,
    DispatchKey.AutogradOther,
    DispatchKey.AutogradNestedTensor,
    DispatchKey.ADInplaceOrView,
)


@contextmanager
def with_autograd() -> Iterator[None]:
    """Enable autograd inside a kernel; a step runs below the autograd dispatch keys."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in _KEYS:
        excluded = excluded - torch._C.DispatchKeySet(key)
    included = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch.enable_grad():
        yield


def gradients_by_rerun(
    function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> list[Tensor]:
    """Rerun `function(*inputs)` and differentiate it: the gradients of the inputs, given those of its outputs."""
    with with_autograd():
        leaves = [t.detach().requires_grad_() for t in inputs]
        outputs = function(*leaves)
        pairs = [(out, d) for out, d in zip(outputs, gradients, strict=True) if d is not None]
        targets, seeds = [out for out, _ in pairs], [d for _, d in pairs]
        computed = (
            torch.autograd.grad(targets, leaves, seeds, allow_unused=True) if pairs else [None] * len(leaves)
        )
    return [
        torch.zeros_like(leaf, requires_grad=False) if g is None else g.contiguous()
        for leaf, g in zip(leaves, computed, strict=True)
    ]


def register_autograd(
    op: OpOverload,
    save: Callable[[Any, tuple[Any, ...], Any], None],
    gradient: Callable[..., Any],
) -> None:
    """Register `gradient(ctx, *gradients of the outputs)`; `save(ctx, inputs, output)` stores what it needs."""
    torch.library.register_autograd(str(op._schema.name), gradient, setup_context=save)


def not_differentiable_twice(what: str) -> Callable[..., NoReturn]:
    """The derivative of a backward op that has none: raises ProgramError."""

    def gradient(ctx: Any, *gradients: Any) -> NoReturn:
        raise ProgramError(f"{what} have no second derivative; differentiate them once")

    return gradient
