"""launch_ps of 1.8: its options become those of fleetrun."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.cli import parse
from argosy.engine.launch.cli_ps import fleetrun_arguments
from argosy.engine.launch.configuration import Configuration


def test_the_defaults_are_those_of_1_8() -> None:
    config = parse(fleetrun_arguments(["train.py", "--lr", "1"]))
    assert config == Configuration("train.py", ("--lr", "1"), server_num=2, worker_num=2, log_dir="logs")


def test_endpoints_are_those_of_the_servers() -> None:
    words = [
        "--endpoints=127.0.0.1:6170",
        "--worker_num=3",
        "--start_port=6180",
        "--print_config=False",
        "t.py",
    ]
    wanted = Configuration(
        "t.py",
        servers=("127.0.0.1:6170",),
        worker_num=3,
        start_port=6180,
        log_dir="logs",
        quiet=True,
    )
    assert parse(fleetrun_arguments(words)) == wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster_node_ips=10.0.0.1,10.0.0.2", "t.py"], "one host; on each of several hosts run fleetrun"),
        (["--node_ip=10.0.0.1", "t.py"], "one host; on each of several hosts run fleetrun"),
        (["--worker_num=two", "t.py"], "launch_ps: .*invalid int value: 'two'"),
        ([], "launch_ps: .*required: script"),
    ],
)
def test_what_it_cannot_do_is_rejected(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fleetrun_arguments(words)
