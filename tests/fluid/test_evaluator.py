"""fluid.evaluator: every name raises, and names what to use."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError


def test_evaluators_name_their_replacement() -> None:
    for name in ("ChunkEvaluator", "EditDistance"):
        with pytest.raises(ConfigError, match=f"use fluid.metrics.{name}"):
            getattr(fluid.evaluator, name)(None, None)
    with pytest.raises(ConfigError, match="no layers for object detection"):
        fluid.evaluator.DetectionMAP(None, None, None)
