"""All-reduces alone: shared memory against gloo on one host, and the hierarchical against the flat one on two.

python benchmarks/all_reduce.py one-host            2 ranks: 64 KB, 1 MB, 16 MB, 64 MB
python benchmarks/all_reduce.py two-hosts           2 hosts x 4 ranks in the lab, 1 Gbit/s, 32 MB

gloo is torch.distributed.all_reduce on an ordinary tensor; ours works on flat buffers, as training does.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
import torch
from lab.network import Lab

from argosy.engine import collective

KIB, MIB = 1 << 10, 1 << 20


def gloo(nbytes: int, repeat: int) -> harness.Step:
    torch.distributed.init_process_group("gloo")
    tensor = torch.ones(nbytes // 4)

    def step() -> None:
        for _ in range(repeat):
            torch.distributed.all_reduce(tensor)

    return step


def argosy(nbytes: int, repeat: int) -> harness.Step:
    """On the flat buffer that the ranks of a host share."""
    world = collective.connect()
    group = world.group("dp")
    buffer = world.flat_buffer("benchmark", nbytes // 4, torch.float32, "dp")
    buffer.local.fill_(1.0)

    def step() -> None:
        for _ in range(repeat):
            group.start_all_reduce_span(buffer, 0, nbytes // 4, "benchmark").wait()

    return step


def argosy_tensor(nbytes: int, repeat: int) -> harness.Step:
    """On a tensor that lies anywhere: copied in and out."""
    group = collective.connect().group("dp")
    tensor = torch.ones(nbytes // 4)

    def step() -> None:
        for _ in range(repeat):
            group.all_reduce(tensor)

    return step


def hierarchical(nbytes: int, repeat: int, block: int, by_leaders: bool) -> harness.Step:
    world = collective.connect()
    stages = world.hierarchy("dp", block, by_leaders)
    buffer = world.flat_buffer("benchmark", nbytes // 4, torch.float32, f"dp/intra{block}")
    buffer.local.fill_(1.0)

    def step() -> None:
        for _ in range(repeat):
            stages.start(buffer, 0, nbytes // 4, "benchmark").wait()

    return step


def one_host(rounds: int) -> tuple[str, dict[str, dict[str, harness.Measured]]]:
    contenders = {"argosy": argosy, "argosy, any tensor": argosy_tensor, "gloo": gloo}
    text, results = "", {}
    for nbytes, repeat in ((64 * KIB, 200), (MIB, 50), (16 * MIB, 5), (64 * MIB, 2)):
        size = f"{nbytes // MIB} MB" if nbytes >= MIB else f"{nbytes // KIB} KB"
        title = f"all-reduce of {size}, 2 ranks on one host, {repeat} times"
        print(title, file=sys.stderr)
        results[title] = harness.measure(contenders, rounds, 1, 2, nbytes=nbytes, repeat=repeat)
        text += harness.table(title, results[title], "argosy") + "\n"
    return text, results


def two_hosts(
    rounds: int, rate: str, hosts: int = 2, each: int = 4
) -> tuple[str, dict[str, dict[str, harness.Measured]]]:
    contenders: dict[str, Callable[..., harness.Step]] = {
        "hierarchical, reduce-scatter": functools.partial(hierarchical, block=each, by_leaders=False),
        "hierarchical, leaders": functools.partial(hierarchical, block=each, by_leaders=True),
        "argosy, flat": argosy,
        "gloo, flat": gloo,
    }
    title = f"all-reduce of 32 MB, {hosts} hosts x {each} ranks, {rate}"
    with Lab(hosts, rate) as lab:
        results = harness.measure(contenders, rounds, 1, hosts * each, lab, nbytes=32 * MIB, repeat=1)
    return harness.table(title, results, "hierarchical, reduce-scatter") + "\n", {title: results}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("where", choices=("one-host", "two-hosts"))
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--rate", default="1gbit", help="of the lab's links")
    args = p.parse_args()
    text, results = one_host(args.rounds) if args.where == "one-host" else two_hosts(args.rounds, args.rate)
    harness.write(f"all-reduce-{args.where}", text, results)


if __name__ == "__main__":
    main()
