"""Master weights: 16-bit parameters that are updated in float32.

    fc_0.w_0                  bfloat16   read by the layers: the master, rounded after each update
    fc_0.w_0_fp32_master_0    float32    updated; initialized from the parameter
    fc_0.w_0_velocity_0       float32

Without it, an update smaller than the resolution of the 16-bit number is lost.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_startup_program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.optimizers.spec import Slot
from argosy.optimizer.optimizer import Optimizer

_NARROW = (torch.float16, torch.bfloat16)


class MultiPrecision(Optimizer):
    """The base of optimizers with `multi_precision`: a 16-bit parameter's last state is its master."""

    multi_precision = False

    def _states_of(self, parameter: Parameter) -> list[Variable]:
        if not self.multi_precision or parameter.dtype not in _NARROW:
            return super()._states_of(parameter)
        states = [self._state(parameter, slot, torch.float32) for slot in self.slots()]
        master = self._state(parameter, Slot("fp32_master"), torch.float32, _copy_of(parameter.name))
        return [*states, master]


def _copy_of(name: str) -> Callable[[Any, torch.dtype], Tensor]:
    """An initializer that copies the initial value of another variable."""

    def initial(shape: Any, dtype: torch.dtype) -> Tensor:
        startup = default_startup_program()
        if name not in startup.vars:
            raise ConfigError(
                f"multi_precision: {startup.name} has no initial value of {name!r} to copy; minimize with the startup "
                "program that the layers were built with"
            )
        return startup.vars[name].value.to(dtype)

    return initial
