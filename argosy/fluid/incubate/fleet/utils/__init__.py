"""fluid.incubate.fleet.utils: the location of the file systems in 1.x."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.modules import load_on_use

__all__ = ["fs", "hdfs"]

__getattr__ = load_on_use(
    globals(), {name: f"{__name__}.{name}" for name in __all__}, missing(__name__, globals())
)
