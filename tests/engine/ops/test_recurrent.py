"""recurrent: LSTM, GRU and RNN over sequences of unknown length, with the outputs, states and gradients of torch."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves

from argosy import static
from argosy.engine.errors import ProgramError
from argosy.engine.ir.backward import append_backward, gradients
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.record import wrap
from argosy.engine.ir.torch_module import values_for
from argosy.engine.ir.variable import Variable
from argosy.engine.ops.recurrent import FUNCTIONS, recurrent, recurrent_backward
from argosy.engine.runtime.executor import Executor

# Torch says so in eager mode, too, where it needs no gradients.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
aten = torch.ops.aten
MODULES: dict[str, Callable[[], nn.RNNBase]] = {
    "lstm": lambda: nn.LSTM(4, 3),
    "gru": lambda: nn.GRU(4, 3),
    "rnn tanh": lambda: nn.RNN(4, 3),
    "rnn relu": lambda: nn.RNN(4, 3, nonlinearity="relu"),
    "lstm of two layers": lambda: nn.LSTM(4, 3, 2),
    "rnn of two layers": lambda: nn.RNN(4, 3, 2, nonlinearity="relu"),
    "lstm in both directions": lambda: nn.LSTM(4, 3, 2, bidirectional=True),
    "gru in both directions": lambda: nn.GRU(4, 3, 2, bidirectional=True, batch_first=True),
    "rnn in both directions": lambda: nn.RNN(4, 3, bidirectional=True),
    "lstm with projections": lambda: nn.LSTM(4, 5, proj_size=3),
    "lstm with projections in both directions": lambda: nn.LSTM(4, 5, 2, bidirectional=True, proj_size=3),
    "lstm without biases": lambda: nn.LSTM(4, 3, bias=False),
    "lstm with the batch first": lambda: nn.LSTM(4, 3, batch_first=True),
}


@pytest.fixture(autouse=True)
def shared() -> None:
    """One thread: torch's layers are not ours, and two threads on a busy machine wait for each other."""


def data(name: str, *shape: int | None) -> Variable:
    variable = default_main_program().data(name, shape)
    variable.stop_gradient = False
    return variable


def squares(out: Any) -> Any:
    """A number that depends on every output and state."""
    return sum((number + 1) * leaf.pow(2).sum() for number, leaf in enumerate(tree_leaves(out)))


def grad_variables(loss: Variable, inputs: Sequence[Variable], module: nn.Module) -> list[Variable | None]:
    """The gradients of the inputs and, in the module's order, of its parameters."""
    values = values_for(default_main_program(), module)
    return gradients(loss, [*inputs, *(values[key] for key, _ in module.named_parameters())])


def eager_grads(loss: Tensor, inputs: Sequence[Tensor], module: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [*inputs, *module.parameters()]))


def started() -> Executor:
    exe = Executor()
    exe.run(default_startup_program())
    return exe


