"""fluid.incubate.fleet.utils: FleetUtil, a barrier, the local file system; HDFS and Paddle's tools raise."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.incubate.fleet.utils import fleet_barrier_util, fleet_util, fs, hdfs, http_server, utils
from argosy.framework.missing import missing

__all__ = ["fleet_barrier_util", "fleet_util", "fs", "hdfs", "http_server", "utils"]
__getattr__ = missing(__name__, globals())
