"""fleet.utils: LocalFS and HDFSClient, file systems; DistributedInfer."""

# SPDX-License-Identifier: Apache-2.0
from typing import TYPE_CHECKING

from argosy.distributed.fleet.utils import ps_util
from argosy.distributed.fleet.utils.ps_util import DistributedInfer
from argosy.framework.missing import missing
from argosy.modules import load_on_use

if TYPE_CHECKING:
    from argosy.distributed.fleet.utils import fs
    from argosy.distributed.fleet.utils.fs import HDFSClient, LocalFS

__all__ = ["DistributedInfer", "HDFSClient", "LocalFS", "fs", "ps_util"]

_FS = "argosy.distributed.fleet.utils.fs"
__getattr__ = load_on_use(
    globals(), {"HDFSClient": _FS, "LocalFS": _FS, "fs": _FS}, missing(__name__, globals())
)
