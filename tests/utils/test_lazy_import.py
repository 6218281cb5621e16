"""try_import gives the module, or says how to install it."""

# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from argosy.utils import try_import


def test_it_imports_or_explains() -> None:
    assert try_import("math") is math
    with pytest.raises(ImportError, match="pip install no_such_module"):
        try_import("no_such_module")
    with pytest.raises(ImportError, match="^mine$"):
        try_import("no_such_module", "mine")
