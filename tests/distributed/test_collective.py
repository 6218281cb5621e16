"""paddle.distributed's collectives in programs: on one rank, and on two."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

import argosy as paddle
from argosy import distributed, static
from argosy.engine.errors import ConfigError
from argosy.engine.runtime.executor import Executor
from argosy.fluid.layers import collective as of_1x
from tests.ranks import ForkServer


def run_collectives() -> None:
    distributed.init_parallel_env()
    rank = distributed.get_rank()
    x = static.data("x", [2], "float32")
    total, least, product, first, reduced, part, of_layer = (paddle.scale(x, 1.0) for _ in range(7))
    distributed.all_reduce(total)
    distributed.all_reduce(least, distributed.ReduceOp.MIN)
    distributed.all_reduce(product, distributed.ReduceOp.PROD)
    distributed.broadcast(first, 1)
    distributed.reduce(reduced, 1)
    distributed.scatter(part, [x, x * 10] if rank == 0 else None)
    gathered: list[object] = []
    distributed.all_gather(gathered, x)
    distributed.barrier()
    rows = of_1x._c_allgather(x, 2)
    mine = of_1x._c_reducescatter(x, 2)
    most = of_1x._c_allreduce(of_layer, reduce_type="max")
    after = total + 1  # reads the result
    fetches = [total, least, product, first, reduced, part, *gathered, rows, mine, most, of_layer, after]
    for _ in range(2):
        got = Executor().run(feed={"x": np.array([1.0, 2.0], "float32") + rank}, fetch_list=fetches)
    wanted = [
        [3, 5],
        [1, 2],
        [2, 6],
        [2, 3],
        [3, 5] if rank == 1 else [1, 2],
        [1, 2] if rank == 0 else [10, 20],
        [1, 2],
        [2, 3],
        [1, 2, 2, 3],
        [3] if rank == 0 else [5],
        [2, 3],
        [1 + rank, 2 + rank],
        [4, 6],
    ]
    for value, expected in zip(got, wanted, strict=True):
        np.testing.assert_allclose(value, expected)


def test_two_ranks_combine_their_values(ranks: ForkServer) -> None:
    ranks.check(2, run_collectives)


def test_one_rank_keeps_its_value_and_wrong_arguments_raise() -> None:
    x = static.data("x", [2], "float32")
    y = paddle.scale(x, 2.0)
    distributed.all_reduce(y)
    distributed.barrier()
    assert of_1x._c_sync_comm_stream(of_1x._c_sync_calc_stream(y), 0) is y
    (got,) = Executor().run(feed={"x": np.ones(2, "float32")}, fetch_list=[y])
    np.testing.assert_array_equal(got, [2, 2])
    for call, message in (
        (lambda: distributed.all_reduce(x), "overwrite the fed array"),
        (lambda: distributed.all_reduce(y, 7), "use ReduceOp.SUM"),
        (lambda: distributed.all_reduce(y, group=3), "leave it out"),
        (lambda: distributed.all_reduce(torch.ones(2)), "give a Variable"),
        (lambda: distributed.broadcast(y, 1), "no rank 1"),
        (lambda: distributed.scatter(y), "give one for each"),
        (lambda: of_1x._c_allreduce(y, reduce_type="mean"), "use sum"),
        (lambda: of_1x._c_allgather(y, 3), "the job has 1 ranks"),
        (lambda: distributed.split(y, 2), "not supported"),
        (lambda: distributed.spawn(print), "not supported"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
