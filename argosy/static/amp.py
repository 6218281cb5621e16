"""paddle.static.amp: automatic mixed precision.

optimizer = paddle.static.amp.decorate(optimizer)          bfloat16; dtype="float16" for float16 with loss scaling
optimizer.minimize(loss)

Products run in 16 bits, sums and losses in float32 (engine/passes/autocast.py); parameters stay float32.
"""

# SPDX-License-Identifier: Apache-2.0
import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from argosy.engine.errors import ArgumentTypeError, ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.dtypes import dtype_name, to_dtype
from argosy.engine.ir.program import Program, default_main_program, program_guard
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.ops.loss_scaling import found_inf, update_loss_scaling
from argosy.engine.passes.amp_lists import AmpLists
from argosy.engine.passes.autocast import Autocast, is_view
from argosy.engine.runtime.scope import global_scope
from argosy.framework.checks import number
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.framework.missing import missing
from argosy.optimizer.optimizer import Names, Optimizer, ParamsGrads
from argosy.optimizer.wrapper import TwoStepMinimize

__all__ = [
    "AutoMixedPrecisionLists",
    "CustomOpLists",
    "OptimizerWithMixedPrecision",
    "decorate",
    "fp16_guard",
]


class AutoMixedPrecisionLists:
    """Changes of the lists of ops: `custom_white_list` run in 16 bits, `custom_black_list` in float32.

    Names are Paddle's (`conv2d`, `softmax`) or ATen's (`convolution`). Ops that read or compute a variable of
    `custom_black_varnames` run in float32.
    """

    def __init__(
        self,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
        custom_black_varnames: Iterable[str] | None = None,
    ) -> None:
        self.lists = AmpLists().with_custom(custom_white_list or (), custom_black_list or ())
        self.black_varnames = tuple(custom_black_varnames or ())


CustomOpLists = AutoMixedPrecisionLists


@dataclass(frozen=True)
class LossScaling:
    """How the loss of a float16 program is scaled; see engine/ops/loss_scaling.py."""

    init_loss_scaling: float = 2.0**15
    incr_every_n_steps: int = 1000
    decr_every_n_nan_or_inf: int = 2
    incr_ratio: float = 2.0
    decr_ratio: float = 0.8
    use_dynamic_loss_scaling: bool = True

    def __post_init__(self) -> None:
        number("init_loss_scaling", self.init_loss_scaling, above=0)
        number("incr_every_n_steps", self.incr_every_n_steps, least=1)
        number("decr_every_n_nan_or_inf", self.decr_every_n_nan_or_inf, least=1)
        number("incr_ratio", self.incr_ratio, above=1)
        number("decr_ratio", self.decr_ratio, above=0, below=1)


class OptimizerWithMixedPrecision(TwoStepMinimize):
    """An optimizer whose `minimize` makes a program mixed precision; everything else is the inner optimizer's."""

    def __init__(
        self, inner: Optimizer, autocast: Autocast, black: Sequence[str], scaling: LossScaling | None
    ) -> None:
        self._inner, self._autocast, self._black, self._scaling = inner, autocast, tuple(black), scaling
        self._scale_name = ""

    def of(self, inner: Optimizer) -> "OptimizerWithMixedPrecision":
        """The same settings for this inner optimizer; the same object if it has it already."""
        if inner is self._inner:
            return self
        return OptimizerWithMixedPrecision(inner, self._autocast, self._black, self._scaling)

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
        callbacks: Any = None,
    ) -> ParamsGrads:
        """The gradients of the loss; with float16, of the scaled loss."""
        program = loss.program
        self._mark_black(program)
        _warn_if_slow(self._autocast.dtype)
        program.build = replace(program.build, autocast=self._autocast)
        program.touch()
        if self._scaling is not None:
            with program_guard(program, startup_program):
                self._scale_name = names.generate_unused("loss_scaling", program.vars)
                initial = Constant(self._scaling.init_loss_scaling)
                loss = loss * create_state(self._scale_name, [1], "float32", initial)
        return self._inner.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def apply_gradients(self, params_grads: ParamsGrads) -> list[fx.Node]:
        """Add the updates; with float16, of unscaled gradients, and none if a gradient overflowed."""
        if self._scaling is None:
            return self._inner.apply_gradients(params_grads)
        pairs = [(p, g) for p, g in params_grads if g is not None and p.trainable]
        program = pairs[0][0].program
        scale = program.var(self._scale_name)
        with program.recording("optimize"), torch.no_grad():
            inverse = scale.value.reciprocal()
            unscaled = [gradient.value * inverse for _, gradient in pairs]
            overflow: Tensor = found_inf(unscaled)
        updates = self._inner.apply_gradients(_renamed(program, pairs, unscaled))
        for update in updates:
            _skip_on(update, program.recorder.node(overflow), self._inner)
        if self._scaling.use_dynamic_loss_scaling:
            self._adapt(program, scale, overflow)
        return updates

    def _adapt(self, program: Program, scale: Variable, overflow: Tensor) -> None:
        assert self._scaling is not None, "only float16 has a scale"
        counts = [create_state(f"{scale.name}_{name}", [1], "int32", Constant(0)) for name in ("good", "bad")]
        s = self._scaling
        rule = s.incr_every_n_steps, s.decr_every_n_nan_or_inf, s.incr_ratio, s.decr_ratio
        with program.recording("optimize"), torch.no_grad():
            update_loss_scaling(scale.value, *(c.value for c in counts), overflow, *rule)

    def _mark_black(self, program: Program) -> None:
        for name in self._black:
            nodes = [program.var(name).node]
            while nodes:
                node = nodes.pop()
                node.meta["float32"] = True
                for user in node.users:
                    user.meta["float32"] = True
                    if is_view(user):  # the op reads w through w.t()
                        nodes.append(user)

    def amp_init(
        self, place: Any, scope: Any = None, test_program: Program | None = None, use_fp16_test: bool = False
    ) -> None:
        """Make the test program mixed precision too, if `use_fp16_test`. Parameters need no cast: they stay float32."""
        if test_program is not None and use_fp16_test:
            test_program.build = replace(test_program.build, autocast=self._autocast)
            test_program.touch()

    def get_loss_scaling(self) -> float:
        """The current scale of the loss; 1 without loss scaling."""
        value = global_scope().values_of().get(self._scale_name)
        if self._scaling is None:
            return 1.0
        return self._scaling.init_loss_scaling if value is None else float(value.item())

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":
            raise AttributeError(name)  # during copy.copy the attribute does not exist yet
        return getattr(self._inner, name)


