"""utils.run_check: trains a small program for a step."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import torch

from argosy.engine.errors import ProgramError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, scope_guard
from argosy.optimizer import SGD
from argosy.static.input import data
from argosy.static.nn import fc
from argosy.tensor import mean


def run_check() -> None:
    """Train a linear layer for a step, compare it with torch's, and print that the installation works."""
    rows = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup), names.guard(), scope_guard(scope):
        loss = mean(fc(data("x", [None, 2], "float32"), 1, weight_attr="weight", bias_attr=False))
        SGD(0.1).minimize(loss)
        executor = Executor()
        executor.run(startup)
        weight = torch.tensor(scope.get("weight").numpy().copy(), requires_grad=True)
        (value,) = executor.run(main, feed={"x": rows}, fetch_list=[loss])
        updated = scope.get("weight").clone()
    expected = (torch.from_numpy(rows) @ weight).mean()
    (gradient,) = torch.autograd.grad(expected, [weight])
    is_right = np.allclose(value, expected.item(), 1e-4)
    if not is_right or not torch.allclose(updated, weight.detach() - 0.1 * gradient, 1e-4):
        raise ProgramError(f"run_check: a linear layer gave {value}, and torch gives {expected.item()}")
    print("Argosy works well on 1 CPU.")
    print("PaddlePaddle's API is installed successfully! Let's start deep learning with Argosy now.")
