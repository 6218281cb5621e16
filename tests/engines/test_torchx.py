"""TorchX: its scheduler local_cwd, with several nodes on this host; Slurm as a dry run; the registered components."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no annotations
import pytest

from tests.engines.conftest import KillAndName
from tests.engines.proof import SCRIPTS, TIMEOUT_S, TWO_NODES, WAIT, EngineJob, Reference

pytest.importorskip("torchx", reason="pip install torchx")
ROOT = Path(__file__).parents[2]
ON = "--on=torchx"


@pytest.mark.parametrize(("script", "nodes"), [("resnet18", ["--nodes=2"]), ("wide_and_deep", [])])
def test_weights_are_bit_equal_to_fleetrun_alone(
    script: str, nodes: list[str], job: EngineJob, reference: Reference
) -> None:
    """The collective job on two nodes, the other one on four: a node for each server and each worker."""
    done = job.run(ON, *nodes, *TWO_NODES[script], SCRIPTS[script])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "completed: SUCCEEDED" in done.stderr
    reference.check(script, job.directory / "weights.npz")
    job.check_nothing_left()


def waiting(job: EngineJob, *words: str, others: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    """Start a job whose processes wait; returns when two workers and these others do."""
    process = job.start(ON, *words, WAIT)
    for role in ("worker.0", "worker.1", *others):
        job.pid(role)
    return process


def test_a_killed_rank_is_named_and_nothing_is_left(job: EngineJob, kill_and_name: KillAndName) -> None:
    process = waiting(job, "--nodes=2", *TWO_NODES["resnet18"])
    pid = job.pid("worker.1")
    kill_and_name(job, lambda: os.kill(pid, signal.SIGKILL), r"(?s)node 1 of 2.*rank 1 of 2.*SIGKILL")
    done = job.finish(process)
    assert done.returncode == 1
    assert "node 1 of 2" in done.stdout
    assert "rank 1 of 2" in done.stdout
    assert "SIGKILL" in done.stdout
    assert "node 0: exit code 1, node 1: exit code 1" in done.stderr
    job.check_nothing_left()


def test_a_killed_node_is_named_and_nothing_is_left(job: EngineJob, kill_and_name: KillAndName) -> None:
    process = waiting(job, *TWO_NODES["wide_and_deep"], others=("server.0", "server.1"))
    server = psutil.Process(job.pid("server.1"))
    node = [server, *(p for p in server.parents() if "--node_rank=3" in p.cmdline())]
    for process_of_node in node:  # first stop all, so that none of them can react
        process_of_node.suspend()
    kill_and_name(job, lambda: [p.kill() for p in node], "node 3 of 4.* was lost")
    done = job.finish(process)
    assert done.returncode == 1
    assert "node 3 of 4" in done.stdout
    assert "was lost" in done.stdout
    assert "server 1: exit code -9" in done.stderr
    job.check_nothing_left()


def test_ctrl_c_ends_everything(job: EngineJob) -> None:
    process = waiting(job, "--nodes=2", *TWO_NODES["resnet18"])
    process.send_signal(signal.SIGINT)
    done = job.finish(process)
    assert done.returncode == 130
    assert "SIGINT: job local_cwd://torchx/wait-" in done.stderr
    job.check_nothing_left()


def test_a_dry_run_prints_the_request_and_starts_nothing(job: EngineJob) -> None:
    local = job.run(ON, "--dry_run", "--nodes=2", "train.py")
    assert "'TORCHX_RANK0_HOST'" in local.stdout
    assert local.stdout.count("--nodes=2") == 2
    job.check_nothing_left()


def test_a_dry_run_on_slurm_prints_a_heterogeneous_job(job: EngineJob) -> None:
    words = ["--scheduler=slurm", "--partition=cpu", "--cpus=4", "--engine_args=comment=mine", "--dry_run"]
    done = job.run(ON, *words, "--server_num=1", "--worker_num=2", "train.py", "$HOME")
    assert done.returncode == 0, done.stderr
    names = ["worker-0", "worker-1", "server-0"]
    for name in names:
        assert f"#SBATCH --job-name={name} --requeue --partition=cpu " in done.stdout
    assert "sbatch --parsable --comment=mine" in done.stdout
    assert done.stdout.count("--cpus-per-task=4") == 3
    assert done.stdout.count("#SBATCH hetjob") == 2
    assert done.stdout.count("SLURM_JOB_NODELIST_HET_GROUP_0") == 3
    assert 'rank=$((2 + "$1"))' in done.stdout
    assert "train.py '\"'\"'$HOME'\"'\"'" in done.stdout
    assert done.stdout.count("ARGOSY_JOB_TOKEN=") == 3


def test_a_token_of_the_submitter_is_not_written_into_the_request(job: EngineJob) -> None:
    words = ("--scheduler=slurm", "--dry_run", "--nodes=2", "train.py")
    done = job.run(ON, *words, ARGOSY_JOB_TOKEN="0123456789abcdef")
    assert done.returncode == 0, done.stderr
    assert "ARGOSY_JOB_TOKEN" not in done.stdout
    assert "0123456789abcdef" not in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scheduler=slrum"], "did you mean 'slurm'"),
        (["--partition=cpu"], "partition=cpu is no run option of TorchX's scheduler local_cwd"),
        (["--engine_args=log_dri=x"], "did you mean 'log_dir'"),
        (["--attach", "slurm:12"], "is no handle of TorchX"),
        (["--attach", "local_cwd://torchx/train-1"], "forgets its jobs when fleetrun ends"),
    ],
)
def test_errors_say_what_would_be_right(words: list[str], message: str, job: EngineJob) -> None:
    done = job.run(ON, *words, *([] if "--attach" in words else ["train.py"]))
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    job.check_nothing_left()


@pytest.fixture
def registered(job: EngineJob) -> EngineJob:
    """The entry points of pyproject.toml, as an installed package has them."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [f"{name} = {module}" for name, module in entries["torchx.components"].items()]
    info = job.directory / "site" / "argosy_components-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: argosy-components\nVersion: 0\n")
    (info / "entry_points.txt").write_text("\n".join(["[torchx.components]", *lines]))
    job.environ["PYTHONPATH"] = os.pathsep.join([str(info.parent), str(ROOT)])
    return job


