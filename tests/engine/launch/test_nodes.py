"""Several launchers form one job: real launchers on loopback, with scripts that need no torch."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.node_job import spread
from argosy.engine.launch.node_messages import Offer, Plan
from argosy.engine.launch.nodes import node_rank

SCRIPT = """
import os, sys, time
rank, role = os.environ.get("PADDLE_TRAINER_ID"), os.environ["TRAINING_ROLE"]
attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
print("started", role, rank, os.environ["PADDLE_TRAINER_ENDPOINTS"], os.environ.get("MASTER_PORT"), flush=True)
open(f"pid-{role}-{rank}-{attempt}", "w").write(str(os.getpid()))
action, who = sys.argv[1:]
if rank == who and action == "raise" and attempt == "0":
    raise ValueError("planted")
while action != "run" and attempt != "1" and role == "TRAINER":
    time.sleep(0.1)
"""


class Node:
    """The launcher of one node."""

    def __init__(self, rank: int, port: int, cwd: Path, words: list[str], token: str = "secret") -> None:
        command = [
            sys.executable,
            "-m",
            "argosy.engine.launch",
            "--quiet",
            "--nodes=2",
            f"--node_rank={rank}",
        ]
        self.process = subprocess.Popen(
            [*command, f"--master=127.0.0.1:{port}", *words],
            cwd=cwd,
            env=os.environ | {"ARGOSY_JOB_TOKEN": token},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        """Exit code and output."""
        out, _ = self.process.communicate(timeout=120)
        return self.process.returncode, out


@contextmanager
def launchers(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Starts launchers of one job: start(rank, *words); those that are left are killed at the end."""
    (tmp_path / "script.py").write_text(SCRIPT)
    nodes = []
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    def start(rank: int, *words: str, token: str = "secret") -> Node:
        nodes.append(Node(rank, port, tmp_path, list(words), token))
        return nodes[-1]

    try:
        yield start
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.process.kill()
                node.process.communicate()


@contextmanager
def two_nodes(tmp_path: Path, *words: str, options: tuple[str, ...] = ()) -> Iterator[list[Node]]:
    with launchers(tmp_path) as start:
        other = start(1, *options, "script.py", *words)  # it waits for node 0
        yield [start(0, *options, "script.py", *words), other]


