"""fluid.incubate.fleet.utils.hdfs: HDFS and other file systems by URL."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet.utils.fs import ExecuteError, HDFSClient

__all__ = ["ExecuteError", "HDFSClient"]
