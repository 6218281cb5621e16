"""The optimizers of a table, over rows that are gathered: the formulas of `engine/optimizers`, but lazy.

    record    | value: dim | slot: dim | slot: dim | count: 1 |        float32, one row

State and step count belong to a row, and change only when the row does. Settings have the names and the defaults of the
descriptions; `l2` (weight decay, added to the gradient) applies to all but `sum`.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.optimizers import OPTIMIZERS
from argosy.engine.optimizers.spec import OptimizerSpec

OptimizerSettings = Mapping[str, float]


def _sum(p: Tensor, g: Tensor, lr: float) -> None:
    p.add_(g)  # geo: what arrives is the change itself, there is no rate


_SUM = OptimizerSpec("sum", _sum)


def row_kinds() -> dict[str, OptimizerSpec]:
    """The optimizers that can update single rows."""
    return {**{name: spec for name, spec in OPTIMIZERS.items() if spec.is_elementwise}, "sum": _SUM}


def checked_settings(kind: str, settings: OptimizerSettings) -> dict[str, float]:
    """All settings of an optimizer; an error if there is no such kind, or no such setting."""
    kinds = row_kinds()
    if kind in OPTIMIZERS and kind not in kinds:
        raise ConfigError(
            f"optimizer {kind!r} needs the norm of the whole parameter, and a table updates row by row; "
            "use another one, or a dense parameter"
        )
    if kind not in kinds:
        raise UnknownNameError(f"no optimizer {kind!r} for rows of a table; use {', '.join(kinds)}")
    defaults = {s.row_name or s.name: float(s.default) for s in kinds[kind].settings}
    if kind != "sum":
        defaults["l2"] = 0.0
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
        checked = checked_settings(kind, settings)
        spec = row_kinds()[kind]
        values = {s.name: checked[s.row_name or s.name] for s in spec.settings}
        slots = spec.slots_for(values)
        self.fields = {"Param": dim, **{slot.row_name: 1 if slot.is_count else dim for slot in slots}}
        """Names and sizes of the parts of a record, in their order."""
        self.width = sum(self.fields.values())
        self._dim, self._l2 = dim, checked.get("l2", 0.0)
        self._new = torch.cat(
            [torch.zeros(dim), *(torch.full((self.fields[s.row_name],), s.value) for s in slots)]
        )
        self._update = spec.update_rows or spec.update
        self._numbers = [values[s.name] for s in spec.settings if s.in_op]
        self._sizes, self._has_count = list(self.fields.values()), spec.has_count
        names = list(self.fields)
        self._parts = [names.index(s.row_name) if s.row_name in names else None for s in spec.slots]
        """For each slot of the formula, the number of its part in a record; None if it is not used."""

    def start(self, values: Tensor) -> Tensor:
        """Records of rows with these values that no step has changed yet."""
        records = self._new.repeat(len(values), 1)
        records[:, : self._dim] = values
        return records

    def apply(self, records: Tensor, grads: Tensor, rate: float) -> None:
        """One step for each of these rows, in place."""
        parts = records.split(self._sizes, dim=1)
        if self._has_count:
            parts[-1].add_(1.0)
        slots = [None if i is None else parts[i] for i in self._parts]
        grads = grads.add(parts[0], alpha=self._l2) if self._l2 else grads
        self._update(parts[0], grads, *slots, rate, *self._numbers)
