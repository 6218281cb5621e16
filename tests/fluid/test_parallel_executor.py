"""fluid.ParallelExecutor: it trains as Executor does, and says what it cannot be."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError, FetchError

FEED = {"x": np.eye(4, dtype="float32"), "y": np.ones((4, 1), "float32")}


def loss_of_a_net() -> Any:
    x, y = fluid.data("x", [None, 4], "float32"), fluid.data("y", [None, 1], "float32")
    zero = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.0))
    out = fluid.layers.fc(x, 1, param_attr=zero)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def test_it_trains_as_an_executor_does() -> None:
    loss = loss_of_a_net()
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    train = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
    fetched = [train.run([loss.name], feed=FEED)[0].item() for _ in range(3)]
    assert fetched[0] == 1.0
    assert fetched == sorted(fetched, reverse=True)
    test = fluid.ParallelExecutor(
        use_cuda=False,
        main_program=fluid.default_main_program().clone(for_test=True),
        share_vars_from=train,
        scope=fluid.global_scope(),
    )
    (after,) = test.run([loss.name], feed_dict=[FEED], return_numpy=False)
    assert after.item() < fetched[-1]
    assert (after.item(), train.device_count) == (test.run([loss.name], FEED)[0].item(), 1)


def test_invalid_arguments_are_rejected() -> None:
    loss_of_a_net()
    with pytest.raises(FetchError, match="loss_name 'los' is not in"):
        fluid.ParallelExecutor(use_cuda=False, loss_name="los")
    with pytest.raises(ConfigError, match="trainer 1 of 2, but this is rank 0 of 1; transpile the program"):
        fluid.ParallelExecutor(use_cuda=False, num_trainers=2, trainer_id=1)