# --- numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_outputs_states_and_gradients_equal_eager(make: Callable[[], nn.RNNBase]) -> None:
    module = make()
    x = data("x", None, None, 4)
    out = module(x)
    fetched = [*tree_leaves(out), *grad_variables(squares(out), [x], module)]
    exe = started()
    for steps, batch in ((5, 3), (1, 1)):
        given = torch.randn(steps, batch, 4)
        actual = exe.run(feed={"x": given}, fetch_list=fetched, return_numpy=False)
        given.requires_grad_()
        wanted = module(given)
        grads = eager_grads(squares(wanted), [given], module)
        torch.testing.assert_close(actual, [*(t.detach() for t in tree_leaves(wanted)), *grads])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_first_states_are_inputs_that_have_gradients(kind: Callable[..., nn.RNNBase]) -> None:
    module = kind(4, 3, 2, bidirectional=True)
    names = ("h", "c") if kind is nn.LSTM else ("h",)
    x, states = data("x", None, None, 4), [data(name, 4, None, 3) for name in names]
    out = module(x, tuple(states) if kind is nn.LSTM else states[0])
    grads = grad_variables(squares(out), [x, *states], module)
    given = [torch.randn(5, 2, 4), *(torch.randn(4, 2, 3) for _ in names)]
    actual = started().run(
        feed=dict(zip(("x", *names), given, strict=True)), fetch_list=grads, return_numpy=False
    )
    leaves = [t.requires_grad_() for t in given]
    wanted = module(leaves[0], tuple(leaves[1:]) if kind is nn.LSTM else leaves[1])
    torch.testing.assert_close(actual, eager_grads(squares(wanted), leaves, module))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_one_sequence_without_a_batch_equals_eager(kind: Callable[..., nn.RNNBase]) -> None:
    module = kind(4, 3)
    x = data("x", None, 4)
    out = module(x)
    given = torch.randn(6, 4)
    actual = started().run(feed={"x": given}, fetch_list=tree_leaves(out), return_numpy=False)
    torch.testing.assert_close(actual, [t.detach() for t in tree_leaves(module(given))])


def test_the_gradient_of_one_output_alone_equals_eager() -> None:
    module = nn.LSTM(4, 3, bidirectional=True)
    x = data("x", None, None, 4)
    y, (h, c) = module(x)
    given = torch.randn(5, 2, 4)
    for number, leaf in enumerate((y, h, c)):
        grads = grad_variables(leaf.pow(2).sum(), [x], module)
        actual = started().run(feed={"x": given}, fetch_list=grads, return_numpy=False)
        source = given.clone().requires_grad_()
        wanted = tree_leaves(module(source))[number]
        torch.testing.assert_close(actual, eager_grads(wanted.pow(2).sum(), [source], module))


def test_torch_lstm_is_recorded_like_the_module() -> None:
    module = nn.LSTM(4, 3, 2)
    x, h, c = data("x", None, None, 4), data("h", 2, None, 3), data("c", 2, None, 3)
    out = torch.lstm(x, (h, c), module._flat_weights, True, 2, 0.0, True, False, False)
    given = {"x": torch.randn(5, 2, 4), "h": torch.randn(2, 2, 3), "c": torch.randn(2, 2, 3)}
    actual = started().run(feed=given, fetch_list=list(out), return_numpy=False)
    y, (last, cell) = module(given["x"], (given["h"], given["c"]))
    torch.testing.assert_close(actual, [t.detach() for t in (y, last, cell)])


def test_a_layer_is_one_node_whatever_the_number_of_steps() -> None:
    for steps in (3, 300):
        program = Program()
        nn.LSTM(4, 3, 2)(program.data("x", [steps, None, 4]))
        assert len([node for node in program.graph.nodes if node.target is recurrent]) == 2


def test_no_steps_raise_as_in_eager() -> None:
    module = nn.LSTM(4, 3)
    out, _ = module(data("x", None, None, 4))
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        module(torch.zeros(0, 2, 4))
    exe = started()
    with pytest.raises(ProgramError, match=r"test_recurrent.py:\d+.*sequence length to be larger than 0"):
        exe.run(feed={"x": torch.zeros(0, 2, 4)}, fetch_list=[out])


# --- dropout between layers ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_dropout_draws_new_masks_in_every_run_and_none_in_evaluation(kind: Callable[..., nn.RNNBase]) -> None:
    module = kind(4, 3, 2, dropout=0.5)
    out, _ = module(data("x", None, None, 4))
    test = default_main_program().clone(for_test=True)
    exe = started()
    given = torch.randn(5, 3, 4)
    runs = [exe.run(feed={"x": given}, fetch_list=[out], return_numpy=False)[0] for _ in range(2)]
    assert not torch.equal(*runs)
    actual = exe.run(test, feed={"x": given}, fetch_list=[out], return_numpy=False)[0]
    torch.testing.assert_close(actual, module.eval()(given)[0].detach())


