"""OptimizerSpec: the one description of an optimizer, which everything else reads.

    op and fused op     momentum(w, w@GRAD, w_velocity_0, learning_rate_0, 1.0, 0.9, False, 1e-4)    ops/updates.py
    state variables     w_velocity_0, as large as w                                         argosy/optimizer
    user's class        Momentum(learning_rate, momentum=0.9, …): names, limits             argosy/optimizer
    rows of a table     | value | Velocity |, settings {"mu": 0.9}            ps/table/row_optimizers.py
    parameter servers   Momentum -> rows with "momentum"                      argosy/distributed/ps

An optimizer is one file with its formula and its `OptimizerSpec`.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from argosy.engine.errors import ConfigError
from argosy.engine.kernels.updates import Row

Update = Callable[..., None]
"""update(param, grad, *slots, lr, *settings): one step in place; see `OptimizerSpec.update`."""
NativeUpdate = Callable[..., list[Row]]
"""native(rows, *settings): updates the rows that a C++ kernel supports, and returns the others."""


@dataclass(frozen=True)
class OptimizerSetting:
    """A number that the user chooses; True or False if the default is."""

    name: str
    """Paddle's name: the argument and the attribute of the user's class."""
    default: float
    least: float | None = None
    below: float | None = None
    op_name: str = ""
    """The argument of the op, if its name differs. `weight_decay` may differ between parameters."""
    row_name: str = ""
    """The name in the specification of a table, if it differs."""
    in_op: bool = True
    """False: it selects slots or is an initial value, and the formula does not need it."""


@dataclass(frozen=True)
class Slot:
    """A state variable of the optimizer for each parameter: w gets w_velocity_0."""

    name: str
    row_name: str = ""
    """Its field in a record of a table."""
    value: float = 0.0
    """The initial value."""
    value_setting: str = ""
    """The setting that is the initial value instead."""
    used_if: str = ""
    """The setting without which the slot does not exist; its argument of the op is None then."""
    is_count: bool = False
    """True: the number of steps, one float32 number; the last slot. False: the parameter's shape and dtype."""
    op_name: str = ""
    """The argument of the op, if its name differs."""


@dataclass(frozen=True)
class OptimizerSpec:
    """All that Argosy knows about one optimizer."""

    name: str
    """The op's name, and the kind of a table's row optimizer."""
    update: Update
    """The formula. Slots and settings come in their order, an unused slot as None, the step count already incremented.

    With `folds_l2` a last argument `weight_decay` follows, with 0 as its default.
    """
    settings: tuple[OptimizerSetting, ...] = ()
    """In the order of the op's arguments."""
    slots: tuple[Slot, ...] = ()
    takes_lists: bool = False
    """True: `update` takes lists of tensors, where those of a parameter have the same memory layout."""
    update_rows: Update | None = None
    """The formula for rows of a table, [n, dim] with step counts [n, 1]; None: `update`, which must broadcast them."""
    is_elementwise: bool = True
    """False: the formula needs a norm of the whole parameter, which neither rows nor blocks of it have."""
    folds_l2: bool = False
    """True: `update` adds L2 decay itself, which saves a node and a pass over memory."""
    is_fused: bool = False
    """True: there is an op that updates many parameters at once; needs `takes_lists`, and `weight_decay` as the last
    argument of `update`."""
    native: NativeUpdate | None = None
    """The fused op's C++ kernel."""

    def __post_init__(self) -> None:
        if self.takes_lists and self.is_elementwise and self.update_rows is None:
            raise ConfigError(f"optimizer {self.name!r}: `update` takes lists; give `update_rows` for tables")
        if self.is_fused and not self.takes_lists:
            raise ConfigError(f"optimizer {self.name!r}: a fused update takes lists; set takes_lists=True")
        if any(slot.is_count for slot in self.slots[:-1]):
            raise ConfigError(f"optimizer {self.name!r}: the step count is not the last slot; move it there")

    @property
    def has_count(self) -> bool:
        """True if the last slot is the step count."""
        return bool(self.slots) and self.slots[-1].is_count

    def slots_for(self, settings: Mapping[str, float]) -> list[Slot]:
        """The slots that exist with these settings (by Paddle's names), with their initial values."""
        used = (slot for slot in self.slots if not slot.used_if or settings[slot.used_if])
        return [replace(s, value=settings[s.value_setting]) if s.value_setting else s for s in used]
