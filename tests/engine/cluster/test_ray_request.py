"""What a job asks of Ray: resources, placement, the plan of --dry_run."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.ray_request import memory_bytes, plan, request
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration


def job(settings: dict[str, str] | None = None, nodes: int = 2, **options: Any) -> ClusterJob:
    config = Configuration("train.py", nodes=nodes, **options)
    return ClusterJob(config, "train", settings or {}, python="python", directory="/data")


def test_each_node_gets_a_cpu_per_process() -> None:
    assert request(job(nproc_per_node=3), False).bundle == {"CPU": 3}
    assert request(job(server_num=3, worker_num=4), False).bundle == {"CPU": 4}, "2 servers and 2 workers"
    assert request(job(), False).bundle == {"CPU": 1}
    assert request(job({"cpus": "0.5", "memory": "2G"}), False).bundle == {"CPU": 0.5, "memory": 2 << 30}
    assert request(job(gpus=("0", "1")), False).bundle == {"CPU": 2, "GPU": 2}


def test_several_nodes_are_spread_except_on_a_local_cluster() -> None:
    assert request(job(), False).placement == "STRICT_SPREAD"
    assert request(job(nodes=1), False).placement == "PACK"
    assert request(job(), True).placement == "PACK"
    assert request(job({"placement": "PACK"}), False).placement == "PACK"
    with pytest.raises(ConfigError, match="needs 2 Ray nodes, but a local cluster has one"):
        request(job({"placement": "STRICT_SPREAD"}), True)


def test_sizes_are_powers_of_1024() -> None:
    assert memory_bytes(None) is None
    texts = ["100", "1.5K", "500M", "2g", "2GiB", "1TB"]
    sizes = [100, 1536, 500 << 20, 2 << 30, 2 << 30, 1 << 40]
    assert [memory_bytes(text) for text in texts] == sizes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "much"}, "--memory=much is no size; write for example 16G or 500M"),
        ({"memory": "0G"}, "--memory=0G is no size"),
        ({"cpus": "0"}, "--cpus=0: use a number greater than 0"),
        ({"cpus": "two"}, "--cpus=two"),
        ({"wait": "-1"}, "--wait=-1"),
        ({"placement": "SPREAD"}, "--placement=SPREAD; use one of STRICT_SPREAD, PACK"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        request(job(settings), False)


def test_the_plan_has_the_placement_and_the_command_of_each_actor() -> None:
    asked = job({"memory": "1G"}, nproc_per_node=2)
    assert plan(asked, request(asked, False)).splitlines() == [
        "placement group: 2 x (CPU 2, memory 1073741824) with STRICT_SPREAD",
        "actor of node 0, in /data:",
        "  python -m argosy.engine.launch --master=NODE0:PORT --nproc_per_node=2 --nodes=2 --node_rank=0 train.py",
        "actor of node 1, in /data:",
        "  python -m argosy.engine.launch --master=NODE0:PORT --nproc_per_node=2 --nodes=2 --node_rank=1 train.py",
    ]
