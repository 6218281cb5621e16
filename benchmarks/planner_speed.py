"""How long a prediction takes: python benchmarks/planner_speed.py. The goal for 4,096 equal ranks is 5 s.

Each row is a whole prediction with 20 draws: classes of ranks, costs of the collectives, simulation, critical path.
"""

# SPDX-License-Identifier: Apache-2.0
import time
from collections.abc import Sequence

from argosy.engine.planner.predict_step import REPEATS, prepare, simulate_step
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.step_trace import Collective, CollectiveKind, Node, ServerRequest, StepTrace
from argosy.engine.planner.topology import HostKind, Interference, Link, Straggler, Topology

_NODES, _BUCKETS, _BUCKET_BYTES = 1200, 13, 8_000_000
"""As many as ResNet50 has, about: 1,226 compiled nodes, 102 MB of gradients."""


def resnet_like(kind: CollectiveKind, communicators: int = 2) -> StepTrace:
    """A step of 1,200 nodes and 13 buckets of 8 MB that overlap with backward."""
    nodes = [Node(f"forward{i}", 0.3, spread_ms=0.01) for i in range(_NODES // 3)]
    per_bucket = _NODES // 2 // _BUCKETS
    for bucket in range(_BUCKETS):
        nodes += [
            Node(f"backward{bucket}.{i}", 0.4, role="backward", spread_ms=0.01) for i in range(per_bucket)
        ]
        nodes.append(Node(f"start{bucket}", 0.05, role="communicate", actions=(f"start c{bucket}",)))
    for bucket in range(_BUCKETS):
        nodes.append(Node(f"wait{bucket}", 0.02, role="communicate", actions=(f"wait c{bucket}",)))
        nodes += [Node(f"update{bucket}.{i}", 0.05, role="optimize", spread_ms=0.002) for i in range(10)]
    groups = [f"dp.{i % communicators}" if i % communicators else "dp" for i in range(_BUCKETS)]
    collectives = tuple(Collective(f"c{i}", kind, _BUCKET_BYTES, group) for i, group in enumerate(groups))
    return StepTrace(tuple(nodes), collectives)


def worker() -> StepTrace:
    """A worker's step: 10 pushes of 1 MB, a barrier, a pull of 10 MB."""
    pushes = tuple(ServerRequest(f"push{i}", "push", 1_000_000) for i in range(10))
    nodes = [
        Node(f"backward{i}", 3.0, role="backward", actions=(f"start {p.id}",)) for i, p in enumerate(pushes)
    ]
    waits = tuple(f"wait {p.id}" for p in pushes)
    nodes.append(
        Node("fetch", 0.1, actions=("start barrier", *waits, "wait barrier", "start pull", "wait pull"))
    )
    return StepTrace(
        tuple(nodes),
        requests=(*pushes, ServerRequest("barrier", "barrier"), ServerRequest("pull", "pull", 0, 10_000_000)),
    )


def cluster(hosts: int, ranks: int, stragglers: Sequence[int] = ()) -> Topology:
    slow = tuple(Straggler(rank, 1.1 + 0.01 * i) for i, rank in enumerate(stragglers))
    kind = HostKind("ethernet", hosts, cores=2 * ranks, ranks=ranks)
    links = {"ethernet": Link(25, latency_us=20, message_us=4, cpu_s_per_gb=0.3)}
    return Topology((kind,), links, interference=Interference(0.1, 0.05), stragglers=slow)


def main() -> None:
    print(f"| {REPEATS} draws each | classes | events of a draw | s |\n|---|---|---|---|")
    hierarchical, flat = resnet_like("all_reduce_hierarchical"), resnet_like("all_reduce")
    cases = [
        ("8 ranks, hierarchical", hierarchical, cluster(2, 4), None),
        ("4,096 ranks (512 x 8), hierarchical", hierarchical, cluster(512, 8), None),
        ("4,096 ranks (512 x 8), flat ring", flat, cluster(512, 8), None),
        ("4,096 ranks (4,096 x 1), flat ring", flat, cluster(4096, 1), None),
        ("4,096 ranks, sharding", resnet_like("reduce_scatter", 1), cluster(512, 8), None),
        ("4,096 ranks, 1 straggler", hierarchical, cluster(512, 8, [77]), None),
        ("4,096 ranks, 8 stragglers", hierarchical, cluster(512, 8, range(5, 4096, 512)), None),
        ("1,024 workers, 32 servers, sync", worker(), cluster(1024, 1), PsSetup("sync", 32)),
        ("64 workers, 8 servers, async", worker(), cluster(64, 1), PsSetup("async", 8)),
    ]
    for name, trace, topology, servers in cases:
        began = time.perf_counter()
        prediction = simulate_step(trace, topology, servers).prediction
        took = time.perf_counter() - began
        print(f"| {name} | {prediction.classes} | {prediction.events} | {took:.2f} |", flush=True)
    for ranks in (16, 64, 256):
        # Equal ranks would end at the same moments, and their events would be handled together.
        unequal = cluster(ranks // 8, 8, range(ranks))
        began = time.perf_counter()
        simulated = prepare([hierarchical], unequal).run()
        took = time.perf_counter() - began
        print(
            f"| {ranks} ranks, all of other speeds, 1 draw | {ranks} | {simulated.num_events} | {took:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
