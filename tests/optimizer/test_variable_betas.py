"""Rates and betas that are Variables: the updates of torch, values that the program or the script changes, errors."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from argosy import fluid, optimizer
from argosy.engine.errors import ConfigError, UnsupportedError
from argosy.engine.ir import names
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard

BATCHES = np.random.default_rng(0).random((6, 8, 4), "float32")
layers = fluid.layers


def scalar(name: str, value: float) -> Variable:
    return layers.create_global_var([1], value, "float32", persistable=True, name=name)


def trained(make: Callable[[], Any], between: Callable[[int], None] = lambda step: None) -> torch.Tensor:
    """The weight of a linear layer after six steps on mean((x w)²)."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), names.guard(), scope_guard(Scope()):
        x = fluid.data("x", [None, 4])
        out = layers.fc(x, 2, param_attr=fluid.initializer.Constant(0.5), bias_attr=False)
        make().minimize(layers.mean(layers.square(out)))
        exe = fluid.Executor()
        exe.run(startup)
        for step, batch in enumerate(BATCHES):
            between(step)
            exe.run(main, feed={"x": batch})
        return global_scope().get("fc_0.w_0").clone()


def expected(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], rates: list[float]) -> torch.Tensor:
    weight = torch.full((4, 2), 0.5, requires_grad=True)
    trainer = make([weight])
    for batch, rate in zip(BATCHES, rates, strict=True):
        for group in trainer.param_groups:
            group["lr"] = rate
        trainer.zero_grad()
        (torch.from_numpy(batch) @ weight).square().mean().backward()
        trainer.step()
    return weight.detach()


def test_a_rate_in_the_scope_can_be_changed_between_steps() -> None:
    rates = [0.1, 0.1, 0.05, 0.05, 0.2, 0.2]

    def set_rate(step: int) -> None:
        global_scope().get("rate").fill_(rates[step])

    weight = trained(lambda: fluid.optimizer.SGD(scalar("rate", 7.0)), set_rate)
    torch.testing.assert_close(weight, expected(lambda p: torch.optim.SGD(p, 0.1), rates))


def test_a_rate_that_the_program_computes() -> None:
    def momentum() -> Any:
        return optimizer.Momentum(scalar("base", 0.05) * 2.0, 0.9)

    wanted = expected(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), [0.1] * 6)
    torch.testing.assert_close(trained(momentum), wanted)


def test_adam_with_betas_in_the_scope_is_torchs() -> None:
    def adam() -> Any:
        return fluid.optimizer.Adam(0.1, beta1=scalar("beta1", 0.8), beta2=0.9, epsilon=1e-3)

    wanted = expected(lambda p: torch.optim.Adam(p, 0.1, (0.8, 0.9), 1e-3), [0.1] * 6)
    torch.testing.assert_close(trained(adam), wanted)


def test_get_lr_and_set_lr_use_the_variable() -> None:
    rate = scalar("rate", 0.25)
    sgd = optimizer.SGD(rate)
    with pytest.raises(ConfigError, match="no value in the global scope"):
        sgd.get_lr()
    fluid.Executor().run(fluid.default_startup_program())
    assert sgd.get_lr() == 0.25
    sgd.set_lr(0.5)
    assert (sgd.get_lr(), global_scope().get("rate").item()) == (0.5, 0.5)
    with pytest.raises(ConfigError, match="fetch it"):
        optimizer.SGD(rate * 2).get_lr()


def test_what_is_no_rate_or_beta_is_rejected() -> None:
    vector, count = layers.fill_constant([2], "float32", 1.0), layers.fill_constant([1], "int64", 1)
    for wrong in (vector, count):
        with pytest.raises(TypeError, match="use a Variable with one floating-point number"):
            optimizer.SGD(wrong)
    with pytest.raises(UnsupportedError, match="one number"):
        optimizer.Adam(beta1=vector)
    with pytest.raises(UnsupportedError, match="multi_precision"):
        optimizer.Adam(beta2=scalar("beta", 0.9), multi_precision=True)
    with pytest.raises(TypeError, match="AdamW beta1"):
        optimizer.AdamW(beta1=scalar("beta1", 0.9))  # type: ignore[arg-type]
    with pytest.raises(
        UnsupportedError, match="beta2 is a Variable, which is not supported on parameter servers"
    ):
        optimizer.Adam(beta2=scalar("beta", 0.9)).settings_of(layers.create_parameter([2], "float32"))
