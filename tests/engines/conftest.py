"""Fixtures of the tests on real engines; every test in this folder has the marker `engines`."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.proof import EngineJob, Reference, engine_job

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.engines)
            item.add_marker(pytest.mark.timeout(1800))  # several whole jobs, on a machine that may be busy


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The weights of fleetrun alone."""
    return Reference(tmp_path_factory.mktemp("reference"))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[EngineJob]:
    """fleetrun in a temporary directory."""
    with engine_job(tmp_path) as engine:
        yield engine
