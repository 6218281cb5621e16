"""Programs for testing and saved models compute what torch modules compute in evaluation mode."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import argosy as paddle
from argosy import static
from argosy.engine.errors import ProgramError
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, scope_guard


class ScalesInTraining(nn.Module):
    """Computes something else in training, and draws random numbers there."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if self.training:
            return y * 2 + torch.randn_like(y)
        return torch.tanh(y)


class AddsInTraining(nn.Module):
    """Changes a buffer in training."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.total += x.detach().sum(0)
        return x + self.total


class Returns(nn.Module):
    """Returns one thing in training and another in evaluation."""

    def __init__(self, training: Callable[[Tensor], Any], evaluation: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.choices = evaluation, training

    def forward(self, x: Tensor) -> Any:
        return self.choices[self.training](x)


class LastStep(nn.Module):
    """An LSTM with dropout between its layers, of which the last output counts."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 4, 2, dropout=0.5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.rnn(x)[0][:, -1]
        return y


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.attention(x, x, x)[0]
        return y


MODULES: dict[str, tuple[Callable[[], nn.Module], list[int]]] = {
    "instance norm 1d": (lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), [3, 6]),
    "instance norm 2d": (lambda: nn.InstanceNorm2d(3, track_running_stats=True), [3, 4, 4]),
    "instance norm 3d": (lambda: nn.InstanceNorm3d(3, affine=True, track_running_stats=True), [3, 2, 3, 2]),
    "batch norm": (lambda: nn.BatchNorm1d(6), [6]),
    "batch norm without momentum": (lambda: nn.BatchNorm2d(3, momentum=None), [3, 4, 4]),
    "batch norm without statistics": (lambda: nn.BatchNorm2d(3, track_running_stats=False), [3, 4, 4]),
    "dropout": (lambda: nn.Dropout(0.5), [6]),
    "dropout in place": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5, inplace=True)), [6]),
    "dropout 1d": (lambda: nn.Dropout1d(0.5), [3, 6]),
    "dropout 2d": (lambda: nn.Dropout2d(0.5), [3, 4, 4]),
    "dropout 3d": (lambda: nn.Dropout3d(0.5), [3, 2, 3, 2]),
    "alpha dropout": (lambda: nn.AlphaDropout(0.5), [6]),
    "feature alpha dropout": (lambda: nn.FeatureAlphaDropout(0.5), [3, 6]),
    "rrelu": (nn.RReLU, [6]),
    "a user's module": (ScalesInTraining, [6]),
    "a user's buffer": (AddsInTraining, [6]),
    "lstm": (LastStep, [5, 3]),
    "attention": (Attention, [4, 6]),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4)), [6]),
    "old spectral norm": (lambda: nn.utils.spectral_norm(nn.Linear(6, 4)), [6]),
    "a sequence": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.InstanceNorm2d(4, track_running_stats=True),
            nn.RReLU(),
            nn.Dropout2d(0.5),
            nn.BatchNorm2d(4, momentum=None),
            nn.Flatten(),
            nn.Linear(64, 6),
            nn.AlphaDropout(0.3),
            ScalesInTraining(),
            nn.BatchNorm1d(6),
        ),
        [3, 4, 4],
    ),
}


MINIMIZED = {"instance norm 1d", "batch norm", "a user's module", "lstm", "old spectral norm", "a sequence"}
"""Modules whose parameters are trained, too, before they are evaluated."""


def text(program: Program) -> list[str]:
    """The program without its name."""
    return str(program).splitlines()[1:]


def trained(
    module: nn.Module, shape: list[int], minimizes: bool = True
) -> tuple[Executor, Variable, Program]:
    """Build a program that trains the module, and run it three times; with the clone that was made before minimize."""
    x = default_main_program().data("x", [None, *shape])
    out = module(x)
    test = default_main_program().clone(for_test=True)
    if minimizes:
        paddle.optimizer.SGD(0.1).minimize(out.pow(2).mean())
    exe = Executor()
    exe.run(default_startup_program())
    for batch in (4, 3, 4):
        exe.run(feed={"x": torch.randn(batch, *shape) * 2 + 1}, fetch_list=[out])
    return exe, out, test


def evaluated(module: nn.Module, x: Tensor) -> Tensor:
    """What the module computes in evaluation mode with the values of the scope."""
    static.write_back(module).eval()
    with torch.no_grad():
        y: Tensor = module(x)
        return y


