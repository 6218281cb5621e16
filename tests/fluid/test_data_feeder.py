"""DataFeeder: samples of dense and ragged variables, and samples that do not fit."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from argosy import fluid
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError
from argosy.fluid import layers


def test_samples_become_tensors_and_lod_tensors() -> None:
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    layers.data("label", [1], dtype="int64")
    feed = fluid.DataFeeder([words, "label"]).feed([([1, 2], 0), ([], 1), ([3], 1)])
    assert isinstance(feed["words"], LoDTensor)
    assert feed["words"].recursive_sequence_lengths() == [[2, 0, 1]]
    total = layers.sequence_pool(layers.cast(words, "float32"), "sum")
    sums, labels = fluid.Executor().run(feed=feed, fetch_list=[total, "label"])
    np.testing.assert_array_equal(sums, [[3], [0], [3]])
    assert labels.tolist() == [[0], [1], [1]]


def test_a_sample_needs_a_value_for_every_variable() -> None:
    feeder = fluid.DataFeeder([layers.data("x", [1]), layers.data("y", [1])])
    with pytest.raises(ConfigError, match="sample 1 has 1 values; the feed_list has 2: x, y"):
        feeder.feed([(1.0, 2.0), (3.0,)])
