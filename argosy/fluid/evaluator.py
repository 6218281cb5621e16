"""fluid.evaluator: names that Paddle 1.x itself replaced by fluid.metrics; each raises and names the replacement."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing, raises

__all__ = ["ChunkEvaluator", "EditDistance"]

_REASON = (
    "it stores its state in variables of the program, which Paddle 1.x deprecated; use fluid.metrics.{}, and "
)
_REASON += "update it with fetched values"
ChunkEvaluator, EditDistance = (raises(f"{__name__}.{name}", _REASON.format(name)) for name in __all__)
__getattr__ = missing(__name__, globals())
