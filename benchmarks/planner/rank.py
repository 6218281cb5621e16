"""A rank of the accuracy benchmark: builds the program of every case of its place, and runs what it is told to.

Commands come over a pipe:  step NUMBER COUNT · work SECONDS · measure SECONDS · predict … · probe · end
"""

# SPDX-License-Identifier: Apache-2.0
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from lab.namespaces import setns

from argosy.engine.planner.topology import Topology
from planner.cases import Case

Step = Callable[[], object]


def serve(
    connection: Connection,
    model: str,
    cases: Sequence[Case],
    predicted: Sequence[Case],
    environ: dict[str, str],
    host: str | None,
    cores: Sequence[int],
) -> None:
    """Build, say so, and obey; the process ends with its parent."""
    if host is not None:
        setns(host)  # before gloo starts its threads
    os.sched_setaffinity(0, cores)
    os.environ.update(environ | {"OMP_NUM_THREADS": "1", "ARGOSY_BACKGROUND_SEARCH": "0"})
    rank = _Rank(model, cases, predicted)
    connection.send("ready")
    while True:
        name, *arguments = connection.recv()
        if name == "end":
            return
        connection.send(getattr(rank, name)(*arguments))


class _Rank:
    def __init__(self, model: str, cases: Sequence[Case], predicted: Sequence[Case]) -> None:
        import torch

        torch.set_num_threads(1)
        self.model = model
        self._template: Any = None
        self._fetches: tuple[str, ...] = ()
        self._sizes: Any = {}
        self._compiled: dict[Case, Any] = {}
        self.steps = [self._build(case) for case in cases]
        for case in predicted:
            self._compiled[case] = self._search(case, None, None).compiled(case.setting)
        for step in self.steps:
            step()
            step()

    def _build(self, case: Case) -> Step:
        """The job as a user writes it, with the switches of the case."""
        import argosy as paddle
        from argosy.distributed import fleet
        from argosy.distributed.fleet.base import fleet_base
        from argosy.engine.runtime.feeding import fed_by_name, fed_sizes
        from planner.models import MODELS

        templates: dict[Any, Any] = {}
        strategy = case.setting.apply_to(fleet.DistributedStrategy())
        fleet.init(is_collective=True, strategy=strategy)
        main, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
        fleet_base.on_template = templates.__setitem__
        with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
            loss, feed = MODELS[self.model]()
            fleet.distributed_optimizer(paddle.optimizer.Momentum(0.001, 0.9), strategy).minimize(loss)
        exe = paddle.static.Executor(paddle.CPUPlace())
        exe.run(startup, scope=scope)
        self._template, self._fetches = templates[main], (loss.name,)
        self._sizes = fed_sizes(main, fed_by_name(main, feed))
        return lambda: exe.run(main, feed=feed, fetch_list=[loss], scope=scope)

    def step(self, number: int, count: int) -> list[float]:
        """Seconds of so many steps of a case."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self.steps[number]()
            times.append(time.perf_counter() - began)
        return times

    def work(self, seconds: float) -> int:
        """Steps for so long, beside a process that measures."""
        count, ends = 0, time.perf_counter() + seconds
        while time.perf_counter() < ends:
            self.steps[0]()
            count += 1
        return count

    def measure(self, seconds: float, processes: int) -> Any:
        """The times of the nodes."""
        from dataclasses import replace

        from argosy.distributed.auto.node_times import measure
        from argosy.distributed.auto.step_traces import update_bytes

        times, compiled = measure(self.steps[0], seconds, examples=1, processes=processes)
        return replace(times, update_bytes=update_bytes(compiled))

    def predict(self, case: Case, times: Any, topology: Topology) -> dict[str, Any]:
        """The predicted step of a case."""
        from argosy.distributed.auto.step_traces import step_trace
        from argosy.engine.planner.predict_step import predict

        each = case.ranks // case.hosts
        trace = step_trace(self._compiled[case], times, each, case.hosts == 1, None, case.setting.text())
        return predict(trace, topology).to_data()

    def _search(self, case: Case, times: Any, topology: Topology | None) -> Any:
        from argosy.distributed.auto.search import Search
        from argosy.engine.planner.topology import HostKind, Link

        topology = topology or Topology(
            (HostKind("e", case.hosts, ranks=case.ranks // case.hosts),), {"e": Link(1.0)}
        )
        return Search(self._template, times, topology, self._fetches, self._sizes)

    def probe(self, budget_s: float) -> Any:
        """The measurements of `python -m argosy.plan probe`, in this job."""
        from argosy.engine import collective
        from argosy.plan.probing import Probe

        return Probe(collective.connect(), lambda _: None, budget_s).run()
