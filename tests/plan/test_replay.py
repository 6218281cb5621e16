"""A recorded job of two ranks, simulated with its own times: the same order of nodes, and the same step time.

A replay takes the times of nodes and collectives from the step that it is compared with. So it checks the schedule:
what waits for what, and what overlaps. It says nothing about how well the costs on another cluster are predicted.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from statistics import median

import pytest

from argosy.engine.planner.predict_step import prepare
from argosy.engine.planner.timeline_file import order_of_nodes
from argosy.engine.planner.topology import SharedMemory, Topology
from argosy.plan.recorded import from_timeline, read_trace, replayed
from argosy.timeline import Trace, read
from argosy.timeline.traces import ROLES
from tests.engine.launch.conftest import Fleetrun, fleetrun
from tests.engine.planner.steps import cluster
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

__all__ = ["fleetrun"]

SCRIPT = """
import numpy as np
import argosy as paddle
from argosy import static
from argosy.distributed import fleet

strategy = fleet.DistributedStrategy()
strategy.sync_nccl_allreduce = False
strategy.fuse_grad_size_in_MB = 1
strategy.build_strategy.divide_updates = {divides}
strategy.nccl_comm_num = {communicators}
fleet.init(is_collective=True, strategy=strategy)
x, y = static.data("x", [None, 256]), static.data("y", [None, 1], "int64")
hidden = x
for _ in range(4):
    hidden = static.nn.fc(hidden, 512, activation="relu")
loss = paddle.mean(paddle.nn.functional.cross_entropy(static.nn.fc(hidden, 10), y))
fleet.distributed_optimizer(paddle.optimizer.Momentum(0.01), strategy).minimize(loss)
exe = static.Executor()
exe.run(static.default_startup_program())
feed = {{"x": np.ones((128, 256), "float32"), "y": np.zeros((128, 1), "int64")}}
for _ in range(21):  # the profile samples step 20
    exe.run(feed=feed, fetch_list=[loss])
"""


def record(fleetrun: Fleetrun, ranks: ForkServer, shm: str, divides: bool, communicators: int) -> list[Trace]:
    script = fleetrun.script(SCRIPT.format(divides=divides, communicators=communicators))
    words = ("--nproc_per_node=2", "--timeline", "out", "--timeline-steps=3-8", script)
    job = WarmFleetrun(
        ranks, *words, cwd=fleetrun.directory, environ={"ARGOSY_SHM": shm, "OMP_NUM_THREADS": "1"}
    )
    said = job.communicate(timeout=120)
    assert job.returncode == 0, said
    return read(fleetrun.directory / "out")


def one_host(shm: str) -> Topology:
    topology = cluster(1, 2)
    return topology if shm == "1" else replace(topology, shared_memory=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shm", "divides", "communicators"),
    [("1", True, 1), ("1", False, 1), ("0", False, 1), ("0", False, 2)],
    ids=["divided updates", "shared memory", "sockets", "two communicators"],
)
def test_the_simulated_step_is_the_recorded_one(
    fleetrun: Fleetrun, ranks: ForkServer, shm: str, divides: bool, communicators: int
) -> None:
    traces = record(fleetrun, ranks, shm, divides, communicators)
    errors = []
    for step in range(6):
        per_rank, measured_ms = replayed(traces, step)
        simulated = prepare(per_rank, one_host(shm)).run()
        assert len(simulated.actors) == 2
        for actor, trace in zip(simulated.actors, traces, strict=True):
            assert order_of_nodes(actor, 1) == recorded_order(trace, step)
        simulated_ms = max(actor.step_ends[0] for actor in simulated.actors) * 1e3
        errors.append(abs(simulated_ms / measured_ms - 1))
    # The median: a rank that loses its core inside a collective leaves it later than the other one.
    assert median(errors) < 0.03, errors


@pytest.mark.slow
def test_a_recorded_job_is_simulated_on_other_hosts(fleetrun: Fleetrun, ranks: ForkServer) -> None:
    traces = record(fleetrun, ranks, "1", False, 1)
    trace = from_timeline(traces)
    assert [c.kind for c in trace.collectives] == ["all_reduce"] * 4
    assert trace == read_trace(fleetrun.directory / "out")
    profile = fleetrun.directory / "log" / "metrics" / "rank0.profile.json"
    assert {c.nbytes for c in read_trace(profile).collectives} == {c.nbytes for c in trace.collectives}
    slow, fast = (prepare([trace], cluster(8, 4, gbit=gbit)).run().step_s for gbit in (0.1, 10))
    assert slow > fast
    memory = replace(cluster(1, 2), shared_memory=SharedMemory())
    assert prepare([trace], memory).run().step_s < slow


def recorded_order(trace: Trace, step: int) -> list[str]:
    window = list(trace.of_kind("step"))[step]
    events = [e for e in trace.of_kind(*ROLES) if 0 <= e["ts"] - window["ts"] < window["dur"]]
    return [e["name"] for e in sorted(events, key=lambda e: float(e["ts"]))]
