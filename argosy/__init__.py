"""Argosy: static-graph distributed training with Paddle Fleet's API on PyTorch's kernels and collectives.

`import argosy as paddle` makes programs written for Paddle 2.0's static mode run.

`argosy/api.py` lists the public names and is imported on first use: the launcher, which only starts processes, must
not spend two seconds on importing torch.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
from typing import TYPE_CHECKING

from argosy.engine import version as _version
from argosy.modules import lazily as _lazily

if TYPE_CHECKING:
    from argosy.api import *

__version__ = _version.VERSION
__getattr__ = _lazily(globals(), "argosy.api")


def __dir__() -> list[str]:
    return [*importlib.import_module("argosy.api").__all__, "__version__"]
