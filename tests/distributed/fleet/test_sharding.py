"""strategy.sharding: ranks that each store a shard of the optimizer state train as one process does."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import Nursery

Arrays = dict[str, np.ndarray[Any, Any]]
STEPS = 3


class Training:
    """A small network under a strategy; its values are those of its own scope."""

    def __init__(self, optimizer: Any, sharding: dict[str, Any] | None, **switches: Any) -> None:
        strategy = fleet.DistributedStrategy()
        for name, value in switches.items():
            setattr(strategy, name, value)
        if sharding is not None:
            strategy.sharding, strategy.sharding_configs = True, sharding
        self.main, self.startup, self.scope = Program("main"), Program("startup"), Scope()
        with program_guard(self.main, self.startup), names.guard():
            torch.manual_seed(0)
            fleet.init(is_collective=True, strategy=strategy)
            x = paddle.static.data("x", [None, 3, 6, 6], "float32")
            y = paddle.static.data("y", [None, 1], "int64")
            hidden = paddle.nn.functional.relu(paddle.static.nn.conv2d(x, 7, 3))
            hidden = paddle.static.nn.fc(hidden, 5, activation="tanh")
            self.loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 4), y)
            self.optimizer = fleet.distributed_optimizer(optimizer, strategy)
            self.optimizer.minimize(self.loss)
        self.exe = paddle.static.Executor()
        with scope_guard(self.scope):
            self.exe.run(self.startup)

    def run(self, first: int = 0, last: int = STEPS) -> "Training":
        """Steps `first` to `last` on this rank's part of the batches."""
        for step in range(first, last):
            images, labels = batch(step)
            size = len(images) // fleet.worker_num()
            part = slice(size * fleet.worker_index(), size * (fleet.worker_index() + 1))
            with scope_guard(self.scope):
                self.exe.run(self.main, {"x": images[part], "y": labels[part]}, [self.loss])
        return self

    def parameters(self) -> Arrays:
        return {p.name: self.scope.get(p.name).numpy().copy() for p in self.main.all_parameters()}


def batch(step: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(step)
    return rng.standard_normal((8, 3, 6, 6)).astype("float32"), rng.integers(0, 4, (8, 1))


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "momentum": lambda: paddle.optimizer.Momentum(0.1, 0.9, weight_decay=0.01),
    "adam": lambda: paddle.optimizer.Adam(0.01),
}


def shard() -> None:
    fleet.init(is_collective=True)
    for name, optimizer in OPTIMIZERS.items():
        plain = Training(optimizer(), None).run().parameters()
        for configs in ({"shared_weights": False}, {}):
            training = Training(optimizer(), configs)
            if name == "momentum" and fleet.worker_index()==0 and not configs: print(training.main, training.startup)
            sharded = training.run().parameters()
            for key, value in plain.items():
                print(name, configs, key, np.abs(value - sharded[key]).max())
    print({k: v.shape for k, v in training.scope.values_of().items()})


def test_two_ranks(ranks: Nursery) -> None:
    print("\n\n====\n".join(ranks.check(2, shard)))
    for said in ranks.check(2, shard, ARGOSY_SHM="0"): print(said[-3000:])
