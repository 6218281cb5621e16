"""one_hot and embedding."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import fluid, nn, static, tensor
from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor
from argosy.nn import functional

Agree = Callable[..., None]


@pytest.mark.parametrize("shape", [(None,), (None, 1), (None, 2, 3)])
def test_one_hot_marks_the_id(agree: Agree, shape: Any) -> None:
    agree(lambda x: functional.one_hot(x, 4), lambda x: F.one_hot(x, 4).float(), (shape, 4))


def test_one_hot_refuses_an_id_that_is_no_class() -> None:
    result = functional.one_hot(tensor.to_tensor([4]), 4)
    with pytest.raises(ProgramError, match="out of bounds"):
        Executor().run(default_main_program(), {}, [result])


@pytest.mark.parametrize("shape", [(None,), (None, 1), (None, 2, 3)])
@pytest.mark.parametrize("sparse", [False, True])
def test_embedding_looks_up_rows(agree: Agree, shape: Any, sparse: bool) -> None:
    agree(lambda i, w: functional.embedding(i, w, sparse=sparse), F.embedding, (shape, 6), (6, 3))


@pytest.mark.parametrize("padding_idx", [0, 2, -1])
def test_a_padding_row_is_zeros_and_gets_no_gradient(agree: Agree, padding_idx: int) -> None:
    def expect(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        keep = torch.ones(4, 1)
        keep[padding_idx] = 0
        return F.embedding(ids, weight * keep)

    agree(lambda i, w: functional.embedding(i, w, padding_idx), expect, ((None, 2), 4), (4, 3))


def test_embedding_takes_int32_ids() -> None:
    ids = tensor.to_tensor([2, 0], "int32")
    out = functional.embedding(ids, tensor.eye(3), padding_idx=0)
    (fetched,) = Executor().run(default_main_program(), {}, [out])
    np.testing.assert_array_equal(fetched, [[0, 0, 1], [0, 0, 0]])


def test_embedding_names_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="of float32; give a Variable of integers"):
        functional.embedding(tensor.ones([2]), tensor.eye(3))
    with pytest.raises(ConfigError, match="padding_idx=3"):
        functional.embedding(tensor.ones([2], "int64"), tensor.eye(3), 3)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "look_up",
    [
        lambda ids, sparse: static.nn.embedding(ids, [6, 3], is_sparse=sparse),
        lambda ids, sparse: fluid.layers.embedding(ids, [6, 3], is_sparse=sparse),
        lambda ids, sparse: nn.Embedding(6, 3, sparse=sparse)(ids),
    ],
)
def test_a_table_remembers_that_it_is_sparse(look_up: Callable[..., Any], sparse: bool) -> None:
    look_up(default_main_program().data("ids", [None, 1], "int64"), sparse)
    (table,) = default_main_program().all_parameters()
    assert table.is_sparse is sparse
    assert default_main_program().clone().all_parameters()[0].is_sparse is sparse
