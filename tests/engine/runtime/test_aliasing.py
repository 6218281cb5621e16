"""Memory that is shared, overwritten or kept: what a run may not change, and what it must not miss.

Each of these was a wrong result once.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import argosy as paddle
from argosy.engine.ir.backward import append_backward, gradients
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope


class Module(nn.Module):
    """A module with a weight w [3, 2], a buffer e [3], and a forward that the test gives."""

    def __init__(self, forward: Callable[["Module", Tensor], Tensor]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.arange(6.0).reshape(3, 2) + 1)
        self.register_buffer("e", torch.zeros(3))
        self.e: Tensor
        self.given = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.given(self, x)


def feed(*shape: int | None) -> Any:
    return default_main_program().data("x", [None, *shape])


def started() -> Executor:
    exe = Executor()
    exe.run(default_startup_program())
    return exe


def run(exe: Executor, fetch: Any, x: Any, program: Any = None) -> np.ndarray[Any, Any]:
    fetched: np.ndarray[Any, Any] = exe.run(program, feed={"x": x}, fetch_list=[fetch])[0]
    return fetched


def test_a_test_program_without_its_dropout_overwrites_no_parameter() -> None:
    def forward(self: Module, x: Tensor) -> Tensor:
        return x @ torch.relu(F.dropout(self.w, 0.5, self.training).view(-1) * 2 - 3).view(3, 2)

    module = Module(forward)
    y = module(feed(3))
    test = default_main_program().clone(for_test=True)
    exe = started()
    x = torch.ones(2, 3)
    for _ in range(2):
        np.testing.assert_allclose(run(exe, y, x, test), module.eval()(x).detach().numpy())


def test_a_test_program_without_its_dropout_overwrites_no_fed_array() -> None:
    y = torch.relu(F.dropout(feed(4), 0.5).view(-1))
    test = default_main_program().clone(for_test=True)
    x = np.full((2, 4), -1.0, "float32")
    run(started(), y, x, test)
    assert (x == -1).all()


def test_a_tensor_made_inside_is_new_in_every_run() -> None:
    y = Module(lambda self, x: x + torch.tensor([1.0, 2.0, 3.0]) * self.w[0, 1])(feed(3))
    z = default_main_program().call(
        lambda x: torch.zeros(3).add_(x.sum(0)) + torch.tensor([0.0]).add_(x.sum()),
        (default_main_program().var("x"),),
        {},
    )
    exe = started()
    for _ in range(3):
        assert run(exe, y, torch.zeros(1, 3)).tolist() == [[2.0, 4.0, 6.0]]
        assert run(exe, z, torch.ones(1, 3)).tolist() == [4.0, 4.0, 4.0]


def test_a_view_of_a_constant_is_not_written_over() -> None:
    constant = torch.tensor([[1.0, -2.0, 3.0]])
    y = default_main_program().call(lambda x: x + torch.relu(constant.view(-1)), (feed(3),), {})
    exe = started()
    for _ in range(2):
        assert run(exe, y, torch.zeros(1, 3)).tolist() == [[1.0, 0.0, 3.0]]
    assert constant.tolist() == [[1.0, -2.0, 3.0]]


def test_a_constant_is_what_it_was_when_it_was_used() -> None:
    x, c = feed(1), torch.ones(1)
    a = x + c
    c.add_(1)
    b = x + c
    fetched = started().run(feed={"x": torch.zeros(1, 1)}, fetch_list=[a, b])
    assert [f.item() for f in fetched] == [1.0, 2.0]


def test_a_test_program_sees_the_weights_that_training_moved_to_another_layout() -> None:
    x = default_main_program().data("x", [None, 3, 6, 6])
    h = paddle.fluid.layers.conv2d(x, 4, 3, param_attr="w", bias_attr=False)
    loss = paddle.mean(h * h)
    test = default_main_program().clone(for_test=True)
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = started()
    before = exe.run(test, fetch_list=["w"])[0]
    exe.run(feed={"x": torch.randn(2, 3, 6, 6)}, fetch_list=[loss])
    after = exe.run(test, fetch_list=["w"])[0]
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, global_scope().get("w").numpy())


def test_a_weight_in_channels_last_can_be_viewed_by_another_program() -> None:
    x = default_main_program().data("x", [None, 3, 6, 6])
    h = paddle.fluid.layers.conv2d(x, 4, 3, param_attr="w", bias_attr=False)
    exe = started()
    exe.run(feed={"x": torch.randn(2, 3, 6, 6)}, fetch_list=[h])
    flat = default_main_program().var("w").view(4, -1)
    (actual,) = exe.run(fetch_list=[flat])
    np.testing.assert_array_equal(actual, global_scope().get("w").reshape(4, -1).numpy())


def test_fetched_weights_do_not_change_with_the_next_run() -> None:
    x = default_main_program().data("x", [None, 3, 6, 6])
    h = paddle.fluid.layers.conv2d(x, 4, 3, param_attr="w", bias_attr=False)
    loss = paddle.mean(h * h)
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = Executor()
    (first,) = exe.run(default_startup_program(), fetch_list=["w"])
    copy = first.copy()
    for _ in range(3):
        (fetched,) = exe.run(feed={"x": torch.randn(2, 3, 6, 6)}, fetch_list=["w"])
        np.testing.assert_array_equal(first, copy)
        first, copy = fetched, fetched.copy()


def test_a_value_fetched_twice_gives_two_arrays() -> None:
    y = feed(2) * 2
    a, b = started().run(feed={"x": torch.ones(1, 2)}, fetch_list=[y, y])
    a[:] = 0
    assert b.tolist() == [[2.0, 2.0]]


def test_a_buffer_takes_the_value_before_it_is_overwritten() -> None:
    def forward(self: Module, x: Tensor) -> Tensor:
        h = x * 2
        self.e.copy_(h[0].detach())
        return torch.relu(h).sum() + h.add_(1).sum()

    module = Module(forward)
    y = module(feed(3))
    exe = started()
    x = torch.tensor([[-1.0, 2.0, -3.0]])
    run(exe, y, x)
    module(x)
    assert global_scope().get("module_0.e").tolist() == module.e.tolist() == [-2.0, 4.0, -6.0]


def test_a_test_program_leaves_the_buffers_of_modules_alone() -> None:
    def forward(self: Module, x: Tensor) -> Tensor:
        if self.training:
            self.e.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.e

    module = Module(forward)
    y = module(feed(3))
    test = default_main_program().clone(for_test=True)
    exe = started()
    x = torch.ones(2, 3)
    run(exe, y, x)
    value = global_scope().get("module_0.e").clone()
    np.testing.assert_allclose(run(exe, y, x, test), (x - value).numpy())
    assert torch.equal(global_scope().get("module_0.e"), value)


def test_a_batch_norm_called_twice_can_be_cloned_for_testing() -> None:
    norm = nn.BatchNorm1d(3)
    y = norm(norm(feed(3)))
    test = default_main_program().clone(for_test=True)
    exe = started()
    x = torch.randn(8, 3)
    run(exe, y, x)
    paddle.static.write_back(norm)
    np.testing.assert_allclose(
        run(exe, y, x, test), norm.eval()(norm(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_a_flattened_convolution_of_one_pixel_is_not_overwritten() -> None:
    def forward(x: Tensor, w: Tensor) -> Tensor:
        h = F.conv2d(x, w)
        r = h.flatten(1)
        return r.sum(1) * 2 + torch.relu(h).sum((1, 2, 3))

    w = torch.randn(4, 3, 1, 1)
    x = default_main_program().data("x", [None, 3, None, None])
    y = default_main_program().call(forward, (x, w), {})
    for size in (1, 5):
        given = torch.randn(2, 3, size, size)
        np.testing.assert_allclose(run(started(), y, given), forward(given, w).numpy(), rtol=1e-4, atol=1e-5)


def test_gradients_can_be_differentiated_again() -> None:
    x = feed(3)
    x.stop_gradient = False
    w = paddle.static.create_parameter([3], "float32", name="w")
    (g,) = gradients((x * x * w).sum(), x)
    penalty = (g * g).sum()
    ((_, second),) = append_backward(penalty)
    given = torch.randn(2, 3)
    exe = started()
    fetched = run(exe, second, given)
    leaf, weight = given.clone().requires_grad_(), global_scope().get("w").clone().requires_grad_()
    (first,) = torch.autograd.grad((leaf * leaf * weight).sum(), leaf, create_graph=True)
    (wanted,) = torch.autograd.grad((first * first).sum(), weight)
    np.testing.assert_allclose(fetched, wanted.numpy(), rtol=1e-5)


def test_stopping_one_part_of_a_chunk_lets_the_others_through() -> None:
    w = paddle.static.create_parameter([4], "float32", name="w")
    a, b = w.chunk(2)
    a.stop_gradient = True
    ((_, grad),) = append_backward((feed(2) * a * b).sum())
    exe = started()
    fetched = run(exe, grad, torch.ones(1, 2))
    value = global_scope().get("w")
    np.testing.assert_allclose(fetched, [0.0, 0.0, *value[:2].tolist()], rtol=1e-6)


def test_freezing_in_a_clone_leaves_the_program_alone() -> None:
    w = paddle.static.create_parameter([3], "float32", name="w")
    loss = (feed(3) * w).sum()
    copy = default_main_program().clone()
    copy.var("w").stop_gradient = True
    assert [p.name for p, _ in append_backward(loss)] == ["w"]


def test_what_is_stopped_or_independent_has_no_gradient() -> None:
    x = feed(3)
    assert gradients((x * 2).sum(), x) == [None]


def test_a_forward_that_uses_a_gradient_can_be_cloned_for_testing() -> None:
    x = feed(3)
    x.stop_gradient = False
    (g,) = gradients((x * x).sum(), x)
    y = g * 3
    test = default_main_program().clone(for_test=True)
    assert run(started(), y, torch.ones(1, 3), test).tolist() == [[6.0, 6.0, 6.0]]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype="float32").reshape(4, 3).T,
        np.arange(12, dtype="float32").reshape(3, 4)[:, ::-1],
        np.arange(12, dtype=">f4").reshape(3, 4),
        torch.arange(12.0).reshape(4, 3).t(),
    ],
    ids=["transposed", "negative strides", "big-endian", "transposed tensor"],
)
def test_any_array_can_be_fed(array: Any) -> None:
    y = feed(4).reshape(-1) * 1
    assert run(Executor(), y, array).tolist() == np.asarray(array).reshape(-1).tolist()


def test_a_permuted_constant_survives_saving(tmp_path: Path) -> None:
    x = feed(3)
    y = x @ torch.arange(6.0).reshape(2, 3).t()
    exe = started()
    wanted = run(exe, y, torch.ones(1, 3))
    paddle.static.save_inference_model(str(tmp_path / "m"), [x], [y], exe)
    program, _, fetches = paddle.static.load_inference_model(str(tmp_path / "m"), exe)
    np.testing.assert_array_equal(run(exe, fetches[0], torch.ones(1, 3), program), wanted)


def test_use_prune_trains_nothing() -> None:
    w = paddle.static.create_parameter([3], "float32", name="w")
    out = feed(3) * w
    paddle.optimizer.SGD(1.0).minimize(paddle.mean(out))
    exe = started()
    before = global_scope().get("w").clone()
    exe.run(feed={"x": torch.ones(1, 3)}, fetch_list=[out], use_prune=True)
    assert torch.equal(global_scope().get("w"), before)
    exe.run(feed={"x": torch.ones(1, 3)}, fetch_list=[out])
    assert not torch.equal(global_scope().get("w"), before)
