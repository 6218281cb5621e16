"""scale_loss_gradient: one number is scaled, once, and only the one that backward begins with."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from argosy import static
from argosy.engine.errors import ProgramError
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.passes.base import rewrite
from argosy.engine.passes.scale_loss_gradient import ScaleLossGradient
from argosy.engine.runtime.executor import Executor


def net() -> Program:
    """A program whose loss is called loss_0.tmp_0, with its backward part."""
    program = default_main_program()
    x = program.data("x", [None, 4])
    append_backward(static.nn.fc(x, 2).mean())
    return program


def seed(program: Program) -> ScaleLossGradient:
    return ScaleLossGradient(program.var("mean_0.tmp_0@GRAD").node, ranks=4)


def test_scales_the_gradient_of_the_loss() -> None:
    program = net()
    exe, feed = Executor(), {"x": np.ones((3, 4), "float32")}
    exe.run(default_startup_program())
    grads = ["mean_0.tmp_0@GRAD", "fc_0.w_0@GRAD", "fc_0.b_0@GRAD"]
    plain = exe.run(program, feed, grads)
    (report,) = rewrite(program, [seed(program)])
    assert (report.changed, report.text) == (1, "the gradient of the loss is 1/4")
    assert "mean_0.tmp_0@GRAD = full_like(mean_0.tmp_0, 0.25, pin_memory=False)" in str(program)
    for whole, quarter in zip(plain, exe.run(program, feed, grads), strict=True):
        np.testing.assert_array_equal(quarter, whole / 4)


def test_a_second_run_changes_nothing() -> None:
    program = net()
    rewrite(program, [seed(program)])
    once = str(program)
    (report,) = rewrite(program, [seed(program)])
    assert (report.changed, str(program)) == (0, once)


def test_anything_but_the_ones_that_backward_begins_with_is_refused() -> None:
    program = net()
    other = ScaleLossGradient(program.var("fc_0.w_0@GRAD").node, ranks=4)
    with pytest.raises(
        ProgramError, match="scale_loss_gradient: .* not the ones_like that backward starts with"
    ):
        rewrite(program, [other])


def test_a_program_that_is_scaled_for_other_ranks_is_refused() -> None:
    program = net()
    rewrite(program, [seed(program)])
    with pytest.raises(ProgramError, match="minimize the loss once"):
        rewrite(program, [ScaleLossGradient(program.var("mean_0.tmp_0@GRAD").node, ranks=2)])
