"""The mpirun commands of a job; tests/engines/test_mpi.py runs them."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.engine.cluster import mpi
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration

JOB = ClusterJob(
    Configuration("train.py", ("--lr", "0.1"), nproc_per_node=4, nodes=2),
    "train",
    settings={"hosts": "a,b"},
    arguments=("--mca", "x", "y"),
    environ={"ARGOSY_JOB_TOKEN": "secret", "OMP_NUM_THREADS": "2"},
    python="/venv/python",
    directory="/work",
)
LAUNCHER = "/venv/python -m argosy.engine.launch --nproc_per_node=4 --nodes=2"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of this process is forwarded."""
    monkeypatch.setattr(mpi.env, "variables", dict)


@pytest.fixture
def mpirun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory that is the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "mpirun"


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.usefixtures("variables")
def test_open_mpi_starts_one_unbound_launcher_per_host_and_passes_variables_by_name() -> None:
    words = " ".join(mpi.command(JOB, "a", mpi.OPEN_MPI))
    assert words.startswith(
        "mpirun -np 2 --map-by ppr:1:node --bind-to none --wdir /work --host a:1,b:1 -x ARGOSY_JOB_TOKEN "
        f"-x OMP_NUM_THREADS --mca x y {LAUNCHER} --master=a:2"
    )
    assert words.endswith(" train.py --lr 0.1")
    assert "secret" not in words


@pytest.mark.usefixtures("variables")
def test_mpich_starts_one_launcher_per_host_and_passes_variables_by_name() -> None:
    words = " ".join(mpi.command(JOB, "a", mpi.MPICH))
    assert words.startswith(
        "mpirun -n 2 -ppn 1 -wdir /work -hosts a,b -genvlist ARGOSY_JOB_TOKEN,OMP_NUM_THREADS --mca x y "
        f"{LAUNCHER} --master=a:2"
    )
    assert "secret" not in words


@pytest.mark.usefixtures("variables")
def test_a_hostfile_is_passed_on_and_its_slots_are_not_part_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# the nodes\na:8\nb:8\n")
    job = replace(JOB, settings={"hostfile": str(tmp_path / "hosts")})
    assert mpi._hosts(job) == ["a", "b"]
    assert f"--hostfile {tmp_path}/hosts" in " ".join(mpi.command(job, "a", mpi.OPEN_MPI))
    assert f"-f {tmp_path}/hosts" in " ".join(mpi.command(job, "a", mpi.MPICH))


def test_setup_lines_run_in_a_shell_before_the_launcher() -> None:
    words = mpi.command(replace(JOB, setup=("module load gcc",)), "a", mpi.MPICH)
    assert words[-3:-1] == ["/bin/sh", "-c"]
    assert words[-1].startswith(f"{{ module load gcc; }} </dev/null && exec {LAUNCHER}")


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("mpirun (Open MPI) 5.0.3", mpi.OPEN_MPI),
        ("mpirun.openmpi (OpenRTE) 4.1.4", mpi.OPEN_MPI),
        ("HYDRA build details:", mpi.MPICH),
    ],
)
def test_the_implementation_is_detected(version: str, kind: str, mpirun: Path) -> None:
    program(mpirun, f"echo '{version}'")
    assert mpi.kind() == kind


def test_a_missing_or_unknown_mpirun_is_explained(mpirun: Path) -> None:
    with pytest.raises(ConfigError, match="there is no program mpirun; install Open MPI or MPICH"):
        mpi.kind()
    program(mpirun, "echo 'Some other MPI 1.0'")
    with pytest.raises(ConfigError, match="neither Open MPI nor MPICH: .*'Some other MPI 1.0'"):
        mpi.kind()


def test_without_hosts_mpirun_is_asked_for_the_first_host(mpirun: Path) -> None:
    program(mpirun, 'echo "$*" >&2; echo node7')
    job = replace(JOB, settings={})
    assert mpi._first_host(job, mpi.OPEN_MPI) == "node7"
    program(mpirun, 'echo "no slots" >&2; exit 1')
    with pytest.raises(
        ConfigError, match="`mpirun -n 1 --mca x y hostname` failed: no slots; .*give --hosts"
    ):
        mpi._first_host(job, mpi.MPICH)
