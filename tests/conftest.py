"""Shared by all tests: every test has its own programs, names and scope; `ranks` starts connected processes."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import pytest
import torch

from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ranks

__all__ = ["fresh", "ranks"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Default programs, name counters and scope are the test's own; torch draws from a fixed seed."""
    torch.manual_seed(0)
    with program_guard(Program("main"), Program("startup")), names.guard(), scope_guard(Scope()):
        yield
