"""Train a small perceptron with parameter servers, sync, on this worker's share of each batch; or alone."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np

import argosy as paddle
from argosy.distributed import fleet

BATCH, STEPS = 12, 6


def main() -> None:
    fleet.init()
    x = paddle.static.data("x", [None, 10])
    y = paddle.static.data("y", [None, 1])
    hidden = paddle.static.nn.fc(x, 16, activation="tanh")
    loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(hidden, 1), y))
    paddle.static.default_startup_program().random_seed = 3
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = False
    fleet.distributed_optimizer(paddle.optimizer.Momentum(0.1), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    rank, workers = fleet.worker_index(), fleet.worker_num()
    numbers = np.random.default_rng(5)
    for _ in range(STEPS):
        batch = numbers.standard_normal((BATCH, 10), dtype="float32")[rank::workers]
        exe.run(feed={"x": batch, "y": batch.sum(1, keepdims=True)}, fetch_list=[loss])
    fleet.stop_worker()
    scope = paddle.static.global_scope()
    parameters = paddle.static.default_main_program().all_parameters()
    weights = {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in parameters}
    np.savez(Path(f"weights.{rank}.npz"), **weights)


main()