# --- same numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODULES)
def test_a_clone_and_a_saved_model_equal_the_module_in_evaluation_mode(kind: str, tmp_path: Path) -> None:
    make, shape = MODULES[kind]
    module = make()
    exe, out, test = trained(module, shape, kind in MINIMIZED)
    static.save_inference_model(str(tmp_path / "model"), [default_main_program().var("x")], [out], exe)
    given = [torch.randn(batch, *shape) for batch in (5, 1)]
    wanted = [evaluated(module, x) for x in given]
    actual = [exe.run(test, feed={"x": x}, fetch_list=[out], return_numpy=False)[0] for x in given]
    torch.testing.assert_close(actual, wanted)
    with scope_guard(Scope()):
        program, _, fetches = static.load_inference_model(str(tmp_path / "model"), exe)
        actual = exe.run(program, feed={"x": given[0]}, fetch_list=fetches, return_numpy=False)
    torch.testing.assert_close(actual[0], wanted[0])


@pytest.mark.parametrize("kind", ["a user's module", "instance norm 1d", "lstm", "old spectral norm"])
def test_cloning_changes_nothing_and_gives_the_same_program_again(kind: str) -> None:
    make, shape = MODULES[kind]
    module, program = make(), default_main_program()
    loss = module(program.data("x", [None, *shape])).pow(2).mean()
    early = program.clone(for_test=True)
    paddle.optimizer.SGD(0.1).minimize(loss)
    before, modes = str(program), [sub.training for sub in module.modules()]
    first, second = program.clone(for_test=True), program.clone(for_test=True)
    assert str(program) == before
    assert [sub.training for sub in module.modules()] == modes
    assert text(first) == text(second)
    assert text(first.clone(for_test=True)) == text(first)
    assert text(first) == text(early)


@pytest.mark.parametrize("kind", ["instance norm 1d", "batch norm", "batch norm without momentum"])
def test_statistics_after_training_equal_eager(kind: str) -> None:
    make, shape = MODULES[kind]
    module, other = make(), make()
    for batch in (4, 3, 4):
        torch.manual_seed(batch)
        other(torch.randn(batch, *shape) * 2 + 1)
    out = module(default_main_program().data("x", [None, *shape]))
    exe = Executor()
    exe.run(default_startup_program())
    for batch in (4, 3, 4):
        torch.manual_seed(batch)
        exe.run(feed={"x": torch.randn(batch, *shape) * 2 + 1}, fetch_list=[out])
    static.write_back(module)
    torch.testing.assert_close(dict(module.state_dict()), dict(other.state_dict()))


def test_a_test_run_leaves_the_buffers_alone() -> None:
    module = nn.Sequential(
        nn.BatchNorm1d(6), AddsInTraining(), nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))
    )
    exe, out, test = trained(module, [6])
    before = {key: value.clone() for key, value in static.write_back(module).state_dict().items()}
    exe.run(test, feed={"x": torch.randn(5, 6)}, fetch_list=[out])
    torch.testing.assert_close(dict(static.write_back(module).state_dict()), before, rtol=0, atol=0)


def test_a_part_that_was_in_evaluation_mode_stays_so() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 6), nn.BatchNorm1d(6))
    module[2].eval()
    exe, out, test = trained(module, [6])
    assert module[0].training
    x = torch.randn(5, 6)
    actual = exe.run(test, feed={"x": x}, fetch_list=[out], return_numpy=False)
    torch.testing.assert_close(actual, [evaluated(module, x)])


def test_a_module_that_is_called_twice_is_evaluated_twice() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
    x = default_main_program().data("x", [None, 6])
    out = module(torch.relu(module(x)))
    test = default_main_program().clone(for_test=True)
    exe = Executor()
    exe.run(default_startup_program())
    exe.run(feed={"x": torch.randn(5, 6)}, fetch_list=[out])
    given = torch.randn(3, 6)
    actual = exe.run(test, feed={"x": given}, fetch_list=[out], return_numpy=False)
    torch.testing.assert_close(actual, [evaluated(module, torch.relu(evaluated(module, given)))])


def in_evaluation(*fetched: Variable) -> list[Tensor]:
    """What a clone for testing computes for four rows of ones."""
    test = default_main_program().clone(for_test=True)
    return Executor().run(test, feed={"x": torch.ones(4, 6)}, fetch_list=list(fetched), return_numpy=False)


@pytest.mark.parametrize("training", [lambda x: x, torch.detach], ids=["itself", "detached"])
def test_a_module_that_returns_its_input_in_training_is_evaluated(
    training: Callable[[Tensor], Tensor],
) -> None:
    x = default_main_program().data("x", [None, 6])
    (actual,) = in_evaluation(Returns(training, lambda x: x + 4)(x) * 2)
    torch.testing.assert_close(actual, torch.full((4, 6), 10.0))


