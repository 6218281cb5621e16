"""require_version compares with the version of Paddle whose API Argosy has."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError
from argosy.utils import require_version


def test_versions_in_the_range_pass() -> None:
    for versions in (("1.8",), ("2.0.0",), ("2",), ("1.6.0", "2.0.0.0")):
        require_version(*versions)
    assert fluid.require_version is require_version


def test_others_raise() -> None:
    for versions, message in (
        (("2.0.1",), "needs Paddle 2.0.1 or later; Argosy has the API of Paddle 2.0.0"),
        (("1.6", "1.8"), "needs Paddle 1.6 to 1.8"),
        (("2.0", "1.8"), "is above max_version"),
        (("new",), "is no version"),
    ):
        with pytest.raises(ConfigError, match=message):
            require_version(*versions)
    with pytest.raises(TypeError, match="give a string"):
        require_version(2.0)  # type: ignore[arg-type]  # the error
