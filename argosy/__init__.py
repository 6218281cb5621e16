"""Argosy: static-graph distributed training with Paddle Fleet's API on PyTorch's kernels and collectives.

`import argosy as paddle` makes programs written for Paddle 2.0's static mode run.

What the package offers is listed in `argosy/api.py` and loaded when the first of it is used: the launcher, which
only starts processes, must not wait two seconds for torch.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argosy.api import *  # noqa: F403  (for editors and type checkers)

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(name)  # Python's own questions
    api = importlib.import_module("argosy.api")
    found = getattr(api, name)
    globals().update({n: v for n, v in vars(api).items() if not n.startswith("_")})
    return found


def __dir__() -> list[str]:
    return [*importlib.import_module("argosy.api").__all__, "__version__"]
