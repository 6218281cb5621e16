"""LookAhead: slow weights as in a loop of plain torch."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy import fluid
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard

RATE, ALPHA, STEPS = 0.1, 0.3, 7


def by_torch(first: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    """Paddle's rule: the slow weights start as the fast ones after the first step."""
    fast = torch.tensor(first, requires_grad=True)
    slow = torch.zeros_like(fast)
    for step in range(1, STEPS + 1):
        (gradient,) = torch.autograd.grad(((inputs(step) @ fast) ** 2).mean(), fast)
        with torch.no_grad():
            fast -= RATE * gradient
            if step == 1:
                slow.copy_(fast)
            if step % k == 0:
                slow += ALPHA * (fast - slow)
                fast.copy_(slow)
    return fast.detach().numpy()


def inputs(step: int) -> torch.Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize(
    ("k", "wrapper"), [(3, paddle.incubate.LookAhead), (1, fluid.optimizer.LookaheadOptimizer)]
)
def test_every_k_steps_the_weights_continue_from_the_slow_ones(k: int, wrapper: Any) -> None:
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard():
        x = paddle.static.data("x", [None, 3])
        loss = paddle.mean(paddle.static.nn.fc(x, 1, bias_attr=False) ** 2)
        updates, params_grads = wrapper(paddle.optimizer.SGD(RATE), ALPHA, k).minimize(loss)
    assert len(updates) == len(params_grads) == 1
    exe = paddle.static.Executor()
    with scope_guard(Scope()):
        exe.run(startup)
        first = global_scope().get("fc_0.w_0").numpy().copy()
        for step in range(1, STEPS + 1):
            (weight,) = exe.run(main, feed={"x": inputs(step).numpy()}, fetch_list=["fc_0.w_0"])
        np.testing.assert_allclose(weight, by_torch(first, k), rtol=1e-5, atol=1e-7)


def test_invalid_settings_are_rejected() -> None:
    inner = paddle.optimizer.SGD(RATE)
    with pytest.raises(ConfigError, match=r"alpha is 2; use a number from 0 to 1"):
        paddle.incubate.optimizer.LookAhead(inner, alpha=2)
    with pytest.raises(ConfigError, match=r"k is 0"):
        paddle.incubate.optimizer.LookAhead(inner, k=0)
    with pytest.raises(ConfigError, match=r"inner_optimizer is a LookAhead"):
        paddle.incubate.optimizer.LookAhead(paddle.incubate.LookAhead(inner))
