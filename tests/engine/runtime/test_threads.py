"""One executor in several threads: each run has its own sizes, and ranks compare a program once."""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine import collective
from argosy.engine.errors import ProgramError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from tests.ranks import ForkServer

THREADS = 4


def test_a_run_that_fails_does_not_change_the_report_of_the_last_one() -> None:
    """Between feeding and the end of a run another thread may ask: it gets the sizes of the last whole run."""
    x, ids = paddle.static.data("x", [None, 8]), paddle.static.data("ids", [1], "int64")
    out = paddle.matmul(x, x, transpose_y=True).sum() + paddle.gather(x, ids).sum()
    exe, index = Executor(), np.zeros(1, "int64")
    exe.run(feed={"x": np.ones((4, 8), "float32"), "ids": index}, fetch_list=[out])
    before = exe.memory_report().peak_bytes
    with pytest.raises(ProgramError):
        exe.run(feed={"x": np.ones((400, 8), "float32"), "ids": index + 1000}, fetch_list=[out])
    assert exe.memory_report().peak_bytes == before


def test_threads_feed_one_executor_different_sizes() -> None:
    x, y = paddle.static.data("x", [None, 8]), paddle.static.data("y", [None, 8])
    out = (paddle.matmul(x, y, transpose_y=True) + 1.0).sum(1)
    exe, start = Executor(), threading.Barrier(THREADS)

    def run(thread: int) -> None:
        rng = np.random.RandomState(thread)
        start.wait()
        for _ in range(20):
            rows, columns = rng.randint(1, 12, 2)
            a, b = rng.randn(rows, 8).astype("float32"), rng.randn(columns, 8).astype("float32")
            (actual,) = exe.run(default_main_program(), {"x": a, "y": b}, [out])
            np.testing.assert_allclose(actual, (a @ b.T + 1.0).sum(1), rtol=1e-4, atol=1e-4)
            assert exe.memory_report().peak_bytes > 0

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(run, thread) for thread in range(THREADS)]:
            done.result(60)


def two_threads_run_first() -> None:
    """One all_reduce through sockets, so that it does not matter which thread starts its own first."""
    strategy = fleet.DistributedStrategy()
    strategy.fuse_all_reduce_ops = False
    fleet.init(is_collective=True, strategy=strategy)
    loss = paddle.static.nn.fc(paddle.static.data("x", [None, 4]), 1, bias_attr=False).mean()
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1)).minimize(loss)
    exe, main, world = Executor(), default_main_program(), collective.world()
    exe.run(default_startup_program())
    compared = world.num_schedules
    if world.rank == 1:
        time.sleep(1)  # so that both threads of rank 0 wait for it
    errors: list[Any] = []

    def run() -> None:
        try:
            exe.run(main, {"x": np.ones((2, 4), "float32")}, [loss], scope=scope)
        except Exception as e:
            errors.append(e)

    scope = paddle.static.global_scope()
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert world.num_schedules == compared + 1
    fleet.barrier_worker()


def test_threads_that_run_a_program_first_compare_it_once(ranks: ForkServer) -> None:
    ranks.check(2, two_threads_run_first, ARGOSY_SHM="0")
