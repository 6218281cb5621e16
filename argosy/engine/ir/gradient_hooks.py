"""Gradient hooks of torch tensors that are variables; what they compute is recorded as part of backward.

    w.register_hook(lambda g: g * mask)               w@GRAD = mul(what autograd computed, mask)
    w.register_post_accumulate_grad_hook(scale_)      called with w.grad = w@GRAD, which it may change

A hook is called once, while the gradients are built, with fake tensors. Hooks that are registered later have no
effect. Hooks of modules need no code here: torch calls them when the module is called.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ProgramError
from argosy.engine.ir.program import Program
from argosy.engine.log import logger

Hook = Callable[[Tensor], Any]


@contextmanager
def tensor_hooks(program: Program) -> Iterator[None]:
    """Apply the hooks of torch tensors to the gradients of their variables."""
    handles = []
    for tensor, name in program.module_tensors:
        for hook in (tensor._backward_hooks or {}).values():
            handles.append(program.vars[name].value.register_hook(_warn_if_no_result(hook, name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _warn_if_no_result(hook: Hook, name: str) -> Hook:
    def called(gradient: Tensor) -> Any:
        changed = hook(gradient)
        if changed is None:
            logger.warning(
                "a hook of %s returns nothing: it is called once, while the program is built, and not when it runs; "
                "to observe the gradient, fetch %r",
                name,
                f"{name}@GRAD",
            )
        return changed

    return called


def after_accumulation(program: Program, name: str, gradient: Tensor) -> Tensor:
    """Apply the post-accumulate-grad hooks of a variable's tensor to its gradient, and record them."""
    tensor = program.module_tensors.tensor_of(name)
    hooks = {} if tensor is None else tensor._post_accumulate_grad_hooks or {}
    parameter = program.vars[name].value
    for hook in hooks.values():
        versions, parameter.grad = (parameter._version, gradient._version), gradient
        try:
            with torch.no_grad():
                hook(parameter)
            changed = parameter.grad
        finally:
            parameter.grad = None
        is_idle = changed is gradient and gradient._version == versions[1]
        if changed is None or parameter._version != versions[0] or is_idle:
            what = "drops the gradient" if changed is None else "leaves the gradient as it is"
            what = "changes the parameter" if parameter._version != versions[0] else what
            raise ProgramError(
                f"a post-accumulate-grad hook of {name!r} {what}, but only the optimizer updates parameters; "
                "remove the hook, or let it change the gradient alone"
            )
        gradient = changed
    return gradient
