"""paddle.distributed.fleet: module-level functions of the one `Fleet` of this process.

`api.py` lists the public names. They are imported on first use: a pipe_command starts a data generator for every
file, and it must start without importing torch.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
from typing import TYPE_CHECKING, Any

from argosy.distributed.fleet.data_generator import DataGenerator as DataGenerator
from argosy.distributed.fleet.data_generator import MultiSlotDataGenerator as MultiSlotDataGenerator
from argosy.distributed.fleet.data_generator import (
    MultiSlotStringDataGenerator as MultiSlotStringDataGenerator,
)
from argosy.modules import lazily as _lazily

if TYPE_CHECKING:
    from argosy.distributed.fleet.api import *


_load = _lazily(globals(), "argosy.distributed.fleet.api")


def __getattr__(name: str) -> Any:
    if name in ("main_program", "startup_program"):  # of the last minimize: never cached in this module
        return getattr(_load("fleet"), name)
    return _load(name)


def __dir__() -> list[str]:
    return list(importlib.import_module("argosy.distributed.fleet.api").__all__)
