"""The optimizers: one file each, with the formula and its description (`spec.py`)."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.optimizers import (
    adadelta,
    adagrad,
    adam,
    adamax,
    ftrl,
    lamb,
    lars_momentum,
    momentum,
    rmsprop,
    sgd,
)
from argosy.engine.optimizers.spec import OptimizerSpec

__all__ = ["OPTIMIZERS", "optimizer_spec", "register"]

OPTIMIZERS: dict[str, OptimizerSpec] = {
    spec.name: spec
    for spec in (
        sgd.SPEC,
        momentum.SPEC,
        adagrad.SPEC,
        adam.ADAM,
        adam.ADAMW,
        adamax.SPEC,
        rmsprop.SPEC,
        adadelta.SPEC,
        ftrl.SPEC,
        lars_momentum.SPEC,
        lamb.SPEC,
    )
}
"""All optimizers by their names: Argosy's, and those that users have registered."""


def register(spec: OptimizerSpec) -> OptimizerSpec:
    """Add a user's optimizer. Every process of a job, servers too, must do so before it builds its program."""
    if OPTIMIZERS.setdefault(spec.name, spec) != spec:
        raise ConfigError(f"there is an optimizer {spec.name!r} already; give the new one another name")
    return spec


def optimizer_spec(name: str) -> OptimizerSpec:
    """The description of an optimizer; an unknown name raises."""
    if name not in OPTIMIZERS:
        raise UnknownNameError(
            f"no optimizer {name!r}; use {', '.join(OPTIMIZERS)}, or register it in this process"
        )
    return OPTIMIZERS[name]
