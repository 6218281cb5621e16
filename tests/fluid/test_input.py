"""fluid.one_hot and fluid.embedding: ids of any shape."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from argosy import fluid


def test_one_hot_appends_a_dimension_and_that_of_layers_replaces_the_last() -> None:
    ids = fluid.data("ids", [None, 1], "int64")
    outs = [
        fluid.one_hot(input=ids, depth=4),
        fluid.one_hot(input=ids, depth=3, allow_out_of_range=True),
        fluid.layers.one_hot(input=ids, depth=4, allow_out_of_range=False),
        fluid.embedding(input=ids, size=[4, 2], is_sparse=False, padding_idx=None, dtype="float32"),
    ]
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    array = np.array([[0], [3]], "int64")
    spread, within, rows, embedded = exe.run(feed={"ids": array}, fetch_list=outs)
    np.testing.assert_array_equal(spread, np.eye(4, dtype="float32")[array])
    np.testing.assert_array_equal(within, np.eye(4, 3, dtype="float32")[array])
    np.testing.assert_array_equal(rows, np.eye(4, dtype="float32")[array[:, 0]])
    assert embedded.shape == (2, 1, 2)
    with pytest.raises(RuntimeError, match="one_hot|scatter|index"):
        exe.run(feed={"ids": np.array([[4]], "int64")}, fetch_list=[outs[0]])
