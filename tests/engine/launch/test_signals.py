"""The end of standard input ends a job, if that is asked for."""

# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

from tests.engine.launch.conftest import Fleetrun, fleetrun

__all__ = ["fleetrun"]
COMMAND = [
    sys.executable,
    "-W",
    "error",
    "-m",
    "argosy.engine.launch",
    "--end_with_stdin",
    "--nproc_per_node=2",
]


def test_a_job_ends_as_by_sighup_when_its_standard_input_ends(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("open(f'here.{rank}', 'w').write('.\\n')\ntime.sleep(100)")
    process = subprocess.Popen(
        [*COMMAND, script],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for rank in range(2):
        fleetrun.wait_for(f"here.{rank}")
    assert process.stdin is not None
    process.stdin.write("what is written there is not read\n")
    process.stdin.flush()
    assert process.poll() is None
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 129, out
    assert "SIGHUP: all ranks were terminated" in out
    assert fleetrun.all_gone(within_s=5)
