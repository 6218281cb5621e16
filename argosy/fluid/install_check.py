"""fluid.install_check.run_check."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.utils import run_check

__all__ = ["run_check"]
__getattr__ = missing(__name__, globals())
