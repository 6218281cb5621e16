"""Optimizers in wrappers of the script: fleet trains what its own switches would train."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy import fluid
from argosy.distributed import fleet
from argosy.distributed.fleet.base.wrapped_optimizer import unwrap
from argosy.engine import collective
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.runtime.scope import Scope
from tests import fleet_jobs as jobs


def trained(wrap: Callable[[Any], Any], switches: dict[str, Any]) -> tuple[jobs.Arrays, Program]:
    """The parameters after three steps of one rank, and the program."""
    programs = Program(), Program()
    with fluid.program_guard(*programs), names.guard(), fluid.scope_guard(Scope()):
        fleet.init(is_collective=True)
        strategy = fleet.DistributedStrategy()
        for name, value in switches.items():
            setattr(strategy, name, value)
        net = jobs.build(False)
        fleet.distributed_optimizer(wrap(paddle.optimizer.Momentum(0.05, 0.9)), strategy).minimize(net.loss)
        exe = paddle.static.Executor()
        exe.run(default_startup_program())
        for step in range(3):
            exe.run(feed=jobs.fed(net, jobs.batch(step)))
        values = jobs.parameters(default_main_program())
    collective.disconnect()
    return values, programs[0]


def recomputed(optimizer: Any) -> Any:
    wrapped = fluid.optimizer.RecomputeOptimizer(optimizer)
    wrapped._set_checkpoints(["fc_0.tmp_0"])
    return wrapped


def test_wrappers_are_the_switches_of_the_strategy() -> None:
    amp = {"amp": True, "amp_configs": {"dtype": "float16", "init_loss_scaling": 8.0}}

    def decorated(optimizer: Any) -> Any:
        return paddle.static.amp.decorate(optimizer, init_loss_scaling=8.0, dtype="float16")

    (wanted, switched), (actual, wrapped) = trained(lambda o: o, amp), trained(decorated, {})
    assert wrapped.build.autocast == switched.build.autocast is not None
    for name, value in wanted.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def test_recompute_and_amp_may_be_combined() -> None:
    name = hidden_name()
    switches = {"amp": True, "recompute": True, "recompute_configs": {"checkpoints": [name]}}

    def both(optimizer: Any) -> Any:
        wrapped = fluid.optimizer.RecomputeOptimizer(paddle.static.amp.decorate(optimizer))
        wrapped._set_checkpoints([name])
        return wrapped

    (wanted, switched), (actual, wrapped) = trained(lambda o: o, switches), trained(both, {})
    assert wrapped.build.recompute == switched.build.recompute is not None
    assert wrapped.build.autocast == switched.build.autocast is not None
    for parameter, value in wanted.items():
        np.testing.assert_array_equal(actual[parameter], value, err_msg=parameter)


def hidden_name() -> str:
    """The name of the hidden activation of `jobs.build`."""
    with fluid.program_guard(Program(), Program()), names.guard():
        net = jobs.build(False)
        tanh = [n for n in net.loss.program.graph.nodes if "tanh" in str(n.target)]
        return next(name for name, v in net.loss.program.vars.items() if v.node is tanh[0])


def test_a_switch_and_a_wrapper_exclude_each_other() -> None:
    with pytest.raises(
        ConfigError, match=r"strategy.amp is on, and the optimizer is in amp\.decorate already"
    ):
        trained(paddle.static.amp.decorate, {"amp": True})
    collective.disconnect()
    with pytest.raises(
        ConfigError, match="strategy.recompute is on, and the optimizer is in RecomputeOptimizer"
    ):
        trained(recomputed, {"recompute": True})
    collective.disconnect()


def test_other_wrappers_are_rejected() -> None:
    merged = fluid.optimizer.GradientMergeOptimizer(paddle.optimizer.SGD(0.1), 2)
    with pytest.raises(
        ConfigError, match=r"was given a GradientMergeOptimizer; set strategy\.gradient_merge"
    ):
        unwrap(merged)
    with pytest.raises(ConfigError, match="was given a GradientMergeOptimizer"):
        unwrap(recomputed(merged))
