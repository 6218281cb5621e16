"""static.amp: decorate, lists, guards and loss scaling."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import argosy as paddle
from argosy import fluid
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from argosy.static import amp


class Job:
    """A small net, its optimizer and its losses, in a scope of its own."""

    def __init__(self, optimizer: str = "Momentum", guard: bool = False, **settings: Any) -> None:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
        self.main, startup = Program("main"), Program("startup")
        with program_guard(self.main, startup), names.guard():
            x = paddle.static.data("x", [None, 6], "float32")
            y = paddle.static.data("y", [None], "int64")
            if guard:
                with amp.fp16_guard():
                    hidden = net[0](x)
                self.out = net[2](torch.relu(hidden))
            else:
                self.out = net(x)
            self.loss = nn.functional.cross_entropy(self.out, y)
            self.optimizer = getattr(paddle.optimizer, optimizer)(0.1)
            if settings:
                self.optimizer = amp.decorate(self.optimizer, **settings)
            self.updates, self.params_grads = self.optimizer.minimize(self.loss, startup)
        self.scope, self.exe = Scope(), paddle.static.Executor()
        with scope_guard(self.scope):
            self.exe.run(startup)

    def run(self, steps: int = 5, scale: float = 1.0) -> list[float]:
        rng = np.random.default_rng(0)
        feed = {"x": scale * rng.standard_normal((8, 6)).astype("float32"), "y": rng.integers(0, 4, 8)}
        with scope_guard(self.scope):
            return [
                self.exe.run(self.main, feed=feed, fetch_list=[self.loss])[0].item() for _ in range(steps)
            ]

    def loss_scaling(self) -> float:
        with scope_guard(self.scope):
            return self.optimizer.get_loss_scaling()

    def parameters(self) -> dict[str, torch.Tensor]:
        return {p.name: self.scope.values_of()[p.name].clone() for p in self.main.all_parameters()}

    def dtypes(self, op: str) -> list[torch.dtype]:
        fused = self.main.fused()
        return [n.meta["val"].dtype for n in fused.graph.nodes if op == getattr(n.target, "_opname", "")]


@pytest.mark.parametrize(
    ("dtype", "optimizer"),
    [
        ("bfloat16", "SGD"),
        ("float16", "Momentum"),
        ("bfloat16", "Adam"),
        pytest.param("float16", "SGD", marks=pytest.mark.slow),
        pytest.param("bfloat16", "Momentum", marks=pytest.mark.slow),
        pytest.param("float16", "Adam", marks=pytest.mark.slow),
    ],
)
def test_trains_as_in_float32(dtype: str, optimizer: str) -> None:
    np.testing.assert_allclose(Job(optimizer, dtype=dtype).run(), Job(optimizer).run(), rtol=0.02)


def test_float16_gradients_are_unscaled_before_the_update() -> None:
    scaled, plain = Job(dtype="float16"), Job(dtype="float16", init_loss_scaling=1.0)
    scaled.run(2)
    plain.run(2)
    for name, value in plain.parameters().items():
        torch.testing.assert_close(scaled.parameters()[name], value, rtol=2e-3, atol=2e-4)
    assert (scaled.loss_scaling(), plain.loss_scaling()) == (32768.0, 1.0)


@pytest.mark.parametrize("optimizer", ["Momentum", "Adam"])
def test_an_overflow_skips_the_update_and_shrinks_the_scale(optimizer: str) -> None:
    job = Job(
        optimizer, dtype="float16", init_loss_scaling=2.0**40, decr_every_n_nan_or_inf=1, decr_ratio=2.0**-20
    )
    before = {name: value.clone() for name, value in job.scope.values_of().items()}
    job.run(1)
    after = job.scope.values_of()
    changed = [name for name, value in before.items() if not torch.equal(after[name], value)]
    assert [name.rstrip("_0") for name in changed] == ["loss_scaling"], (
        "no parameter, no velocity, no step count"
    )
    assert job.loss_scaling() == 2.0**20
    job.run(3)
    assert not torch.equal(job.parameters()["sequential_0.0.weight"], before["sequential_0.0.weight"])


def test_a_fixed_scale_stays() -> None:
    job = Job(dtype="float16", use_dynamic_loss_scaling=False, init_loss_scaling=64.0, incr_every_n_steps=1)
    job.run(3)
    assert job.loss_scaling() == 64.0
    assert "update_loss_scaling" not in str(job.main)


def test_bfloat16_has_no_loss_scaling() -> None:
    job = Job(dtype="bfloat16")
    assert job.loss_scaling() == 1.0
    assert "loss_scaling" not in str(job.main)


def test_a_black_variable_keeps_its_ops_in_float32() -> None:
    lists = amp.CustomOpLists(custom_black_varnames=["sequential_0.2.weight"])
    job = Job(amp_lists=lists)
    assert job.dtypes("addmm") == [torch.bfloat16, torch.float32]
    lists = amp.CustomOpLists(custom_black_list=["matmul"])
    assert set(Job(amp_lists=lists).dtypes("addmm")) == {torch.float32}


def test_pure_16_bit_applies_inside_the_guard() -> None:
    job = Job(guard=True, use_pure_fp16=True)
    assert job.dtypes("addmm") == [torch.bfloat16, torch.float32]
    assert Job(guard=True, use_pure_fp16=True, use_fp16_guard=False).dtypes("addmm") == [torch.bfloat16] * 2


def test_fusions_see_16_bit_ops() -> None:
    job = Job()
    decorated = Job(dtype="float16")
    build = paddle.static.BuildStrategy()
    build.fuse_all_optimizer_ops = True
    compiled = paddle.static.CompiledProgram(decorated.main, build_strategy=build)
    assert "fused_momentum" in str(compiled)
    assert "skip=found_inf" in str(compiled)
    assert "float16" in str(compiled)
    assert job.run(1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "float32"}, "amp: dtype is 'float32'; use 'bfloat16' or 'float16'"),
        ({"amp_lists": ["conv2d"]}, "use amp.CustomOpLists"),
        ({"decr_ratio": 2.0}, "decr_ratio is 2.0"),
        ({"incr_every_n_steps": 0}, "incr_every_n_steps is 0"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        amp.decorate(paddle.optimizer.SGD(0.1), **settings)
    assert message in str(caught.value)


def test_the_1_x_names_are_the_same_functions() -> None:
    assert fluid.contrib.mixed_precision.decorate is amp.decorate
    assert paddle.static.amp.CustomOpLists is amp.AutoMixedPrecisionLists
