"""Parameter servers and workers on two hosts: network namespaces, a fleetrun on each, one token, CURVE."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from tests.engine.launch.conftest import Fleetrun, fleetrun
from tests.jobs.test_lab import a_lab
from tests.jobs.test_launchers import check_equal
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

__all__ = ["fleetrun"]
SCRIPT = str(Path(__file__).parent / "scripts" / "train_with_servers.py")


def test_a_job_with_a_server_and_a_worker_on_each_of_two_hosts_ends_where_one_process_ends(
    fleetrun: Fleetrun, tmp_path: Path, ranks: ForkServer
) -> None:
    with a_lab("1gbit") as lab:
        one, other = lab.addresses
        words = [f"--servers={one}:6174,{other}:6174", f"--workers={one},{other}", "--encrypt"]
        environ = {"ARGOSY_JOB_TOKEN": "one-word-for-both-hosts"}
        jobs = [
            WarmFleetrun(
                ranks,
                *(*words, f"--log_dir=log/host{host}", SCRIPT),
                environ=environ,
                cwd=fleetrun.directory,
                host=lab.names[host],
            )
            for host in (0, 1)
        ]
        for job in jobs:
            said = "".join(job.communicate(timeout=120))
            assert job.returncode == 0, said
    for host in (0, 1):
        logs = {path.name for path in (fleetrun.directory / "log" / f"host{host}").iterdir()}
        assert {"serverlog.0", "workerlog.0"} <= logs
    (tmp_path / "alone").mkdir()
    alone = ranks.python(SCRIPT, cwd=tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr
    check_equal(fleetrun.directory, tmp_path / "alone")
    assert fleetrun.all_gone(within_s=1)
