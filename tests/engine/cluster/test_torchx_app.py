"""TorchX that is not installed; what needs it is in tests/engines/test_torchx.py."""

# SPDX-License-Identifier: Apache-2.0
import sys

import pytest

from argosy.engine.cluster.torchx import TorchX
from argosy.engine.cluster.torchx_app import random_port
from argosy.engine.errors import ConfigError
from tests.engine.cluster.cluster_jobs import cluster_job


def test_without_torchx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchx.specs", None)
    for call in (TorchX().plan, TorchX().submit):
        with pytest.raises(ConfigError, match=r"pip install 'argosy\[torchx\]'"):
            call(cluster_job("train.py"))


def test_ports_are_below_the_ephemeral_ones() -> None:
    assert all(20_000 <= random_port() < 32_768 for _ in range(100))
