"""HDFSClient: raises; files are read and written by paths."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.framework.missing import missing

__all__ = ["HDFSClient"]


class HDFSClient:
    """Raises a ConfigError: Argosy reads and writes mounted file systems only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ConfigError(
            "HDFSClient is not supported; mount HDFS (NFS gateway, fuse-dfs) and use paths, with "
            "fluid.incubate.fleet.utils.fs.LocalFS where an object is needed, or call `hdfs dfs` in a pipe_command"
        )


__getattr__ = missing(__name__, globals())
