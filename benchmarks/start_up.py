"""From the command to the end of the first step of a two-rank MLP: fleetrun against torchrun with DDP.

python benchmarks/start_up.py --rounds 8
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness

SCRIPTS = Path(__file__).parent / "start_up"
BIN = Path(sys.executable).parent


def start(command: list[str], folder: str) -> float:
    """Seconds from the start of the command to the end of rank 0's first step."""
    done = Path(folder) / "done"
    done.unlink(missing_ok=True)
    began = time.time()
    subprocess.run([*command, str(done)], cwd=folder, check=True, capture_output=True, timeout=300)
    return float(done.read_text()) - began


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--ranks", type=int, default=2)
    args = p.parse_args()
    ranks = f"--nproc_per_node={args.ranks}"
    commands = {
        "fleetrun": [str(BIN / "fleetrun"), ranks, str(SCRIPTS / "argosy_mlp.py")],
        "torchrun + DDP": [str(BIN / "torchrun"), "--standalone", ranks, str(SCRIPTS / "ddp_mlp.py")],
    }
    results = {name: harness.Measured() for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds + 1):
            for name, command in commands.items():
                seconds = start(command, folder)
                if number:  # the first round only brings the files into memory
                    results[name].seconds.append(seconds)
            print(f"\r  round {number} of {args.rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    title = f"From the command to the first step, MLP, {args.ranks} ranks"
    harness.write("start-up", harness.table(title, results, "fleetrun") + "\n", {title: results})


if __name__ == "__main__":
    main()
