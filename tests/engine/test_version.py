"""Tested versions of torch are accepted, others raise."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.version import check_torch


@pytest.mark.parametrize("version", [torch.__version__, "2.13.0", "2.13.1+cu130"])
def test_tested_versions_are_accepted(version: str) -> None:
    check_torch(version)


@pytest.mark.parametrize("version", ["2.12.1", "2.14.0", "2.130.0", "3.13"])
def test_other_versions_raise(version: str) -> None:
    with pytest.raises(ConfigError, match=rf"torch {version} is installed.*pip install 'torch==2\.13\.\*'"):
        check_torch(version)
