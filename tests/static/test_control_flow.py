"""cond, case, switch_case and while_loop: values and gradients of torch's eager mode with Python's control flow."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import argosy as paddle
from argosy import static
from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir.variable import Variable
from argosy.engine.ops.collectives import all_reduce
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers
from argosy.static.nn import case, cond, switch_case, while_loop

Eager = Callable[..., torch.Tensor]


def rows(count: int, size: int = 3, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((count, size)).astype("float32")


def weight(name: str, *shape: int) -> Any:
    normal = paddle.nn.initializer.Normal(0.0, 0.7)
    return static.create_parameter(list(shape), "float32", name=name, default_initializer=normal)


def check(loss: Variable, eager: Eager, feeds: list[dict[str, Any]], *fetches: Variable) -> list[list[Any]]:
    """The loss and the gradients of all parameters are those of `eager(parameters, feed)`; returns the fetches."""
    pairs = static.append_backward(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    fetched = []
    for feed in feeds:
        parameters = {p.name: global_scope().get(p.name).clone().requires_grad_() for p, _ in pairs}
        value, *rest = exe.run(feed=feed, fetch_list=[loss, *(g for _, g in pairs), *fetches])
        expected = eager(parameters, {name: torch.from_numpy(array) for name, array in feed.items()})
        np.testing.assert_allclose(value, expected.detach(), rtol=1e-5, atol=1e-6)
        gradients = [torch.zeros_like(p) for p in parameters.values()]
        if expected.requires_grad:
            computed = torch.autograd.grad(expected, list(parameters.values()), allow_unused=True)
            gradients = [z if g is None else g for z, g in zip(gradients, computed, strict=True)]
        for (parameter, _), ours, theirs in zip(pairs, rest, gradients, strict=False):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6, err_msg=parameter.name)
        fetched.append(rest[len(pairs) :])
    return fetched


def test_a_branch_trains_the_parameters_that_it_uses_and_gives_zeros_to_the_others() -> None:
    x = static.data("x", [None, 3])
    hidden = torch.tanh(x @ weight("w", 3, 4))
    a, b = weight("a", 4, 2), weight("b", 4, 2)
    out = cond(hidden.sum() > 0, lambda: hidden @ a * hidden.size(0), lambda: (hidden * 2) @ b)
    assert out.shape == (-1, 2)

    def eager(p: dict[str, torch.Tensor], f: dict[str, torch.Tensor]) -> torch.Tensor:
        hidden = torch.tanh(f["x"] @ p["w"])
        out = hidden @ p["a"] * len(hidden) if hidden.sum() > 0 else (hidden * 2) @ p["b"]
        return (out * out).mean()

    check((out * out).mean(), eager, [{"x": rows(n, seed=s)} for n, s in ((4, 0), (4, 1), (1, 2), (7, 3))])


def test_branches_inside_of_branches_return_structures() -> None:
    x = static.data("x", [None, 3])
    w = weight("w", 3, 3)

    def inner() -> tuple[Any, dict[str, Any]]:
        y = x @ w
        return cond(x.max() > 2, lambda: (y, {"b": x}), lambda: [y * y, {"b": x * w.sum()}])  # type: ignore[no-any-return]

    first, second = cond(x.sum() > 0, inner, lambda: (torch.relu(x @ w), {"b": x}))
    loss = (first * second["b"]).sum()

    def eager(p: dict[str, torch.Tensor], f: dict[str, torch.Tensor]) -> torch.Tensor:
        x, w = f["x"], p["w"]
        if x.sum() <= 0:
            return (torch.relu(x @ w) * x).sum()
        y = x @ w
        return (y * x).sum() if x.max() > 2 else (y * y * x * w.sum()).sum()

    check(loss, eager, [{"x": rows(2) + s} for s in (-1, 0.5, 3)])


def test_case_takes_the_first_true_condition_and_switch_case_the_index() -> None:
    x, i = static.data("x", [None, 3]), static.data("i", [1], "int64")
    w = weight("w", 3, 3)
    y = x @ w
    pairs = [(i < 1, lambda: y), (i < 3, lambda: torch.tanh(y)), (i < 4, lambda: y * 2)]
    first = case(pairs, default=lambda: -y)
    without = case(pairs)
    chosen = switch_case(i, {0: lambda: y, 2: lambda: y * y, 7: lambda: torch.sin(y)})
    listed = switch_case(i, [lambda: y, lambda: y * 3], default=lambda: y * 0)
    loss = (first + without * 3 + chosen * 5 + listed * 7).sum()

    def eager(p: dict[str, torch.Tensor], f: dict[str, torch.Tensor]) -> torch.Tensor:
        y, i = f["x"] @ p["w"], int(f["i"])
        first = y if i < 1 else torch.tanh(y) if i < 3 else y * 2 if i < 4 else -y
        without = first if i < 4 else y * 2
        chosen = {0: y, 2: y * y}.get(i, torch.sin(y))
        listed = {0: y, 1: y * 3}.get(i, y * 0)
        return (first + without * 3 + chosen * 5 + listed * 7).sum()

    check(loss, eager, [{"x": rows(2), "i": np.array([k])} for k in (0, 1, 2, 3, 9)])
    assert case([(i < 1, lambda: y * 2)]).shape == (-1, 3), "the only function is the default"


def test_a_loop_of_any_length_is_differentiated() -> None:
    x, n = static.data("x", [None, 3]), static.data("n", [1], "int64")
    w, scale = weight("w", 3, 3), weight("scale", 1)
    i, total = paddle.zeros([1], "int64"), paddle.zeros([1], "float32")

    def body(i: Any, h: Any, total: Any) -> list[Any]:
        h = torch.tanh(h @ w) * scale
        return [i + 1, h, total + h.sum()]

    steps, h, total = while_loop(lambda i, h, total: i < n, body, [i, x * scale, total])
    loss = (h * h).mean() + total.sum()

    def eager(p: dict[str, torch.Tensor], f: dict[str, torch.Tensor]) -> torch.Tensor:
        h, total = f["x"] * p["scale"], torch.zeros(1)
        for _ in range(int(f["n"])):
            h = torch.tanh(h @ p["w"]) * p["scale"]
            total = total + h.sum()
        return (h * h).mean() + total.sum()

    feeds = [{"x": rows(k + 1), "n": np.array([k])} for k in (0, 1, 4)]
    assert [int(s) for [s] in check(loss, eager, feeds, steps)] == [0, 1, 4]


def test_a_branch_in_a_loop_and_a_loop_in_a_branch() -> None:
    x, n = static.data("x", [None, 3]), static.data("n", [1], "int64")
    w, v = weight("w", 3, 3), weight("v", 3, 3)

    def loop() -> Any:
        def body(i: Any, h: Any) -> list[Any]:
            return [i + 1, cond(i % 2 == 0, lambda: torch.tanh(h @ w), lambda: h * h.mean() + v.sum())]

        return while_loop(lambda i, h: i < n, body, [paddle.zeros([1], "int64"), x])[1]

    loss = (cond(x.sum() > 0, loop, lambda: x @ v) ** 2).mean()

    def eager(p: dict[str, torch.Tensor], f: dict[str, torch.Tensor]) -> torch.Tensor:
        h, w, v = f["x"], p["w"], p["v"]
        if h.sum() <= 0:
            return ((h @ v) ** 2).mean()
        for i in range(int(f["n"])):
            h = torch.tanh(h @ w) if i % 2 == 0 else h * h.mean() + v.sum()
        return (h**2).mean()

    check(loss, eager, [{"x": rows(2) + s, "n": np.array([k])} for s, k in ((1, 0), (1, 3), (-2, 1))])


def test_a_dropout_in_a_branch_has_one_mask_in_forward_and_backward() -> None:
    static.default_main_program().random_seed = 3
    x = static.data("x", [None, 64])
    w = weight("w", 64)
    out = cond(x.sum() > 0, lambda: F.dropout(x * w, 0.5) + torch.rand(64) * 0, lambda: x * w)
    ((_, gradient),) = static.append_backward(out.sum())
    exe = static.Executor()
    exe.run(static.default_startup_program())
    fed = np.ones((3, 64), "float32")
    masks = []
    for _ in range(2):
        value, grad = exe.run(feed={"x": fed}, fetch_list=[out, gradient])
        mask = value != 0
        np.testing.assert_allclose(grad, mask.sum(0) * 2.0)
        masks.append(mask)
    assert (masks[0] != masks[1]).any(), "each run draws its own mask"


def test_random_numbers_in_a_differentiated_loop_raise() -> None:
    x = static.data("x", [None, 3])
    w = weight("w", 3, 3)
    body: Any = lambda i, h: [i + 1, F.dropout(h @ w, 0.5)]  # noqa: E731
    _, h = while_loop(lambda i, h: i < 3, body, [paddle.zeros([1], "int64"), x])
    with pytest.raises(ProgramError, match=r"random.*backward would run it again"):
        static.append_backward(h.sum())


def test_the_second_derivative_raises() -> None:
    x = static.data("x", [None, 3])
    x.stop_gradient = False
    out = cond(x.sum() > 0, lambda: x * x, lambda: x)
    (gradient,) = static.gradients(out.sum(), x)
    assert gradient is not None
    with pytest.raises(ProgramError, match="second derivative of a branch"):
        static.gradients((gradient * gradient).sum(), x)


def test_stop_gradient_inside_of_a_branch_stops_it() -> None:
    x = static.data("x", [None, 3])
    w = weight("w", 3, 3)

    def stopped() -> Any:
        y = x @ w
        y.stop_gradient = True
        return y * w.sum()

    loss = cond(x.sum() > 0, stopped, lambda: x.detach() @ w).sum()

    def eager(p: dict[str, torch.Tensor], f: dict[str, torch.Tensor]) -> torch.Tensor:
        x, w = f["x"], p["w"]
        return ((x @ w).detach() * w.sum() if x.sum() > 0 else x @ w).sum()

    check(loss, eager, [{"x": rows(2) + s} for s in (2, -2)])


def test_variables_of_the_program_are_written_by_the_branch_that_is_taken() -> None:
    x = static.data("x", [None, 3])
    scale = paddle.full([1], 2.0, "float32")
    before = scale * 1
    w = weight("w", 3)

    def write() -> None:
        layers.assign(scale * x.sum() * w.sum(), output=scale)
        layers.increment(scale, 1.0)
        scale[0] = scale[0] + 1

    assert cond(x.sum() > 0, write) is None
    loss = (scale * before).sum()

    def eager(p: dict[str, torch.Tensor], f: dict[str, torch.Tensor]) -> torch.Tensor:
        scale = 2 * f["x"].sum() * p["w"].sum() + 2 if f["x"].sum() > 0 else torch.tensor(2.0)
        return scale * 2

    check(loss, eager, [{"x": rows(2) + s} for s in (2, -2)])


def test_closures_of_a_loop_read_the_present_values() -> None:
    i = paddle.zeros([1], "int64")
    total = paddle.zeros([1], "int64")
    body: Any = lambda k, t: [layers.increment(k), t + i * 10]  # noqa: E731
    last = while_loop(lambda k, t: i < 3, body, [i, total])
    exe = static.Executor()
    fetched = [int(v) for v in exe.run(fetch_list=[*last, i])]
    assert fetched == [3, 60, 0], "t adds 10, 20, 30; the given variable keeps its value"


def test_the_wrong_types_are_named() -> None:
    x = static.data("x", [None, 3])
    true = x.sum() > 0
    with pytest.raises(
        ConfigError, match=r"true_fn returns float32\[-1, 3\], and false_fn returns \[float32"
    ):
        cond(true, lambda: x, lambda: [x, x])
    with pytest.raises(
        ConfigError, match=r"result 0 is float32\[any, 3\] in true_fn and float32\[any, 2\] in false"
    ):
        cond(true, lambda: x, lambda: x[:, :2])
    with pytest.raises(ConfigError, match=r"float32\[any, 3\] in true_fn and int64\[any, 3\]"):
        cond(true, lambda: x, lambda: x.long() + 1)
    with pytest.raises(ConfigError, match="condition is Variable"):
        cond(x, lambda: x, lambda: x)
    with pytest.raises(ConfigError, match=r"cond: true_fn\(\) has 3; use Variables"):
        cond(true, lambda: 3, lambda: 4)
    h = paddle.zeros([1, 3], "float32")
    with pytest.raises(
        ConfigError, match=r"is float32\[1, 3\] before and float32\[2, 3\] after an iteration"
    ):
        while_loop(lambda h: h.sum() < 1, lambda h: torch.cat([h, h]), [h])
    with pytest.raises(ConfigError, match="the structure must be the same"):
        while_loop(lambda h: h.sum() < 1, lambda h: [h, h], [x])
    with pytest.raises(ConfigError, match="distinct integers"):
        switch_case(x.long().sum(), [(1, lambda: x), (1, lambda: x)])


def test_what_a_branch_computes_cannot_be_read_after_it() -> None:
    x = static.data("x", [None, 3])
    computed: list[Any] = []
    cond(x.sum() > 0, lambda: computed.append(x * 2), None)
    with pytest.raises(ProgramError, match="computed inside a branch or a loop"):
        torch.relu(computed[0])
    assert computed[0].name not in static.default_main_program().vars


def test_a_batch_norm_in_a_branch_and_minimize_in_a_branch_raise() -> None:
    x = static.data("x", [None, 3])
    with pytest.raises(ProgramError, match="running statistics of a batch norm"):
        cond(x.sum() > 0, lambda: static.nn.batch_norm(x), lambda: x)
    with pytest.raises(ProgramError, match="inside a branch or a loop; call minimize after it"):
        cond(x.sum() > 0, lambda: static.append_backward(static.nn.fc(x, 1).mean()), None)
    assert cond(x.sum() > 0, lambda: x, lambda: x * 2).shape == (-1, 3), "the program can still be extended"


def test_a_collective_in_a_branch_raises() -> None:
    x = static.data("x", [None, 3])

    def summed() -> Any:
        copied = x * 1
        static.default_main_program().call(all_reduce, (copied, "dp", "x"), {})
        return copied

    with pytest.raises(ProgramError, match="collective inside a branch or a loop"):
        cond(x.sum() > 0, summed, lambda: x)


def test_a_clone_of_a_program_with_branches_is_trained_like_the_program() -> None:
    x = static.data("x", [None, 3])
    w = weight("w", 3, 3)
    loss = cond(x.sum() > 0, lambda: torch.tanh(x @ w), lambda: x).sum()
    cloned = static.default_main_program().clone()
    ((_, gradient),) = static.append_backward(cloned.var(loss.name))
    assert not any(node.meta["role"] == "backward" for node in loss.program.graph.nodes)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    fed = rows(2) + 2
    (grad,) = exe.run(cloned, feed={"x": fed}, fetch_list=[gradient])
    expected = global_scope().get("w").clone().requires_grad_()
    theirs = torch.autograd.grad(torch.tanh(torch.from_numpy(fed) @ expected).sum(), expected)[0]
    np.testing.assert_allclose(grad, theirs, rtol=1e-4, atol=1e-6)
