"""Many small programs, each to be trained for a few steps on N ranks or on one; for test_equality.py.

Every rank draws its first values with a seed of its own, so that equal results also prove the broadcast.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.ir import names
from argosy.fluid.param_attr import ParamAttr
from argosy.nn import functional

BATCH, STEPS = 12, 4
Arrays = dict[str, np.ndarray[Any, Any]]
Minimize = Callable[..., Any]
"""(optimizer, loss, …): give the loss to the optimizer, with fleet or without."""


def feeds() -> tuple[Any, Any]:
    return paddle.static.data("x", [None, 8], "float32"), paddle.static.data("y", [None, 1], "int64")


def data(step: int) -> Arrays:
    drawn = np.random.default_rng(step)
    x = drawn.standard_normal((BATCH, 8)).astype("float32")
    return {"x": x, "y": drawn.integers(0, 4, (BATCH, 1))}


def parameter(name: str, shape: list[int]) -> Any:
    initial = paddle.nn.initializer.Normal(0.0, 0.3)
    return paddle.static.create_parameter(shape, "float32", name=name, default_initializer=initial)


def classes(hidden: Any, y: Any) -> Any:
    return functional.cross_entropy(paddle.static.nn.fc(hidden, 4), y)


# --- an MLP with many optimizers -----------------------------------------------------------------------


def mlp(make: Callable[[], Any]) -> Callable[[Minimize], Any]:
    def build(minimize: Minimize) -> Any:
        x, y = feeds()
        loss = classes(paddle.static.nn.fc(x, 16, activation="relu"), y)
        minimize(make(), loss)
        return loss

    return build


def _optimizers() -> dict[str, Callable[[], Any]]:
    make, clip, decay = paddle.optimizer, paddle.nn, paddle.regularizer.L2Decay(0.01)
    return {
        "momentum with decay": lambda: make.Momentum(0.1, 0.9, weight_decay=decay),
        "adam": lambda: make.Adam(0.01, epsilon=1e-4),  # else it divides noise by noise
        "global norm": lambda: make.Momentum(0.1, 0.9, grad_clip=clip.ClipGradByGlobalNorm(0.1)),
        "norm": lambda: make.Momentum(0.1, 0.9, grad_clip=clip.ClipGradByNorm(0.1)),
        "value": lambda: make.Momentum(0.1, 0.9, grad_clip=clip.ClipGradByValue(0.02), weight_decay=decay),
        "scheduler": lambda: make.Momentum(make.lr.PiecewiseDecay([1, 3], [0.2, 0.1, 0.05]), 0.9),
        "fluid": lambda: paddle.fluid.optimizer.MomentumOptimizer(0.1, 0.9),
    }


# --- programs whose gradients are in some way special -------------------------------------------------


def torch_module(minimize: Minimize) -> Any:
    """A torch module, whose weights differ from rank to rank."""
    x, y = feeds()
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU())
    loss = classes(net(x), y)
    minimize(paddle.optimizer.Momentum(0.1, 0.9), loss)
    return loss


def tied(minimize: Minimize) -> Any:
    """One weight, used twice, once transposed."""
    x, y = feeds()
    w = parameter("tied", [8, 16])
    loss = classes(paddle.matmul(torch.tanh(paddle.matmul(x, w)), w, transpose_y=True), y)
    minimize(paddle.optimizer.Momentum(0.1, 0.9), loss)
    return loss


def unused_and_frozen(minimize: Minimize) -> Any:
    """A parameter that the loss does not use, and one that is not trained."""
    x, y = feeds()
    paddle.static.nn.fc(x, 3)
    frozen = ParamAttr(name="frozen", trainable=False)
    loss = classes(torch.tanh(paddle.static.nn.fc(x, 16, weight_attr=frozen)), y)
    minimize(paddle.optimizer.Adam(0.01, epsilon=1e-4), loss)
    return loss


def one_gradient_of_two(minimize: Minimize) -> Any:
    """Two parameters with one and the same gradient."""
    x, y = feeds()
    both = parameter("b1", [16]) + parameter("b2", [16])
    loss = classes(torch.tanh(paddle.static.nn.fc(x, 16, bias_attr=False) + both), y)
    minimize(paddle.optimizer.Momentum(0.1, 0.9, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.1)), loss)
    return loss


def gradient_that_is_read_again(minimize: Minimize) -> Any:
    """The gradient of w1 goes into those of w2 and v; adding it up in place would count them twice."""
    x, y = feeds()
    w = parameter("w1", [8, 16]) + parameter("w2", [8, 16]) * parameter("v", [16])
    loss = classes(torch.tanh(paddle.matmul(x, w)), y)
    minimize(paddle.optimizer.SGD(0.1), loss)
    return loss


def views_of_one_gradient(minimize: Minimize) -> Any:
    """Gradients that are parts of one tensor, and one that is transposed."""
    x, y = feeds()
    w = torch.cat([parameter("left", [8, 6]), parameter("right", [8, 10])], 1)
    h = torch.tanh(paddle.matmul(x, w))
    loss = classes(paddle.matmul(h, parameter("transposed", [5, 16]), transpose_y=True), y)
    minimize(paddle.optimizer.Momentum(0.1, 0.9), loss)
    return loss


def expanded_gradients(minimize: Minimize) -> Any:
    """Gradients that are one number, spread without memory of its own."""
    x, y = feeds()
    loss = classes(x, y) + parameter("spread", [3, 5]).sum() * 0.1 + parameter("single", [1]) * 0.1
    minimize(paddle.optimizer.SGD(0.1), loss)
    return loss


def two_optimizers(minimize: Minimize) -> Any:
    """Two optimizers share the parameters of one loss, after somebody has asked for its gradient."""
    x, y = feeds()
    hidden = paddle.static.nn.fc(x, 16, weight_attr=ParamAttr(name="first"), bias_attr=False)
    loss = functional.cross_entropy(
        paddle.static.nn.fc(hidden, 4, weight_attr=ParamAttr(name="second"), bias_attr=False), y
    )
    paddle.static.gradients(loss, hidden)
    minimize(paddle.optimizer.SGD(0.1), loss, parameter_list=["first"])
    minimize(paddle.optimizer.Momentum(0.1, 0.9), loss, parameter_list=["second"])
    return loss


def two_losses(minimize: Minimize) -> Any:
    """Each optimizer has a loss; the second one's holds a gradient, which is not scaled by itself."""
    x, y = feeds()
    x.stop_gradient = False
    attrs = [ParamAttr(name=name) for name in ("first", "second")]
    logits = [paddle.static.nn.fc(x, 4, weight_attr=attr, bias_attr=False) for attr in attrs]
    (inner,) = paddle.static.gradients(torch.tanh(logits[1]).sum(), x)
    loss = functional.cross_entropy(logits[0], y)
    minimize(paddle.optimizer.SGD(0.1), loss, parameter_list=["first"])
    penalised = functional.cross_entropy(logits[1], y) + (inner * inner).mean()
    minimize(paddle.optimizer.Momentum(0.1, 0.9), penalised, parameter_list=["second"])
    return loss


