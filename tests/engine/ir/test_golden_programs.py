"""Golden programs: the printed text of small programs, as built and as run.

A refactoring leaves `tests/programs/` untouched; a real change shows up there as a readable diff.
`UPDATE_PROGRAMS=1 make test` rewrites them.
"""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import argosy as paddle
from argosy.distributed.fleet.strategy_passes import startup_passes, training_passes
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.passes.base import rewrite
from argosy.engine.runtime.compile import compile_program
from argosy.optimizer.gradient_merge import GradientMergeOptimizer

FOLDER = Path(__file__).parent.parent.parent / "programs"


def mlp() -> paddle.Tensor:
    """Two layers and Momentum with decay."""
    x = paddle.static.data("x", [None, 4], "float32")
    y = paddle.static.data("y", [None, 1], "int64")
    h = paddle.static.nn.fc(x, 8, activation="relu")
    loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(h, 3), y)
    paddle.optimizer.Momentum(0.1, 0.9, weight_decay=1e-4).minimize(loss)
    return loss


def convolution() -> paddle.Tensor:
    """A residual block with batch norm, and Adam with clipping."""
    x = paddle.static.data("x", [None, 3, 8, 8], "float32")
    h = paddle.fluid.layers.conv2d(x, 4, 3, padding=1, bias_attr=False)
    h = paddle.fluid.layers.batch_norm(h, act="relu")
    h = paddle.fluid.layers.elementwise_add(h, paddle.fluid.layers.conv2d(h, 4, 1), act="relu", name="block")
    loss = paddle.mean(paddle.nn.functional.dropout(h, 0.5))
    paddle.optimizer.Adam(0.01, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
    return loss


def module() -> paddle.Tensor:
    """A torch module with a batch norm, and SGD."""
    x = paddle.static.data("x", [None, None, 4], "float32")
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.GELU())
    loss = paddle.mean(net(x))
    paddle.optimizer.SGD(0.1).minimize(loss)
    return loss


def for_two_ranks(
    loss: paddle.Tensor, optimizer: paddle.optimizer.Optimizer | GradientMergeOptimizer, **switches: bool
) -> None:
    """What fleet's minimize does on the first of two ranks."""
    strategy, startup = paddle.distributed.fleet.DistributedStrategy(), default_startup_program()
    for name, value in switches.items():
        setattr(strategy, name, value)
    equal = set(startup.persistables())
    _, pairs = optimizer.minimize(loss)
    pairs = optimizer.applied if isinstance(optimizer, GradientMergeOptimizer) else pairs
    rewrite(loss.program, training_passes(strategy, loss.program, pairs, ranks=2))
    rewrite(startup, startup_passes(startup, equal))


def mlp_on_two_ranks() -> paddle.Tensor:
    """Two layers and Momentum with decay, on two ranks, each all-reduce waited for at once."""
    x = paddle.static.data("x", [None, 4], "float32")
    y = paddle.static.data("y", [None, 1], "int64")
    h = paddle.static.nn.fc(x, 8, activation="relu")
    loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(h, 3), y)
    for_two_ranks(loss, paddle.optimizer.Momentum(0.1, 0.9, weight_decay=1e-4))
    return loss


def convolution_on_two_ranks() -> paddle.Tensor:
    """A convolution with sync_batch_norm, on two ranks, the all-reduces beside backward."""
    x = paddle.static.data("x", [None, 3, 8, 8], "float32")
    h = paddle.fluid.layers.conv2d(x, 4, 3, padding=1, bias_attr=False)
    loss = paddle.mean(paddle.fluid.layers.batch_norm(h, act="relu"))
    for_two_ranks(loss, paddle.optimizer.SGD(0.1), sync_batch_norm=True, sync_nccl_allreduce=False)
    return loss


def gradient_merge_on_two_ranks() -> paddle.Tensor:
    """One layer and SGD every 4 steps, on two ranks."""
    loss = paddle.mean(paddle.static.nn.fc(paddle.static.data("x", [None, 4], "float32"), 3))
    for_two_ranks(loss, GradientMergeOptimizer(paddle.optimizer.SGD(0.1), 4))
    return loss


def as_run(program: Program, loss: paddle.Tensor, due: frozenset[str] = frozenset()) -> str:
    """The nodes of the step in the order in which they run, after the default passes."""
    nodes = compile_program(program, [loss], due=due).step.nodes
    return "".join(f"{n.meta['role']:<9} {n.format_node()}\n" for n in nodes)


@pytest.mark.parametrize(
    "build",
    [mlp, convolution, module, mlp_on_two_ranks, convolution_on_two_ranks, gradient_merge_on_two_ranks],
)
def test_the_program_is_the_golden_one(build: Callable[[], paddle.Tensor]) -> None:
    loss = build()
    main = default_main_program()
    text = (
        f"{build.__doc__}\n\n# main\n{main}\n# startup\n{default_startup_program()}\n"
        f"# for testing\n{main.clone(for_test=True)}\n# as it runs, fetching the loss\n{as_run(main, loss)}"
    )
    for period in main.training.periods:
        text += f"# as it runs {period}\n{as_run(main, loss, frozenset({period.name}))}"
    path = FOLDER / f"{build.__name__}.txt"
    if os.environ.get("UPDATE_PROGRAMS"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} has changed; UPDATE_PROGRAMS=1 rewrites it"
