"""The size of /dev/shm in pods."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.cluster.kubernetes_shm import shm_mebibytes
from argosy.engine.cluster.node_roles import node_roles
from argosy.engine.errors import ConfigError
from argosy.engine.metrics.job_directory import METRICS, profile_file, write_json
from tests.engine.cluster.cluster_jobs import cluster_job

SERVERS = "--nodes=4 --server_num=2 --worker_num=6 train.py"


def sizes(line: str, **settings: str) -> list[int]:
    """MiB, of the pods of each role."""
    job = cluster_job(line, **settings)
    return [shm_mebibytes(job, role) for role in node_roles(job)]


@pytest.mark.parametrize(
    ("line", "settings", "expected"),
    [
        ("--nodes=2 train.py", {}, [256]),
        ("--nodes=2 --nproc_per_node=8 train.py", {}, [2048]),
        ("--nodes=2 --gpus=0,1 train.py", {}, [512]),
        ("--nodes=2 --nproc_per_node=8 train.py", {"memory": "3G"}, [1536]),
        (SERVERS, {}, [768, 256]),
        (SERVERS, {"memory": "16G", "shm_size": "12G"}, [12288, 12288]),
    ],
)
def test_it_follows_from_the_processes_of_a_pod_unless_it_is_given(
    line: str, settings: dict[str, str], expected: list[int]
) -> None:
    assert sizes(line, **settings) == expected


def test_an_earlier_run_measures_it(tmp_path: Path) -> None:
    (tmp_path / METRICS).mkdir()
    with pytest.raises(ConfigError, match="no rank of that job has measured a step"):
        sizes("train.py", shm_size=str(tmp_path))
    for rank, used in enumerate((100 << 20, 300 << 20)):
        content = {"shared_memory": {"segments_bytes": 5, "dev_shm_bytes": used}}
        write_json(profile_file(tmp_path, rank), content)
    assert sizes("--nproc_per_node=4 train.py", shm_size=str(tmp_path)) == [2400]
    with pytest.raises(ConfigError, match="2400M of 4 processes is more than --memory=2G"):
        sizes("--nproc_per_node=4 train.py", shm_size=str(tmp_path), memory="2G")
    for rank in range(2):
        content = {"shared_memory": {"segments_bytes": 5, "dev_shm_bytes": 0}}
        write_json(profile_file(tmp_path, rank), content)
    assert sizes("--nproc_per_node=4 train.py", shm_size=str(tmp_path)) == [64]


def test_more_than_the_memory_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--shm_size=17G: it is more than --memory=16G"):
        sizes("train.py", memory="16G", shm_size="17G")
