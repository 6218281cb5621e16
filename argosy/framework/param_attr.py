"""ParamAttr: how a layer's parameter is named, initialised and trained."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any

from argosy.engine.errors import ConfigError


@dataclass
class ParamAttr:
    """Attributes of one parameter. Layers also take a name, an initialiser, or False for no parameter."""

    name: str | None = None
    initializer: Any = None
    learning_rate: float = 1.0
    """A factor on the optimizer's rate for this parameter alone."""
    regularizer: Any = None
    """L1Decay or L2Decay for this parameter, instead of the optimizer's weight_decay."""
    trainable: bool = True
    do_model_average: bool = True
    """False: ExponentialMovingAverage and ModelAverage leave it alone."""
    need_clip: bool = True

    def __post_init__(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise ConfigError(f"ParamAttr: name is {self.name!r}; give a string or None")


def to_param_attr(attr: Any) -> ParamAttr | None:
    """Convert a layer's param_attr or bias_attr to a ParamAttr; None for False (no parameter)."""
    if attr is False:
        return None
    if attr is None or attr is True:
        return ParamAttr()
    if isinstance(attr, ParamAttr):
        return attr
    if isinstance(attr, str):
        return ParamAttr(name=attr)
    if callable(attr):  # an initialiser
        return ParamAttr(initializer=attr)
    raise ConfigError(
        f"{attr!r} does not describe a parameter; give a ParamAttr, a name, an initialiser or False"
    )
