"""Divided updates and strategy.sharding on ResNet50: step rate against DDP, and the memory of the ranks of a host.

python benchmarks/sharding.py one-host          2 ranks, batch 2 at 64 px; the contenders alternate
python benchmarks/sharding.py memory            4 ranks: proportional set size (PSS) of weights and optimizer state
python benchmarks/sharding.py two-hosts         2 hosts x 2 ranks in the lab, 1 Gbit/s: sharded inside a host
python benchmarks/sharding.py gathers           the same lab, sharded over both hosts: the all-gathers of parameters
                                                overlap with the next forward, or are awaited after each step

The memory of weights and optimizer state is what the PSS of all ranks falls by when all of them free these tensors.
PSS divides a page that several processes share by their number.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import functools
import gc
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import distributed_step
import harness
from lab.network import Lab

argosy = distributed_step.argosy


def undivided(batch: int, pixels: int) -> harness.Step:
    """The default strategy, but every rank has its own parameters and state, and updates all of them."""
    import argosy as paddle

    build = paddle.static.BuildStrategy()
    build.divide_updates = False
    return argosy(batch, pixels, build_strategy=build)


ONE_HOST: distributed_step.Contenders = {
    "argosy": argosy,
    "argosy, undivided": undivided,
    "argosy, sharding": functools.partial(argosy, sharding=True),
    "argosy, sharding, private weights": functools.partial(
        argosy, sharding=True, sharding_configs={"shared_weights": False}
    ),
    **distributed_step.DDP,
}
HYBRID = {"sharding_degree": 2, "hybrid_dp": True}
TWO_HOSTS: distributed_step.Contenders = {
    "argosy, sharding": functools.partial(argosy, sharding=True, sharding_configs=HYBRID),
    "argosy, hierarchical, overlap": distributed_step.TWO_HOSTS["argosy, hierarchical, overlap"],
    **distributed_step.DDP,
}


def awaited(batch: int, pixels: int, **switches: Any) -> harness.Step:
    """Each step ends when all parameters are there, as if somebody read them."""
    step = argosy(batch, pixels, **switches)

    def run() -> Any:
        import argosy as paddle

        fetched = step()
        paddle.static.global_scope().values_of()  # waits for all all-gathers
        return fetched

    return run


GATHERS: distributed_step.Contenders = {
    "overlapped with forward": functools.partial(argosy, sharding=True),
    "awaited after each step": functools.partial(awaited, sharding=True),
    "none: sharded inside a host": TWO_HOSTS["argosy, sharding"],
}


def pss_mib() -> float:
    """The proportional set size of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("Pss:")]
    return int(line.split()[1]) / 1024


def weigh(connection: Connection, environ: dict[str, str], divides: bool, switches: dict[str, Any]) -> None:
    """On a rank: send the PSS after two steps, and again when weights and optimizer state are freed."""
    os.environ.update(environ)
    step = argosy(2, 64, **switches) if divides else undivided(2, 64)
    step()
    step()
    import argosy as paddle

    scope, main = paddle.static.global_scope(), paddle.static.default_main_program()
    names = [*(p.name for p in main.all_parameters()), *(n for n in main.persistables() if "velocity" in n)]
    for frees in (False, True):
        if frees:
            del step  # and its executor, which has references to the tensors
            scope.erase(names)
            scope.shared.clear()
            scope.host.shared.clear()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        connection.send(None)
        connection.recv()  # all ranks are here
        connection.send(pss_mib())
        connection.recv()


def weights_and_state(ranks: int, divides: bool = True, **switches: Any) -> float:
    """The MiB of weights and optimizer state of all ranks together."""
    places = harness._places(ranks, None)
    running = [harness.start(weigh, environ, divides, switches) for environ, _ in places]
    totals = []
    for _ in range(2):
        for _, connection in running:
            connection.recv()
        for _, connection in running:
            connection.send(None)
        totals.append(sum(connection.recv() for _, connection in running))
        for _, connection in running:
            connection.send(None)
    for process, _ in running:
        process.join(20)
    return float(totals[0] - totals[1])


def memory() -> str:
    default, private_all = weights_and_state(4), weights_and_state(4, divides=False)
    sharded = weights_and_state(4, sharding=True)
    private = weights_and_state(4, sharding=True, sharding_configs={"shared_weights": False})
    return f"""### ResNet50 with Momentum, 4 ranks on one host: PSS of weights and optimizer state

| strategy | MiB, all ranks | of undivided |
|---|---|---|
| default, undivided | {private_all:.0f} | 1.00 |
| default | {default:.0f} | {default / private_all:.2f} |
| sharding | {sharded:.0f} | {sharded / private_all:.2f} |
| sharding, private weights | {private:.0f} | {private / private_all:.2f} |
"""


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("where", choices=("one-host", "memory", "two-hosts", "gathers"))
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--rate", default="1gbit", help="of the lab's links")
    args = p.parse_args()
    measure = distributed_step.measure
    if args.where == "memory":
        harness.write("sharding-memory", memory(), {})
        return
    if args.where == "one-host":
        title = "ResNet50, 2 ranks on one host, batch 2 each, 64 px"
        text, results = measure(title, ONE_HOST, args.rounds, 6, 2, None, batch=2, pixels=64)
    elif args.where == "gathers":
        title = f"All-gathers of ResNet50, 2 hosts x 2 ranks, {args.rate}, batch 8 each, 64 px"
        with Lab(2, args.rate) as lab:
            results = harness.measure(GATHERS, args.rounds, 4, 4, lab, batch=8, pixels=64)
        text = harness.table(title, results, next(iter(GATHERS)))
    else:
        title = f"ResNet50, 2 hosts x 2 ranks, {args.rate}, batch 8 each, 64 px"
        with Lab(2, args.rate) as lab:
            text, results = measure(title, TWO_HOSTS, args.rounds, 2, 4, lab, batch=8, pixels=64)
    harness.write(f"sharding-{args.where}", text, {title: results})


if __name__ == "__main__":
    main()
