"""`fleetrun --on`: options, profiles, errors; the engine is a small real one, local processes."""

# SPDX-License-Identifier: Apache-2.0
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.engine.cluster import cli, engines
from argosy.engine.cluster.engine import Engine, Outcome
from argosy.engine.cluster.job import ClusterJob, host_list, words
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration


class Local(Engine):
    """Starts the launchers of all nodes on this host."""

    name = "local"
    settings = ("hosts", "partition")

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []

    def plan(self, job: ClusterJob) -> str:
        return " ".join(job.node_command(0, "127.0.0.1:1")) + f" {dict(job.settings)} {job.name}"

    def submit(self, job: ClusterJob) -> str:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", f"print({node}); raise SystemExit({node})"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for node in range(job.nodes)
        ]
        return "7"

    def nodes(self, job_id: str) -> tuple[str, ...]:
        return ()

    def logs(self, job_id: str) -> Iterator[str]:
        for process in self._processes:
            assert process.stdout is not None
            yield from (line.rstrip("\n") for line in process.stdout)

    def wait(self, job_id: str) -> Outcome:
        codes = [process.wait() for process in self._processes]
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.close()
        return Outcome(max(codes), f"exit codes {codes}")

    def cancel(self, job_id: str) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setitem(engines.ENGINES, "local", (__name__, "Local"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARGOSY_CLUSTERS", str(tmp_path / "clusters.toml"))
    (tmp_path / "train.py").write_text("")
    return tmp_path


def test_the_log_is_printed_and_the_outcome_is_the_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--on=local", "--nodes=3", "train.py"]) == 2
    out, err = capfd.readouterr()
    assert out == "0\n1\n2\n"
    assert "error: job 7 on local ended with exit code 2: exit codes [0, 1, 2]" in err


def test_a_dry_run_prints_the_plan(capfd: pytest.CaptureFixture[str]) -> None:
    line = "--on local --nodes 2 --nproc-per-node=4 --grace=30 --partition cpu --dry-run train.py --lr 1"
    assert cli.main(line.split()) == 0
    out, _ = capfd.readouterr()
    assert "-m argosy.engine.launch --nproc_per_node=4 --nodes=2 --node_rank=0 --master=127.0.0.1:1" in out
    assert "--grace=30.0 train.py --lr 1 {'partition': 'cpu'} train" in out


def test_a_profile_gives_defaults(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "clusters.toml").write_text(
        '[mine]\nengine = "local"\npartition = "big"\nnodes = 3\nhosts = ["a", "b", "c"]\npython = "/x/python"\n'
    )
    assert cli.main(["--on=mine", "--partition=small", "--dry_run", "train.py"]) == 0
    out, _ = capfd.readouterr()
    assert out.startswith("/x/python -m argosy.engine.launch --nodes=3")
    assert "{'partition': 'small', 'hosts': 'a,b,c'}" in out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--on=slrm train.py", "did you mean 'slurm'"),
        ("--on=local --image=x train.py", "--image=x is not for local, which takes --hosts, --partition"),
        ("--partition=cpu train.py", "--partition is for jobs on a cluster"),
        ("--on=local --master=a:1 --nodes=2 train.py", "leave out --master"),
        ("--on=local --nodes=3 --hosts=a,b train.py", "--nodes=3, but 2 hosts are listed"),
        ("--on=local --hosts=a,a train.py", "the host a is listed more than once"),
        ("--on=local", "no script is given"),
        ("--on=local --ips=a train.py", "leave out one of them"),
    ],
)
def test_invalid_command_lines_are_explained(
    line: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(line.split()) == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mine]\nengine = 3\n", "engine = 3"),
        ("[mine]\nengine = 'local'\npartitions = 'x'\n", "partitions is no option (did you mean 'partition'"),
        ("[mine\n", "cannot read"),
        ("mine = 3\n", "is no table"),
        ("[mine]\nengine = 'local'\nsetup = 'x'\n", "setup must be a list"),
        ("[mine]\nengine = 'local'\npartition = true\n", "write a string, a number or a list"),
    ],
)
def test_invalid_profiles_are_explained(
    folder: Path, text: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "clusters.toml").write_text(text)
    assert cli.main(["--on=mine", "train.py"]) == 2
    assert message in capfd.readouterr().err


def test_the_words_of_a_configuration_give_it_again() -> None:
    config = Configuration(
        "pkg.train",
        ("--lr", "1"),
        module=True,
        paddle=True,
        nodes=2,
        worker_num=2,
        server_num=1,
        timeout_s=5.0,
        grace_s=3.0,
        encrypt=True,
    )
    assert cli.parse(words(config)) == config
    doctor = cli.parse(["--doctor", "--json", "--nodes=2", "checkpoints"])
    assert cli.parse(words(doctor)) == doctor


def test_a_hostfile_has_one_host_per_line(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# first\na slots=2\n\nb\n")
    assert host_list({"hostfile": str(path)}) == ["a", "b"]
    with pytest.raises(ConfigError, match="leave out one of them"):
        host_list({"hostfile": str(path), "hosts": "a"})
