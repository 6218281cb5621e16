"""DGCMomentum: Momentum with compressed gradients (Deep Gradient Compression, Lin et al. 2018)."""

# SPDX-License-Identifier: Apache-2.0
import math
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from argosy.engine.collective import world
from argosy.engine.errors import ArgumentTypeError, ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.optimizers.spec import Slot
from argosy.engine.passes.dgc import CompressedGradient, CompressGradients
from argosy.framework.checks import integer, number
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.nn.clip import ClipGradByNorm
from argosy.optimizer.algorithms import Clip, Momentum
from argosy.optimizer.optimizer import Decay, Names, Rate
from argosy.regularizer import L1Decay, L2Decay, to_regularizer

SMALLEST = 16384
"""Smaller parameters are not compressed, as in Paddle."""


class DGCMomentum(Momentum):
    """Momentum whose ranks all-gather only the largest elements of large gradients; see engine/ops/dgc.py.

    Until `rampup_begin_step` it is Momentum. From then on the entries of `sparsity` are used one after the other, each
    for `rampup_step` / len(sparsity) steps, and the last one ever after: 0.999 sends one element of 1000. Parameters
    that have less than 16384 elements, are sparse or not float32 are updated by Momentum. `grad_clip` must be
    ClipGradByNorm; a compressed gradient is clipped on each rank, with clip_norm / sqrt(ranks). In a job of one rank it
    is Momentum.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        momentum: float = 0.9,
        rampup_begin_step: int = 0,
        rampup_step: int = 1,
        sparsity: Sequence[float] = (0.999,),
        parameters: Names = None,
        use_nesterov: bool = False,
        num_trainers: int | None = None,
        weight_decay: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, momentum, parameters, use_nesterov, weight_decay, grad_clip, name)
        what = type(self).__name__
        if grad_clip is not None and type(grad_clip) is not ClipGradByNorm:
            raise ConfigError(
                f"{what}: grad_clip is a {type(grad_clip).__name__}, which needs the gradients of all ranks; use "
                "nn.ClipGradByNorm"
            )
        self.rampup_begin_step = integer(f"{what} rampup_begin_step", rampup_begin_step, least=0)
        self.rampup_step = integer(f"{what} rampup_step", rampup_step, least=1)
        if isinstance(sparsity, str) or not isinstance(sparsity, Sequence) or not sparsity:
            raise ArgumentTypeError(
                f"{what} sparsity is {sparsity!r}; use a list of numbers, such as [0.75, 0.999]"
            )
        self.sparsity = [number(f"{what} sparsity[{i}]", s, least=0, below=1) for i, s in enumerate(sparsity)]
        self.num_trainers = (
            None if num_trainers is None else integer(f"{what} num_trainers", num_trainers, least=1)
        )

    def _reset_state(self) -> None:
        super()._reset_state()
        self._compressed: weakref.WeakKeyDictionary[Program, dict[str, str]] = weakref.WeakKeyDictionary()
        """By program: the compressed gradients of the last `apply_gradients`, by parameter."""
        self._steps: weakref.WeakKeyDictionary[Program, str] = weakref.WeakKeyDictionary()

    def apply_gradients(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> list[fx.Node]:
        self._check_ranks()
        pairs = [(p, g) for p, g in params_grads if g is not None and p.trainable]
        if world().size == 1 or not pairs:
            logger.info("%s in a job of one rank is Momentum", type(self).__name__)
            return super().apply_gradients(pairs)
        program = pairs[0][0].program
        compressed = {p.name: g.name for p, g in pairs if _is_compressed(p)}
        self._compressed[program] = compressed
        if not compressed:
            logger.warning("dgc compresses nothing: no float32 parameter has %d elements", SMALLEST)
            return super().apply_gradients(pairs)
        with program_guard(program):
            for parameter in [p for p, _ in pairs if p.name in compressed]:
                _decays(parameter, self.regularization)  # raises if it is unsupported
                self._state(parameter, Slot("dgc_residual"), parameter.dtype)
            step = self._steps[program] = names.generate_unused("dgc_step", program.vars)
            counter = create_state(step, [1], "int64", Constant(0))
            self._states[program]["", step] = step
        updates = super().apply_gradients(pairs)
        with program.recording("optimize"), torch.no_grad():
            counter.value.add_(1)
        return updates

    def _check_ranks(self) -> None:
        if self.num_trainers is not None and self.num_trainers != world().size:
            raise ConfigError(
                f"{type(self).__name__}: num_trainers is {self.num_trainers}, but the job has {world().size} ranks; "
                "leave it out"
            )

    def _clipped(self, pairs: Sequence[tuple[Parameter, Variable]]) -> Iterator[Tensor]:
        """Compressed gradients are clipped when they are sent."""
        compressed = self._compressed.get(pairs[0][0].program, {})
        others = iter(super()._clipped([(p, g) for p, g in pairs if p.name not in compressed]))
        for parameter, gradient in pairs:
            yield gradient.value if parameter.name in compressed else next(others)

    def _decayed(self, parameter: Parameter, grad: Tensor) -> tuple[Tensor, float]:
        """Compressed gradients are decayed when they are sent."""
        if parameter.name in self._compressed.get(parameter.program, {}):
            return grad, 0.0
        return super()._decayed(parameter, grad)

    def compression(self, program: Program, **options: Any) -> CompressGradients | None:
        """The pass that compresses the gradients of the last `minimize`; None if there are none to compress."""
        compressed = self._compressed.get(program)
        if not compressed:
            return None
        placeholder = program.recorder.placeholder_of
        gradients = []
        for name, gradient in compressed.items():
            parameter = program.var(name)
            assert isinstance(parameter, Parameter), name
            l2, l1 = _decays(parameter, self.regularization)
            is_clipped = self.grad_clip is not None and self.grad_clip.applies_to(parameter)
            clip_norm = self.grad_clip.clip_norm if is_clipped else 0.0  # type: ignore[union-attr]
            residual = program.var(self._states[program][name, "dgc_residual"])
            gradients.append(
                CompressedGradient(
                    gradient,
                    program.var(gradient).node,
                    placeholder[parameter.value],
                    placeholder[residual.value],
                    l2,
                    l1,
                    clip_norm,
                )
            )
        step = placeholder[program.var(self._steps[program]).value]
        schedule = self.rampup_begin_step, self.rampup_step, tuple(self.sparsity)
        return CompressGradients(tuple(gradients), step, *schedule, **options)


def _is_compressed(parameter: Parameter) -> bool:
    return (
        parameter.dtype == torch.float32
        and math.prod(parameter.shape) >= SMALLEST
        and not parameter.is_sparse
    )


def _decays(parameter: Parameter, default: Any) -> tuple[float, float]:
    """The coefficients of the L2 and the L1 decay of a parameter."""
    decay = to_regularizer(parameter.regularizer, f"regularizer of parameter {parameter.name!r}") or default
    if decay is None or decay.coeff == 0:
        return 0.0, 0.0
    if type(decay) is L2Decay:
        return decay.coeff, 0.0
    if type(decay) is L1Decay:
        return 0.0, decay.coeff
    raise ConfigError(
        f"the decay of {parameter.name!r} is a {type(decay).__name__}, which dgc does not support; use L2Decay or "
        "L1Decay"
    )
