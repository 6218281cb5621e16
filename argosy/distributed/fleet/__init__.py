"""paddle.distributed.fleet: module-level functions of the one `Fleet` of this process.

`api.py` lists the public names. They are imported on first use: a pipe_command starts a data generator for every
file, and it must start without importing torch.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from argosy.distributed.fleet.data_generator import DataGenerator as DataGenerator
from argosy.distributed.fleet.data_generator import MultiSlotDataGenerator as MultiSlotDataGenerator
from argosy.distributed.fleet.data_generator import (
    MultiSlotStringDataGenerator as MultiSlotStringDataGenerator,
)
from argosy.modules import lazily as _lazily

if TYPE_CHECKING:
    from argosy.distributed.fleet.api import *
    from argosy.engine.ir.program import Program


class _Package(ModuleType):
    """Keeps the objects `fleet` and `util` when the submodules of the same names are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in ("fleet", "util") and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    @property
    def main_program(self) -> "Program":
        """The current `main_program` of the process's Fleet."""
        return self.fleet.main_program  # type: ignore[no-any-return]

    @property
    def startup_program(self) -> "Program":
        """The current `startup_program` of the process's Fleet."""
        return self.fleet.startup_program  # type: ignore[no-any-return]


sys.modules[__name__].__class__ = _Package


__getattr__ = _lazily(globals(), "argosy.distributed.fleet.api")


def __dir__() -> list[str]:
    return list(importlib.import_module("argosy.distributed.fleet.api").__all__)
