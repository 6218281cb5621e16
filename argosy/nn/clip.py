"""Gradient clipping, for an optimizer's `grad_clip`."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.record import wrap
from argosy.engine.ir.variable import Parameter, Variable
from argosy.framework.checks import number

__all__ = ["ClipGradBase", "ClipGradByGlobalNorm", "ClipGradByNorm", "ClipGradByValue"]


class ClipGradBase:
    """The base class; a subclass defines `clip`. Parameters with need_clip=False are not clipped."""

    def clip(self, grads: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the clipped gradients in order, each computed lazily."""
        raise NotImplementedError(f"{type(self).__name__} has no clip(grads); define it")

    def applies_to(self, parameter: Parameter) -> bool:
        return parameter.need_clip

    def clipped(self, params_grads: Sequence[tuple[Parameter, Variable]]) -> Iterator[Tensor]:
        """Yield the gradients as tensors of the program, clipped where `applies_to`; call it while recording.

        It is lazy, so that an optimizer can use each gradient before the next one is clipped.
        """
        clipped = iter(self.clip([g.value for p, g in params_grads if self.applies_to(p)]))
        for parameter, grad in params_grads:
            yield next(clipped) if self.applies_to(parameter) else grad.value

    def __call__(
        self, params_grads: Iterable[tuple[Parameter, Variable]]
    ) -> list[tuple[Parameter, Variable]]:
        """Add the clipping nodes to the program; returns the parameters with their clipped gradients."""
        pairs = [(p, g) for p, g in params_grads if g is not None]
        if not pairs:
            return []
        program = pairs[0][0].program
        with program.recording("optimize"), torch.no_grad():
            grads = list(self.clipped(pairs))
        layer = names.generate("clip")
        return [(p, wrap(program, grad, layer)) for (p, _), grad in zip(pairs, grads, strict=True)]


class ClipGradByValue(ClipGradBase):
    """Clips each element to [min, max]; min is -max by default."""

    def __init__(self, max: float, min: float | None = None) -> None:
        name = type(self).__name__
        self.max = number(f"{name}: max", max, above=0.0 if min is None else None)
        self.min = -self.max if min is None else number(f"{name}: min", min)
        if self.min > self.max:
            raise ConfigError(f"{name}: min is {min!r}, above max {max!r}; swap them")

    def clip(self, grads: Sequence[Tensor]) -> Iterator[Tensor]:
        for grad in grads:
            yield grad.clamp(self.min, self.max)


class ClipGradByNorm(ClipGradBase):
    """Scales each gradient so that its 2-norm is at most clip_norm."""

    def __init__(self, clip_norm: float) -> None:
        self.clip_norm = number(f"{type(self).__name__}: clip_norm", clip_norm, above=0.0)

    def clip(self, grads: Sequence[Tensor]) -> Iterator[Tensor]:
        for grad in grads:
            yield grad * _scale(torch.linalg.vector_norm(grad), self.clip_norm)


class ClipGradByGlobalNorm(ClipGradBase):
    """Scales all gradients by one factor so that their joint 2-norm is at most clip_norm.

    The norm is over all gradients of one optimizer, whatever `group_name` is, as in Paddle 2.0.
    """

    def __init__(self, clip_norm: float, group_name: str = "default_group") -> None:
        self.clip_norm = number(f"{type(self).__name__}: clip_norm", clip_norm, above=0.0)
        self.group_name = group_name

    def clip(self, grads: Sequence[Tensor]) -> Iterator[Tensor]:
        if not grads:
            return
        scale = _scale(self._norm(grads), self.clip_norm)
        for grad in grads:
            yield grad * scale

    def _norm(self, grads: Sequence[Tensor]) -> Tensor:
        norms: Tensor = torch.stack([torch.linalg.vector_norm(grad) for grad in grads])
        total: Tensor = torch.linalg.vector_norm(norms)
        return total


def _scale(norm: Tensor, limit: float) -> Tensor:
    return limit / norm.clamp(min=limit)
