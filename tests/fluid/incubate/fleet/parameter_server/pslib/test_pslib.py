"""pslib raises, and says what to use instead."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import UnknownNameError
from argosy.fluid.incubate.fleet.parameter_server import pslib


def test_any_use_raises() -> None:
    with pytest.raises(
        ImportError, match=r"pslib\.fleet is not supported; use `fleet` and `StrategyFactory` of"
    ):
        from argosy.fluid.incubate.fleet.parameter_server.pslib import fleet  # noqa: F401
    with pytest.raises(UnknownNameError, match=r"pslib\.PSLib is not supported"):
        _ = pslib.PSLib
    assert not hasattr(pslib, "__wrapped__")
