"""fluid.evaluator: names that Paddle 1.x itself replaced by fluid.metrics; each raises and names the replacement."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.fluid.metrics import DetectionMAP
from argosy.framework.missing import missing

__all__ = ["ChunkEvaluator", "DetectionMAP", "EditDistance"]


class Evaluator:
    """Raises a ConfigError with the replacement in fluid.metrics."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        raise ConfigError(
            f"fluid.evaluator.{name} keeps its state in variables of the program, which Paddle 1.x deprecated; use "
            f"fluid.metrics.{name}, and update it with fetched values"
        )


class ChunkEvaluator(Evaluator):
    """Raises; use `fluid.metrics.ChunkEvaluator`."""


class EditDistance(Evaluator):
    """Raises; use `fluid.metrics.EditDistance`."""


__getattr__ = missing(__name__, globals())
