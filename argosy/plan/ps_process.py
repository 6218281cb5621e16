"""A process of a measured job: `python -m argosy.plan.ps_process FOLDER JOB MODE K_STEPS CORES SCRIPT ARGUMENTS`.

Its role is in the environment, as fleetrun sets it. It runs the script in this mode, whatever the script's strategy is.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Run the script; a worker records its steps."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not left behind, however its parent ends
    folder, job, mode, k_steps, cores, script, *words = argv
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})  # before torch counts cores
    from argosy.distributed.auto import ps_recording
    from argosy.engine import env

    ps_recording.set_mode(mode, int(k_steps))
    if env.is_worker():
        ps_recording.PsRecorder(Path(folder), job, env.launched().rank).install()
    sys.argv = [script, *words]
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
