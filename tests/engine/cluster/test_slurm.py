"""The batch script of a job on Slurm, and what is rejected before Slurm is asked."""

# SPDX-License-Identifier: Apache-2.0
import subprocess
from pathlib import Path

import pytest

from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.slurm import Slurm, script
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration

TOKEN = {"ARGOSY_JOB_TOKEN": "secret"}


def job(config: Configuration, **settings: str) -> ClusterJob:
    return ClusterJob(
        config,
        "train",
        settings=settings,
        environ=TOKEN,
        python="/venv/bin/python",
        directory="/home/me/50% x",
    )


def directives(text: str) -> dict[str, str]:
    words = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH --")]
    parts = [word.partition("=") for word in words]
    return {name: value for name, _, value in parts}


def check_syntax(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_one_task_per_node_and_the_options_of_sbatch() -> None:
    settings = {"partition": "cpu", "time": "2:00:00", "account": "me", "array": "0-3", "memory": "16G"}
    config = Configuration("train.py", ("--lr", "0.1"), nodes=4, nproc_per_node=8)
    text = script(job(config, **settings, dependency="afterok:12"))
    check_syntax(text)
    assert text.startswith("#!/bin/bash\n#SBATCH ")
    assert directives(text) == {
        "job-name": "train",
        "nodes": "4",
        "ntasks-per-node": "1",
        "chdir": "'/home/me/50% x'",
        "output": "'/home/me/50%% x/log/slurm-%j.out'",
        "open-mode": "append",
        "partition": "cpu",
        "time": "2:00:00",
        "account": "me",
        "array": "0-3",
        "dependency": "afterok:12",
        "mem": "16G",
        "cpus-per-task": "8",
    }
    assert "--cpus-per-task=8" in text.split("srun")[-1]  # Slurm 22.05 and later do not pass it on
    assert text.rstrip().endswith("exit $code")
    assert "requeue" not in text


def test_the_launchers_get_the_options_and_the_directory_of_the_job() -> None:
    text = script(job(Configuration("train.py", ("a b", "$x"), nodes=2, nproc_per_node=1, log_dir="my logs")))
    check_syntax(text)
    assert """argosy.engine.launch --master="$master" --log_dir='my logs/slurm-'"$SLURM_JOB_ID" """ in text
    assert "--nproc_per_node=1 --nodes=2 train.py 'a b' '$x'" in text
    assert text.count("--log_dir=") == 1


def test_cores_are_those_asked_for_or_one_per_process() -> None:
    servers = Configuration("train.py", nodes=2, server_num=2, worker_num=3)
    assert directives(script(job(servers)))["cpus-per-task"] == "3"
    assert directives(script(job(servers, cpus="12")))["cpus-per-task"] == "12"
    assert "cpus-per-task" not in script(job(Configuration("train.py", nodes=2)))


def test_setup_lines_run_before_python_and_on_every_node() -> None:
    ready = ClusterJob(
        Configuration("train.py", nodes=1), "train", setup=("module load gcc", "ulimit -n 4096")
    )
    text = script(ready)
    check_syntax(text)
    assert "setup() {\nmodule load gcc\nulimit -n 4096\n}\nexport -f setup\n" in text
    assert "master=$(setup >&2 && " in text
    assert """bash -c 'setup && exec "$@"' setup \\\n""" in text


def test_with_a_grace_period_the_job_is_signalled_before_its_time_limit_and_requeued() -> None:
    text = script(job(Configuration("train.py", nodes=2, nproc_per_node=1, grace_s=60.0), time="2:00:00"))
    check_syntax(text)
    assert directives(text)["requeue"] == ""
    assert (
        directives(text)["signal"] == "TERM@90"
    )  # to the launchers; with B: it would go to the script alone
    assert "--grace=60.0 " in text
    assert "if [ $code = 75 ] && " in text
    other = script(job(Configuration("train.py", nodes=2, nproc_per_node=1, grace_s=60.0, requeue_code=99)))
    assert "if [ $code = 99 ] && " in other


def test_the_plan_shows_the_command_and_not_the_token() -> None:
    plan = Slurm().plan(
        ClusterJob(
            Configuration("train.py", nodes=1), "train", environ=TOKEN, arguments=("--qos=long", "--x=a b")
        )
    )
    assert plan.splitlines()[:2] == [
        "#!/bin/bash",
        "# submitted by: sbatch --parsable --export=ALL --qos=long '--x=a b'",
    ]
    assert "secret" not in plan


def test_without_sbatch_the_message_says_where_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ready = ClusterJob(Configuration("train.py", nodes=1), "train", directory=str(tmp_path))
    with pytest.raises(
        ConfigError, match="sbatch was not found; run fleetrun on a host of the Slurm cluster"
    ):
        Slurm().submit(ready)


def test_a_log_directory_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    ready = ClusterJob(Configuration("train.py", nodes=1), "train", directory=str(tmp_path))
    with pytest.raises(ConfigError, match="--log_dir=.*/log: cannot create it"):
        Slurm().submit(ready)
