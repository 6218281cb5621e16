"""SpecOptimizer: the base of optimizers with an `OptimizerSpec`, which says what settings, state and op they have."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from argosy.engine.errors import UnsupportedError
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ops.updates import update_op
from argosy.engine.optimizers.spec import OptimizerSpec, Slot
from argosy.framework.checks import number
from argosy.optimizer.optimizer import Optimizer


class SpecOptimizer(Optimizer):
    """A subclass sets `spec`, and passes its settings to `configure` in `__init__`."""

    spec: ClassVar[OptimizerSpec]
    variable_settings: ClassVar[tuple[str, ...]] = ()
    """The settings that may be Variables."""

    def configure(self, **given: Any) -> None:
        """Check settings, and set each as an attribute; a value outside its limits raises."""
        settings = {setting.name: setting for setting in self.spec.settings}
        for name, value in given.items():
            setting, what = settings[name], f"{type(self).__name__} {name}"
            if isinstance(value, Variable) and name in self.variable_settings:
                setattr(self, name, value)
            elif isinstance(setting.default, bool):
                setattr(self, name, bool(value))
            else:
                setattr(self, name, number(what, value, least=setting.least, below=setting.below))

    def decays(self, parameter: Parameter) -> bool:
        """True if the setting for weight decay applies to the parameter."""
        return True

    def settings_of(self, parameter: Parameter) -> dict[str, float]:
        """The values of the settings for a parameter, by Paddle's names; raises if one is a Variable."""
        values: dict[str, float] = {s.name: getattr(self, s.name) for s in self.spec.settings}
        if variables := [name for name, value in values.items() if isinstance(value, Variable)]:
            raise UnsupportedError(
                f"{type(self).__name__}: {variables[0]} is a Variable, which is not supported on parameter servers and "
                "in fused updates; use a number"
            )
        if not self.decays(parameter):
            values |= {s.name: 0.0 for s in self.spec.settings if "weight_decay" in (s.op_name, s.name)}
        return values

    @property
    def folds_l2(self) -> bool:  # type: ignore[override]  # the base has a plain attribute
        return self.spec.folds_l2

    def slots(self) -> Sequence[Slot]:
        return self.spec.slots_for({s.name: getattr(self, s.name) for s in self.spec.settings})

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        used = self.slots()
        state_of = {slot.name: state for slot, state in zip(used, states, strict=False)}  # a master follows
        slots, masters = [state_of.get(slot.name) for slot in self.spec.slots], states[len(used) :]
        values = self.settings_of(parameter)
        settings = [values[s.name] for s in self.spec.settings if s.in_op]
        decay = [l2] if self.folds_l2 else []
        numbers = parameter.learning_rate, *settings, *decay
        update_op(self.spec.name)(parameter.value, grad, *slots, rate, *numbers, *masters)
