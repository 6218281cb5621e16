"""From the submission to the end of the first step of an MLP on two Slurm nodes: fleetrun against srun with torchrun.

python benchmarks/cluster_start_up/slurm.py --rounds 8

The cluster is that of the tests: a controller and two nodes in namespaces of this machine.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import harness  # noqa: E402  (a folder of scripts)

from tests.engines.slurm_cluster import SlurmCluster, missing  # noqa: E402

SCRIPTS = ROOT / "benchmarks" / "start_up"
BIN = Path(sys.executable).parent
NATIVE = f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
srun {BIN}/torchrun --nnodes=2 --nproc_per_node=1 --rdzv_backend=c10d --rdzv_id=$SLURM_JOB_ID \\
  --rdzv_endpoint=$SLURMD_NODENAME:29400 {SCRIPTS}/ddp_mlp.py "$1"
"""


def start(cluster: SlurmCluster, command: list[str], folder: Path) -> float:
    """Seconds from the submission to the end of rank 0's first step."""
    cluster.wait(lambda: cluster.node_states() == {"idle"}, "idle nodes")
    done = folder / "done"
    done.unlink(missing_ok=True)
    began = time.time()
    result = cluster.run(*command, str(done), cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return float(done.read_text()) - began


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=8)
    args = p.parse_args()
    if reason := missing():
        p.error(reason)
    argosy = [str(BIN / "python"), "-m", "argosy.distributed.launch", "--on=slurm", "--nodes=2", "--attach"]
    commands = {
        "fleetrun --on slurm": [*argosy, "--nproc_per_node=1", str(SCRIPTS / "argosy_mlp.py")],
        "srun + torchrun + DDP": ["sbatch", "--wait", "native.sh"],
    }
    results = {name: harness.Measured() for name in commands}
    with tempfile.TemporaryDirectory() as folder, SlurmCluster() as cluster:
        Path(folder, "native.sh").write_text(NATIVE)
        for number in range(args.rounds + 1):
            for name, command in commands.items():
                seconds = start(cluster, command, Path(folder))
                if number:  # the first round only brings the files into memory
                    results[name].seconds.append(seconds)
            print(f"\r  round {number} of {args.rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    title = "From the submission to the first step, MLP, two Slurm nodes"
    table = harness.table(title, results, "fleetrun --on slurm")
    harness.write("cluster-start-up-slurm", table + "\n", {title: results})


if __name__ == "__main__":
    main()
