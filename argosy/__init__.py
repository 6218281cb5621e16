"""Argosy: static-graph distributed training with Paddle Fleet's API on PyTorch's kernels and collectives.

`import argosy as paddle` makes programs written for Paddle 2.0's static mode run.

What the package offers is listed in `argosy/api.py` and loaded when the first of it is used: the launcher, which
only starts processes, must not wait two seconds for torch.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
from typing import TYPE_CHECKING

from argosy.modules import lazily as _lazily

if TYPE_CHECKING:
    from argosy.api import *  # noqa: F403  (for editors and type checkers)

__version__ = "0.1.0"


__getattr__ = _lazily(globals(), "argosy.api")


def __dir__() -> list[str]:
    return [*importlib.import_module("argosy.api").__all__, "__version__"]
