"""The modules below fluid.layers, such as fluid.layers.nn: each has all functions of fluid.layers."""

# SPDX-License-Identifier: Apache-2.0
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_NAMES = (
    "control_flow",
    "detection",
    "distributions",
    "io",
    "learning_rate_scheduler",
    "loss",
    "metric_op",
    "nn",
    "ops",
    "sequence_lod",
    "tensor",
)
"""Paddle's modules; Argosy has files for some of them, which define a part of their functions."""


def add_submodules(package: ModuleType) -> None:
    """Make `package.nn` and the other modules of 1.x attributes of fluid.layers, and importable."""
    for name in _NAMES:
        full_name = f"{package.__name__}.{name}"
        module = import_module(full_name) if find_spec(full_name) else _new_module(full_name)
        setattr(package, name, module)
        checked = {n: getattr(package, n) for n in vars(module).keys() & set(vars(package)["__all__"])}
        vars(module).update(checked)  # fluid.layers checks the types of inputs
        setattr(module, "__getattr__", _forward(package))  # noqa: B010  (mypy: not an attribute)


def _new_module(full_name: str) -> ModuleType:
    module = ModuleType(
        full_name, f"The functions of fluid.layers, as in Paddle's {full_name.rpartition('.')[2]}."
    )
    module.__spec__ = ModuleSpec(full_name, None)
    sys.modules[full_name] = module
    return module


def _forward(package: ModuleType) -> Any:
    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # Python looks up optional dunder names
        return getattr(package, name)

    return __getattr__
