"""From the command to the end of the first step of a two-rank MLP: fleetrun against torchrun with DDP.

python benchmarks/start_up.py --rounds 8
"""

# SPDX-License-Identifier: Apache-2.0
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
from start_up_rounds import FLEETRUN, SCRIPTS, cpu_table, measure, parser

BIN = Path(sys.executable).parent


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--ranks", type=int, default=2)
    args = p.parse_args()
    ranks = f"--nproc_per_node={args.ranks}"
    commands = {
        "fleetrun": [*FLEETRUN, ranks, str(SCRIPTS / "argosy_mlp.py")],
        "torchrun + DDP": [str(BIN / "torchrun"), "--standalone", ranks, str(SCRIPTS / "ddp_mlp.py")],
    }
    with tempfile.TemporaryDirectory() as folder:
        results = measure(commands, args.rounds, Path(folder), {})
    title = f"From the command to the first step, MLP, {args.ranks} ranks"
    text = f"{harness.table(title, results, 'fleetrun')}\n{cpu_table(results)}"
    harness.write("start-up", text + "\n", {title: results})


if __name__ == "__main__":
    main()
