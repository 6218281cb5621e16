"""strategy.sharding on ResNet50: step rate against the default strategy and DDP, and the memory of the ranks of a host.

python benchmarks/sharding.py one-host          2 ranks, batch 2 at 64 px
python benchmarks/sharding.py memory            4 ranks: proportional set size (PSS) of weights and optimizer state
python benchmarks/sharding.py two-hosts         2 hosts x 2 ranks in the lab, 1 Gbit/s: sharded inside a host

The memory of weights and optimizer state is the difference in PSS between a job with them and one without: each rank
frees them, and the difference to before is counted. PSS divides a page that several processes share by their number.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import functools
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import distributed_step
import harness
from lab.network import Lab

SHARDED = {"sharding": True, "fuse_all_optimizer_ops": True}
argosy = distributed_step.argosy
ONE_HOST: distributed_step.Contenders = {
    "argosy, sharding": functools.partial(argosy, sharding=True),
    "argosy, sharding, private weights": functools.partial(
        argosy, sharding=True, sharding_configs={"shared_weights": False}
    ),
    "argosy": argosy,
    **distributed_step.DDP,
}
HYBRID = {"sharding_degree": 2, "hybrid_dp": True}
TWO_HOSTS: distributed_step.Contenders = {
    "argosy, sharding": functools.partial(argosy, sharding=True, sharding_configs=HYBRID),
    "argosy, hierarchical, overlap": distributed_step.TWO_HOSTS["argosy, hierarchical, overlap"],
    **distributed_step.DDP,
}


def pss_mib() -> float:
    """The proportional set size of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("Pss:")]
    return int(line.split()[1]) / 1024


def weigh(connection: Connection, environ: dict[str, str], switches: dict[str, Any]) -> None:
    """On a rank: the PSS that weights and optimizer state take after two steps."""
    import ctypes
    import gc
    import os

    os.environ.update(environ)
    step = argosy(2, 64, **switches)
    step()
    step()
    connection.send(None)
    connection.recv()  # all ranks have finished their steps
    import argosy as paddle

    scope, libc = paddle.static.global_scope(), ctypes.CDLL(None)
    main = paddle.static.default_main_program()
    optimizer_state = [n for n in main.persistables() if "velocity" in n]
    gc.collect()
    libc.malloc_trim(0)
    before = pss_mib()
    connection.send(before)
    connection.recv()
    scope.erase([p.name for p in main.all_parameters()] + optimizer_state)
    scope.shared.clear()
    del step
    main = None
    paddle.static.Program()
    connection.send(None)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("where", choices=("one-host", "memory", "two-hosts"))
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--rate", default="1gbit", help="of the lab's links")
    args = p.parse_args()
    measure = distributed_step.measure
    if args.where == "one-host":
        title = "ResNet50, 2 ranks on one host, batch 2 each, 64 px"
        text, results = measure(title, ONE_HOST, args.rounds, 6, 2, None, batch=2, pixels=64)
    else:
        title = f"ResNet50, 2 hosts x 2 ranks, {args.rate}, batch 8 each, 64 px"
        with Lab(2, args.rate) as lab:
            text, results = measure(title, TWO_HOSTS, args.rounds, 2, 4, lab, batch=8, pixels=64)
    harness.write(f"sharding-{args.where}", text, {title: results})


if __name__ == "__main__":
    main()
