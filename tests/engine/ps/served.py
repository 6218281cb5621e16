"""A parameter server in a thread of the test, with an updater that is plain torch, and trainers beside it."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ProgramError
from argosy.engine.ps.protocol.job_plan import Compensation, Dense, JobPlan
from argosy.engine.ps.protocol.slicing import VariableBlock
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.server.service import Service
from argosy.engine.ps.table.table_spec import RowInit, RowOptimizer, TableSpec
from argosy.engine.ps.trainer.trainer import Trainer

SETTINGS = RpcSettings(deadline_s=20.0, heartbeat_s=0.2, heartbeat_timeout_s=1.0)
TABLE = TableSpec("table", 2, RowInit("constant", 1.0), RowOptimizer("sgd"))


class PlainSgd:
    """w -= rate · g; remembers what it was given."""

    def __init__(self, **values: Tensor) -> None:
        self._values = dict(values)
        self.backups: list[Tensor | None] = []

    def values(self) -> Mapping[str, Tensor]:
        return self._values

    def apply(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        for name, gradient in gradients.items():
            self.apply_block(name, gradient, rates[name], None)

    def apply_block(self, block: str, gradient: Tensor, rate: float, backup: Tensor | None) -> None:
        self.backups.append(backup)
        self._values[block].sub_(gradient, alpha=rate)

    def initialised(self) -> None:
        pass

    def origins(self) -> dict[str, list[Any]]:
        return {name: [name, 0] for name in self._values}

    def state(self) -> Mapping[str, Tensor]:
        return self._values

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name, value in state.items():
            if name in self._values:
                self._values[name].copy_(value)


def plan_of(
    endpoint: str,
    trainers: int = 2,
    mode: str = "sync",
    size: int = 3,
    compensation: Compensation | None = None,
    **more: Any,
) -> JobPlan:
    """One variable w, on one server, and a table."""
    block = VariableBlock("w", 0, 0, (size,), True, 0)
    dense = Dense("w", "w@GRAD", (size,), "rate", (block,))
    return JobPlan((endpoint,), trainers, mode, (dense,), (TABLE,), compensation, **more)


@contextmanager
def served(
    trainers: int = 2,
    mode: str = "sync",
    updater: Any = None,
    endpoint: str = "127.0.0.1:0",
    directory: Path | None = None,
    settings: RpcSettings = SETTINGS,
    may_fail: bool = False,
    **more: Any,
) -> Iterator[tuple[Service, JobPlan]]:
    """A service that serves; gives it, and the plan for trainers."""
    service_more = {
        n: more.pop(n)
        for n in ("drops_dead", "snapshot_s", "stays", "dead_workers", "durability", "job", "recorder")
        if n in more
    }
    updater = updater or PlainSgd(w=torch.zeros(3))
    size = len(updater.values()["w"])
    plan = plan_of(endpoint, trainers, mode, size, **more)
    service = Service(plan, 0, updater, settings, directory, **({"stays": True} | service_more))
    failures: list[ProgramError] = []

    def serve() -> None:
        try:
            service.serve()
        except ProgramError as e:
            failures.append(e)

    thread = threading.Thread(target=serve, name="served")
    thread.start()
    try:
        yield service, plan_of(service.rpc.endpoint, trainers, mode, size, **more)
    finally:
        service.stop()
        thread.join(20)
        assert not thread.is_alive(), "the server does not end"
        if not may_fail:
            assert not failures, failures


def step(trainer: Trainer, gradient: Tensor, rate: float = 1.0, rows: Tensor | None = None) -> Tensor:
    """One step of a trainer: what it has after it."""
    w = torch.empty_like(gradient)
    ids = torch.tensor([[5], [7]])
    if rows is not None:
        trainer.lookups.lookup("table", [ids])
    trainer.blocks.send(gradient, rate, ["w"], [len(gradient)], [0])
    if rows is not None:
        trainer.lookups.push_rows("table", [ids], [rows], rate)
    trainer.blocks.end_step()
    trainer.blocks.recv(w, ["w"], [len(gradient)], [0])
    trainer.blocks.fetch()
    return w
