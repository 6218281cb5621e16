"""Jobs on a real Ray cluster of several nodes: results, failures, lost and draining nodes, the Python API."""

# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no annotations
import pytest

from tests.engines.conftest import KillAndName
from tests.engines.proof import SCRIPTS, TWO_NODES, WAIT, EngineJob, Reference, wait_until
from tests.engines.ray_nodes import PATIENT, RayNodes

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="the package ray is not installed"
)
ON_RAY = ["--on=ray", "--nodes=2"]
PAUSED = ["--pids=pids", "--checkpoint=checkpoints", "--hold_at=5", "--hold_until=continue"]
"""Arguments of the scripts: wait before step 5 until the test creates a file."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    cluster = RayNodes()
    yield cluster
    cluster.close()


@pytest.fixture
def on_ray(job: EngineJob, nodes: RayNodes) -> EngineJob:
    """fleetrun, connected to a cluster of at least two nodes."""
    nodes.ensure(2)
    job.environ |= nodes.environ
    return job


def check_nothing_left(job: EngineJob, nodes: RayNodes) -> None:
    job.check_nothing_left()
    wait_until(lambda: nodes.state() == {"actors": [], "groups": []}, 30, lambda: str(nodes.state()))


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_weights_are_those_of_fleetrun_alone(
    name: str, on_ray: EngineJob, nodes: RayNodes, reference: Reference
) -> None:
    done = on_ray.run(*ON_RAY, *TWO_NODES[name], SCRIPTS[name])
    assert done.returncode == 0, done.stdout + done.stderr
    reference.check(name, on_ray.directory / "weights.npz")
    check_nothing_left(on_ray, nodes)


def test_a_killed_rank_is_named(on_ray: EngineJob, nodes: RayNodes, kill_and_name: KillAndName) -> None:
    process = on_ray.start(*ON_RAY, "--nproc_per_node=2", WAIT)
    for rank in range(4):
        on_ray.pid(f"worker.{rank}")
    assert nodes.node_of(on_ray.pid("worker.0")) == nodes.node_of(on_ray.pid("worker.1"))
    assert nodes.node_of(on_ray.pid("worker.0")) != nodes.node_of(on_ray.pid("worker.2"))
    pid = on_ray.pid("worker.2")
    kill_and_name(on_ray, lambda: os.kill(pid, signal.SIGKILL), "(?s)node 1 of 2.*rank 2.*SIGKILL")
    done = on_ray.finish(process)
    assert done.returncode == 1
    assert "rank 2" in done.stdout
    assert "SIGKILL" in done.stdout
    check_nothing_left(on_ray, nodes)


def test_a_killed_node_is_replaced_and_the_job_resumes_bit_equal(
    on_ray: EngineJob, nodes: RayNodes, reference: Reference
) -> None:
    nodes.ensure(3)
    words = [*TWO_NODES["resnet18"], "--max_restarts=1", SCRIPTS["resnet18"], *PAUSED]
    process = on_ray.start(*ON_RAY, *words)
    on_ray.wait_until_held()
    nodes.kill_node_of(on_ray.pid("worker.1"))
    (on_ray.directory / "continue").touch()
    done = on_ray.finish(process)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "node 1" in done.stdout, "the launcher of node 0 names it"
    assert "was lost" in done.stderr
    assert "restart 1 of 1" in done.stderr
    reference.check("resnet18", on_ray.directory / "weights.npz")
    check_nothing_left(on_ray, nodes)


def test_a_killed_node_without_a_replacement_is_named_and_ends_the_job(
    job: EngineJob, nodes: RayNodes, kill_and_name: KillAndName
) -> None:
    nodes.ensure(2)
    job.environ |= nodes.environ
    only_two = ["--nproc_per_node=2", "--cpus=2"]
    process = job.start(*ON_RAY, *only_two, "--max_restarts=1", "--wait=2", WAIT)
    pid = job.pid("worker.3")
    for spare in nodes.spare_nodes([pid, job.pid("worker.0")]):
        nodes.kill_node(spare)
    kill_and_name(job, lambda: nodes.kill_node_of(pid), "node 1 .*was lost")
    done = job.finish(process)
    assert done.returncode == 1
    assert "node 1 (" in done.stderr
    assert "was lost" in done.stderr
    assert "no other node replaces it" in done.stderr
    check_nothing_left(job, nodes)


def test_a_draining_node_preempts_the_job_which_resumes_bit_equal_on_another(
    on_ray: EngineJob, nodes: RayNodes, reference: Reference
) -> None:
    nodes.ensure(3)
    process = on_ray.start(*ON_RAY, *TWO_NODES["resnet18"], "--grace=120", SCRIPTS["resnet18"], *PAUSED)
    on_ray.wait_until_held()
    drained = nodes.node_of(on_ray.pid("worker.1"))
    nodes.drain_node_of(on_ray.pid("worker.1"))
    wait_until(lambda: "Ray is about to remove" in on_ray.output()[1])
    first = on_ray.pid("worker.1")
    (on_ray.directory / "continue").touch()
    done = on_ray.finish(process)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "started again from its checkpoint" in done.stderr
    assert on_ray.pid("worker.1") != first
    reference.check("resnet18", on_ray.directory / "weights.npz")
    check_nothing_left(on_ray, nodes)
    nodes.kill_node(drained)


def test_ctrl_c_ends_everything(on_ray: EngineJob, nodes: RayNodes) -> None:
    process = on_ray.start(*ON_RAY, "--nproc_per_node=2", WAIT)
    for rank in range(4):
        on_ray.pid(f"worker.{rank}")
    process.send_signal(signal.SIGINT)
    assert on_ray.finish(process).returncode == 130
    check_nothing_left(on_ray, nodes)


def test_nothing_is_left_if_the_driver_is_killed(on_ray: EngineJob, nodes: RayNodes) -> None:
    process = on_ray.start(*ON_RAY, "--nproc_per_node=2", WAIT)
    for rank in range(4):
        on_ray.pid(f"worker.{rank}")
    process.kill()
    process.wait()
    check_nothing_left(on_ray, nodes)


def test_a_job_that_does_not_fit_is_explained(on_ray: EngineJob, nodes: RayNodes) -> None:
    done = on_ray.run(*ON_RAY, "--cpus=64", "--memory=1G", "--wait=1", WAIT)
    assert done.returncode == 1
    assert "2 x (CPU 64, memory 1073741824) with STRICT_SPREAD did not fit the Ray cluster" in done.stderr
    assert "with CPU 2" in done.stderr
    check_nothing_left(on_ray, nodes)


DRIVER = """
import numpy as np
import argosy.ray

