"""fluid.incubate.fleet.utils.fs: local files, and the errors of file systems."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet.utils.fs import (
    FS,
    ExecuteError,
    FSFileExistsError,
    FSFileNotExistsError,
    FSShellCmdAborted,
    FSTimeOut,
    LocalFS,
)

__all__ = [
    "FS",
    "ExecuteError",
    "FSFileExistsError",
    "FSFileNotExistsError",
    "FSShellCmdAborted",
    "FSTimeOut",
    "LocalFS",
]
