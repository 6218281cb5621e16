"""pslib raises, and says what to use instead."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import UnsupportedError
from argosy.fluid.incubate.fleet.parameter_server import pslib


def test_any_use_raises() -> None:
    with pytest.raises(
        UnsupportedError, match=r"pslib\.fleet is not supported: use `fleet` and `StrategyFactory` of"
    ):
        pslib.fleet.init()
    with pytest.raises(UnsupportedError, match=r"pslib\.PSLib is not supported"):
        pslib.PSLib()
    assert not hasattr(pslib, "__wrapped__")
