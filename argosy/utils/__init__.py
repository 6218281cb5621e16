"""paddle.utils: unique names, checks of versions and of the installation."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.modules import submodules
from argosy.utils import unique_name
from argosy.utils.deprecated import deprecated
from argosy.utils.lazy_import import try_import
from argosy.utils.progress import TrainingProgress
from argosy.utils.require_version import require_version


def run_check() -> None:
    """Train a linear layer for a step, compare it with torch's, and print that the installation works."""
    from argosy.utils import install_check  # most scripts do not need it

    install_check.run_check()


__all__ = [
    "TrainingProgress",
    "deprecated",
    "require_version",
    "run_check",
    "try_import",
    "unique_name",
]
__getattr__ = submodules(__name__, ("install_check",), missing(__name__, globals()))
