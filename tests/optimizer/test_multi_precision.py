"""multi_precision: 16-bit parameters with float32 masters, fused and unfused."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from argosy import optimizer
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.base import rewrite
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.framework.initializer import Normal
from argosy.framework.layer import apply, create_parameter
from argosy.optimizer.optimizer import Optimizer

MAKE: dict[str, Callable[..., Optimizer]] = {
    "momentum": lambda rate, **how: optimizer.Momentum(rate, 0.9, weight_decay=0.01, **how),
    "adam": lambda rate, **how: optimizer.Adam(rate, epsilon=1e-3, **how),
    "adamw": lambda rate, **how: optimizer.AdamW(rate, epsilon=1e-3, **how),
}
each_optimizer = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE.keys())
WIDE, NARROW = "float32", "bfloat16"


def loss_of(dtypes: tuple[str, str]) -> Variable:
    """Two matrices, one behind the other, computed with in float32."""
    program = default_main_program()
    x = program.data("x", [None, 4], WIDE)
    w, v = (
        create_parameter(program, name, shape, dtype, Normal(0.0, 0.5))
        for name, shape, dtype in zip("wv", ([4, 8], [8, 2]), dtypes, strict=True)
    )
    out = apply(
        "net", lambda x, w, v: ((torch.tanh(x @ w.float()) @ v.float()) ** 2).mean().reshape(1), x, w, v
    )
    assert isinstance(out, Variable)
    return out


def train(steps: int = 4) -> dict[str, torch.Tensor]:
    executor, draw = Executor(), np.random.default_rng(0)
    torch.manual_seed(0)
    executor.run(default_startup_program())
    for _ in range(steps):
        executor.run(default_main_program(), {"x": draw.standard_normal((3, 4)).astype(WIDE)})
    return {name: value.clone() for name, value in global_scope().values_of().items()}


@each_optimizer
@pytest.mark.parametrize("dtype", [NARROW, "float16"])
def test_a_master_begins_as_the_parameter_which_stays_what_it_rounds_to(
    make: Callable[..., Optimizer], dtype: str
) -> None:
    make(0.01, multi_precision=True).minimize(loss_of((dtype, WIDE)))
    first = train(steps=0)
    assert torch.equal(first["w_fp32_master_0"], first["w"].float())
    trained = train()
    assert "v_fp32_master_0" not in trained
    assert {value.dtype for name, value in trained.items() if name != "w"} == {torch.float32}
    assert not torch.equal(trained["w_fp32_master_0"], first["w_fp32_master_0"])
    assert torch.equal(trained["w"], trained["w_fp32_master_0"].to(trained["w"].dtype))


@each_optimizer
def test_steps_too_small_for_16_bits_add_up(make: Callable[..., Optimizer]) -> None:
    make(1e-5, multi_precision=True).minimize(loss_of((NARROW, NARROW)))
    first, actual = train(steps=0), train(steps=4)
    moved = (actual["w_fp32_master_0"] - first["w_fp32_master_0"]).abs()
    assert 0 < moved.max() < 1e-3


@each_optimizer
def test_fused_and_unfused_give_the_same(make: Callable[..., Optimizer]) -> None:
    make(0.01, multi_precision=True).minimize(loss_of((NARROW, NARROW)))
    plain = train()
    (report,) = rewrite(default_main_program(), [FuseOptimizer()])
    assert report.text == "2 of 2 updates fused into 1"
    for name, value in train().items():
        torch.testing.assert_close(value, plain[name], rtol=1e-6, atol=1e-6, msg=name)


def test_parameters_with_a_master_and_without_do_not_go_together() -> None:
    MAKE["adam"](0.01, multi_precision=True).minimize(loss_of((NARROW, WIDE)))
    (report,) = rewrite(default_main_program(), [FuseOptimizer()])
    assert report.text == "2 of 2 updates fused into 2; 2 without a compatible update, alone"


@each_optimizer
def test_without_16_bit_parameters_it_changes_nothing(make: Callable[..., Optimizer]) -> None:
    make(0.01, multi_precision=True).minimize(loss_of((WIDE, WIDE)))
    assert not [name for name in default_main_program().vars if "master" in name]


@each_optimizer
def test_without_it_a_16_bit_parameter_has_16_bit_states(make: Callable[..., Optimizer]) -> None:
    make(0.01).minimize(loss_of((NARROW, WIDE)))
    trained: dict[str, Any] = train()
    assert not [name for name in trained if "master" in name]
    assert {trained[name].dtype for name in trained if name.startswith("w") and "step" not in name} == {
        torch.bfloat16
    }


def test_a_startup_program_that_does_not_make_the_parameter_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"multi_precision: other has no initial value of 'w' to copy; minimize with"
    ):
        MAKE["adam"](0.01, multi_precision=True).minimize(loss_of((NARROW, WIDE)), Program("other"))
