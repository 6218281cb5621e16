"""host_updates: the shards of a list of updates, and updates of the sums of several ranks' gradients."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from argosy.engine.kernels import unavailable
from argosy.engine.kernels.updates import Row
from argosy.engine.ops.host_updates import RankGradient, rows_of_rank
from argosy.engine.ops.updates import FUSED, update_op
from argosy.engine.runtime.codegen import kernel

SHAPES = [(100, 7), (5,), (24, 3, 3, 3), (1,), (513,)]


def tensors(seed: int, channels_last: bool = False) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(shape, generator=generator) for shape in SHAPES]
    return [
        v.contiguous(memory_format=torch.channels_last) if channels_last and v.ndim == 4 else v
        for v in values
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_element_belongs_to_one_rank(size: int) -> None:
    params = tensors(0, channels_last=True)
    grads = [tuple(torch.zeros_like(p) for _ in range(size)) for p in params]
    counts = [torch.zeros(1) for _ in params]
    updated = [torch.zeros_like(p) for p in params]
    rows = [Row(0.1, 0.0, (u, g[0]), (c,), None, g) for u, g, c in zip(updated, grads, counts, strict=True)]
    sizes = []
    for index in range(size):
        parts = rows_of_rank(rows, index)
        for part in parts:
            part.tensors[0].add_(1.0)
            assert all(t.shape == part.tensors[0].shape for t in (*part.tensors, *part.summands))
        sizes.append(sum(part.tensors[0].numel() for part in parts))
    assert all(bool((u == 1).all()) for u in updated)
    assert max(sizes) - min(sizes) < 128
    assert (
        sum(int(c) for c in counts)
        == len(rows) * size - sum(len(rows_of_rank(rows, index)) for index in range(size))
        or size == 1
    ), "the counts of rows that this rank does not update are incremented here"


def test_tensors_of_different_layouts_are_not_cut() -> None:
    param = torch.randn(64, 3, 3, 3).contiguous(memory_format=torch.channels_last)
    grads = (torch.randn(64, 3, 3, 3), torch.randn(64, 3, 3, 3))
    row = Row(0.1, 0.0, (param, grads[0]), (), None, grads)
    assert [len(rows_of_rank([row], index)) for index in range(2)] == [1, 0]
    assert rows_of_rank([row], 0)[0] is row


@pytest.mark.skipif(unavailable() is not None, reason="needs Argosy's kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_ranks_together_update_as_one_that_adds_up_first(name: str, size: int, dtype: torch.dtype) -> None:
    grads = [tuple(tensors(r, True)[i].to(dtype) for r in range(size)) for i in range(len(SHAPES))]
    totals = [sum((part.float() for part in parts[1:]), parts[0].float()).to(dtype) for parts in grads]
    expected = variables(name)
    update(name, expected, totals, [c.clone() for c in counts(name)])
    actual = variables(name)
    for index in range(size):
        update(
            name, actual, [RankGradient(parts, index) for parts in grads], [c.clone() for c in counts(name)]
        )
    for column, wanted in zip(actual, expected, strict=True):
        for a, b in zip(column, wanted, strict=True):
            assert torch.equal(a, b)
    assert not torch.equal(actual[0][0], tensors(10, True)[0])


def variables(name: str) -> list[list[Tensor]]:
    """Parameters and state."""
    num_states = {"sgd": 0, "momentum": 1, "adam": 2}[name]
    states = [[t.square() for t in tensors(11 + i, True)] for i in range(num_states)]
    return [tensors(10, True), *states]


def counts(name: str) -> list[Tensor]:
    return [torch.full((1,), 3.0) for _ in SHAPES] if name == "adam" else []


def update(name: str, columns: list[list[Tensor]], grads: Sequence[object], steps: list[Tensor]) -> None:
    op = FUSED[update_op(name)]
    settings = {"sgd": (), "momentum": (0.9, True), "adam": (0.9, 0.99, 1e-8)}[name]
    decays = [] if name == "adam" else [[0.01] * len(SHAPES)]
    params, *states = columns
    counted = [steps] if steps else []
    rate, factors = torch.tensor([0.1]), [1.0] * len(SHAPES)
    kernel(op)(params, grads, *states, *counted, rate, factors, *settings, *decays, [])
