"""`agree` of tests/tensor, and `layer_agrees`, the same for layers that have parameters.

    layer_agrees(build, expect, (None, 3))

builds a program, gives its parameters Gaussian values, and compares build(x) with expect(parameters, x) in
torch: values, gradients of the feeds and of the parameters, with two batch sizes. `parameters` are torch
tensors by name.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch

from argosy.engine.ir import names
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.framework.layer import apply

_shared = run_path(str(Path(__file__).parents[1] / "tensor" / "conftest.py"))
agree = _shared["agree"]


@pytest.fixture
def layer_agrees() -> Callable[..., None]:
    return _layer_agrees


def _layer_agrees(
    build: Callable[..., Any], expect: Callable[..., Any], *feeds: Any, rtol: float = 2e-5
) -> None:
    described = [feed if feed and isinstance(feed[0], tuple) else (feed, "normal") for feed in feeds]
    with program_guard(Program(), Program()), names.guard(), scope_guard(Scope()):
        ins = [_shared["_variable"](i, shape, kind) for i, (shape, kind) in enumerate(described)]
        out = build(*ins)
        parameters = default_main_program().all_parameters()
        sources = [v for v in ins if not v.stop_gradient] + [p for p in parameters if p.trainable]
        grads: list[Any] = [*gradients([out], sources, [apply("seed", torch.cos, out)])]
        exe = Executor()
        exe.run(default_startup_program())
        for p in parameters:
            global_scope().get(p.name).normal_(generator=torch.Generator().manual_seed(len(p.name)))
        for batch in (5, 2):
            arrays = [_shared["_array"](shape, kind, batch) for shape, kind in described]
            fetched = exe.run(
                feed={v.name: a for v, a in zip(ins, arrays, strict=True)}, fetch_list=[out, *grads]
            )
            values = {
                p.name: global_scope().get(p.name).clone().requires_grad_(p.trainable) for p in parameters
            }
            tensors = [torch.from_numpy(a).requires_grad_(a.dtype == np.float32) for a in arrays]
            expected = expect(values, *tensors)
            leaves = [t for t in (*tensors, *values.values()) if t.requires_grad]
            wanted = torch.autograd.grad(expected, leaves, expected.cos().detach())
            assert all(known in (-1, size) for known, size in zip(out.shape, fetched[0].shape, strict=True))
            for got, value in zip(fetched, (expected.detach(), *wanted), strict=True):
                np.testing.assert_allclose(got, value.numpy(), rtol=10 * rtol, atol=2e-5, strict=True)
