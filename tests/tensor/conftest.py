"""`agree`: a function of Variables gives what the same function of torch tensors gives, gradients included.

    agree(paddle_function, torch_function, (None, 3), ((None,), 4))

builds a program with two feeds, runs it with batches of 5 and of 1 and compares. A feed is a shape, None being the
batch, of Gaussian float32; or (shape, kind): "positive", "unit" (between 0 and 1), "fixed" (positive, and not
differentiated for), bool, or whole numbers below a number.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from argosy.engine.ir import names
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import Program, default_main_program, program_guard
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.framework.layer import apply

Shape = tuple[int | None, ...]


@pytest.fixture
def agree() -> Callable[..., None]:
    return _agree


def _agree(
    build: Callable[..., Any],
    expect: Callable[..., Any],
    *feeds: Any,
    rtol: float = 1e-5,
    batches: tuple[int, int] = (5, 1),
) -> None:
    with program_guard(Program()), names.guard():
        _check(build, expect, feeds, rtol, batches)


def _check(
    build: Callable[..., Any],
    expect: Callable[..., Any],
    feeds: tuple[Any, ...],
    rtol: float,
    batches: tuple[int, int],
) -> None:
    described = [feed if feed and isinstance(feed[0], tuple) else (feed, "normal") for feed in feeds]
    program = default_main_program()
    ins = [_variable(i, shape, kind) for i, (shape, kind) in enumerate(described)]
    outs = _flat(build(*ins), Variable)
    sources = [v for v in ins if not v.stop_gradient]
    targets = [o for o in outs if o.value.requires_grad]
    seeds = [
        apply("seed", torch.cos, t) for t in targets
    ]  # not ones: a softmax adds up to 1 whatever changes
    grads = gradients(targets, sources, seeds) if targets and sources else []
    wanted = [g for g in grads if g is not None]
    exe = Executor()
    for batch in batches:
        arrays = [_array(shape, kind, batch) for shape, kind in described]
        fed = {v.name: a for v, a in zip(ins, arrays, strict=True)}
        fetched = exe.run(program, fed, [*outs, *wanted])
        tensors = [torch.from_numpy(a) for a in arrays]
        for variable, one in zip(ins, tensors, strict=True):
            one.requires_grad_(not variable.stop_gradient)
        values = _flat(expect(*tensors), torch.Tensor)
        assert len(outs) == len(values)
        for out, got, value in zip(outs, fetched, values, strict=False):
            assert out.dtype == value.dtype
            assert all(known in (-1, size) for known, size in zip(out.shape, got.shape, strict=True))
            np.testing.assert_allclose(got, value.detach().numpy(), rtol=rtol, atol=1e-6, strict=True)
        _same_gradients(grads, fetched[len(outs) :], values, tensors, rtol)


def _same_gradients(
    grads: list[Variable | None],
    actual: list[Any],
    values: list[torch.Tensor],
    tensors: list[torch.Tensor],
    rtol: float,
) -> None:
    targets = [v for v in values if v.requires_grad]
    sources = [t for t in tensors if t.requires_grad]
    if not targets or not sources:
        assert not grads
        return
    expected = torch.autograd.grad(targets, sources, [t.cos().detach() for t in targets], allow_unused=True)
    assert [g is None for g in grads] == [e is None for e in expected]
    for got, value in zip(actual, [e for e in expected if e is not None], strict=True):
        np.testing.assert_allclose(got, value.numpy(), rtol=10 * rtol, atol=1e-5, strict=True)


def _variable(number: int, shape: Shape, kind: Any) -> Variable:
    variable = default_main_program().data(f"in{number}", shape, str(_array(shape, kind, 2).dtype))
    if variable.dtype == torch.float32 and kind != "fixed":
        variable.stop_gradient = False
    return variable


def _array(shape: Shape, kind: Any, batch: int) -> np.ndarray[Any, Any]:
    sizes = [batch if size is None else size for size in shape]
    random = np.random.default_rng(batch)
    if kind is bool:
        return random.random(sizes) < 0.5
    if isinstance(kind, int):
        return random.integers(0, kind, sizes)
    array = random.standard_normal(sizes) if kind == "normal" else random.uniform(0.05, 0.95, sizes)
    return (array + 1 if kind in ("positive", "fixed") else array).astype("float32")


def _flat(tree: Any, kind: type) -> list[Any]:
    if isinstance(tree, kind):
        return [tree]
    return [one for part in tree for one in _flat(part, kind)]
