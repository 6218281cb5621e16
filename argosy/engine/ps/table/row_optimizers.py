"""The optimizers of a table, over rows that are gathered: the formulas of `engine/ops`, but lazy.

    record    | value: dim | slot: dim | slot: dim | count: 1 |        float32, one row

State and step count belong to a row, and change only when the row does. Settings have the names and the defaults of the
user's optimizers; `l2` (weight decay, added to the gradient) applies to all but `sum`. Ftrl's own coefficients are
called `ftrl_l1` and `ftrl_l2`, since `l2` means weight decay.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError, UnknownNameError

OptimizerSettings = Mapping[str, float]
Slots = list[Tensor]
UpdateFunction = Callable[[Tensor, Tensor, Slots, Tensor, float, OptimizerSettings], None]
"""update(values, gradients, slots, count, rate, settings): all but the gradients in place; count is this step's."""


def _sgd(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    p.sub_(g, alpha=rate)


def _sum(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    p.add_(g)  # geo: what arrives is the change itself, there is no rate


def _momentum(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    velocity = slots[0].mul_(s["mu"]).add_(g)
    p.sub_(g.add(velocity, alpha=s["mu"]) if s["use_nesterov"] else velocity, alpha=rate)


def _adagrad(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    moment = slots[0].addcmul_(g, g)
    p.addcdiv_(g, moment.sqrt().add_(s["epsilon"]), value=-rate)


def _decayed_adagrad(
    p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings
) -> None:
    moment = slots[0].mul_(s["decay"]).addcmul_(g, g, value=1 - s["decay"])
    p.addcdiv_(g, moment.sqrt().add_(s["epsilon"]), value=-rate)


def _adam(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    mean, square = slots
    mean.lerp_(g, 1 - s["beta1"])
    square.mul_(s["beta2"]).addcmul_(g, g, value=1 - s["beta2"])
    root = square.sqrt().div_(_unbiased(s["beta2"], t).sqrt().float()).add_(s["epsilon"])
    p.sub_(mean.mul(_unbiased(s["beta1"], t).reciprocal().mul(rate).float()).div_(root))


def _adamw(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    p.mul_(1 - rate * s["coeff"])
    _adam(p, g, slots, t, rate, s)


def _adamax(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    mean, norm = slots
    mean.lerp_(g, 1 - s["beta1"])
    torch.maximum(norm.mul_(s["beta2"]).add_(s["epsilon"]), g.abs(), out=norm)
    p.sub_(mean.mul(_unbiased(s["beta1"], t).reciprocal().mul(rate).float()).div_(norm))


def _rmsprop(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    square = slots[0].mul_(s["rho"]).addcmul_(g, g, value=1 - s["rho"])
    variance = square
    if s["centered"]:
        mean = slots[1].lerp_(g, 1 - s["rho"])
        # A variance, which rounding may push below zero.
        variance = torch.addcmul(square, mean, mean, value=-1.0).clamp_(min=0.0)
    root = variance.add(s["epsilon"]).sqrt_()
    if s["momentum"]:
        p.sub_(slots[-1].mul_(s["momentum"]).addcdiv_(g, root, value=rate))
    else:
        p.addcdiv_(g, root, value=-rate)


def _adadelta(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    squared_grad, squared_update = slots
    squared_grad.mul_(s["rho"]).addcmul_(g, g, value=1 - s["rho"])
    update = squared_update.add(s["epsilon"]).div_(squared_grad.add(s["epsilon"])).sqrt_().mul_(g)
    squared_update.mul_(s["rho"]).addcmul_(update, update, value=1 - s["rho"])
    p.sub_(update, alpha=rate)


def _ftrl(p: Tensor, g: Tensor, slots: Slots, t: Tensor, rate: float, s: OptimizerSettings) -> None:
    if rate == 0:
        return
    squared, linear = slots
    power, l1, l2 = -s["lr_power"], s["ftrl_l1"] + 1e-10, s["ftrl_l2"] + 1e-10
    old = squared.pow(power)
    new = squared.addcmul_(g, g).pow(power)
    linear.add_(g).addcmul_(old.sub_(new), p, value=1 / rate)
    shrunk = torch.nn.functional.softshrink(linear, l1)
    torch.div(shrunk, new.div_(-rate).sub_(2 * l2), out=p)


def _unbiased(beta: float, t: Tensor) -> Tensor:
    """1 - beta^t for each row's own number of steps, float64 [n, 1]."""
    return 1 - torch.pow(beta, t.double())


@dataclass(frozen=True)
class Kind:
    """One optimizer: its formula, its settings with their defaults, its slots by Paddle's names."""

    update: UpdateFunction
    defaults: dict[str, float]
    slots: dict[str, str] = field(default_factory=dict)
    """Name, and the setting without which the slot is not needed ("": always)."""
    counts: bool = False
    """Whether the formula depends on the number of steps."""


_L2 = {"l2": 0.0}
_BETAS = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, **_L2}
_MOMENTS = {"Moment1": "", "Moment2": ""}
KINDS: dict[str, Kind] = {
    "sgd": Kind(_sgd, _L2),
    "sum": Kind(_sum, {}),
    "momentum": Kind(_momentum, {"mu": 0.9, "use_nesterov": 0.0, **_L2}, {"Velocity": ""}),
    "adagrad": Kind(_adagrad, {"epsilon": 1e-6, "initial_accumulator_value": 0.0, **_L2}, {"Moment": ""}),
    "decayed_adagrad": Kind(_decayed_adagrad, {"decay": 0.95, "epsilon": 1e-6, **_L2}, {"Moment": ""}),
    "adam": Kind(_adam, _BETAS, _MOMENTS, counts=True),
    "adamw": Kind(_adamw, {**_BETAS, "coeff": 0.01}, _MOMENTS, counts=True),
    "adamax": Kind(_adamax, _BETAS, {"Moment": "", "InfNorm": ""}, counts=True),
    "rmsprop": Kind(
        _rmsprop,
        {"rho": 0.95, "epsilon": 1e-6, "momentum": 0.0, "centered": 0.0, **_L2},
        {"MeanSquare": "", "MeanGrad": "centered", "Moment": "momentum"},
    ),
    "adadelta": Kind(
        _adadelta, {"rho": 0.95, "epsilon": 1e-6, **_L2}, {"AvgSquaredGrad": "", "AvgSquaredUpdate": ""}
    ),
    "ftrl": Kind(
        _ftrl,
        {"ftrl_l1": 0.0, "ftrl_l2": 0.0, "lr_power": -0.5, **_L2},
        {"SquaredAccumulator": "", "LinearAccumulator": ""},
    ),
}
_WHOLE = ("lars", "lars_momentum", "lamb")


def checked_settings(kind: str, settings: OptimizerSettings) -> dict[str, float]:
    """All settings of an optimizer; an error if there is no such kind, or no such setting."""
    if kind in _WHOLE:
        raise ConfigError(
            f"optimizer {kind!r} needs the norm of the whole parameter, and a table updates row by row; "
            "use another one, or a dense parameter"
        )
    if kind not in KINDS:
        raise UnknownNameError(f"no optimizer {kind!r} for rows of a table; use {', '.join(KINDS)}")
    defaults = KINDS[kind].defaults
    for name, value in settings.items():
        if name not in defaults:
            known = ", ".join(defaults) or "none"
            raise UnknownNameError(f"optimizer {kind!r} of a table has no setting {name!r} (known: {known})")
        if not math.isfinite(value):
            raise ConfigError(f"optimizer {kind!r} of a table has {name}={value}; give a finite number")
    return {**defaults, **settings}


class RowRule:
    """An optimizer with its settings, and what a record of it looks like."""

    def __init__(self, kind: str, settings: OptimizerSettings, dim: int) -> None:
        self._kind, self._dim = KINDS[kind], dim
        self._settings = checked_settings(kind, settings)
        slots = [name for name, only in self._kind.slots.items() if not only or self._settings[only]]
        self.fields = {"Param": dim, **dict.fromkeys(slots, dim)}
        """Names and sizes of the parts of a record, in their order."""
        if self._kind.counts:
            self.fields["Count"] = 1
        self.width = sum(self.fields.values())

    def start(self, values: Tensor) -> Tensor:
        """Records of rows with these values that no step has changed yet."""
        records = values.new_full(
            (len(values), self.width), self._settings.get("initial_accumulator_value", 0.0)
        )
        records[:, : self._dim] = values
        return records

    def apply(self, records: Tensor, grads: Tensor, rate: float) -> None:
        """One step for each of these rows, in place."""
        p, *slots = records.split(list(self.fields.values()), dim=1)
        count = slots.pop().add_(1.0) if self._kind.counts else p
        l2 = self._settings.get("l2", 0.0)
        self._kind.update(p, grads.add(p, alpha=l2) if l2 else grads, slots, count, rate, self._settings)
