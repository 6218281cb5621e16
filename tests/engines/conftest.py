"""Fixtures of the tests on real engines; every test in this folder has the marker `engines`."""

# SPDX-License-Identifier: Apache-2.0
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engines.hosts import Hosts, two_hosts
from tests.engines.proof import EngineJob, Reference, engine_job
from tests.engines.slurm_cluster import SlurmCluster, missing

FOLDER = Path(__file__).parent
LONGEST = ("test_ray", "test_slurm", "test_mpi", "test_ssh", "test_torchx")
"""These files are run first, in this order, so that two workers end at about the same time."""
KillAndName = Callable[[EngineJob, Callable[[], object], str], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.engines)
            item.add_marker(pytest.mark.timeout(1800))  # several whole jobs, on a machine that may be busy
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The weights of fleetrun alone; the workers of pytest-xdist share them."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    (folder / "reference").mkdir(exist_ok=True)
    return Reference(folder / "reference")


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with two_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.fixture(scope="session")
def cluster() -> Iterator[SlurmCluster]:
    """Slurm with two nodes."""
    if reason := missing():
        pytest.skip(reason)
    with SlurmCluster() as running:
        yield running


@pytest.fixture
def kill_and_name(record_property: Callable[[str, object], None]) -> KillAndName:
    """Kill something of a job, and wait until fleetrun names it; how long that took is a property of the test."""

    def kill(job: EngineJob, how: Callable[[], object], pattern: str) -> None:
        began = time.monotonic()
        how()
        job.wait_until_named(pattern)
        record_property("named_after_s", round(time.monotonic() - began, 2))

    return kill


@pytest.fixture
def job(tmp_path: Path) -> Iterator[EngineJob]:
    """fleetrun in a temporary directory."""
    with engine_job(tmp_path) as engine:
        yield engine
