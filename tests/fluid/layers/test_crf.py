"""linear_chain_crf and crf_decoding agree with an enumeration of all paths; gradients with torch's autograd."""

# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from argosy import static
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError, FeedError
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers
from argosy.framework.layer import ParamAttr

TAGS = 3
LENGTHS = [2, 0, 3, 1]
LABELS = [[0, 2], [], [1, 1, 0], [2]]


def transition() -> Tensor:
    return torch.sin(torch.arange(5.0 * TAGS)).reshape(5, TAGS) * 2


ATTR = ParamAttr(name="crfw", initializer=lambda shape, dtype: transition())


def score(x: Tensor, weight: Tensor, path: Any) -> Tensor:
    steps = [x[i, tag] for i, tag in enumerate(path)] + [weight[2 + a, b] for a, b in pairwise(path)]
    return torch.stack([*steps, weight[0, path[0]], weight[1, path[-1]]]).sum()


def paths(x: Tensor) -> list[tuple[int, ...]]:
    return list(product(range(TAGS), repeat=len(x)))


def best_path(x: Tensor) -> tuple[int, ...]:
    return max(paths(x), key=lambda path: float(score(x, transition(), path)))


def cost(x: Tensor, weight: Tensor, label: list[int]) -> Tensor:
    if not label:
        return torch.zeros(())
    return torch.logsumexp(torch.stack([score(x, weight, p) for p in paths(x)]), 0) - score(x, weight, label)


def feed(rows: Tensor) -> dict[str, Any]:
    tags = np.array([[tag] for label in LABELS for tag in label])
    return {"x": LoDTensor.of_lengths(rows, [LENGTHS]), "label": LoDTensor.of_lengths(tags, [LENGTHS])}


def test_cost_gradients_and_best_path_agree_with_all_paths() -> None:
    x = static.data("x", [None, TAGS], lod_level=1)
    x.stop_gradient = False
    label = static.data("label", [None, 1], "int64", lod_level=1)
    out = layers.linear_chain_crf(x, label, ATTR)
    best, equal = layers.crf_decoding(x, ParamAttr(name="crfw")), layers.crf_decoding(x, ATTR, label)
    weights = torch.arange(1.0, 5.0).unsqueeze(1)
    loss = out.program.call(lambda t: (t * weights).sum(), (out,), {}, "loss")
    gradients = static.gradients(loss, [x, out.program.vars["crfw"]])
    exe = Executor()
    exe.run(static.default_startup_program())
    rows = torch.randn(6, TAGS, generator=torch.Generator().manual_seed(0))
    got, tags, matches, dx, dw = exe.run(
        feed=feed(rows), fetch_list=[out, best, equal, *gradients], return_numpy=False
    )
    leaf, weight = rows.clone().requires_grad_(), transition().requires_grad_()
    pieces = leaf.split(LENGTHS)
    expected = torch.stack([cost(s, weight, tag) for s, tag in zip(pieces, LABELS, strict=True)])
    torch.testing.assert_close(got, expected.detach().unsqueeze(1))
    wanted = torch.autograd.grad((expected.unsqueeze(1) * weights).sum(), [leaf, weight])
    torch.testing.assert_close(dx.rows, wanted[0])
    torch.testing.assert_close(dw, wanted[1])
    optimal = [best_path(s.detach()) for s in pieces if len(s)]
    flat = [tag for path in optimal for tag in path]
    assert tags.rows.flatten().tolist() == flat
    assert tags.recursive_sequence_lengths() == [LENGTHS]
    labels = [tag for label_tags in LABELS for tag in label_tags]
    assert matches.rows.flatten().tolist() == [int(a == b) for a, b in zip(flat, labels, strict=True)]
    other = LoDTensor.of_lengths(np.zeros((6, 1), np.int64), [[6, 0, 0, 0]])
    with pytest.raises(FeedError, match="their sequences differ"):
        exe.run(feed={**feed(rows), "label": other}, fetch_list=[out])


def test_padded_input_gives_the_same_and_padded_tags() -> None:
    x, label = static.data("x", [None, 3, TAGS]), static.data("label", [None, 3], "int64")
    length = static.data("length", [None, 1], "int64")
    out = layers.linear_chain_crf(x, label, ATTR, length)
    best = layers.crf_decoding(x, ATTR, length=length)
    exe = Executor()
    exe.run(static.default_startup_program())
    rows = torch.randn(2, 3, TAGS, generator=torch.Generator().manual_seed(1))
    fed = {"x": rows, "label": np.array([[0, 2, 0], [1, 1, 0]]), "length": np.array([[2], [3]])}
    costs, tags = exe.run(feed=fed, fetch_list=[out, best])
    expected = [float(cost(rows[0, :2], transition(), [0, 2])), float(cost(rows[1], transition(), [1, 1, 0]))]
    np.testing.assert_allclose(costs[:, 0], expected, rtol=1e-5)
    assert (tags.shape, tags[0, 2]) == ((2, 3), 0)
    with pytest.raises(ConfigError, match="needs a known maxlen"):
        layers.crf_decoding(static.data("y", [None, None, TAGS]), ATTR, length=length)