def convolution(minimize: Minimize) -> Any:
    """Convolutions, which run in channels_last; the last sees one pixel."""
    x, y = feeds()
    h = paddle.static.nn.fc(x, 3 * 8 * 8).reshape([-1, 3, 8, 8])
    for stride in (2, 2, 2):
        h = paddle.static.nn.conv2d(h, 6, 3, stride=stride, padding=1, act="relu")
    loss = classes(h, y)
    minimize(paddle.optimizer.Momentum(0.1, 0.9), loss)
    return loss


def embedding(sparse: bool) -> Callable[[Minimize], Any]:
    def build(minimize: Minimize) -> Any:
        x, y = feeds()
        rows = paddle.static.nn.embedding(y, [10, 6], is_sparse=sparse, param_attr=ParamAttr(name="table"))
        loss = classes(paddle.concat([x, rows.reshape([-1, 6])], 1), y)
        minimize(paddle.optimizer.Momentum(0.1, 0.9), loss)
        return loss

    return build


SPECIAL: dict[str, Callable[[Minimize], Any]] = {
    "torch module": torch_module,
    "tied": tied,
    "unused and frozen": unused_and_frozen,
    "one gradient of two": one_gradient_of_two,
    "gradient that is read again": gradient_that_is_read_again,
    "views of one gradient": views_of_one_gradient,
    "expanded gradients": expanded_gradients,
    "two optimizers": two_optimizers,
    "two losses": two_losses,
    "convolution": convolution,
    "dense embedding": embedding(False),
    "sparse embedding": embedding(True),
}
CASES = {**{name: mlp(make) for name, make in _optimizers().items()}, **SPECIAL}


def train(
    case: str, minimize: Minimize, rank: int = 0, ranks: int = 1, with_gradients: bool = True
) -> Arrays:
    """Losses, gradients of the last step, and the variables of the scope before and after."""
    main, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
    torch.manual_seed(100 + rank)
    startup.random_seed = 200 + rank
    with paddle.static.program_guard(main, startup), names.guard(), paddle.static.scope_guard(scope):
        loss = CASES[case](minimize)
        exe = paddle.static.Executor()
        exe.run(startup)
        result = {f"before {n}": scope.get(n).numpy().copy() for n in sorted(main.persistables())}
        grads = [f"{p.name}@GRAD" for p in main.all_parameters() if f"{p.name}@GRAD" in main.vars]
        grads = grads if with_gradients else []
        losses = []
        for step in range(STEPS):
            mine = {key: np.split(value, ranks)[rank] for key, value in data(step).items()}
            fetched = exe.run(main, mine, [loss, *grads])
            losses.append(fetched[0])
            for _, scheduler in main.training.schedulers:
                scheduler.step()
        result["losses"] = np.array(losses)
        result |= dict(zip(grads, fetched[1:], strict=True))
        result |= {f"after {n}": scope.get(n).numpy().copy() for n in sorted(main.persistables())}
    return result


def with_fleet(optimizer: Any, loss: Any, **more: Any) -> Any:
    return fleet.distributed_optimizer(optimizer).minimize(loss, **more)


def plain(optimizer: Any, loss: Any, parameter_list: Any = None) -> Any:
    return optimizer.minimize(loss, None, parameter_list)
