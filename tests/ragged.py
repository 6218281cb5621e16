"""Compare a layer on ragged Variables with a loop over the sequences in eager torch: values, lengths and gradients."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argosy import static
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor

BATCHES = ([2, 0, 3], [4], [0, 0], [1], [1, 1, 5, 0])
"""Lengths of sequences: with an empty one, a batch of one, no rows, one row, an empty sequence at the end."""
Sequences = list[Tensor]


def rows_of(lengths: Sequence[int], shape: Sequence[int], seed: int = 0) -> Tensor:
    """Random rows for sequences of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sum(lengths), *shape, generator=generator)


def weighted_sum(x: Tensor) -> Tensor:
    """A number that depends on every element in another way, to differentiate."""
    return (x * torch.sin(torch.arange(x.numel()) + 1.0).reshape(x.shape)).sum()


def check(
    layer: Callable[..., Variable],
    loop: Callable[..., Tensor | Sequences],
    batches: Sequence[Sequence[int]] | Sequence[Sequence[Sequence[int]]] = BATCHES,
    shapes: Sequence[Sequence[int]] = ((3,),),
) -> Variable:
    """Run `layer(x, …)` and `loop([sequences of x], …)` on batches of the lengths of each input; compare them.

    `shapes` has the shape of a row of each input. A loop that returns a list expects a ragged result.
    """
    inputs = [static.data(f"x{i}", [None, *shape], "float32", lod_level=1) for i, shape in enumerate(shapes)]
    for x in inputs:
        x.stop_gradient = False
    out = layer(*inputs)
    program = default_main_program()
    loss = program.call(weighted_sum, (out,), {}, "weighted_sum")
    gradients = [g for g in static.gradients(loss, inputs) if g is not None]
    exe = Executor()
    exe.run(static.default_startup_program())
    for batch in batches:
        lengths: Any = batch if isinstance(batch[0], list) else [batch] * len(inputs)
        rows = [rows_of(each, shape, i) for i, (each, shape) in enumerate(zip(lengths, shapes, strict=True))]
        feed = {f"x{i}": LoDTensor.of_lengths(r, [lengths[i]]) for i, r in enumerate(rows)}
        value, *grads = exe.run(feed=feed, fetch_list=[out, *gradients], return_numpy=False)
        leaves = [r.clone().requires_grad_() for r in rows]
        expected = loop(*[list(leaf.split(each)) for leaf, each in zip(leaves, lengths, strict=True)])
        if isinstance(expected, list):
            assert value.recursive_sequence_lengths()[-1] == [len(s) for s in expected]
            value, expected = value.rows, torch.cat(expected)
        torch.testing.assert_close(value, expected.detach())
        total = weighted_sum(expected) + 0 * sum(leaf.sum() for leaf in leaves)
        for gradient, reference in zip(grads, torch.autograd.grad(total, leaves), strict=False):
            torch.testing.assert_close(gradient.rows, reference)
    return out


def ids_of(*sequences: Sequence[int]) -> LoDTensor:
    """A batch of sequences of ids, with rows of shape [1]."""
    flat = np.array([i for s in sequences for i in s], np.int64).reshape(-1, 1)
    return LoDTensor.of_lengths(flat, [[len(s) for s in sequences]])
