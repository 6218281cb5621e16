"""fluid.incubate.fleet.utils: FleetUtil, a barrier, file systems; Paddle's tools raise."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.modules import load_on_use

__all__ = ["fleet_barrier_util", "fleet_util", "fs", "hdfs", "http_server", "utils"]

__getattr__ = load_on_use(
    globals(), {name: f"{__name__}.{name}" for name in __all__}, missing(__name__, globals())
)