@pytest.mark.parametrize("p", [0.2, 0.7])
def test_the_share_of_values_that_are_dropped_between_layers_is_p(p: float) -> None:
    module = nn.RNN(10, 10, 2, nonlinearity="relu", bias=False, dropout=p)
    with torch.no_grad():  # each layer passes on what it gets
        for weight, value in zip(module.parameters(), [torch.eye(10), torch.zeros(10, 10)] * 2, strict=True):
            weight.copy_(value)
    out, _ = module(data("x", None, None, 10))
    (y,) = started().run(feed={"x": torch.ones(50, 40, 10)}, fetch_list=[out], return_numpy=False)
    assert abs((y == 0).float().mean() - p) < 0.02  # four standard deviations are 0.013
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - p)))


@pytest.mark.parametrize(("layers", "number"), [(2, 1), (3, 2)])
def test_nothing_is_dropped_behind_the_last_layer(layers: int, number: int) -> None:
    nn.LSTM(4, 3, layers, dropout=0.3)(data("x", None, None, 4))
    nodes = [n for n in default_main_program().graph.nodes if n.target is aten.native_dropout.default]
    assert [node.args[1] for node in nodes] == [0.3] * number


def test_gradients_pass_the_mask_that_forward_drew() -> None:
    module = nn.GRU(4, 3, 2, dropout=0.5)
    x = data("x", None, None, 4)
    out, _ = module(x)
    (node,) = [n for n in default_main_program().graph.nodes if n.target is aten.native_dropout.default]
    mask = wrap(default_main_program(), node.meta["val"][1], "mask")
    grads = grad_variables(out.pow(2).sum(), [x], module)
    given = torch.randn(5, 3, 4)
    drawn, *actual = started().run(feed={"x": given}, fetch_list=[mask, *grads], return_numpy=False)
    first, second = nn.GRU(4, 3), nn.GRU(3, 3)
    for layer, number in ((first, 0), (second, 1)):
        layer.load_state_dict({key: module.state_dict()[f"{key[:-1]}{number}"] for key in layer.state_dict()})
    given.requires_grad_()
    wanted, _ = second(first(given)[0] * drawn / 0.5)
    leaves = [given, *first.parameters(), *second.parameters()]
    torch.testing.assert_close(actual, list(torch.autograd.grad(wanted.pow(2).sum(), leaves)))


# --- what is rejected ---------------------------------------------------------------------------------


