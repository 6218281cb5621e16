"""Small step traces and topologies with round numbers."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.planner.step_trace import Collective, CollectiveKind, Node, ServerRequest, StepTrace
from argosy.engine.planner.topology import HostKind, Link, Topology

GBIT = 1e9 / 8


def cluster(
    hosts: int = 2, ranks: int = 1, gbit: float = 8.0, latency_us: float = 0.0, **rest: object
) -> Topology:
    """Hosts with enough cores; 8 Gbit/s are 1 GB/s, 1 MB per millisecond."""
    kind = HostKind("ethernet", hosts, cores=4 * ranks, ranks=ranks)
    return Topology((kind,), {"ethernet": Link(gbit, latency_us)}, **rest)  # type: ignore[arg-type]


def step(
    nbytes: int,
    compute_ms: float = 10.0,
    kind: CollectiveKind = "all_reduce",
    buckets: int = 1,
    spread_ms: float = 0.0,
    communicators: int = 1,
) -> StepTrace:
    """Forward, and for each bucket a backward node that starts its collective; then a wait and an update for each."""
    names = [f"bucket{i}" for i in range(buckets)]
    backward = [
        Node(f"backward{i}", compute_ms, role="backward", actions=(f"start {n}",), spread_ms=spread_ms)
        for i, n in enumerate(names)
    ]
    tail = []
    for name in names:
        tail.append(Node(f"wait {name}", 0.0, role="communicate", actions=(f"wait {name}",)))
        tail.append(Node(f"update {name}", 1.0, role="optimize"))
    groups = [f"dp.{i % communicators}" if i % communicators else "dp" for i in range(buckets)]
    collectives = tuple(Collective(n, kind, nbytes, group) for n, group in zip(names, groups, strict=True))
    return StepTrace((Node("forward", compute_ms, spread_ms=spread_ms), *backward, *tail), collectives)


def ps_step(mode: str, pushed: int, pulled: int, compute_ms: float = 10.0) -> StepTrace:
    """One push, a barrier and one pull, as a worker's program has them."""
    acked = () if mode == "sync" else ("wait push", "wait barrier")
    nodes = (
        Node("backward", compute_ms, role="backward", actions=("start push",)),
        Node("send_barrier", 0.0, role="communicate", actions=("start barrier",)),
        Node("fetch_barrier", 0.0, role="communicate", actions=(*acked, "start pull", "wait pull")),
    )
    requests = (
        ServerRequest("push", "push", pushed),
        ServerRequest("barrier", "barrier"),
        ServerRequest("pull", "pull", 0, pulled),
    )
    return StepTrace(nodes, requests=requests)
