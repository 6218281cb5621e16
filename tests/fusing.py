"""Train a small net with and without fusions, and compare: shared by the tests of the fusions."""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, fx

import argosy as paddle
from argosy.engine.ir import names
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.show import op_name
from argosy.engine.ir.variable import Variable
from argosy.engine.passes import FUSION_NAMES
from argosy.engine.passes.base import Pass, Report, run_passes
from argosy.engine.runtime.scope import Scope, scope_guard

Net = Callable[[Variable], Variable]
SHAPE = [6, 3, 9, 9]
FUSIONS = (
    "fuse_relu_depthwise_conv",
    "fuse_bn_act_ops",
    "fuse_bn_add_act_ops",
    "fuse_elewise_add_act_ops",
    "fuse_all_optimizer_ops",
)
"""The switches of a build strategy that fuse computation."""


def built(
    net: Net, trains: bool = True, shape: Sequence[int | None] = SHAPE
) -> tuple[Program, Program, Variable]:
    """A program with a feed x, the net's mean square as loss, and SGD's updates."""
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard():
        loss = paddle.mean(paddle.square(net(paddle.static.data("x", list(shape), "float32"))))
        if trains:
            paddle.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return main, startup, loss


def fused(program: Program, *passes: Pass) -> tuple[Counter[str], list[Report]]:
    """What nodes a copy of the program has after the passes, and what they said."""
    graph = fx.Graph()
    graph.graph_copy(program.graph, {})
    reports = run_passes(graph, passes)
    return Counter(op_name(n) for n in graph.nodes if n.op == "call_function"), reports


def trained(
    net: Net, passes: tuple[Pass, ...], steps: int = 3, shape: Sequence[int | None] = SHAPE
) -> dict[str, Tensor]:
    """The variables and the losses after some steps."""
    main, startup, loss = built(net, shape=shape)
    main.build = Build(frozenset(FUSION_NAMES), fusions=passes)
    rng = np.random.default_rng(0)
    with scope_guard(Scope()) as _, program_guard(main, startup):
        torch.manual_seed(0)
        exe = paddle.static.Executor()
        exe.run(startup)
        losses = []
        for _ in range(steps):
            x = rng.standard_normal([s or 4 for s in shape]).astype("float32")
            losses.append(exe.run(main, feed={"x": x}, fetch_list=[loss])[0])
        values = {k: v.clone() for k, v in paddle.static.global_scope().values_of().items()}
    values["losses"] = torch.from_numpy(np.stack(losses))
    return values


def assert_trains_alike(
    net: Net, *passes: Pass, bound: float = 1e-5, shape: Sequence[int | None] = SHAPE
) -> None:
    """With and without the passes the same comes out, within the bound."""
    plain, other = trained(net, (), shape=shape), trained(net, passes, shape=shape)
    assert plain.keys() == other.keys()
    for name, value in plain.items():
        torch.testing.assert_close(other[name], value, rtol=bound, atol=bound, msg=f"{name} differs")