def torchx(job: EngineJob, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "torchx.cli.main", *words]
    return subprocess.run(
        command,
        cwd=job.directory,
        env=job.environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def request_of(done: "subprocess.CompletedProcess[str]") -> str:
    """The part of a dry run that is for the scheduler."""
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("SCHEDULER REQUEST")[2]


def test_the_components_are_registered_and_hide_none_of_torchx(registered: EngineJob) -> None:
    listed = torchx(registered, "builtins").stdout
    assert "argosy.torchx.collective" in listed
    assert "argosy.torchx.parameter_server" in listed
    assert "dist.ddp" in listed


def test_torchx_runs_the_component(registered: EngineJob, reference: Reference) -> None:
    words = ["--nodes", "2", "--nproc_per_node", "1", "--script", SCRIPTS["resnet18"]]
    weights = registered.directory / "weights.npz"
    done = torchx(
        registered,
        *("run", "-s", "local_cwd", "argosy.torchx.collective"),
        *(*words, "--options=--quiet", "--", f"--weights={weights}"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reference.check("resnet18", weights)
    registered.check_nothing_left()


def test_the_components_can_be_named_by_path(job: EngineJob) -> None:
    done = torchx(
        job,
        *("run", "-s", "local_cwd", "--dryrun", f"{ROOT}/argosy/torchx.py:collective"),
        *("--nodes", "2", "--script", "train.py"),
    )
    assert request_of(done).count("--nproc_per_node=1 --nodes=2") == 2


def test_the_component_of_servers_has_two_roles(registered: EngineJob) -> None:
    words = ["--server_num", "1", "--worker_num", "4", "--worker_nodes", "2", "--memory", "1G"]
    done = torchx(
        registered,
        *("run", "-s", "slurm", "--dryrun", "argosy.torchx.parameter_server"),
        *(*words, "--script", "train.py"),
    )
    request = request_of(done)
    assert request.count("--node_role=worker") == 2
    assert request.count("--node_role=server") == 1
    assert request.count("--mem=1024") == 3
