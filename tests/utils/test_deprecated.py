"""A deprecated function warns, or raises at level 2."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import ConfigError
from argosy.utils import deprecated


@deprecated(update_to="new", since="2.0.0", reason="it is old")
def old(x: int) -> int:
    """The docstring."""
    return x + 1


@deprecated(level=2)
def gone() -> None:
    """Nothing."""


def test_it_warns_and_computes() -> None:
    with pytest.warns(DeprecationWarning, match=r"old is deprecated since 2.0.0; use new \(it is old\)"):
        assert old(1) == 2
    assert old.__doc__ == "The docstring."
    with pytest.raises(ConfigError, match="gone is deprecated"):
        gone()
