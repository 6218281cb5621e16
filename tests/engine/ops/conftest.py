"""Ops are computed by two threads, as our kernels share large tensors among them."""

# SPDX-License-Identifier: Apache-2.0
import pytest


@pytest.fixture(autouse=True)
def shared(two_threads: None) -> None:
    pass