def test_the_evaluation_of_a_module_that_returns_its_input_in_training_changes_no_other_reader() -> None:
    class Observes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                torch.relu(x)
                return x
            return x + 4

    h = default_main_program().data("x", [None, 6]) * 1
    out = Observes()(h)
    actual = in_evaluation(out * 2, h * 3)
    torch.testing.assert_close(actual, [torch.full((4, 6), 10.0), torch.full((4, 6), 3.0)])


def test_one_result_that_training_returns_twice_may_be_two_in_evaluation() -> None:
    module = Returns(lambda x: (y := x * 2, y), lambda x: (x * 2, x * 5))
    first, second = module(default_main_program().data("x", [None, 6]))
    actual = in_evaluation(first + 1, second + 1)
    torch.testing.assert_close(actual, [torch.full((4, 6), 3.0), torch.full((4, 6), 6.0)])


def test_a_size_that_is_another_in_evaluation_is_rejected() -> None:
    module = Returns(lambda x: (x * 2, x.shape[0]), lambda x: (x * 2, x.shape[0] * 3))
    module(default_main_program().data("x", [None, 6]))
    with pytest.raises(
        ProgramError, match=r"Returns called at test_evaluation.py:\d+.*in training and .* in evaluation"
    ):
        default_main_program().clone(for_test=True)


def test_a_module_that_changes_its_input_in_training_leaves_it_alone_in_evaluation() -> None:
    class Shifts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                x.add_(1)
            return x * 2

    x = default_main_program().data("x", [None, 6])
    h = x * 1
    out = Shifts()(h) + h
    test = default_main_program().clone(for_test=True)
    given = torch.randn(3, 6)
    train, actual = (
        Executor().run(program, feed={"x": given}, fetch_list=[out], return_numpy=False)[0]
        for program in (default_main_program(), test)
    )
    torch.testing.assert_close(train, (given + 1) * 3)
    torch.testing.assert_close(actual, given * 3)


