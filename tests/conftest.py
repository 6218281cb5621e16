"""Shared by all tests: every test has its own programs, names and scope.

`ranks` starts connected processes; a test that asks for `kernels` runs with and without those of our own.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import hypothesis
import pytest
import torch

from argosy.engine import collective
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.kernels.library import _loaded, unavailable
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ranks

__all__ = ["fresh", "kernels", "ranks"]

# On a busy machine an example may take long for no reason of its own.
hypothesis.settings.register_profile("argosy", deadline=None)
hypothesis.settings.load_profile("argosy")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Default programs, name counters, scope and world are the test's own; torch draws from a fixed seed."""
    torch.manual_seed(0)
    with program_guard(Program("main"), Program("startup")), names.guard(), scope_guard(Scope()):
        yield
    collective.disconnect()


@pytest.fixture(params=["own kernels", "torch's"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With our library, if this machine can build it, and without."""
    if request.param == "torch's":
        monkeypatch.setenv("ARGOSY_KERNELS", "0")
    _loaded.cache_clear()
    if request.param == "own kernels" and (why := unavailable()):
        pytest.skip(why)
    yield str(request.param)
    _loaded.cache_clear()
