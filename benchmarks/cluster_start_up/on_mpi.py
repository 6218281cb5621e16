"""From the command to the end of the first step of an MLP on two hosts: fleetrun --on mpi against mpirun with DDP.

python benchmarks/cluster_start_up.py mpi --rounds 8 --kind openmpi mpich

The hosts are those of the tests: namespaces of this machine, with a script in place of ssh. Needs root.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness
from start_up_rounds import FLEETRUN, SCRIPTS, cpu_table, measure, parser

from tests.engines.hosts import Hosts, two_hosts

AGENT = {
    "openmpi": ["--mca", "plm_rsh_agent"],
    "mpich": ["-launcher", "rsh", "-iface", "eth0", "-launcher-exec"],
}
NATIVE = {
    "openmpi": ["-np", "2", "--host", "host0:1,host1:1", "--map-by", "ppr:1:node", "--bind-to", "none"],
    "mpich": ["-n", "2", "-hosts", "host0,host1", "-ppn", "1"],
}
VARIABLES = {
    "openmpi": ["-x", "OMP_NUM_THREADS", "-x", "MASTER_ADDR", "-x", "MASTER_PORT", "-x", "WORLD_SIZE"],
    "mpich": ["-genvlist", "OMP_NUM_THREADS,MASTER_ADDR,MASTER_PORT,WORLD_SIZE"],
}
RANK = 'RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} exec "$@"'
ENVIRON = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "MASTER_ADDR": "host0",
    "MASTER_PORT": "29511",
    "WORLD_SIZE": "2",
}


def commands(kind: str, hosts: Hosts) -> dict[str, list[str]]:
    """The two ways to start the job."""
    agent = [*AGENT[kind], hosts.agent]
    options = ["--on=mpi", "--hosts=host0,host1", f"--engine_args={' '.join(agent)}", "--nproc_per_node=1"]
    ddp = ["/bin/sh", "-c", RANK, "sh", sys.executable, str(SCRIPTS / "ddp_mlp.py")]
    native = ["mpirun", *NATIVE[kind], *agent, *VARIABLES[kind], *ddp]
    return {
        "fleetrun --on mpi": [*hosts.enter(0), *FLEETRUN, *options, str(SCRIPTS / "argosy_mlp.py")],
        "mpirun + DDP": [*hosts.enter(0), *native],
    }


def programs(kind: str, folder: Path) -> str:
    """A PATH on which `mpirun` is that of this implementation."""
    program = shutil.which(f"mpirun.{kind}")
    if program is None:
        raise SystemExit(f"there is no mpirun.{kind}; run tests/engines/install.py as root")
    (folder / kind).mkdir()
    script = folder / kind / "mpirun"
    script.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    script.chmod(0o755)
    return os.pathsep.join([str(folder / kind), os.environ["PATH"]])


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--kind", nargs="+", choices=list(AGENT), default=list(AGENT))
    args = p.parse_args()
    tables = {}
    with tempfile.TemporaryDirectory() as name, two_hosts(Path(name)) as hosts:
        for kind in args.kind:
            environ = ENVIRON | {"PATH": programs(kind, Path(name))}
            title = f"From the command to the first step, MLP, two hosts, {kind}"
            tables[title] = measure(commands(kind, hosts), args.rounds, Path(name), environ)
    text = "\n".join(
        f"{harness.table(title, results, 'fleetrun --on mpi')}\n{cpu_table(results)}"
        for title, results in tables.items()
    )
    harness.write("cluster-start-up-mpi", text + "\n", tables)


if __name__ == "__main__":
    main()
