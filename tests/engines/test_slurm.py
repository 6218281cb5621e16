"""Jobs on a real Slurm: a controller and two nodes in namespaces (slurm_cluster.py)."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conftest import KillAndName
from tests.engines.proof import HOLDING, SCRIPTS, TWO_NODES, WAIT, EngineJob, Reference, wait_until
from tests.engines.slurm_cluster import NODES, SlurmCluster

pytestmark = pytest.mark.timeout(900)  # a busy machine
ON = ["--on=slurm", "--nodes=2"]
RESUMABLE = ["--checkpoint=checkpoints", "--hold_until=go", *HOLDING]
"""Arguments of the scripts: save in every step, wait before step 2 until the test creates a file."""
PROFILE = """
[lab]
engine = "slurm"
partition = "all"
setup = ["export FROM_SETUP=$SLURMD_NODENAME"]
[lab.environment]
FROM_PROFILE = "yes"
"""


class SlurmJob(EngineJob):
    """fleetrun on the login host of the cluster."""

    def __init__(self, directory: Path, cluster: SlurmCluster) -> None:
        super().__init__(directory)
        self.cluster = cluster
        self.prefix = cluster.inside("login", [])
        self.environ |= {"SLURM_CONF": cluster.environ["SLURM_CONF"], "PATH": cluster.environ["PATH"]}

    def submit(self, *words: str) -> str:
        """The id of the submitted job."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        match = re.search(
            r"submitted \S+ as job (\d+); follow it: fleetrun --on=slurm --attach \1", done.stdout
        )
        assert match, done.stdout
        return match[1]

    def engine(self, code: str) -> str:
        """Run Python code with `slurm`, the engine, on the login host; what it prints."""
        header = "from argosy.engine.cluster.slurm import Slurm; slurm = Slurm(); "
        done = self.cluster.run(sys.executable, "-W", "error", "-c", header + code, environ=self.environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def job_log(self, job_id: str) -> str:
        """What the job has printed so far."""
        path = self.directory / "log" / f"slurm-{job_id}.out"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        self.cluster.slurm("scancel", "--user=root")
        self.cluster.wait(lambda: self.cluster.slurm("squeue", "--noheader") == "", "end of all jobs")
        super().end()


@pytest.fixture
def job(tmp_path: Path, cluster: SlurmCluster) -> Iterator[SlurmJob]:
    slurm_job = SlurmJob(tmp_path, cluster)
    try:
        yield slurm_job
    finally:
        slurm_job.end()


def test_resnet18_is_bit_equal_and_the_token_is_in_no_file(job: SlurmJob, reference: Reference) -> None:
    words = [*ON, "--attach", *TWO_NODES["resnet18"], SCRIPTS["resnet18"]]
    done = job.run(*words, ARGOSY_JOB_TOKEN="5ecre7")
    assert done.returncode == 0, done.stdout + done.stderr
    reference.check("resnet18", job.directory / "weights.npz")
    assert done.stdout.count("\nloss: ") == 10
    assert re.search(r"job \d+ is running on n\[0-1\]", done.stderr)
    job_id = re.search(r"job (\d+) completed: COMPLETED, exit code 0 on n\[0-1\]", done.stderr)[1]  # type: ignore[index]
    batch_script = job.cluster.slurm("scontrol", "write", "batch_script", job_id, "-")
    assert "5ecre7" not in batch_script + job.job_log(job_id)
    again = job.run("--on=slurm", "--attach", job_id)
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert job.engine(f"print(*slurm.nodes('{job_id}'))").split() == list(NODES)
    job.check_nothing_left()


def test_wide_and_deep_is_bit_equal_with_servers_on_both_nodes(job: SlurmJob, reference: Reference) -> None:
    done = job.run(*ON, "--attach", *TWO_NODES["wide_and_deep"], SCRIPTS["wide_and_deep"])
    assert done.returncode == 0, done.stdout + done.stderr
    reference.check("wide_and_deep", job.directory / "weights.npz")
    job.check_nothing_left()


def test_a_killed_rank_is_named_and_the_job_fails(job: SlurmJob, kill_and_name: KillAndName) -> None:
    running = job.start(*ON, "--attach", "--nproc_per_node=1", WAIT)
    pid = job.pid("worker.1")
    kill_and_name(job, lambda: os.kill(pid, signal.SIGKILL), r"(?s)node 1 of 2 \(n1\).*rank 1.*SIGKILL")
    done = job.finish(running)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "rank 1" in done.stdout
    assert "SIGKILL" in done.stdout
    assert re.search(
        r"error: job \d+ on slurm ended with exit code 1: (FAILED|COMPLETING), exit code 1 on n\[0-1\]",
        done.stderr,
    )
    job.check_nothing_left()


def test_a_killed_node_is_named_and_the_job_fails(job: SlurmJob, kill_and_name: KillAndName) -> None:
    with job.cluster.kill_wait(1):
        job_id = job.submit(*ON, "--nproc_per_node=1", WAIT)
        running = job.start("--on=slurm", "--attach", job_id)
        job.pid("worker.0")
        job.pid("worker.1")
    kill_and_name(job, lambda: job.cluster.kill_node("n1"), r"node 1 of 2 \(n1\) was lost")
    done = job.finish(running)
    job.cluster.start_node("n1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "node 1 of 2 (n1) was lost" in done.stdout
    assert f"error: job {job_id} on slurm ended with exit code 1: " in done.stderr
    job.cluster.wait(lambda: job.cluster.node_states() == {"idle"}, "idle nodes")
    job.check_nothing_left()


def test_cancel_ends_everything_and_ctrl_c_only_the_following(job: SlurmJob) -> None:
    running = job.start(*ON, "--attach", "--nproc_per_node=1", WAIT)
    job.pid("worker.0")
    job.pid("worker.1")
    running.send_signal(signal.SIGINT)
    done = job.finish(running)
    assert done.returncode == 130
    job_id = re.search(r"job (\d+) continues; follow it again: fleetrun --on=slurm --attach \1", done.stderr)[
        1
    ]  # type: ignore[index]
    assert job.cluster.job(job_id)["JobState"] == "RUNNING"
    job.engine(f"slurm.cancel('{job_id}'); slurm.cancel('{job_id}')")  # the second does nothing
    assert job.cluster.job(job_id)["JobState"] == "CANCELLED"
    assert not job.cluster.processes("n0")
    assert not job.cluster.processes("n1")
    done = job.run("--on=slurm", "--attach", job_id)
    assert done.returncode == 143
    assert f"error: job {job_id} on slurm ended with exit code 143: CANCELLED" in done.stderr
    job.check_nothing_left()


def test_arrays_dependencies_and_profiles(job: SlurmJob) -> None:
    job.script("open('done.' + os.environ['SLURM_ARRAY_TASK_ID'], 'w').write('done')", "task.py")
    job.script(
        "print(sorted(n for n in os.listdir() if n.startswith('done.')))\n"
        "print(os.environ['FROM_SETUP'], os.environ['FROM_PROFILE'])",
        "after.py",
    )
    (job.directory / "clusters.toml").write_text(PROFILE)
    array = job.submit("--on=slurm", "--array=3-4", "task.py")
    words = [
        "--on=lab",
        f"--dependency=afterok:{array}",
        "--engine_args=--comment=last",
        "--attach",
        "after.py",
    ]
    done = job.run(*words, ARGOSY_CLUSTERS="clusters.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "['done.3', 'done.4']\nn0 yes\n" in done.stdout
    done = job.run("--on=slurm", "--attach", array)
    assert done.returncode == 2
    assert f"job {array} is an array of jobs; name one of them, such as {array}_0" in done.stderr
    done = job.run("--on=slurm", "--attach", f"{array}_4")
    assert done.returncode == 0, done.stdout + done.stderr
    job.check_nothing_left()


def test_what_slurm_refuses_is_reported_in_its_words(job: SlurmJob) -> None:
    job.script("")
    done = job.run(*ON, "--partition=nowhere", "train.py")
    assert done.returncode == 2
    assert "error: sbatch failed: " in done.stderr
    assert "invalid partition specified: nowhere" in done.stderr
    done = job.run("--on=slurm", "--attach", "4711")
    assert done.returncode == 2
    assert "Slurm knows no job 4711" in done.stderr
    assert "MinJobAge" in done.stderr


@pytest.mark.parametrize(
    ("name", "command"),
    [
        # Slurm requeues the job by itself: it signals all processes of the job.
        ("resnet18", ["scontrol", "requeue"]),
        # As before the time limit, or a preemption with GraceTime: the launchers are signalled, the script requeues.
        ("wide_and_deep", ["scancel", "--signal=TERM"]),
    ],
)
def test_a_preempted_job_saves_a_checkpoint_and_resumes_bit_equal(
    job: SlurmJob, reference: Reference, name: str, command: list[str]
) -> None:
    job_id = job.submit(*ON, "--grace=50", *TWO_NODES[name], SCRIPTS[name], *RESUMABLE)
    running = job.start("--on=slurm", "--attach", job_id)
    job.wait_until_held()
    job.cluster.slurm(*command, job_id)
    job.cluster.wait(lambda: "SIGTERM: waiting at most 50 s" in job.job_log(job_id), "grace period")
    (job.directory / "go").touch()
    wait_until(lambda: job.names(f"job {job_id} is pending: BeginTime"), problem=lambda: job.job_log(job_id))
    job.cluster.start_requeued(job_id)
    done = job.finish(running)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"job {job_id} was requeued (restart 1)" in done.stderr
    assert done.stderr.count(f"job {job_id} is running on n[0-1]") == 2
    assert "exit code 75: start the job again to resume" in done.stdout
    assert 10 <= done.stdout.count("\nloss: ") < 13, "the second start began with the first step"
    reference.check(name, job.directory / "weights.npz")
    job.check_nothing_left()


@pytest.mark.slow
def test_a_job_that_reaches_its_time_limit_is_requeued_and_resumes_bit_equal(
    job: SlurmJob, reference: Reference
) -> None:
    """The limit is shortened while the job trains, however long its start took; the signal comes 60 s before it."""
    words = [*ON, "--time=30", "--grace=30", *TWO_NODES["resnet18"], SCRIPTS["resnet18"]]
    job_id = job.submit(*words, *RESUMABLE)
    running = job.start("--on=slurm", "--attach", job_id)
    job.wait_until_held()
    hours, minutes, _ = job.cluster.job(job_id)["RunTime"].split(":")
    limit = f"TimeLimit={60 * int(hours) + int(minutes) + 2}"
    job.cluster.slurm("scontrol", "update", f"JobId={job_id}", limit)
    job.cluster.wait(lambda: "SIGTERM: waiting at most 30 s" in job.job_log(job_id), "signal of Slurm")
    (job.directory / "go").touch()
    wait_until(lambda: job.names(f"job {job_id} is pending: BeginTime"), problem=lambda: job.job_log(job_id))
    job.cluster.start_requeued(job_id, "TimeLimit=30")
    done = job.finish(running)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"job {job_id} was requeued (restart 1)" in done.stderr
    assert "exit code 75: start the job again to resume" in done.stdout
    assert 10 <= done.stdout.count("\nloss: ") < 13, "the second start began with the first step"
    reference.check("resnet18", job.directory / "weights.npz")
    job.check_nothing_left()


@pytest.mark.slow
def test_a_cancelled_job_with_a_grace_period_saves_a_checkpoint_and_is_not_requeued(
    job: SlurmJob, reference: Reference
) -> None:
    words = [*ON, "--grace=50", *TWO_NODES["resnet18"], SCRIPTS["resnet18"], *RESUMABLE]
    running = job.start("--attach", *words)
    job.wait_until_held()
    running.send_signal(signal.SIGINT)  # ends only the following
    done = job.finish(running)
    assert done.returncode == 130, done
    job_id = re.search(r"job (\d+) continues; follow it again", done.stderr)[1]  # type: ignore[index]
    running = job.start("--on=slurm", "--attach", job_id)
    job.cluster.slurm("scancel", job_id)
    job.cluster.wait(lambda: "SIGTERM: waiting at most 50 s" in job.job_log(job_id), "grace period")
    (job.directory / "go").touch()
    done = job.finish(running)
    assert done.returncode == 75, done
    assert f"job {job_id} on slurm ended with exit code 75: CANCELLED" in done.stderr
    assert "exit code 75: start the job again to resume" in done.stdout
    assert job.cluster.job(job_id)["Restarts"] == "0"
    job.check_nothing_left()
    done = job.run("--attach", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nloss: ") < 10, "it began with the first step"
    reference.check("resnet18", job.directory / "weights.npz")
