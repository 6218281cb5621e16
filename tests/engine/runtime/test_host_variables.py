"""Ranks of a host that divide updates: results, scopes and files as if each rank had everything to itself."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import argosy as paddle
from argosy import nn
from argosy.distributed import fleet
from argosy.engine.collective import world
from argosy.engine.collective.host_memory import Status
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer

Arrays = dict[str, np.ndarray[Any, Any]]
STEPS = 3
SGD, Momentum = paddle.optimizer.SGD, paddle.optimizer.Momentum


class Training:
    """A small network under a strategy, with its own scope."""

    def __init__(self, optimizer: Any, divides: bool, has_average: bool = False, **switches: Any) -> None:
        strategy = fleet.DistributedStrategy()
        strategy.build_strategy.divide_updates = divides
        for name, value in switches.items():
            setattr(strategy, name, value)
        self.main, self.startup, self.scope = Program("main"), Program("startup"), Scope()
        with program_guard(self.main, self.startup), names.guard():
            paddle.seed(0)
            fleet.init(is_collective=True, strategy=strategy)
            x = paddle.static.data("x", [None, 3, 6, 6], "float32")
            y = paddle.static.data("y", [None, 1], "int64")
            hidden = nn.functional.relu(paddle.static.nn.batch_norm(paddle.static.nn.conv2d(x, 24, 3)))
            hidden = paddle.static.nn.fc(hidden, 37, activation="tanh")
            self.loss = nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 4), y)
            self.optimizer = fleet.distributed_optimizer(optimizer, strategy)
            self.optimizer.minimize(self.loss)
            self.average = paddle.static.ExponentialMovingAverage(0.5)
            if has_average:
                self.average.update()
        self.exe = paddle.static.Executor()
        self.agreed: list[Status] = []
        with scope_guard(self.scope):
            self.exe.run(self.startup)

    def run(self, first: int = 0, last: int = STEPS, fetches: tuple[str, ...] = ()) -> list[Any]:
        """Steps `first` to `last` on this rank's part of each batch; returns the fetches of all of them."""
        size = 8 // fleet.worker_num()
        part = slice(size * fleet.worker_index(), size * (fleet.worker_index() + 1))
        fetched = []
        for step in range(first, last):
            rng = np.random.default_rng(step)
            images, labels = rng.standard_normal((8, 3, 6, 6)).astype("float32"), rng.integers(0, 4, (8, 1))
            with scope_guard(self.scope):
                feed = {"x": images[part], "y": labels[part]}
                fetched += self.exe.run(self.main, feed, [self.loss, *fetches])
            self.agreed.append(world().host_memory.agreed)
        return fetched

    def values(self) -> Arrays:
        """All variables, as a user reads them."""
        scope = self.scope
        return {n: np.array(scope.find_var(n).get_tensor()) for n in self.main.persistables() if n in scope}  # type: ignore[union-attr]


def equal(actual: Arrays, expected: Arrays, what: str) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=f"{name}, {what}")


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: SGD(0.1),
    "momentum": lambda: Momentum(0.1, 0.9, use_nesterov=True, weight_decay=0.01),
    "momentum 0": lambda: Momentum(0.1, 0.0),
    "adam": lambda: paddle.optimizer.Adam(0.01),
    "adamw": lambda: paddle.optimizer.AdamW(0.01, weight_decay=0.1),
}


def results_are_equal() -> None:
    fleet.init(is_collective=True)
    for name, optimizer in OPTIMIZERS.items():
        divided, plain = Training(optimizer(), True), Training(optimizer(), False)
        losses = divided.run(), plain.run()
        assert divided.agreed == [Status.READY, Status.SHARED, Status.SHARED], name
        assert losses[0] == losses[1]
        equal(divided.values(), plain.values(), name)


def test_two_ranks_get_the_results_of_undivided_updates(ranks: ForkServer) -> None:
    ranks.check(2, results_are_equal)
