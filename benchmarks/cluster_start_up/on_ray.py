"""From the command to the end of the first step of an MLP on two Ray nodes: fleetrun against Ray Train's TorchTrainer.

python benchmarks/cluster_start_up/on_ray.py --rounds 8          # needs pip install 'ray[train]'

The cluster is that of the tests: a head and two nodes on this machine, which run all the time. (A script with the name
ray.py would hide the package ray.)
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import harness  # noqa: E402  (a folder of scripts)

from tests.engines.ray_nodes import RayNodes  # noqa: E402

SCRIPTS = ROOT / "benchmarks" / "start_up"


def start(command: list[str], folder: str, environ: Mapping[str, str]) -> float:
    """Seconds from the start of the command to the end of rank 0's first step."""
    done = Path(folder) / "done"
    done.unlink(missing_ok=True)
    began = time.time()
    ended = subprocess.run(
        [*command, str(done)],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return float(done.read_text()) - began


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=8)
    args = p.parse_args()
    fleetrun = [
        sys.executable,
        "-m",
        "argosy.distributed.launch",
        "--on=ray",
        "--nodes=2",
        "--nproc_per_node=1",
    ]
    commands = {
        "fleetrun --on ray": [*fleetrun, str(SCRIPTS / "argosy_mlp.py")],
        "Ray Train": [sys.executable, str(SCRIPTS / "ray_train_mlp.py")],
    }
    results = {name: harness.Measured() for name in commands}
    nodes = RayNodes()
    try:
        nodes.ensure(2)
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environ = os.environ | nodes.environ | {"PYTHONPATH": paths, "RAY_TRAIN_V2_ENABLED": "1"}
        with tempfile.TemporaryDirectory() as folder:
            for number in range(args.rounds + 1):
                for name, command in commands.items():
                    seconds = start(command, folder, environ)
                    if number:  # the first round only brings the files into memory
                        results[name].seconds.append(seconds)
                print(f"\r  round {number} of {args.rounds}", end="", file=sys.stderr, flush=True)
    finally:
        nodes.close()
    print(file=sys.stderr)
    title = "From the command to the first step, MLP, two Ray nodes"
    table = harness.table(title, results, "fleetrun --on ray")
    harness.write("cluster-start-up-ray", table + "\n", {title: results})


if __name__ == "__main__":
    main()
