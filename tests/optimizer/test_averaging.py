"""Averages of weights: Paddle's formulas in NumPy, apply and restore, what is averaged."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy import fluid
from argosy.engine.errors import ConfigError, ScopeError

Array = np.ndarray[Any, np.dtype[Any]]
FEED = np.linspace(-1, 1, 24).reshape(8, 3).astype("float32")


class Net:
    """A net with a batch norm, trained by Momentum; `history` has its variables after each step."""

    def __init__(self, **norm: Any) -> None:
        x = paddle.static.data("x", [None, 3], "float32")
        hidden = paddle.static.nn.fc(x, 4, weight_attr=paddle.ParamAttr(name="w"), bias_attr=False)
        out = paddle.static.nn.batch_norm(hidden, **norm)
        frozen = paddle.ParamAttr(name="out", do_model_average=False)
        loss = paddle.mean(paddle.square(paddle.static.nn.fc(out, 2, weight_attr=frozen) - 1.0))
        self.loss, self.steps = loss, paddle.static.create_global_var([1], 0, "float32", persistable=True)
        paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
        self.main = paddle.static.default_main_program()
        self.test = self.main.clone(for_test=True)
        self.exe = paddle.static.Executor()
        self.history: list[dict[str, Array]] = []

    def values(self) -> dict[str, Array]:
        return {
            n: v.numpy().copy() for n, v in paddle.static.global_scope().values_of().items() if v is not None
        }

    def train(self, steps: int) -> None:
        if not self.history:
            self.exe.run(paddle.static.default_startup_program())
        for step in range(steps):
            paddle.static.global_scope().get(self.steps.name).fill_(len(self.history))
            self.exe.run(self.main, feed={"x": FEED + step})
            self.history.append(self.values())

    def evaluated(self) -> float:
        return float(self.exe.run(self.test, feed={"x": FEED}, fetch_list=[self.loss.name])[0])


def assert_applied(net: Net, average: Any, expected: dict[str, Array], left: tuple[str, ...]) -> None:
    """Inside of `apply` the variables have the expected values, and the old ones after it."""
    before, loss = net.values(), net.evaluated()
    with average.apply(net.exe):
        inside = net.values()
        for name, value in expected.items():
            np.testing.assert_allclose(inside[name], value, rtol=2e-5, atol=1e-6, err_msg=name)
        for name in left:
            np.testing.assert_array_equal(inside[name], before[name])
        assert net.evaluated() != loss
    after = net.values()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)


@pytest.mark.parametrize("scheduled", [False, True])
def test_exponential_moving_average_with_bias_correction_and_schedule(scheduled: bool) -> None:
    net = Net()
    ema = paddle.static.ExponentialMovingAverage(0.6, thres_steps=net.steps if scheduled else None)
    ema.update()
    net.train(5)
    names = ["w", "batch_norm_0.w_0", "batch_norm_0.b_0", "batch_norm_0.w_1", "batch_norm_0.w_2", "fc_1.b_0"]
    expected = {}
    for name in names:
        average, decay = np.zeros_like(net.history[0][name], dtype=np.float64), 0.6
        for step, values in enumerate(net.history):
            decay = min(0.6, (1 + step) / (10 + step)) if scheduled else 0.6
            average = decay * average + (1 - decay) * values[name]
        expected[name] = average / (1 - decay ** len(net.history))
    assert_applied(net, ema, expected, left=("out",))
    net.train(1)  # continues from the restored values
    assert not np.array_equal(net.history[-1]["w"], net.history[-2]["w"])


@pytest.mark.parametrize(("rate", "least", "most"), [(0.5, 2, 4), (0.15, 10000, 10000), (1.0, 1, 3)])
def test_model_average_over_a_window(rate: float, least: int, most: int) -> None:
    net = Net()
    average = paddle.incubate.ModelAverage(rate, min_average_window=least, max_average_window=most)
    net.train(7)
    window: list[int] = []
    old: list[int] = []
    for step in range(7):
        window.append(step)
        if len(window) >= least and len(window) >= min(most, (step + 1) * rate):
            window, old = [], window
    expected = {
        name: np.mean([net.history[step][name] for step in (*old, *window)], axis=0, dtype=np.float64)
        for name in ("w", "fc_1.b_0", "batch_norm_0.w_1")
    }
    assert_applied(net, average, expected, left=("out",))


def test_the_averages_stay_until_restore() -> None:
    net = Net(do_model_average_for_mean_and_var=False)
    ema = fluid.optimizer.ExponentialMovingAverage(0.9)
    ema.update()
    net.train(2)
    before = net.values()
    with ema.apply(net.exe, need_restore=False):
        pass
    assert not np.array_equal(net.values()["w"], before["w"])
    np.testing.assert_array_equal(net.values()["batch_norm_0.w_1"], before["batch_norm_0.w_1"])
    with pytest.raises(ConfigError, match="called twice; call restore"), ema.apply(net.exe):
        pass
    ema.restore(net.exe)
    np.testing.assert_array_equal(net.values()["w"], before["w"])
    with pytest.raises(ConfigError, match="nothing was applied"):
        ema.restore(net.exe)


def test_the_parameters_are_restored_after_an_error() -> None:
    net = Net()
    average = fluid.optimizer.ModelAverage(0.5, 2, 4)
    net.train(3)
    before = net.values()["w"]
    with pytest.raises(RuntimeError, match="evaluation failed"), average.apply(net.exe):
        raise RuntimeError("evaluation failed")
    np.testing.assert_array_equal(net.values()["w"], before)


def test_only_some_parameters() -> None:
    net = Net()
    average = paddle.incubate.optimizer.ModelAverage(0.5, ["w"], 2, 4)
    net.train(3)
    assert_applied(net, average, {}, left=("out", "fc_1.b_0", "batch_norm_0.w_1"))


def test_mistakes_raise() -> None:
    net = Net()
    ema = paddle.static.ExponentialMovingAverage(0.9)
    ema.update()
    with pytest.raises(ConfigError, match="update was called twice"):
        ema.update()
    net.exe.run(paddle.static.default_startup_program())
    with pytest.raises(ScopeError, match="never updated; train at least one step"), ema.apply(net.exe):
        pass
    with pytest.raises(ConfigError, match="decay is 1"):
        paddle.static.ExponentialMovingAverage(1)
    with pytest.raises(ConfigError, match="thres_steps is 3; use a Variable"):
        paddle.static.ExponentialMovingAverage(0.9, thres_steps=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_average_window"):
        paddle.incubate.ModelAverage(0.5, None, 10, 5)
    with pytest.raises(ConfigError, match=r"call minimize of the optimizer"):
        paddle.incubate.ModelAverage(0.5).minimize(net.loss)
    with pytest.raises(ConfigError, match="regularization has no effect"):
        fluid.optimizer.ModelAverage(0.5, regularization=paddle.regularizer.L2Decay(0.1))
    with (
        paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()),
        pytest.raises(ConfigError, match="no parameters to average"),
    ):
        paddle.static.ExponentialMovingAverage(0.9).update()
