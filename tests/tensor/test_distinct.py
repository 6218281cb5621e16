"""Distinct elements, histograms and shards, against NumPy."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor


def test_unique_histogram_and_shards_are_numpy_s() -> None:
    ids = default_main_program().data("ids", [None], "int64")
    values = default_main_program().data("values", [None, 3], "float32")
    outs = [
        *tensor.unique(ids, return_index=True, return_inverse=True, return_counts=True),
        tensor.unique(ids),
        tensor.unique(ids, return_counts=True, dtype="int32")[1],
        tensor.histogram(values, bins=4, min=-1, max=1),
        tensor.histogram(values, bins=3),
        tensor.shard_index(ids, 20, 2, 1),
    ]
    array = np.array([5, 3, 3, 17, 5, 3])
    numbers = np.random.default_rng(0).standard_normal((6, 3)).astype("float32")
    fetched = Executor().run(feed={"ids": array, "values": numbers}, fetch_list=outs)
    wanted = [
        *np.unique(array, return_index=True, return_inverse=True, return_counts=True),
        np.unique(array),
        np.unique(array, return_counts=True)[1],
        np.histogram(numbers, 4, (-1, 1))[0],
        np.histogram(numbers, 3)[0],
        np.array([-1, -1, -1, 7, -1, -1]),
    ]
    for got, expected in zip(fetched, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert fetched[5].dtype == np.int32


def test_unsupported_arguments_raise() -> None:
    x = default_main_program().data("x", [2, 2], "int64")
    with pytest.raises(ConfigError, match="axis=0 is not supported"):
        tensor.unique(x, axis=0)
    with pytest.raises(ConfigError, match="use 0 to 1"):
        tensor.shard_index(x, 20, 2, 2)
    assert x.dtype == torch.int64
