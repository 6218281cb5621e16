"""paddle.utils: unique names."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.utils import unique_name
from argosy.utils.progress import TrainingProgress

__all__ = ["TrainingProgress", "unique_name"]
__getattr__ = missing(__name__, globals())
