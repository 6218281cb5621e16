"""Servers and workers: endpoints, environment, which of them are this host's."""

# SPDX-License-Identifier: Apache-2.0
import socket
from pathlib import Path

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration, num_cores
from argosy.engine.launch.ps_env import plan

TWO_HOSTS = Configuration(
    "t.py",
    servers=("127.0.0.1:26174", "127.0.0.2:26174"),
    workers=("127.0.0.1", "127.0.0.2", "127.0.0.2"),
    host="127.0.0.2",
)
TOKEN = {"ARGOSY_JOB_TOKEN": "secret"}


def test_without_lists_all_are_on_loopback_with_ports_of_their_own() -> None:
    layout = plan(Configuration("t.py", server_num=2, worker_num=3), {})
    endpoints = (*layout.servers, *layout.workers)
    assert len(set(endpoints)) == 5
    assert all(e.startswith("127.0.0.1:") for e in endpoints)
    assert not layout.several_hosts


@pytest.mark.parametrize("environ", [{}, {"FLAGS_START_PORT": "23456"}])
def test_a_start_port_counts_servers_first(environ: dict[str, str]) -> None:
    start_port = None if environ else 23456
    layout = plan(Configuration("t.py", server_num=2, worker_num=2, start_port=start_port), environ)
    assert layout.servers == ("127.0.0.1:23456", "127.0.0.1:23457")
    assert layout.workers == ("127.0.0.1:23458", "127.0.0.1:23459")


def test_a_start_port_beyond_the_last_one_is_rejected() -> None:
    with pytest.raises(ConfigError, match="fewer than 4 ports from 65533 on"):
        plan(Configuration("t.py", server_num=2, worker_num=2, start_port=65533), {})


def test_workers_without_a_port_get_paddles() -> None:
    config = Configuration(
        "t.py", servers=("127.0.0.1:26174", "127.0.0.1:26175"), workers=("127.0.0.1:26180", "127.0.0.1")
    )
    assert plan(config, {}).workers == ("127.0.0.1:26180", "127.0.0.1:6173")


