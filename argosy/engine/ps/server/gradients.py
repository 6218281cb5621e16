"""What trainers send: gradients of blocks and of rows of tables; under geo, changes.

sync         they wait in the round of their step
async        applied as they come (DC-ASGD: compensated for what has changed since this trainer has pulled)
half_async   as async; answered when the step of all trainers is done
geo          added as they come
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections import defaultdict

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps import messages
from argosy.engine.ps.messages import read
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rpc.listener import Handler, Request
from argosy.engine.ps.server.rounds import Contribution
from argosy.engine.ps.server.state import State
from argosy.engine.ps.server.steps import Steps
from argosy.engine.ps.server.values import Pulled


class Gradients:
    """Writes."""

    def __init__(self, plan: Plan, state: State, steps: Steps, pulled: Pulled) -> None:
        self._plan, self._state, self._steps, self._pulled = plan, state, steps, pulled
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        """By block: one update at a time."""

    def handlers(self) -> dict[str, Handler]:
        return {"push": Handler("send", self._push), "push_rows": Handler("send", self._push_rows)}

    def _push(self, request: Request) -> None:
        message = read(messages.Push, request.meta)
        given = dict(zip(message.blocks, request.tensors, strict=True))
        gradients = {n: _fitting(n, given[n], value) for n, value in self._state.blocks(given).items()}
        rates = dict(zip(message.blocks, message.rates, strict=True))

        def add(mine: Contribution) -> None:
            mine.gradients |= gradients
            mine.rates |= rates
            mine.pushes += 1

        if self._plan.mode == "sync":
            self._steps.contribute(message.step, request, add)
            return
        self._steps.check(request)
        for name, gradient in gradients.items():
            self._apply(request.trainer, name, gradient, rates[name])
        self._steps.applied(message.step, request)

    def _apply(self, trainer: int, name: str, gradient: Tensor, rate: float) -> None:
        backup = self._pulled.get((trainer, name))
        if self._plan.compensation is not None and backup is None:
            backup = self._state.blocks([name])[name].clone()
        with self._locks[name]:
            self._state.updater.apply_block(name, gradient, rate, backup)

    def _push_rows(self, request: Request) -> None:
        message = read(messages.PushRows, request.meta)
        table, (ids, rows) = self._state.table(message.table), request.tensors
        wrong = ids.ndim != 1 or ids.dtype != torch.int64 or rows.dtype != torch.float32
        if wrong or rows.shape != (len(ids), table.spec.dim):
            raise ConfigError(
                f"rows of {message.table!r} are {list(rows.shape)} for {list(ids.shape)} ids; they must be "
                f"[{len(ids)}, {table.spec.dim}] for int64 ids"
            )

        def add(mine: Contribution) -> None:
            mine.rows.setdefault(message.table, []).append((ids, rows))
            mine.row_rates[message.table] = message.rate
            mine.pushes += 1

        if self._plan.mode == "sync":
            self._steps.contribute(message.step, request, add)
            return
        self._steps.check(request)
        if self._plan.mode == "geo":
            table.add(ids, rows)
        else:
            table.push(ids, rows, message.rate)
        self._steps.applied(message.step, request)


def _fitting(name: str, gradient: Tensor, value: Tensor) -> Tensor:
    if gradient.numel() != value.numel() or gradient.dtype != value.dtype:
        raise ConfigError(
            f"block {name!r} is {value.dtype}{list(value.shape)} and was sent {gradient.dtype}{list(gradient.shape)}; "
            "trainers and servers must build the same program"
        )
    return gradient.view(value.shape)
