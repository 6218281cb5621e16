"""Names that import their module when they are first used."""

# SPDX-License-Identifier: Apache-2.0
import sys
from typing import Any

import pytest

from argosy.modules import load_on_use


def test_a_name_is_a_module_or_is_defined_in_one() -> None:
    package: dict[str, Any] = {}

    def otherwise(name: str) -> Any:
        raise AttributeError(f"no {name}")

    get = load_on_use(package, {"decoder": "json.decoder", "JSONDecoder": "json.decoder"}, otherwise)
    assert get("decoder") is sys.modules["json.decoder"]
    assert get("JSONDecoder") is sys.modules["json.decoder"].JSONDecoder
    assert set(package) == {"decoder", "JSONDecoder"}
    with pytest.raises(AttributeError, match="no encoder"):
        get("encoder")