def test_the_environment_of_a_server() -> None:
    config = Configuration("t.py", server_num=2, worker_num=2, http_port=8080, timeline="out")
    outer = {"MINE": "x", "RANK": "3", "PADDLE_TRAINER_ID": "7", "http_proxy": "p", "ARGOSY_TIMELINE": "old"}
    layout = plan(config, outer)
    got = layout.process("server", 1, restart=2)
    assert dict(got.environ) == {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(layout.servers),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(layout.workers),
        "PADDLE_TRAINERS_NUM": "2",
        "ARGOSY_METRICS_DIR": str(Path("log").absolute()),
        "PADDLE_WITH_GLOO": "0",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": "127.0.0.1:8080",
        "POD_IP": "127.0.0.1",
        "PADDLE_PORT": layout.servers[1].rpartition(":")[2],
        "TRAINING_ROLE": "PSERVER",
        "ARGOSY_JOB_TOKEN": layout.token,
        "ARGOSY_DEAD_WORKER": "end",
        "ARGOSY_SERVER_STAYS": "1",
        "ARGOSY_RESTART": "2",
        "OMP_NUM_THREADS": str(max(1, num_cores() // 4)),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "MINE": "x",
    }
    assert (got.name, got.local_rank, got.role) == ("server 1", 1, "server")


def test_the_environment_of_a_worker() -> None:
    config = Configuration(
        "t.py",
        server_num=1,
        worker_num=2,
        timeline="out",
        encrypt=True,
        dead_worker="drop",
        log_level="debug",
    )
    layout = plan(config, {"OMP_NUM_THREADS": "5", "ARGOSY_JOB_TOKEN": "mine", "PADDLE_WITH_GLOO": "1"})
    got = layout.process("worker", 1, restart=0).environ
    wanted = {
        "PADDLE_PSERVERS_IP_PORT_LIST": layout.servers[0],
        "PADDLE_TRAINER_ENDPOINTS": ",".join(layout.workers),
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_RANK_IN_NODE": "1",
        "LOCAL_WORLD_SIZE": "2",
        "PADDLE_WITH_GLOO": "1",
        "TRAINING_ROLE": "TRAINER",
        "ARGOSY_JOB_TOKEN": "mine",
        "ARGOSY_TIMELINE": str(Path.cwd() / "out"),
        "ARGOSY_PS_ENCRYPT": "1",
        "ARGOSY_DEAD_WORKER": "drop",
        "ARGOSY_SERVER_STAYS": "1",
        "ARGOSY_LOG": "debug",
        "ARGOSY_RESTART": "0",
        "OMP_NUM_THREADS": "5",
    }
    assert {k: got[k] for k in wanted} == wanted
    assert not {"ARGOSY_SERVER_STATE", "PADDLE_CURRENT_ENDPOINT"} & got.keys()


def test_state_is_stored_in_the_given_directory_or_next_to_the_logs_if_there_are_restarts() -> None:
    counts = {"server_num": 1, "worker_num": 1}
    restarts = plan(Configuration("t.py", **counts, max_restarts=1, log_dir="l"), {})
    given = plan(Configuration("t.py", **counts, server_state="mine"), {})
    assert restarts.state == str(Path.cwd() / "l" / "server_state")
    assert given.process("server", 0, 0).environ["ARGOSY_SERVER_STATE"] == str(Path.cwd() / "mine")


def test_each_host_starts_its_processes() -> None:
    layout = plan(TWO_HOSTS, TOKEN)
    assert [r.name for r in layout.processes("server")] == ["server 1"]
    workers = layout.processes("worker")
    assert [(r.name, r.local_rank) for r in workers] == [("worker 1", 0), ("worker 2", 1)]
    assert workers[0].environ["PADDLE_TRAINER_ENDPOINTS"] == "127.0.0.1:6172,127.0.0.2:6173,127.0.0.2:6174"
    assert workers[0].environ["OMP_NUM_THREADS"] == str(max(1, num_cores() // 3))
    assert layout.several_hosts
    assert "PADDLE_GLOO_HTTP_ENDPOINT" not in workers[0].environ


def test_several_hosts_need_a_job_token() -> None:
    with pytest.raises(ConfigError, match="ARGOSY_JOB_TOKEN is not set.*export the same secret on each host"):
        plan(TWO_HOSTS, {})


def test_pod_ip_selects_the_host_if_there_are_several() -> None:
    config = Configuration("t.py", servers=("127.0.0.1:26174",), workers=("127.0.0.2:1", "127.0.0.3:1"))
    layout = plan(config, {**TOKEN, "POD_IP": "127.0.0.3"})
    assert (layout.processes("server"), len(layout.processes("worker"))) == ((), 1)
    alone = plan(Configuration("t.py", server_num=1, worker_num=1), {"POD_IP": "10.9.8.7"})
    assert len(alone.processes("server")) == 1


def test_a_pod_ip_that_is_not_listed_is_rejected() -> None:
    config = Configuration("t.py", servers=("127.0.0.1:26174",), workers=("127.0.0.2:1",))
    with pytest.raises(ConfigError, match="127.0.0.9 .POD_IP or --host. is not an address"):
        plan(config, {**TOKEN, "POD_IP": "127.0.0.9"})


def test_a_host_that_is_not_listed_gets_its_addresses_in_the_error() -> None:
    config = Configuration("t.py", servers=("203.0.113.7:1",), workers=("203.0.113.8:1",))
    with pytest.raises(ConfigError, match="203.0.113.8: none of them is an address of this host.*127.0.0.1"):
        plan(config, {})


def test_loopback_together_with_another_host_is_rejected() -> None:
    config = Configuration("t.py", servers=("127.0.0.1:26174",), workers=("127.0.0.1:1", "203.0.113.8:1"))
    with pytest.raises(ConfigError, match="127.0.0.1 is a loopback address, but 203.0.113.8 is another"):
        plan(config, TOKEN)


def test_a_name_and_its_address_are_the_same_endpoint() -> None:
    config = Configuration("t.py", servers=("127.0.0.1:26174",), workers=("localhost:26174",))
    with pytest.raises(ConfigError, match="127.0.0.1:26174 is the endpoint of two processes"):
        plan(config, {})


def test_a_server_port_in_use_is_rejected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"is in use by process \d+ .* with --servers or --start_port"):
            plan(Configuration("t.py", servers=(endpoint,), worker_num=1), {})