def wait_for(path: Path) -> int:
    """The pid that a process has written to this file."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path.name} was not written"
        time.sleep(0.02)
    return int(path.read_text())


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_two_launchers_run_one_job(tmp_path: Path) -> None:
    with two_nodes(tmp_path, "run", "-", options=("--nproc_per_node=2",)) as nodes:
        (code, out), other = (node.end() for node in nodes)
    assert (code, other) == (0, (0, "")), out
    lines = [
        (tmp_path / "log" / f"node-{node}" / f"workerlog.{local}").read_text().split()
        for node in (0, 1)
        for local in (0, 1)
    ]
    assert [line[2] for line in lines] == ["0", "1", "2", "3"]
    endpoints, master_ports = {line[3] for line in lines}, {line[4] for line in lines}
    assert len(endpoints) == len(master_ports) == 1
    assert len(set(endpoints.pop().split(","))) == 4
    assert "started TRAINER 0" in out  # node 0 shows rank 0
    assert "started TRAINER 2" not in out


def test_node_0_reports_a_failure_of_another_node_and_all_end(tmp_path: Path) -> None:
    with two_nodes(tmp_path, "raise", "1") as nodes:
        (code, out), (other_code, other_out) = (node.end() for node in nodes)
    assert (code, other_code) == (1, 1)
    assert "node 1 of 2 (" in out
    assert "RankFailed: rank 1 of 2" in out
    assert "raised: ValueError: planted" in out
    assert other_out == ""
    assert "planted" in (tmp_path / "log" / "node-1" / "fleetrun.log").read_text()
    assert not is_alive(wait_for(tmp_path / "pid-TRAINER-0-0"))


def test_a_restart_is_an_attempt_of_all_nodes(tmp_path: Path) -> None:
    with two_nodes(tmp_path, "raise", "1", options=("--max_restarts=1",)) as nodes:
        (code, out), (other_code, _) = (node.end() for node in nodes)
    assert (code, other_code) == (0, 0), out
    assert out.count("started TRAINER 0") == 2


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_node_is_named_and_the_others_end(tmp_path: Path, killed: int) -> None:
    with two_nodes(tmp_path, "sleep", "-") as nodes:
        pids = [wait_for(tmp_path / f"pid-TRAINER-{rank}-0") for rank in (0, 1)]
        with open(f"/proc/{pids[killed]}/stat") as stat:
            launcher = int(stat.read().rpartition(")")[2].split()[1])
        for pid in (nodes[killed].process.pid, launcher):  # the guard first, else it could still report
            os.kill(pid, signal.SIGSTOP)
        for pid in (launcher, nodes[killed].process.pid, pids[killed]):
            with suppress(ProcessLookupError):  # the rank dies with its launcher
                os.kill(pid, signal.SIGKILL)
        nodes[killed].end()
        code, out = nodes[1 - killed].end()
    assert code == 1
    assert f"NodeLost: node {killed}" in out
    assert not is_alive(pids[1 - killed])


def test_a_node_whose_guard_alone_is_killed_is_a_failure(tmp_path: Path) -> None:
    with two_nodes(tmp_path, "sleep", "-") as nodes:
        pids = [wait_for(tmp_path / f"pid-TRAINER-{rank}-0") for rank in (0, 1)]
        os.kill(nodes[1].process.pid, signal.SIGKILL)
        nodes[1].end()
        code, out = nodes[0].end()
    assert code == 1
    assert "node 1 of 2" in out
    assert "fleetrun was killed" in out
    assert not any(map(is_alive, pids))


def test_sigterm_to_one_node_ends_all(tmp_path: Path) -> None:
    with two_nodes(tmp_path, "sleep", "-") as nodes:
        pids = [wait_for(tmp_path / f"pid-TRAINER-{rank}-0") for rank in (0, 1)]
        nodes[1].process.send_signal(signal.SIGTERM)
        (code, out), (other_code, _) = (node.end() for node in nodes)
    assert (code, other_code) == (143, 143)
    assert "node 1 of 2" in out
    assert "SIGTERM" in out
    assert not any(map(is_alive, pids))


def process_logs(tmp_path: Path) -> set[str]:
    """The logs that processes of the nodes have written; node 0 has copies of the others', node1.workerlog.0."""
    return {f"{path.parent.name}/{path.name}" for path in (tmp_path / "log").glob("*/[sw]*log.*")}


def test_servers_and_workers_are_spread_over_the_nodes(tmp_path: Path) -> None:
    with two_nodes(tmp_path, "run", "-", options=("--server_num=2", "--worker_num=3")) as nodes:
        (code, out), (other_code, _) = (node.end() for node in nodes)
    assert (code, other_code) == (0, 0), out
    logs = process_logs(tmp_path)
    workers = {"node-0/workerlog.0", "node-0/workerlog.1", "node-1/workerlog.0"}
    assert logs == workers | {"node-0/serverlog.0", "node-1/serverlog.0"}


def test_nodes_may_run_only_servers_or_only_workers(tmp_path: Path) -> None:
    numbers = ("--server_num=2", "--worker_num=3")
    with launchers(tmp_path) as start:
        servers = start(1, *numbers, "--node_role=server", "script.py", "run", "-")
        workers = start(0, *numbers, "--node_role=worker", "script.py", "run", "-")
        (code, out), (other_code, _) = workers.end(), servers.end()
    assert (code, other_code) == (0, 0), out
    logs = process_logs(tmp_path)
    assert logs == {
        *(f"node-0/workerlog.{i}" for i in range(3)),
        *(f"node-1/serverlog.{i}" for i in range(2)),
    }


def test_a_role_is_for_all_nodes(tmp_path: Path) -> None:
    numbers = ("--server_num=1", "--worker_num=1")
    with launchers(tmp_path) as start:
        servers = start(1, *numbers, "--node_role=server", "script.py", "run", "-")
        (code, out), (other_code, _) = start(0, *numbers, "script.py", "run", "-").end(), servers.end()
    assert (code, other_code) == (2, 2)
    assert "node 0" in out
    assert "has none; node 1" in out
    assert "give it on all nodes" in out


