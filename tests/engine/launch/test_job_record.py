"""job.json and the events of real jobs: states of processes, failures, restarts, the end."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # a conftest is not there to be imported
    from tests.engine.launch.conftest import Fleetrun


def job(directory: Path) -> Any:
    return json.loads((directory / "job.json").read_text())


def events(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "metrics" / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def states(content: Any) -> list[tuple[str, int, str, int | None]]:
    return [(p["role"], p["rank"], p["state"], p["exit"]) for p in content["processes"]]


def test_a_job_that_succeeds(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("print(open('log/job.json').read() if rank == '0' else '')")
    done = fleetrun.run("--nproc_per_node=2", "--max-restarts=1", "--quiet", script, "--lr", "0 1")
    assert done.returncode == 0, done.stderr
    while_running, ended = json.loads(done.stdout), job(fleetrun.directory / "log")
    assert while_running["state"] == "running"
    assert ended["state"] == "completed"
    assert ended["exit_code"] == 0
    assert ended["command"] == "fleetrun --nproc_per_node=2 --quiet --max_restarts=1 train.py --lr '0 1'"
    assert ended["options"] == {"nproc_per_node": 2, "quiet": True, "max_restarts": 1}
    assert ended["started"] <= ended["ended"] <= time.time()
    assert states(ended) == [("rank", 0, "done", 0), ("rank", 1, "done", 0)]
    assert [p["log"] for p in ended["processes"]] == ["workerlog.0", "workerlog.1"]
    assert {p["host"] for p in ended["processes"]} == {socket.gethostname()}
    assert [e["kind"] for e in events(fleetrun.directory / "log")] == ["exit", "exit"]


def test_a_failure_with_its_cause_and_who_waited(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("if rank == '1': raise ValueError('planted')\ntime.sleep(60)")
    assert fleetrun.run("--nproc_per_node=2", script).returncode == 1
    ended = job(fleetrun.directory / "log")
    assert ended["state"] == "failed"
    assert states(ended) == [("rank", 0, "terminated", -signal.SIGTERM), ("rank", 1, "failed", 1)]
    failure = ended["failure"]
    assert failure["process"] == "rank 1"
    assert (failure["type"], failure["what"]) == ("ValueError", "ValueError: planted")
    assert "train.py:3" in failure["where"]
    assert failure["log"] == "workerlog.1"
    assert failure["text"].startswith("RankFailed: rank 1 of 2")
    failed = [e for e in events(fleetrun.directory / "log") if e["kind"] == "failure"]
    assert [(e["role"], e["rank"]) for e in failed] == [("rank", 1)]


def test_a_killed_rank_and_a_restart_that_keeps_the_records(fleetrun: Fleetrun) -> None:
    kill = "if rank == '0' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
    script = fleetrun.script(f"{kill}    open('log/metrics/rank0.jsonl', 'w'); os.kill(os.getpid(), 9)\n")
    assert fleetrun.run("--max_restarts=1", script).returncode == 0
    ended = job(fleetrun.directory / "log")
    assert (ended["state"], ended["restart"], ended["failure"]) == ("completed", 1, None)
    assert [e["kind"] for e in events(fleetrun.directory / "log")] == ["exit", "failure", "restart", "exit"]
    assert (fleetrun.directory / "log/metrics/rank0.jsonl").exists()


def test_a_new_job_rotates_the_files_of_the_last(fleetrun: Fleetrun) -> None:
    for number in range(3):
        assert fleetrun.run("--quiet", fleetrun.script(f"print({number})")).returncode == 0
    log = fleetrun.directory / "log"
    assert [job_json.name for job_json in sorted(log.glob("job.json*"))] == [
        *("job.json", "job.json.1", "job.json.2"),
    ]
    assert (log / "metrics.2" / "events.jsonl").exists()


def test_ctrl_c_terminates_and_preemption_is_no_failure(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("open('here', 'w').write('x\\n')\ntime.sleep(60)")
    launcher = fleetrun.start(script)
    fleetrun.wait_for("here")
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=60)
    ended = job(fleetrun.directory / "log")
    assert (ended["state"], ended["exit_code"]) == ("terminated", 130)
    preempted = fleetrun.script("sys.exit(75)")
    assert fleetrun.run("--grace=5", preempted).returncode == 75
    assert job(fleetrun.directory / "log")["state"] == "preempted"


def test_servers_and_workers(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "if os.environ['TRAINING_ROLE'] == 'PSERVER': time.sleep(60)\n"
        "if os.environ['PADDLE_TRAINER_ID'] == '1' and os.environ['ARGOSY_RESTART'] == '0': sys.exit(3)\n"
    )
    assert fleetrun.run("--server_num=1", "--worker_num=2", "--max_restarts=1", script).returncode == 0
    ended = job(fleetrun.directory / "log")
    assert (ended["mode"], ended["state"], ended["restart"]) == ("ps", "completed", 1)
    assert states(ended) == [
        ("server", 0, "terminated", -signal.SIGTERM),
        ("worker", 0, "done", 0),
        ("worker", 1, "done", 0),
    ]
    restart = next(e for e in events(fleetrun.directory / "log") if e["kind"] == "restart")
    assert (restart["role"], restart["rank"]) == ("worker", 1)


@pytest.mark.slow
def test_node_0_lists_the_processes_of_all_nodes(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("if rank == '1': raise ValueError('planted')\ntime.sleep(60)")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    common = ["--nodes=2", f"--master=127.0.0.1:{port}"]
    nodes = [
        fleetrun.start(*common, f"--node_rank={node}", script, ARGOSY_JOB_TOKEN="secret") for node in range(2)
    ]
    assert [node.wait(timeout=60) for node in nodes] == [1, 1]
    for node in nodes:
        node.communicate()
    first, second = (job(fleetrun.directory / f"log/node-{node}") for node in range(2))
    assert states(first) == [("rank", 0, "terminated", -signal.SIGTERM), ("rank", 1, "failed", 1)]
    assert states(second) == [("rank", 1, "failed", 1)]
    assert first["failure"]["process"] == "rank 1"
    assert "ValueError: planted" in first["failure"]["text"]
    assert second["failure"]["type"] == "ValueError"


def test_a_directory_that_becomes_unwritable_does_not_end_the_job(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(
        "import shutil\nshutil.rmtree('log')\nopen('log', 'w').close()\nprint('trained', flush=True)\n"
    )
    done = fleetrun.run(script)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("its views and its report may be incomplete") == 1
    assert done.stdout.endswith("trained\n")


def test_the_launcher_imports_no_torch() -> None:
    code = (
        "import sys, argosy.engine.cluster.cli, argosy.engine.launch.supervise, argosy.engine.launch.node_job\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0
