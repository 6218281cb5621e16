"""Torch modules called on Variables: any module, same numbers, shared weights."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from argosy import static
from argosy.engine.errors import ProgramError
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.torch_module import values_for
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope

assert static


class Positions(nn.Module):
    """Computes something that does not touch its input, and sizes from sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(11, 8)
        self.position = nn.Embedding(20, 8)
        self.scale = torch.tensor(0.5)  # neither parameter nor buffer

    def forward(self, ids: Tensor) -> Tensor:
        batch, length = ids.shape
        x = self.token(ids) + self.position(torch.arange(length)) * self.scale
        return x.reshape(batch * length, 8)


class InPlace(nn.Module):
    """Changes intermediate values in place."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x)
        y[:, 0] += 1.0
        return y.mul_(2.0)


def floats(*shape: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randn(batch, *shape)


def ids(length: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randint(0, 11, (batch, length))


MODULES: list[tuple[str, Callable[[], nn.Module], Callable[[int], Tensor], list[int | None]]] = [
    ("linear", lambda: nn.Linear(6, 3), floats(6), [None, 6]),
    ("in place", InPlace, floats(6), [None, 6]),
    ("positions", Positions, ids(7), [None, 7]),
    (
        "batch norm",
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
        floats(3, 8, 8),
        [None, 3, 8, 8],
    ),
    ("gru", lambda: nn.GRU(4, 5, batch_first=True), floats(6, 4), [None, 6, 4]),
    (
        "transformer",
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2),
        floats(5, 8),
        [None, 5, 8],
    ),
]


def first(out: Tensor | tuple[Tensor, ...]) -> Tensor:
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(("make", "sample", "shape"), [m[1:] for m in MODULES], ids=[m[0] for m in MODULES])
def test_values_gradients_and_buffers_equal_eager(
    make: Callable[[], nn.Module], sample: Callable[[int], Tensor], shape: list[int | None]
) -> None:
    module = make()
    x = default_main_program().data("x", shape, sample(2).dtype)
    out = first(module(x))
    pairs = append_backward(out.pow(2).sum())
    exe = Executor()
    exe.run(default_startup_program())
    for batch in (3, 5):
        given = sample(batch)
        actual = exe.run(feed={"x": given}, fetch_list=[out, *(g for _, g in pairs)])
        module.zero_grad()
        wanted = first(module(given))
        wanted.pow(2).sum().backward()
        np.testing.assert_allclose(actual[0], wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
        by_name = {p.name: g for (p, _), g in zip(pairs, actual[1:], strict=True)}
        for key, parameter in module.named_parameters():
            name = values_for(default_main_program(), module)[key].name
            assert parameter.grad is not None
            grad = parameter.grad.numpy()
            np.testing.assert_allclose(by_name[name], grad, rtol=1e-4, atol=1e-5 * max(1.0, abs(grad).max()))
    for key, variable in values_for(default_main_program(), module).items():
        wanted_value = module.state_dict()[key]
        np.testing.assert_allclose(
            global_scope().get(variable.name).numpy(), wanted_value.numpy(), rtol=1e-5, atol=1e-6
        )


def test_a_module_called_twice_shares_its_parameters() -> None:
    x = default_main_program().data("x", [None, 4])
    layer = nn.Linear(4, 4)
    layer(layer(x))
    assert [p.name for p in default_main_program().all_parameters()] == ["linear_0.weight", "linear_0.bias"]


def test_dropout_and_batch_norm_of_modules_switch_to_inference() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
    x = default_main_program().data("x", [None, 4])
    out = module(x)
    test = default_main_program().clone(for_test=True)
    exe = Executor()
    exe.run(default_startup_program())
    exe.run(feed={"x": torch.randn(8, 4)}, fetch_list=[out])
    static.write_back(module)
    module.eval()
    given = torch.randn(5, 4)
    (actual,) = exe.run(test, feed={"x": given}, fetch_list=[out])
    np.testing.assert_allclose(actual, module(given).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert int(module[1].num_batches_tracked) == 1


def test_a_module_in_eval_mode_is_recorded_as_inference() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)).eval()
    x = default_main_program().data("x", [None, 4])
    out = module(x)
    exe = Executor()
    exe.run(default_startup_program())
    given = torch.randn(5, 4)
    (actual,) = exe.run(feed={"x": given}, fetch_list=[out])
    np.testing.assert_allclose(actual, module(given).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_frozen_parameters_stay_frozen() -> None:
    module = nn.Linear(4, 3)
    module.bias.requires_grad_(False)
    x = default_main_program().data("x", [None, 4])
    assert [p.name for p, _ in append_backward(module(x).sum())] == ["linear_0.weight"]


def test_keyword_arguments_and_several_variables() -> None:
    class Two(nn.Module):
        def forward(self, a: Tensor, *, b: Tensor) -> dict[str, Tensor]:
            return {"sum": a + b, "product": a * b}

    a = default_main_program().data("a", [None, 4])
    b = default_main_program().data("b", [None, 4])
    out = Two()(a, b=b)
    given = {"a": torch.full((2, 4), 3.0), "b": torch.full((2, 4), 4.0)}
    actual = Executor().run(feed=given, fetch_list=[out["sum"], out["product"]])
    assert (actual[0][0, 0], actual[1][0, 0]) == (7.0, 12.0)


def test_a_module_that_fails_is_named_with_the_line() -> None:
    x = default_main_program().data("x", [None, 4])
    with pytest.raises(ProgramError, match=r"Linear called at test_torch_module.py:\d+ .* cannot be built"):
        nn.Linear(5, 3)(x)


def test_eager_calls_are_unchanged() -> None:
    assert torch.equal(nn.ReLU()(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))


def test_a_module_that_was_never_called_has_no_values() -> None:
    with pytest.raises(ProgramError, match="Linear was never called"):
        values_for(default_main_program(), nn.Linear(2, 2))


def test_attention_with_a_mask_made_inside_equals_eager() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), 1)
            return torch.softmax(q @ k.transpose(1, 2) + mask, -1) @ v + F.scaled_dot_product_attention(
                q, k, v
            )

    module = Causal()
    x = default_main_program().data("x", [None, None, 8])
    out = module(x)
    exe = Executor()
    exe.run(default_startup_program())
    for shape in ((2, 5, 8), (3, 9, 8)):
        given = torch.randn(shape)
        (actual,) = exe.run(feed={"x": given}, fetch_list=[out])
        np.testing.assert_allclose(actual, module(given).detach().numpy(), rtol=1e-4, atol=1e-5)