class Packs(nn.Module):
    """Reads a padded batch as long as its rows are."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 3)

    def forward(self, x: Tensor, lengths: Any) -> Tensor:
        packed, _ = self.rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
        return pad_packed_sequence(packed)[0]


MASK = r"PackedSequence is split into steps .*; call the layer on the padded batch, and mask its outputs"


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_packed_sequence_is_rejected(kind: Callable[..., nn.RNNBase]) -> None:
    x = default_main_program().data("x", [8, 4])
    with pytest.raises(ProgramError, match=MASK):
        kind(4, 3)(PackedSequence(x, torch.tensor([2, 2, 2, 1, 1])))


def test_packing_inside_of_a_module_is_rejected() -> None:
    with pytest.raises(ProgramError, match=MASK):
        Packs()(data("x", None, 2, 4), [5, 3])


def test_packing_by_fed_lengths_is_rejected() -> None:
    lengths = default_main_program().data("lengths", [None], "int64")
    with pytest.raises(ProgramError, match=MASK):
        Packs()(data("x", None, None, 4), lengths)


def test_a_second_derivative_is_rejected() -> None:
    x = data("x", None, None, 4)
    out, _ = nn.LSTM(4, 3)(x)
    (first,) = gradients(out.sum(), x)
    assert first is not None
    with pytest.raises(ProgramError, match="recurrent layers have no second derivative"):
        gradients(first.pow(2).sum(), x)


def test_a_gradient_that_is_trained_is_rejected() -> None:
    x = data("x", None, None, 4)
    out, _ = nn.GRU(4, 3)(x)
    (first,) = gradients(out.sum(), x)
    assert first is not None
    with pytest.raises(ProgramError, match="recurrent layers have no second derivative"):
        append_backward(first.pow(2).sum())


# --- the op -------------------------------------------------------------------------------------------


def arguments(kind: str, bidirectional: bool, batch_first: bool) -> tuple[Any, ...]:
    """x, first states, weights and options for 5 steps and 2 rows; an LSTM is projected to 3."""
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    cells, hidden, directions = (5 if kind == "lstm" else 3), 3, 2 if bidirectional else 1
    shapes = [[gates * cells, 4], [gates * cells, hidden], [gates * cells], [gates * cells]]
    shapes += [[hidden, cells]] if kind == "lstm" else []
    weights = [torch.randn(shape) * 0.3 for _ in range(directions) for shape in shapes]
    states = [torch.randn(directions, 2, hidden)]
    states += [torch.randn(directions, 2, cells)] if kind == "lstm" else []
    x = torch.randn((2, 5, 4) if batch_first else (5, 2, 4))
    return x, states, weights, kind, True, bidirectional, batch_first


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_fake_shapes_equal_real_shapes(kind: str, bidirectional: bool, batch_first: bool) -> None:
    given = arguments(kind, bidirectional, batch_first)
    real = recurrent(*given)
    seeds = [torch.ones_like(real[0]), None, None]
    real_grads = recurrent_backward(*seeds, *given)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        fake, fake_grads = recurrent(*given), recurrent_backward(*seeds, *given)
    for a, b in zip((*real, *real_grads), (*fake, *fake_grads), strict=True):
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_gradient_kernel_works_below_autograd(kind: str) -> None:
    x, states, weights, *options = arguments(kind, True, False)
    dy, dh = torch.randn(5, 2, 6), torch.randn(2, 2, 3)
    with torch._C._AutoDispatchBelowAutograd():
        actual = recurrent_backward(dy, dh, None, x, states, weights, *options)
    leaves = [t.clone().requires_grad_() for t in (x, *states, *weights)]
    first = leaves[1 : 1 + len(states)]
    y, h, *_ = FUNCTIONS[kind](
        leaves[0],
        first if kind == "lstm" else first[0],
        leaves[1 + len(states) :],
        True,
        1,
        0.0,
        True,
        True,
        False,
    )
    wanted = torch.autograd.grad([y, h], leaves, [dy, dh])
    assert not any(grad.requires_grad for grad in actual)
    torch.testing.assert_close(actual, list(wanted))


def test_the_gradient_of_no_output_is_zero() -> None:
    given = arguments("lstm", False, False)
    actual = recurrent_backward(None, None, None, *given)
    assert [g.shape for g in actual] == [t.shape for t in (given[0], *given[1], *given[2])]
    assert not any(g.any() for g in actual)


def test_trained_weights_come_back_to_the_module() -> None:
    module, other = nn.LSTM(4, 3, 2), nn.LSTM(4, 3, 2)
    other.load_state_dict(module.state_dict())
    out, _ = module(data("x", None, None, 4))
    pairs = append_backward(out.pow(2).sum())
    with default_main_program().recording("optimize"), torch.no_grad():
        for parameter, grad in pairs:
            parameter.value.sub_(grad.value, alpha=0.1)
    exe = started()
    trainer = torch.optim.SGD(other.parameters(), 0.1)
    for batch in (3, 2):
        given = torch.randn(5, batch, 4)
        exe.run(feed={"x": given}, fetch_list=[])
        trainer.zero_grad()
        other(given)[0].pow(2).sum().backward()
        trainer.step()
    static.write_back(module)
    torch.testing.assert_close(dict(module.state_dict()), dict(other.state_dict()))
