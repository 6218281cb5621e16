"""memory_optimize and release_memory: without effect since Paddle 1.6."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.engine.log import logger


def memory_optimize(
    input_program: Any,
    skip_opt_set: Any = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """No effect, as in Paddle: values are freed after their last use anyway."""
    logger.warning("memory_optimize has no effect: values are freed after their last use; leave the call out")


def release_memory(input_program: Any, skip_opt_set: Any = None) -> None:
    """No effect, as in Paddle: values are freed after their last use anyway."""
    logger.warning("release_memory has no effect: values are freed after their last use; leave the call out")
