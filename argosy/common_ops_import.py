"""paddle.common_ops_import: scripts catch `common_ops_import.core.EOFException`."""

# SPDX-License-Identifier: Apache-2.0
from argosy import core

__all__ = ["core"]
