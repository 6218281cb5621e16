"""TrainingInfo: backward and optimizers replace it; copies of a program share it."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import argosy as paddle
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.training_info import TrainingInfo
from argosy.optimizer.lr import StepDecay
from argosy.optimizer.optimizer import optimizer_of


def minimized(optimizer: Any) -> Program:
    x = paddle.static.data("x", [None, 4], "float32")
    optimizer.minimize(paddle.static.nn.fc(x, 2, weight_attr="w", bias_attr=False).mean())
    return default_main_program()


def test_a_call_names_the_variables_of_its_rate_and_states() -> None:
    optimizer = paddle.optimizer.Momentum(0.1)
    (call,) = minimized(optimizer).training.optimizer_calls
    assert optimizer_of(call) is optimizer
    assert (call.parameters, call.gradients, call.rate) == (("w",), ("w@GRAD",), "learning_rate_0")
    assert call.states == {("w", "velocity"): "w_velocity_0"}


def test_an_optimizer_without_state_shares_the_settings() -> None:
    optimizer = paddle.optimizer.Momentum(0.1, momentum=0.5)
    minimized(optimizer)
    copied = optimizer.copy_without_state()
    assert type(copied) is type(optimizer)
    assert vars(copied).keys() == vars(optimizer).keys()
    assert (copied.learning_rate, copied.state_dict()) == (0.1, {})


def test_the_gradient_of_a_loss_has_its_seed() -> None:
    program = minimized(paddle.optimizer.SGD(0.1))
    (seed,) = program.training.seeds["w@GRAD"]
    assert seed.endswith("@GRAD")
    assert seed in program.vars


def test_a_clone_shares_the_value_and_a_change_of_one_does_not_reach_the_other() -> None:
    program = minimized(paddle.optimizer.SGD(StepDecay(0.1, 2)))
    copied = program.clone()
    assert copied.training is program.training
    copied.training = TrainingInfo()
    assert len(program.training.optimizer_calls) == 1


def test_a_program_for_testing_has_no_schedulers() -> None:
    program = minimized(paddle.optimizer.SGD(StepDecay(0.1, 2)))
    assert [rate.variable for rate in program.training.schedulers] == ["learning_rate_0"]
    assert program.clone(for_test=True).training.schedulers == ()
