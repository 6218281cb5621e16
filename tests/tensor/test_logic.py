"""Comparisons and truth values."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from argosy import tensor
from argosy.engine.errors import FeedError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor

Agree = Callable[..., None]

COMPARISONS = {
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less_than": torch.lt,
    "less_equal": torch.le,
    "greater_than": torch.gt,
    "greater_equal": torch.ge,
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_are_torch_s(agree: Agree, name: str) -> None:
    agree(getattr(tensor, name), COMPARISONS[name], ((None, 3), 3), ((3,), 3))
    agree(lambda x: getattr(tensor, name)(x, 1), lambda x: COMPARISONS[name](x, 1), ((None, 3), 3))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
@pytest.mark.parametrize("kind", [bool, 2])
def test_logic_is_torch_s(agree: Agree, name: str, kind: Any) -> None:
    agree(getattr(tensor, name), getattr(torch, name), ((None, 3), kind), ((None, 3), kind))


def test_logical_not_is_torch_s(agree: Agree) -> None:
    agree(tensor.logical_not, torch.logical_not, ((None, 3), bool))


def test_results_are_written_to_out() -> None:
    x, out = tensor.ones([2], "bool"), tensor.zeros([2], "bool")
    written = tensor.logical_and(x, x, out=out)
    assert Executor().run(fetch_list=[written, out])[1].all()
    tensor.logical_not(x, out=out)
    assert not Executor().run(fetch_list=[out])[0].any()


def test_equal_all_compares_shapes_and_elements() -> None:
    x = tensor.to_tensor([1, 2])
    cases = [
        tensor.equal_all(x, tensor.to_tensor([1, 2])),
        tensor.equal_all(x, tensor.to_tensor([1, 3])),
        tensor.equal_all(x, tensor.to_tensor([1, 2, 3])),
    ]
    assert [f.tolist() for f in Executor().run(default_main_program(), {}, cases)] == [
        [True],
        [False],
        [False],
    ]


def test_equal_all_works_for_any_batch(agree: Agree) -> None:
    agree(lambda x: tensor.equal_all(x, x * 1), lambda x: torch.tensor([True]), ((None, 3), 3))


def test_equal_all_does_not_give_a_wrong_answer_for_a_size_it_was_not_built_for() -> None:
    x = default_main_program().data("x", [None], "int64")
    same = tensor.equal_all(x, tensor.to_tensor([1, 2, 3]))
    with pytest.raises(FeedError, match="size 3"):
        Executor().run(default_main_program(), {"x": np.array([1, 2, 3])}, [same])


@pytest.mark.parametrize("equal_nan", [False, True])
def test_allclose_is_numpy_s(equal_nan: bool) -> None:
    inf, nan = float("inf"), float("nan")
    pairs = [
        ([1.0], [1.0 + 1e-6]),
        ([1.0], [1.1]),
        ([inf], [inf]),
        ([inf], [-inf]),
        ([inf], [1.0]),
        ([nan], [nan]),
    ]
    outs = [tensor.allclose(tensor.to_tensor(a), tensor.to_tensor(b), equal_nan=equal_nan) for a, b in pairs]
    fetched = [f.tolist() for f in Executor().run(default_main_program(), {}, outs)]
    assert fetched == [[bool(np.allclose(a, b, equal_nan=equal_nan))] for a, b in pairs]


def test_is_empty_looks_at_the_sizes_when_it_runs() -> None:
    x = default_main_program().data("x", [None], "float32")
    some = tensor.masked_select(x, x > 0)
    empty = tensor.is_empty(some)
    for fed, expected in (([1.0, -1.0], False), ([-1.0, -1.0], True)):
        (fetched,) = Executor().run(default_main_program(), {"x": np.array(fed, "float32")}, [empty])
        assert fetched.tolist() == [expected]


def test_is_tensor_knows_variables() -> None:
    assert tensor.is_tensor(tensor.ones([1]))
    assert not tensor.is_tensor(np.ones(1))


def test_functions_of_bits_are_torch_s(agree: Agree) -> None:
    names = ("bitwise_and", "bitwise_or", "bitwise_xor")
    agree(
        lambda x, y: [*(getattr(tensor, name)(x, y) for name in names), tensor.bitwise_not(x)],
        lambda x, y: [*(getattr(torch, name)(x, y) for name in names), torch.bitwise_not(x)],
        ((None, 3), 9),
        ((None, 3), 9),
    )
