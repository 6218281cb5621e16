"""choose_kernels: which convolutions choose their kernel, and that a step stays the same."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import Program, default_main_program, program_guard
from argosy.engine.ops.convolution import convolution
from argosy.engine.passes import default_passes
from argosy.engine.passes.autocast import Autocast
from argosy.engine.passes.base import Report, run_passes
from argosy.engine.passes.choose_kernels import ChooseKernels
from argosy.engine.runtime.scope import Scope, scope_guard
from argosy.utils import unique_name


def built(channels: int = 256, **options: Any) -> Any:
    x = paddle.static.data("x", [None, channels, 3, 3], "float32")
    h = paddle.static.nn.conv2d(x, 256, 3, **{"padding": 1, **options})
    loss = (paddle.static.nn.conv2d(h, 4, 3) ** 2).mean()
    paddle.optimizer.SGD(0.1).minimize(loss)
    return loss


def reported() -> Report:
    graph = default_main_program().graph
    run_passes(graph, default_passes(frozenset(), frozenset({"choose_kernels", "in_place"})))
    (first,) = run_passes(graph, [ChooseKernels()])
    assert run_passes(graph, [ChooseKernels()])[0].changed == 0, "a second run changes nothing"
    return first


def test_convolutions_with_few_channels_are_left_alone() -> None:
    built()
    assert reported() == Report(2, "2 of 4 convolutions select their kernel at run time")


def test_bfloat16_convolutions_select_their_kernel_too() -> None:
    built()
    graph = default_main_program().graph
    run_passes(graph, [Autocast(), *default_passes(frozenset(), frozenset({"choose_kernels", "in_place"}))])
    (report,) = run_passes(graph, [ChooseKernels()])
    assert report == Report(2, "2 of 4 convolutions select their kernel at run time")
    chosen = [n for n in graph.nodes if n.target is convolution]
    assert [n.meta["val"].dtype for n in chosen] == [torch.bfloat16]


@pytest.mark.parametrize("options", [{"groups": 2, "channels": 512}, {"dilation": 2, "padding": 2}])
def test_groups_and_dilation_are_left_alone(options: dict[str, int]) -> None:
    built(**options)
    assert reported().changed == 0


def test_a_program_that_is_not_in_channels_last_is_left_alone() -> None:
    built()
    (report,) = run_passes(default_main_program().graph, [ChooseKernels()])
    assert report.changed == 0


def test_training_is_the_same_with_and_without_the_pass() -> None:
    losses: dict[int, list[float]] = {}
    for without in (frozenset[str](), frozenset({"choose_kernels"})):
        with program_guard(Program(), Program()), unique_name.guard(), scope_guard(Scope()):
            paddle.static.default_startup_program().random_seed = 3
            loss = built()
            default_main_program().build = Build(without_passes=without)
            exe = paddle.static.Executor()
            exe.run(paddle.static.default_startup_program())
            for batch in (2, 40):  # few pixels, then many
                image = np.random.RandomState(0).rand(batch, 256, 3, 3).astype("float32")
                (value,) = exe.run(feed={"x": image}, fetch_list=[loss])
                losses.setdefault(batch, []).append(float(value))
    for one, other in losses.values():
        np.testing.assert_allclose(one, other, rtol=1e-4)
