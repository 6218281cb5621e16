"""From the command to the end of the first step of an MLP on two hosts: fleetrun --on ssh against ssh with torchrun.

python benchmarks/cluster_start_up.py ssh --rounds 8

The hosts are those of the tests: namespaces of this machine, each with an sshd. Needs root.
"""

# SPDX-License-Identifier: Apache-2.0
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness
from start_up_rounds import FLEETRUN, ROOT, SCRIPTS, measure, parser

from tests.engines.hosts import Hosts, two_hosts
from tests.engines.sshd import Sshd

NATIVE = """
for node in 0 1; do
  ssh -F {config} node$node "cd {folder} && OMP_NUM_THREADS=1 {python} -m torch.distributed.run --nnodes=2 \\
    --nproc_per_node=1 --node_rank=$node --master_addr=host0 --master_port=29512 {script} $1" &
done
wait
"""


def commands(hosts: Hosts, config: str, folder: Path) -> dict[str, list[str]]:
    """The two ways to start the job."""
    options = ["--on=ssh", "--hosts=node0,node1", f"--engine_args=-F {config}", "--nproc_per_node=1"]
    script = NATIVE.format(config=config, folder=folder, python=sys.executable, script=SCRIPTS / "ddp_mlp.py")
    return {
        "fleetrun --on ssh": [*hosts.enter(0), *FLEETRUN, *options, str(SCRIPTS / "argosy_mlp.py")],
        "ssh + torchrun + DDP": [*hosts.enter(0), "/bin/sh", "-c", script, "sh"],
    }


def main() -> None:
    args = parser(__doc__).parse_args()
    title = "From the command to the first step, MLP, two hosts, ssh"
    with tempfile.TemporaryDirectory() as name, two_hosts(Path(name)) as hosts:
        folder = Path(name, "sshd")
        folder.mkdir()
        sshd = Sshd(folder)
        with sshd.running(hosts):
            results = measure(commands(hosts, sshd.client, ROOT), args.rounds, Path(name), {})
    harness.write(
        "cluster-start-up-ssh", harness.table(title, results, "fleetrun --on ssh") + "\n", {title: results}
    )


if __name__ == "__main__":
    main()