def test_a_node_with_another_token_is_rejected_and_the_job_goes_on(tmp_path: Path) -> None:
    with launchers(tmp_path) as start:
        first = start(0, "script.py", "run", "-")
        code, out = start(1, "script.py", "run", "-", token="guess").end()
        assert code == 2
        assert "its ARGOSY_JOB_TOKEN differs from that of node 0" in out
        second = start(1, "script.py", "run", "-")
        assert [first.end()[0], second.end()[0]] == [0, 0]


def test_an_invalid_script_on_a_node_ends_the_job(tmp_path: Path) -> None:
    with launchers(tmp_path) as start:
        first = start(0, "script.py", "run", "-")
        assert start(1, "missing.py").end()[0] == 2
        code, out = first.end()
    assert code == 2
    assert "node 1 of 2:\nerror: no script 'missing.py'" in out


def test_node_0_allows_a_connection_to_each_node_and_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        master = f"--master=127.0.0.1:{probe.getsockname()[1]}"
    words = ["--nodes=500", "--node_rank=0", master, "--join_timeout=2", "script.py"]
    (tmp_path / "script.py").touch()
    launcher = subprocess.Popen(
        ["sh", "-c", 'ulimit -Sn 300; exec "$@"', "sh", sys.executable, "-m", "argosy.engine.launch", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    children, limits = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children"), ""
    while launcher.poll() is None and not re.search(r"Max open files +756 ", limits):
        with suppress(OSError, IndexError):  # the launcher is a child of its guard
            limits = Path(f"/proc/{children.read_text().split()[0]}/limits").read_text()
        time.sleep(0.02)
    out, _ = launcher.communicate(timeout=60)
    assert "Max open files            756" in limits
    assert launcher.returncode == 2, out
    assert "498, 499 of 500 have not joined within 2 s" in out


def test_the_node_rank_is_that_of_the_engine() -> None:
    config = Configuration("x.py", nodes=4, master="a:1")
    assert node_rank(config, {"SLURM_NODEID": "2"}) == 2
    assert node_rank(config, {"PMI_RANK": "1"}) == 1
    with pytest.raises(ConfigError, match="add --node_rank"):
        node_rank(config, {})
    with pytest.raises(ConfigError, match="SLURM_NODEID=4, but the job has --nodes=4"):
        node_rank(config, {"SLURM_NODEID": "4"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node_rank": 0}, "--node_rank=0 without a number of nodes"),
        ({"nodes": 2, "node_rank": 2}, "numbered from 0 to 1"),
        ({"nodes": 2, "master": "a"}, "'a' is not an endpoint"),
        ({"nodes": 2, "ips": ("a", "b")}, "leave out one of them"),
        ({"nodes": 0}, "use 1 or more"),
        ({"join_timeout_s": 9.0}, "--join_timeout=9.0 without a number of nodes"),
        ({"nodes": 2, "join_timeout_s": 0.0}, "--join_timeout=0: use a number of seconds"),
        ({"node_role": "server"}, "--node_role=server without a number of nodes"),
        ({"nodes": 2, "node_role": "server"}, "only a parameter-server job has roles"),
        ({"nodes": 2, "server_num": 1, "worker_num": 1, "node_role": "both"}, "use one of server, worker"),
    ],
)
def test_options_that_contradict_each_other_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Configuration("x.py", **options)  # type: ignore[arg-type]


def test_processes_are_spread_evenly() -> None:
    offers = tuple(Offer(n, f"h{n}", f"10.0.0.{n}", tuple(range(9)), (), "ps", "1") for n in range(3))
    servers, workers = spread(offers, 2, 5)
    assert [node for node, _ in servers] == [0, 1]
    assert [node for node, _ in workers] == [0, 0, 1, 1, 2]
    assert len({endpoint for _, endpoint in (*servers, *workers)}) == 7
    roles = ("worker", "worker", "server")
    servers, workers = spread(tuple(replace(o, role=r) for o, r in zip(offers, roles, strict=True)), 2, 3)
    assert [node for node, _ in servers] == [2, 2]
    assert [node for node, _ in workers] == [0, 0, 1]
    plan = Plan(offers, "t", 0)
    assert Plan.from_json(plan.to_json() | {"offers": [o.to_json() for o in offers]}) == plan