# --- functions ----------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "F.dropout": lambda x: F.dropout(x, 0.5),
    "F.dropout1d": lambda x: F.dropout1d(x, training=True),
    "F.dropout2d": lambda x: F.dropout2d(x.unsqueeze(-1), training=True),
    "F.dropout3d": lambda x: F.dropout3d(x[..., None, None], training=True),
    "F.alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "F.feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.5, True),
    "F.rrelu": lambda x: F.rrelu(x, training=True),
    "torch.dropout": lambda x: torch.dropout(x, 0.5, True),
}
WANTED: dict[str, Callable[[Tensor], Tensor]] = {
    "F.dropout2d": lambda x: x.unsqueeze(-1),
    "F.dropout3d": lambda x: x[..., None, None],
    "F.rrelu": F.rrelu,
}
"""What evaluation gives, where it is not the input itself."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_were_called_for_training_are_evaluated(name: str) -> None:
    x = default_main_program().data("x", [None, 3, 8])
    out = FUNCTIONS[name](x)
    test = default_main_program().clone(for_test=True)
    given = torch.randn(4, 3, 8)
    (train,) = Executor().run(feed={"x": given}, fetch_list=[out], return_numpy=False)
    (actual,) = Executor().run(test, feed={"x": given}, fetch_list=[out], return_numpy=False)
    wanted = WANTED.get(name, lambda x: x)(given)
    torch.testing.assert_close(actual, wanted)
    assert not torch.equal(train, wanted)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.rrelu(x, training=True),
        lambda x: torch.feature_dropout(x, 0.5, True),
        lambda x: torch.alpha_dropout(x, 0.5, True),
    ],
    ids=["rrelu", "feature_dropout", "alpha_dropout"],
)
def test_functions_without_a_signature_that_stay_random_are_reported(
    function: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    function(default_main_program().data("x", [None, 3, 8]))
    default_main_program().clone(for_test=True)
    assert "test_evaluation.py" in caplog.text
    assert "is still random in the program for testing" in caplog.text


def test_functions_that_were_called_for_evaluation_stay_so() -> None:
    x = default_main_program().data("x", [None, 3, 8])
    out = F.rrelu(F.dropout(x, training=False), training=False)
    given = torch.randn(4, 3, 8)
    for program in (default_main_program(), default_main_program().clone(for_test=True)):
        actual = Executor().run(program, feed={"x": given}, fetch_list=[out], return_numpy=False)
        torch.testing.assert_close(actual, [F.rrelu(given)])


# --- what evaluation cannot replace -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("training", "evaluation", "message"),
    [
        (
            torch.relu,
            lambda x: x[:, :2],
            r"float32\[any, 6\] in training and float32\[any, 2\] in evaluation",
        ),
        (torch.relu, lambda x: x.sum(1), r"float32\[any, 6\] in training and float32\[any\] in evaluation"),
        (
            torch.relu,
            lambda x: x.double(),
            r"float32\[any, 6\] in training and float64\[any, 6\] in evaluation",
        ),
        (lambda x: x[1:], lambda x: x, "in training and .* in evaluation"),
        (lambda x: (x, x * 2), lambda x: x, "returns something else in training"),
        (lambda x: {"a": x.relu()}, lambda x: {"b": x}, "returns something else in training"),
        (lambda x: [x, x.relu()], lambda x: (x, x), "returns something else in training"),
        (lambda x: (x.relu(), 1), lambda x: (x, 2), "returns 1 in training and 2 in evaluation"),
        (lambda x: (x.relu(), None), lambda x: (x, x), "returns"),
    ],
    ids=["size", "rank", "dtype", "rows", "structure", "keys", "kind", "number", "nothing"],
)
def test_a_module_that_returns_something_else_in_evaluation_is_named(
    training: Callable[[Tensor], Any], evaluation: Callable[[Tensor], Any], message: str
) -> None:
    Returns(training, evaluation)(default_main_program().data("x", [None, 6]))
    with pytest.raises(ProgramError, match=message) as raised:
        default_main_program().clone(for_test=True)
    assert "Returns called at test_evaluation.py:" in str(raised.value)
    assert "in eval() mode" in str(raised.value)


def test_a_module_that_returns_its_input_in_training_and_another_shape_in_evaluation_is_named() -> None:
    Returns(lambda x: x, lambda x: x[:, :2])(default_main_program().data("x", [None, 6]))
    with pytest.raises(ProgramError, match=r"Returns called at test_evaluation.py:\d+.* in evaluation"):
        default_main_program().clone(for_test=True)


def test_a_module_that_fails_in_evaluation_is_named() -> None:
    def fails(x: Tensor) -> Tensor:
        raise ValueError("not trained yet")

    Returns(torch.relu, fails)(default_main_program().data("x", [None, 6]))
    with pytest.raises(ProgramError, match=r"Returns called at test_evaluation.py:\d+ .*not trained yet"):
        default_main_program().clone(for_test=True)


def test_a_tensor_that_only_training_keeps_is_missed_where_it_is_read() -> None:
    class Keeps(nn.Module):
        auxiliary: Tensor

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.auxiliary = x.mean()
            return x * 2

    module = Keeps()
    out = module(default_main_program().data("x", [None, 6]))
    assert out.mean() + module.auxiliary is not None
    with pytest.raises(ProgramError, match=r"Keeps called at test_evaluation.py:\d+"):
        default_main_program().clone(for_test=True)


def penalized(module: nn.Module) -> tuple[Variable, Variable]:
    """A loss that reads the gradient of the module, and so values inside of it."""
    x = default_main_program().data("x", [None, 6])
    x.stop_gradient = False
    out = module(x)
    (grad,) = gradients(out.sum(), x)
    assert grad is not None
    return out, out.mean() + grad.pow(2).mean()


def test_values_inside_of_a_module_are_read_if_evaluation_computes_the_same() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    _, loss = penalized(module)
    test = default_main_program().clone(for_test=True)
    exe = Executor()
    exe.run(default_startup_program())
    given = torch.randn(4, 6)
    (actual,) = exe.run(test, feed={"x": given}, fetch_list=[loss], return_numpy=False)
    given.requires_grad_()
    y = module(given)
    (grad,) = torch.autograd.grad(y.sum(), given)
    torch.testing.assert_close(actual, (y.mean() + grad.pow(2).mean()).detach())


def test_values_inside_of_a_module_that_only_training_has_are_named_with_their_reader() -> None:
    penalized(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.5)))
    with pytest.raises(
        ProgramError, match="reads .* a value inside of Sequential called at test_evaluation.py:"
    ) as e:
        default_main_program().clone(for_test=True)
    assert "does not exist in evaluation mode" in str(e.value)


def test_a_second_program_in_evaluation_mode_reads_the_trained_values() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.BatchNorm1d(6))
    exe, _, _ = trained(model, [6])
    test = Program()
    with paddle.static.program_guard(test):
        out = model.eval()(test.data("x", [None, 6]))
    given = torch.randn(3, 6)
    actual = exe.run(test, feed={"x": given}, fetch_list=[out], return_numpy=False)
    torch.testing.assert_close(actual, [evaluated(model, given)])
