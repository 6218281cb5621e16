"""cos_sim and edit_distance agree with torch and with the textbook algorithm."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import static
from argosy.engine.errors import ConfigError
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers, nets
from tests.ragged import check, ids_of


def test_cosines_are_those_of_torch() -> None:
    x, y = static.data("x", [None, 4]), static.data("y", [None, 4])
    x.stop_gradient = False
    out = layers.cos_sim(x, y)
    (gradient,) = static.gradients(layers.reduce_sum(out), [x])
    one_row = layers.cos_sim(x, static.data("z", [1, 4]))
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    feed = {"x": a.detach(), "y": b, "z": b[:1]}
    got, dx, broadcast = Executor().run(feed=feed, fetch_list=[out, gradient, one_row], return_numpy=False)
    expected = F.cosine_similarity(a, b)
    torch.testing.assert_close(got, expected.detach().unsqueeze(1))
    torch.testing.assert_close(dx, torch.autograd.grad(expected.sum(), a)[0])
    torch.testing.assert_close(broadcast[:, 0], F.cosine_similarity(a, b[:1]).detach())


def levenshtein(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        before, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            before, row[j + 1] = row[j + 1], min(row[j + 1] + 1, row[j] + 1, before + (x != y))
    return row[-1]


A: list[list[int]] = [[1, 2, 3, 4], [], [5, 5], [1, 9, 2]]
B: list[list[int]] = [[2, 3, 4, 4, 1], [7, 7], [5], [1, 2]]


def test_edit_distances_are_those_of_the_textbook() -> None:
    x, y = (static.data(name, [None, 1], "int64", lod_level=1) for name in "xy")
    plain, count = layers.edit_distance(x, y, normalized=False)
    ignoring, _ = layers.edit_distance(x, y, normalized=False, ignored_tokens=[9, 7])
    normalized, _ = layers.edit_distance(x, y)
    feed = {"x": ids_of(*A), "y": ids_of(*B)}
    got, number, without, mean = Executor().run(feed=feed, fetch_list=[plain, count, ignoring, normalized])
    expected = [levenshtein(a, b) for a, b in zip(A, B, strict=True)]
    assert (got.tolist(), number.tolist()) == ([[e] for e in expected], [4])
    np.testing.assert_allclose(mean[:, 0], [e / len(b) for e, b in zip(expected, B, strict=True)])
    without_ignored = [[[i for i in s if i not in (9, 7)] for s in batch] for batch in (A, B)]
    assert without[:, 0].tolist() == [levenshtein(a, b) for a, b in zip(*without_ignored, strict=True)]


def test_padded_ids_need_both_lengths() -> None:
    x, n = static.data("x", [None, 4], "int64"), static.data("n", [None], "int64")
    out, _ = layers.edit_distance(x, x, False, input_length=n, label_length=n)
    other, _ = layers.edit_distance(x, x + 1, False, input_length=n, label_length=n)
    feed: dict[str, Any] = {"x": np.array([[1, 1, 0, 0], [5, 6, 7, 8]]), "n": np.array([2, 4])}
    same, different = Executor().run(feed=feed, fetch_list=[out, other])
    assert (same[:, 0].tolist(), different[:, 0].tolist()) == ([0, 0], [2, 2])
    with pytest.raises(ConfigError, match="both input_length and label_length"):
        layers.edit_distance(x, x, input_length=n)


def test_a_convolution_and_a_pool_are_a_net() -> None:
    def layer(x: Any) -> Any:
        return nets.sequence_conv_pool(x, 4, 3, lambda shape, dtype: torch.ones(shape) / 9, pool_type="sum")

    def loop(sequences: list[torch.Tensor]) -> torch.Tensor:
        rows = [
            F.pad(s, (0, 0, 1, 1)).unfold(0, 3, 1).sum((1, 2)) / 9 if len(s) else s[:, 0] for s in sequences
        ]
        return torch.stack([torch.sigmoid(r).sum().expand(4) for r in rows])

    check(layer, loop)
