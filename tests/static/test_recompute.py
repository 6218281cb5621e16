"""Recompute on whole nets: bit-equal to the program without it, equal to torch, and with a lower peak."""

# SPDX-License-Identifier: Apache-2.0
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import argosy as paddle
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from argosy.optimizer.recompute import RecomputeOptimizer

STEPS = 3


class Dropout(nn.Module):
    """Dropout by the op that Argosy records: it draws the same mask from the same seed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(x, 0.5, True)[0]


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        conv = [nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)]
        self.body = nn.Sequential(
            conv[0], nn.BatchNorm2d(channels), nn.ReLU(inplace=True), conv[1], nn.BatchNorm2d(channels)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + x)


class Encoder(nn.Module):
    """A pre-norm transformer block with dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True, bias=False)
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class Chain(nn.Module):
    """Blocks one after the other; torch recomputes what is inside of them."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def mlp() -> tuple[Chain, list[int]]:
    block = [
        nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), Dropout()) for _ in range(6)
    ]
    return Chain(*block), [256, 64]


def resnet() -> tuple[Chain, list[int]]:
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(inplace=True))
    return Chain(stem, *[Residual(16) for _ in range(5)]), [8, 3, 32, 32]


def transformer() -> tuple[Chain, list[int]]:
    return Chain(*[Encoder(32) for _ in range(4)]), [8, 16, 32]


NETS = {"mlp": mlp, "resnet": resnet, "transformer": transformer}
Wrap = Callable[[Any, list[Any]], Any]


def chosen(optimizer: Any, outputs: list[Any]) -> Any:
    """Every second output is a checkpoint."""
    recompute = RecomputeOptimizer(optimizer)
    recompute._set_checkpoints(outputs[1::2])
    return recompute


def auto(optimizer: Any, outputs: list[Any]) -> Any:
    recompute = RecomputeOptimizer(optimizer)
    recompute._set_checkpoints("auto")
    return recompute


def batches(shape: list[int]) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(shape) for _ in range(STEPS)]


class Result:
    """The losses, the variables of the scope, the computed peak and the printed program of a training run."""

    def __init__(self, chain: Chain, shape: list[int], wrap: Wrap, build: dict[str, Any]) -> None:
        main, startup = Program("main"), Program("startup")
        with program_guard(main, startup), names.guard(), scope_guard(Scope()):
            x = paddle.static.data("x", [None, *shape[1:]], "float32")
            chain = copy.deepcopy(chain)
            # One call per block: its output is a Variable, which can be a checkpoint.
            outputs = [x]
            for block in chain.blocks:
                outputs.append(block(outputs[-1]))
            loss = outputs[-1].square().mean()
            wrap(paddle.optimizer.Momentum(0.1, 0.9), outputs[1:]).minimize(loss)
            strategy = paddle.static.BuildStrategy()
            for name, value in build.items():
                setattr(strategy, name, value)
            compiled = paddle.static.CompiledProgram(main, strategy)
            exe = paddle.static.Executor()
            exe.run(startup)
            inputs = batches(shape)
            torch.manual_seed(7)
            self.losses = [exe.run(compiled, feed={"x": x}, fetch_list=[loss])[0].item() for x in inputs]
            self.values = {n: v.clone() for n, v in paddle.static.global_scope().values_of().items()}
            self.parameters = [self.values[main.module_tensors.name_of(p)] for p in chain.parameters()]
            self.peak = exe.memory_report(main).peak_bytes
            self.text = str(compiled)


def trained_by_torch(chain: Chain, shape: list[int]) -> tuple[list[float], list[torch.Tensor]]:
    chain = copy.deepcopy(chain)
    optimizer = torch.optim.SGD(chain.parameters(), 0.1, 0.9)
    inputs = batches(shape)
    torch.manual_seed(7)
    losses = []
    for value in inputs:
        optimizer.zero_grad()
        loss = chain(value).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in chain.parameters()]


@pytest.mark.parametrize(
    ("net", "wrap"),
    [
        ("mlp", auto),
        ("resnet", chosen),
        pytest.param("mlp", chosen, marks=pytest.mark.slow),
        pytest.param("resnet", auto, marks=pytest.mark.slow),
        pytest.param("transformer", auto, marks=pytest.mark.slow),
        pytest.param("transformer", chosen, marks=pytest.mark.slow),
    ],
)
def test_results_are_equal_to_those_without_it_and_to_torch_with_a_lower_peak(net: str, wrap: Wrap) -> None:
    torch.manual_seed(0)
    chain, shape = NETS[net]()
    plain = Result(chain, shape, lambda optimizer, _: optimizer, {"memory_optimize": False})
    result = Result(chain, shape, wrap, {})
    assert result.losses == plain.losses
    for name, value in plain.values.items():
        assert torch.equal(result.values[name], value), name
    assert result.peak < 0.85 * plain.peak
    assert "_recompute = " in result.text
    losses, parameters = trained_by_torch(chain, shape)
    np.testing.assert_allclose(result.losses, losses, rtol=1e-4)
    torch.testing.assert_close(result.parameters, parameters, rtol=1e-3, atol=1e-4)
