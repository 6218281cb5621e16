"""Branches and loops in data-parallel training: ranks take different branches and train as one process."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import torch

import argosy as paddle
from argosy import static
from argosy.distributed import fleet
from argosy.engine.runtime.scope import global_scope
from argosy.static.nn import cond, while_loop
from tests.ranks import ForkServer

STEPS = 3


def batch(rank: int, step: int) -> np.ndarray[Any, Any]:
    """Positive on rank 0 and negative on rank 1, so that they take different branches."""
    values = np.abs(np.random.default_rng([rank, step]).standard_normal((4, 3))).astype("float32")
    return values if rank == 0 else -values


def train() -> None:
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    x, n = static.data("x", [None, 3]), static.data("n", [1], "int64")
    normal = paddle.nn.initializer.Constant
    a, b = (
        static.create_parameter([3, 3], "float32", name=name, default_initializer=normal(value))
        for name, value in (("a", 0.3), ("b", -0.2))
    )

    def loop() -> Any:
        step: Any = lambda i, h: [i + 1, torch.tanh(h @ a)]  # noqa: E731
        return while_loop(lambda i, h: i < n, step, [paddle.zeros([1], "int64"), x])[1]

    out = cond(x.sum() > 0, loop, lambda: x @ b)
    loss = (out * out).mean()
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.5)).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    for step in range(STEPS):
        exe.run(feed={"x": batch(rank, step), "n": np.array([step + rank])}, fetch_list=[loss])

    expected = [torch.full((3, 3), value).requires_grad_() for value in (0.3, -0.2)]
    for step in range(STEPS):
        losses = []
        for other in range(2):
            h = torch.from_numpy(batch(other, step))
            if other == 0:
                for _ in range(step):
                    h = torch.tanh(h @ expected[0])
            else:
                h = h @ expected[1]
            losses.append((h * h).mean())
        gradients = torch.autograd.grad(sum(losses) / 2, expected, allow_unused=True)  # type: ignore[arg-type]
        with torch.no_grad():
            for parameter, gradient in zip(expected, gradients, strict=True):
                parameter.sub_(torch.zeros(3, 3) if gradient is None else 0.5 * gradient)
    for name, parameter in zip("ab", expected, strict=True):
        np.testing.assert_allclose(global_scope().get(name), parameter.detach(), rtol=1e-4, atol=1e-6)


def test_two_ranks_on_different_branches_train_as_one_process(ranks: ForkServer) -> None:
    ranks.check(2, train)
