"""From the submission to the end of the first step of an MLP on two nodes: fleetrun --on slurm against srun + torchrun.

python benchmarks/cluster_start_up.py slurm --rounds 8

The cluster is that of the tests: a controller and two nodes in namespaces of this machine. Needs root.
"""

# SPDX-License-Identifier: Apache-2.0
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness
from start_up_rounds import FLEETRUN, SCRIPTS, measure, parser

from tests.engines.slurm_cluster import SlurmCluster, missing

TORCHRUN = f"{sys.executable} -m torch.distributed.run --nnodes=2 --nproc_per_node=1 --rdzv_backend=c10d"
NATIVE = f"""#!/bin/bash
srun {TORCHRUN} --rdzv_id=$SLURM_JOB_ID --rdzv_endpoint=$SLURMD_NODENAME:29400 {SCRIPTS}/ddp_mlp.py "$1"
"""


def commands(cluster: SlurmCluster, native: Path) -> dict[str, list[str]]:
    """The two ways to start the job; both end with it."""
    options = ["--on=slurm", "--attach", "--nodes=2", "--nproc_per_node=1"]
    sbatch = ["sbatch", "--wait", "--nodes=2", "--ntasks-per-node=1", str(native)]
    return {
        "fleetrun --on slurm": [*cluster.inside("login", FLEETRUN), *options, str(SCRIPTS / "argosy_mlp.py")],
        "srun + torchrun + DDP": cluster.inside("login", sbatch),
    }


def main() -> None:
    p = parser(__doc__)
    args = p.parse_args()
    if reason := missing():
        p.error(reason)
    with tempfile.TemporaryDirectory() as name, SlurmCluster() as cluster:
        native = Path(name, "native.sh")
        native.write_text(NATIVE)
        title = "From the submission to the first step, MLP, two Slurm nodes"
        results = measure(commands(cluster, native), args.rounds, Path(name), cluster.environ)
    text = harness.table(title, results, "fleetrun --on slurm")
    harness.write("cluster-start-up-slurm", text + "\n", {title: results})


if __name__ == "__main__":
    main()