def train(factor):
    import argosy as paddle
    from argosy.distributed import fleet
    paddle.enable_static()
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    total = fleet.util.all_reduce(np.full(3, rank + 1.0), "sum", "worker")
    argosy.ray.report(rank_squared=rank * rank, total=total)
    if factor < 0:
        raise ValueError("a negative factor")
    return {"total": total * factor, "ranks": fleet.worker_num()}

reports = []
options = {"nodes": 2, "nproc_per_node": 1}
result = argosy.ray.run(train, [10], on_report=lambda rank, metrics: reports.append((rank, metrics)), **options)
assert result["ranks"] == 2 and result["total"].tolist() == [30.0] * 3, result
assert sorted(reports) == [(r, {"rank_squared": r, "total": [3.0] * 3}) for r in range(2)], reports
try:
    argosy.ray.run(train, [-1], **options)
except argosy.ray.JobFailedError as e:
    assert "exit code 1" in str(e), e
else:
    raise AssertionError("a failed function must raise")
lines = []
outcome = argosy.ray.run("hello.py", ["there"], on_line=lines.append, **options)
assert outcome.code == 0, outcome
assert "hello there from 0" in lines, lines
"""


def test_functions_scripts_and_metrics_from_python(on_ray: EngineJob, nodes: RayNodes) -> None:
    on_ray.script(DRIVER, "driver.py")
    on_ray.script("print('hello', sys.argv[1], 'from', rank)", "hello.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", "driver.py"],
        cwd=on_ray.directory,
        env=on_ray.environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ValueError: a negative factor" in done.stdout
    check_nothing_left(on_ray, nodes)


def test_a_local_cluster_listens_on_the_loopback_interface_and_is_gone_afterwards(
    job: EngineJob, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    process = job.start(*ON_RAY, "--address=local", "--nproc_per_node=2", WAIT, HOME=str(home), **PATIENT)
    for rank in range(4):
        job.pid(f"worker.{rank}")
    mine = [p for p in psutil.Process(process.pid).children(recursive=True) if p.name() != "python"]
    listening = {c.laddr.ip for p in mine for c in p.net_connections("tcp") if c.status == "LISTEN"}
    assert listening
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
    process.send_signal(signal.SIGTERM)
    assert job.finish(process).returncode == 143
    assert not list(home.iterdir())
    job.check_nothing_left()
