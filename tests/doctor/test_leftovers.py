"""What earlier jobs leave behind: really left behind here, and found."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from argosy.doctor import leftovers
from tests.engine.launch.conftest import Fleetrun, fleetrun

__all__ = ["fleetrun"]
DETACHES = """
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], start_new_session=True)
open('pids', 'w').write(f'{child.pid} {os.getppid()}\\n')
time.sleep(100)
"""
"""A rank that starts a process in another session."""


def found(pid: int) -> bool:
    check = leftovers.left_processes(leftovers.processes(), {os.getpid()})
    return check.status == "warning" and f"{pid} (" in check.figure and str(pid) in check.advice.split()


@pytest.mark.slow
def test_a_process_whose_fleetrun_was_killed_is_found(fleetrun: Fleetrun) -> None:
    job = fleetrun.start("--nproc_per_node=1", fleetrun.script(DETACHES))
    child, launcher = map(int, fleetrun.wait_for("pids").split())
    try:
        jobs = leftovers.other_jobs(leftovers.processes(), ())
        assert f"fleetrun {launcher} with 1 processes" in jobs.figure
        assert not found(child)
        # The guard cannot kill what is left if it is killed first, and while it cannot react.
        os.kill(job.pid, signal.SIGSTOP)
        os.kill(launcher, signal.SIGKILL)
        os.kill(job.pid, signal.SIGKILL)
        job.communicate(timeout=60)
        until = time.monotonic() + 30
        while not found(child):
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.kill(child, signal.SIGKILL)
    assert fleetrun.all_gone(within_s=10)


def test_files_of_torch_in_shared_memory_whose_process_is_gone_are_found(tmp_path: Path) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    stale, alive = int(gone.stdout), os.getpid()
    for pid in (stale, alive):
        (tmp_path / f"torch_{pid}_123_0").write_bytes(bytes(2_000_000))
    (tmp_path / "unrelated").write_bytes(bytes(10))
    check = leftovers.left_files([], shm=tmp_path, temporary=tmp_path)[0]
    assert check.status == "warning"
    assert check.figure.startswith("2 MB in 1 files of torch")
    assert check.advice == f"rm {tmp_path}/torch_{stale}_*"


def test_temporary_directories_that_no_process_uses_are_found(tmp_path: Path) -> None:
    used, stale = tmp_path / "argosy-rows-used", tmp_path / "argosy-rows-stale"
    for folder in (used, stale):
        folder.mkdir()
    with open(used / "LOCK", "w"):
        check = leftovers.left_files(leftovers.processes(), shm=tmp_path, temporary=tmp_path)[1]
    assert check.status == "warning"
    assert check.advice == f"rm -r {stale}"


def test_nothing_left_is_ok(tmp_path: Path) -> None:
    assert [c.status for c in leftovers.left_files([], shm=tmp_path, temporary=tmp_path)] == ["ok", "ok"]
    assert leftovers.left_processes([], ()).status == "ok"
    assert leftovers.other_jobs([], ()).status == "ok"
