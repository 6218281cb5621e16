"""The examples and benchmarks are scripts: their folders are put on the path."""

# SPDX-License-Identifier: Apache-2.0
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
for folder in ("examples/resnet", "benchmarks"):
    sys.path.insert(0, str(ROOT / folder))


@pytest.fixture(scope="session", autouse=True)
def drawn_data() -> Iterator[None]:
    """One cache folder for all test runs of this user, so that the flowers are drawn once."""
    folder = Path(tempfile.gettempdir()) / f"argosy-tests-{os.getuid()}"
    old = os.environ.get("ARGOSY_CACHE")
    os.environ["ARGOSY_CACHE"] = str(folder)
    yield
    os.environ.pop("ARGOSY_CACHE")
    if old is not None:
        os.environ["ARGOSY_CACHE"] = old
