"""`agree` of tests/tensor, and `layer_agrees` of tests/fluid for layers as classes.

    layer_agrees(lambda: nn.Linear(3, 4), expect, (None, 3))

The layer is made inside the check, in its program.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

_shared = run_path(str(Path(__file__).parents[1] / "fluid" / "conftest.py"))
agree = _shared["agree"]


@pytest.fixture
def layer_agrees() -> Callable[..., None]:
    def check(make: Callable[[], Any], expect: Callable[..., Any], *feeds: Any, **more: Any) -> None:
        def build(*inputs: Any) -> Any:
            return make()(*inputs)

        _shared["_layer_agrees"](build, expect, *feeds, **more)

    return check
