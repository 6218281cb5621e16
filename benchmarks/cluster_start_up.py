"""From the command to the end of the first step of an MLP on two nodes: fleetrun --on ENGINE against the engine's way.

python benchmarks/cluster_start_up.py mpi --rounds 8

Each engine has a script in benchmarks/cluster_start_up/, which starts the cluster of the tests (tests/engines).
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

FOLDER = Path(__file__).with_suffix("")


def main() -> NoReturn:
    scripts = {path.stem.removeprefix("on_"): path for path in sorted(FOLDER.glob("*.py"))}
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("engine", choices=scripts)
    args, rest = p.parse_known_args()
    os.execv(sys.executable, [sys.executable, str(scripts[args.engine]), *rest])


if __name__ == "__main__":
    main()
