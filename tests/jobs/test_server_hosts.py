"""Parameter servers and workers on two hosts: network namespaces, a fleetrun on each, one token, CURVE."""

# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

from tests.engine.launch.conftest import Fleetrun, fleetrun
from tests.jobs.test_lab import a_lab
from tests.jobs.test_launchers import check_equal

__all__ = ["fleetrun"]
SCRIPT = str(Path(__file__).parent / "scripts" / "train_with_servers.py")
PYTHON = [sys.executable, "-W", "error"]


def test_a_job_with_a_server_and_a_worker_on_each_of_two_hosts_ends_where_one_process_ends(
    fleetrun: Fleetrun, tmp_path: Path
) -> None:
    with a_lab("1gbit") as lab:
        one, other = lab.addresses
        words = [f"--servers={one}:6174,{other}:6174", f"--workers={one},{other}", "--encrypt"]
        environ = fleetrun.environ | {"ARGOSY_JOB_TOKEN": "one-word-for-both-hosts", "OMP_NUM_THREADS": "1"}
        jobs = [
            lab.start(
                host,
                [*PYTHON, "-m", "argosy.distributed.launch", *words, f"--log_dir=log/host{host}", SCRIPT],
                env=environ,
                cwd=fleetrun.directory,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for host in (0, 1)
        ]
        for job in jobs:
            said, _ = job.communicate(timeout=120)
            assert job.returncode == 0, said
    for host in (0, 1):
        logs = {path.name for path in (fleetrun.directory / "log" / f"host{host}").iterdir()}
        assert {"serverlog.0", "workerlog.0"} <= logs
    (tmp_path / "alone").mkdir()
    alone = subprocess.run(
        [*PYTHON, SCRIPT],
        cwd=tmp_path / "alone",
        env=fleetrun.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    check_equal(fleetrun.directory, tmp_path / "alone")
    assert fleetrun.all_gone(within_s=1)