@functools.cache
def _warn_if_slow(dtype: torch.dtype) -> None:
    """Warn once if the CPU emulates 16-bit products, which makes them slower than float32."""
    cpu = torch.cpu
    is_fast = cpu._is_amx_fp16_supported() if dtype is torch.float16 else cpu._is_avx512_bf16_supported()
    if not (is_fast or cpu._is_amx_tile_supported() or torch.cuda.is_available()):
        logger.warning(
            "this CPU has no %s arithmetic: mixed precision saves memory here, but is slower than float32",
            dtype_name(dtype),
        )


def _renamed(
    program: Program, pairs: Sequence[tuple[Parameter, Variable]], values: Sequence[Tensor]
) -> ParamsGrads:
    """The pairs with these values as gradients, in variables of their own."""
    renamed = []
    for (parameter, gradient), value in zip(pairs, values, strict=True):
        name = names.generate_unused(f"{gradient.name}@UNSCALED", program.vars)
        renamed.append((parameter, program.add(Variable(program, name, value))))
    return renamed


def _skip_on(update: fx.Node, overflow: fx.Node, optimizer: Optimizer) -> None:
    schema = getattr(update.target, "_schema", None)
    if schema is None or "skip" not in [a.name for a in schema.arguments]:
        raise ConfigError(
            f"{type(optimizer).__name__} cannot skip updates, as float16 needs when a gradient overflows; use "
            "dtype='bfloat16', or one of Argosy's optimizers"
        )
    update.update_kwarg("skip", overflow)


def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 2.0**15,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = True,
    use_pure_fp16: bool = False,
    use_fp16_guard: bool | None = None,
    *,
    dtype: Any = "bfloat16",
) -> OptimizerWithMixedPrecision:
    """An optimizer that trains in mixed precision.

    `dtype`: bfloat16, which needs no loss scaling, or float16, to which the settings of loss scaling apply.
    `use_pure_fp16`: 16 bits for all ops but those of the black list; with `use_fp16_guard` (by default then) only
    inside `fp16_guard`.
    """
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"amp.decorate was given a {type(optimizer).__name__}; give an optimizer")
    lists = amp_lists or AutoMixedPrecisionLists()
    if not isinstance(lists, AutoMixedPrecisionLists):
        raise ArgumentTypeError(f"amp_lists is {amp_lists!r}; use amp.CustomOpLists")
    wanted = to_dtype(dtype)
    if wanted not in (torch.bfloat16, torch.float16):
        raise ConfigError(f"amp: dtype is {dtype!r}; use 'bfloat16' or 'float16'")
    scaling = LossScaling(
        init_loss_scaling,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
        use_dynamic_loss_scaling,
    )
    guarded = use_pure_fp16 and (use_fp16_guard is None or use_fp16_guard)
    autocast = Autocast(wanted, lists.lists, is_pure=use_pure_fp16, guarded_only=guarded)
    return OptimizerWithMixedPrecision(
        optimizer, autocast, lists.black_varnames, scaling if wanted is torch.float16 else None
    )


@contextmanager
def fp16_guard() -> Iterator[None]:
    """With `use_pure_fp16`, the layers that are built inside run in 16 bits, the others in float32."""
    with default_main_program().recorder.tagged("fp16_guard"):
        yield


__getattr__ = missing(__name__, globals())
