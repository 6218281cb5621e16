"""Ranks, endpoints and environment, on one host and on several; the table of the seed."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration, num_cores
from argosy.engine.launch.rank_env import RankPlacement, place, plan, table

START = 20_000 + 4 * (os.getpid() % 2_500)
"""A port outside of the ephemeral range, another one in every process of the tests."""
TABLE_OF_THE_SEED = """
    +=======================================================================================+
    |                        Distributed Envs                      Value                    |
    +---------------------------------------------------------------------------------------+
    |                 PADDLE_CURRENT_ENDPOINT                 127.0.0.1:17901               |
    |                     PADDLE_TRAINERS_NUM                        2                      |
    |                PADDLE_TRAINER_ENDPOINTS         127.0.0.1:17901,127.0.0.1:18846       |
    |                     FLAGS_selected_gpus                        0                      |
    |                       PADDLE_TRAINER_ID                        0                      |
    +=======================================================================================+
"""


def placed(
    config: Configuration, environ: Mapping[str, str] | None = None, num_gpus: int = 0, restart: int = 0
) -> RankPlacement:
    placement = place(plan(config, environ or {}, num_gpus), restart)
    if placement.store is not None:
        placement.store.close()
    return placement


def test_the_table_is_that_of_the_seed() -> None:
    shown = table(placed(Configuration("t.py", gpus=("0", "1")), num_gpus=2).ranks[0])
    ours = re.sub(r"127\.0\.0\.1:\d+", lambda m: m[0][:10] + "#" * len(m[0][10:]), shown)
    seed = re.sub(r"127\.0\.0\.1:\d+", lambda m: m[0][:10] + "#" * len(m[0][10:]), TABLE_OF_THE_SEED)
    assert ours == seed


def test_a_long_value_shows_its_end() -> None:
    shown = table(placed(Configuration("t.py", nproc_per_node=4)).ranks[0])
    rows = shown.strip().splitlines()
    assert {len(row.strip()) for row in rows} == {89}
    assert re.search(r"PADDLE_TRAINER_ENDPOINTS  \.\.\. \S{41}\|", shown)


def test_ports_of_one_host_are_free_ones() -> None:
    endpoints = placed(Configuration("t.py", nproc_per_node=3)).endpoints
    assert len(set(endpoints)) == 3
    assert all(e.startswith("127.0.0.1:") for e in endpoints)


@pytest.mark.parametrize("environ", [{}, {"FLAGS_START_PORT": str(START)}], ids=["option", "variable"])
def test_a_start_port_counts_up(environ: dict[str, str]) -> None:
    config = Configuration("t.py", nproc_per_node=2, start_port=None if environ else START)
    placement = placed(config, environ)
    assert placement.endpoints == (f"127.0.0.1:{START}", f"127.0.0.1:{START + 1}")
    assert placement.ranks[0].environ["MASTER_PORT"] not in (str(START), str(START + 1))


def test_invalid_start_ports_are_rejected() -> None:
    with pytest.raises(ConfigError, match="FLAGS_START_PORT='x' is not a port"):
        plan(Configuration("t.py"), {"FLAGS_START_PORT": "x"}, 0)
    with pytest.raises(ConfigError, match="fewer than 4 ports from 65534 on"):
        plan(Configuration("t.py", nproc_per_node=4, start_port=65534), {}, 0)


def test_the_environment_of_a_rank() -> None:
    placement = placed(Configuration("t.py", nproc_per_node=2, max_restarts=3, timeout_s=7.5), restart=2)
    got = placement.ranks[1].environ
    wanted = {
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_CURRENT_ENDPOINT": placement.endpoints[1],
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(placement.endpoints),
        "PADDLE_RANK_IN_NODE": "1",
        "PADDLE_LOCAL_DEVICE_IDS": "",
        "PADDLE_WORLD_DEVICE_IDS": ",",
        "TRAINING_ROLE": "TRAINER",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "NODE_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RUN_ID": "fleetrun",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "OMP_NUM_THREADS": str(max(1, num_cores() // 2)),
        "ARGOSY_COLLECTIVE_TIMEOUT_S": "7.5",
        "ARGOSY_METRICS_DIR": str(Path("log").absolute()),
    }
    assert {k: v for k, v in got.items() if k not in ("MASTER_PORT", "ARGOSY_JOB_TOKEN")} == wanted
    assert f"127.0.0.1:{got['MASTER_PORT']}" not in placement.endpoints


def test_a_timeline_goes_to_the_same_directory_wherever_a_rank_is(tmp_path: Path) -> None:
    config = Configuration("t.py", timeline="out", timeline_steps="2-4")
    got = placed(config).ranks[0].environ
    assert (got["ARGOSY_TIMELINE"], got["ARGOSY_TIMELINE_STEPS"]) == (str(Path.cwd() / "out"), "2-4")
    assert (
        not {"ARGOSY_TIMELINE", "ARGOSY_TIMELINE_STEPS"}
        & placed(Configuration("t.py")).ranks[0].environ.keys()
    )
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file is a file; use a directory"):
        plan(Configuration("t.py", timeline=str(tmp_path / "file")), {}, 0)


def test_gpus_are_written_for_each_rank() -> None:
    placement = placed(Configuration("t.py", nproc_per_node=2), num_gpus=4)
    assert [r.environ["FLAGS_selected_gpus"] for r in placement.ranks] == ["0,1", "2,3"]
    assert placement.ranks[1].environ["PADDLE_LOCAL_DEVICE_IDS"] == "2,3"
    assert placement.ranks[0].environ["PADDLE_WORLD_DEVICE_IDS"] == "0:1,2:3"


def test_scripts_find_the_devices_of_gpus_on_a_host_without_gpus() -> None:
    placement = placed(Configuration("t.py", gpus=("4", "5")))
    assert [r.environ["FLAGS_selected_gpus"] for r in placement.ranks] == ["4", "5"]
    assert placement.ranks[1].environ["PADDLE_LOCAL_DEVICE_IDS"] == ""


def test_exported_devices_stay_unless_the_launcher_chooses_some() -> None:
    environ = {"FLAGS_selected_gpus": "7"}
    assert placed(Configuration("t.py"), environ).ranks[0].environ["FLAGS_selected_gpus"] == "7"
    assert placed(Configuration("t.py", gpus=("4",)), environ).ranks[0].environ["FLAGS_selected_gpus"] == "4"
    assert "FLAGS_selected_gpus" not in placed(Configuration("t.py")).ranks[0].environ


def test_what_the_user_has_set_stays_but_proxies_go() -> None:
    environ = {
        "OMP_NUM_THREADS": "5",
        "MINE": "x",
        "http_proxy": "p",
        "HTTPS_PROXY": "p",
        "ARGOSY_STORE_FD": "9",
    }
    got = placed(Configuration("t.py", nproc_per_node=2), environ).ranks[1].environ
    assert (got["OMP_NUM_THREADS"], got["MINE"]) == ("5", "x")
    assert not {"http_proxy", "HTTPS_PROXY", "ARGOSY_STORE_FD"} & got.keys()


def test_the_token_is_new_for_each_job_on_one_host() -> None:
    first, second = (placed(Configuration("t.py")).ranks[0].environ["ARGOSY_JOB_TOKEN"] for _ in range(2))
    assert len(first) == 32
    assert first != second


def test_ranks_are_numbered_over_all_hosts() -> None:
    config = Configuration("t.py", ips=("127.0.0.1", "127.0.0.2"), host="127.0.0.2", nproc_per_node=2)
    placement = placed(config)
    assert placement.endpoints == ("127.0.0.1:6070", "127.0.0.1:6071", "127.0.0.2:6070", "127.0.0.2:6071")
    got = placement.ranks[1].environ
    assert (got["RANK"], got["LOCAL_RANK"], got["NODE_RANK"], got["GROUP_WORLD_SIZE"]) == ("3", "1", "1", "2")
    assert (got["PADDLE_CURRENT_ENDPOINT"], got["MASTER_ADDR"], got["MASTER_PORT"]) == (
        *("127.0.0.2:6071", "127.0.0.1", "6072"),
    )
    assert placement.store is None
    assert "ARGOSY_JOB_TOKEN" not in got
    assert placed(config, {"ARGOSY_JOB_TOKEN": "s"}).ranks[0].environ["ARGOSY_JOB_TOKEN"] == "s"


def test_autotune_reaches_the_ranks() -> None:
    assert placed(Configuration("t.py", autotune=True)).ranks[0].environ["ARGOSY_AUTOTUNE"] == "1"
    assert "ARGOSY_AUTOTUNE" not in placed(Configuration("t.py")).ranks[0].environ
