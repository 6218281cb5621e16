"""sync_batch_norm: what it rewrites, what it leaves alone, and that ranks together are one process."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import static
from argosy.engine import collective
from argosy.engine.errors import ProgramError
from argosy.engine.ir import names
from argosy.engine.ir.backward import append_backward, gradients
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.passes.base import run_passes
from argosy.engine.passes.sync_batch_norm import SyncBatchNorm
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from tests.ranks import ForkServer

STATISTICS = ["bn.mean", "bn.var", "unbiased_mean", "unbiased_var"]


def net(dtype: str = "float32") -> list[str]:
    """Paddle's batch norm and torch's, each behind a convolution; a view; returns the gradients' names."""
    program, startup = default_main_program(), default_startup_program()
    x = program.data("x", [None, 3, 6, 6], dtype)
    y = static.nn.conv2d(x, 8, 3, bias_attr=False)
    y = static.nn.batch_norm(
        y, act="relu", moving_mean_name=STATISTICS[0], moving_variance_name=STATISTICS[1]
    )
    mean, var = (program.state(name, [8], dtype) for name in STATISTICS[2:])
    startup.define(STATISTICS[2], lambda: torch.zeros(8, dtype=mean.dtype))
    startup.define(STATISTICS[3], lambda: torch.ones(8, dtype=mean.dtype))
    y = F.batch_norm(static.nn.conv2d(y, 8, 3, bias_attr=False), mean, var, training=True)
    y = static.nn.fc(torch.relu(y), 4)
    return [grad.name for _, grad in append_backward((y * y).sum())]


def one_step(
    dtype: str, batch: np.ndarray[Any, Any], *passes: SyncBatchNorm
) -> dict[str, np.ndarray[Any, Any]]:
    """Gradients and statistics after a step of a new program."""
    with program_guard(Program("main"), Program("startup")), names.guard(), scope_guard(Scope()):
        grads = net(dtype)
        default_startup_program().random_seed = 5
        run_passes(default_main_program().graph, passes)
        default_main_program().touch()
        exe = Executor()
        exe.run(default_startup_program())
        values = dict(zip(grads, exe.run(feed={"x": batch}, fetch_list=grads), strict=True))
        return values | {name: global_scope().get(name).numpy().copy() for name in STATISTICS}


def as_one_process() -> None:
    """Ranks with different batches: their gradients add up to those of the whole batch."""
    collective.connect()
    world = collective.world()
    for dtype, tolerance in (("float32", 3e-6), ("float64", 1e-12)):
        whole = 2 + np.random.default_rng(0).standard_normal((7, 3, 6, 6)).astype(dtype)
        wanted = one_step(dtype, whole)
        mine = np.split(whole, [5])[world.rank]
        actual = one_step(dtype, mine, SyncBatchNorm(ranks=world.size))
        for name, value in actual.items():
            total = torch.from_numpy(value)
            if name not in STATISTICS:
                world.group("dp").all_reduce(total)
            size = np.abs(wanted[name]).max()
            np.testing.assert_allclose(
                total, wanted[name], rtol=0, atol=tolerance * max(size, 1), err_msg=f"{dtype} {name}"
            )


def test_two_ranks_are_as_one_process_with_the_whole_batch(ranks: ForkServer) -> None:
    ranks.check(2, as_one_process)


def test_alone_a_rewritten_program_gives_the_same_numbers() -> None:
    batch = np.random.default_rng(0).standard_normal((5, 3, 6, 6)).astype("float32")
    wanted, actual = one_step("float32", batch), one_step("float32", batch, SyncBatchNorm(ranks=2))
    for name, value in wanted.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-4 * np.abs(value).max())


def test_rewrites_the_norm_its_backward_and_the_count_of_the_unbiased_variance() -> None:
    net()
    program = default_main_program()
    (report,) = run_passes(program.graph, [SyncBatchNorm(ranks=2)])
    assert report.changed == 2
    assert report.text == "2 batch norms over 2 ranks, 0 in inference mode left alone"
    text = str(program)
    assert "native_batch_norm" not in text
    assert "sync_batch_norm(conv2d_0.tmp_0, batch_norm_0.w_0, batch_norm_0.b_0, 1e-05, dp)" in text
    assert "total_count = sync_batch_norm[3]" in text
    assert text.count("= sync_batch_norm_backward(") == 2
    assert text.count("_local_scalar_dense(") == 1, "Paddle's biased variance needs no count"
    for node in program.graph.find_nodes(op="call_function", target=torch.ops.argosy.sync_batch_norm.default):
        assert (node.meta["role"], "test_sync_batch_norm.py" in str(node.meta["source"])) == ("forward", True)


def test_leaves_inference_and_instance_norms_alone() -> None:
    x = default_main_program().data("x", [None, 3, 4, 4])
    x.stop_gradient = False
    y = torch.nn.InstanceNorm2d(3)(static.nn.batch_norm(x, is_test=True))
    append_backward(y.sum())
    before = str(default_main_program())
    (report,) = run_passes(default_main_program().graph, [SyncBatchNorm(ranks=2)])
    assert report.changed == 0
    assert str(default_main_program()) == before


def test_a_second_run_changes_nothing() -> None:
    net()
    graph = default_main_program().graph
    run_passes(graph, [SyncBatchNorm(ranks=2)])
    once = str(default_main_program())
    (report,) = run_passes(graph, [SyncBatchNorm(ranks=2)])
    assert (report.changed, str(default_main_program())) == (0, once)


def test_one_rank_needs_no_exchange() -> None:
    net()
    before = str(default_main_program())
    (report,) = run_passes(default_main_program().graph, [SyncBatchNorm(ranks=1)])
    assert (report.changed, str(default_main_program())) == (0, before)
    assert "one rank" in report.text


def test_second_derivatives_are_refused_and_nothing_is_changed() -> None:
    x = default_main_program().data("x", [8, 3])
    x.stop_gradient = False
    w = default_main_program().state("w", [3], "float32", trainable=True)
    (slope,) = gradients((F.batch_norm(x, None, None, w, training=True) ** 3).sum(), x)
    append_backward((slope**2).sum())
    before = str(default_main_program())
    with pytest.raises(ProgramError, match="second derivatives of a batch norm"):
        run_passes(default_main_program().graph, [SyncBatchNorm(ranks=2)])
    assert str(default_main_program()) == before


def test_a_rewritten_program_can_be_saved_and_loaded() -> None:
    net()
    run_passes(default_main_program().graph, [SyncBatchNorm(ranks=2)])
    assert str(from_dict(to_dict(default_main_program()))) == str(default_main_program())
