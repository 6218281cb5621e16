"""What the forward of a torch module changes in the module: buffers, kept tensors, counters; nothing after an error."""

# SPDX-License-Identifier: Apache-2.0
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from argosy import static
from argosy.engine.errors import FeedError, ProgramError
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.module_state import tensors_of, with_tensors
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.torch_module import values_for
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor


class Module(nn.Module):
    """A module whose forward is a function, with buffers `mean` [3] and `count` []."""

    mean: Tensor
    count: Tensor

    def __init__(self, function: Callable[[Any, Tensor], Any], **attributes: Any) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def data() -> Variable:
    return default_main_program().data("x", [None, 3])


def started() -> Executor:
    exe = Executor()
    exe.run(default_startup_program())
    return exe


def run(exe: Executor, given: Tensor, *fetched: Any) -> list[Tensor]:
    return exe.run(feed={"x": given}, fetch_list=list(fetched), return_numpy=False)


# --- buffers ------------------------------------------------------------------------------------------


def reassigns(self: Any, x: Tensor) -> Tensor:
    self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
    self.count = self.count + 1
    return x - self.mean


def reads_then_reassigns(self: Any, x: Tensor) -> Tensor:
    before = self.mean
    self.mean = before + x.sum(0)
    return x * before + self.mean


def reassigns_twice(self: Any, x: Tensor) -> Tensor:
    self.mean = self.mean + x.sum(0)
    self.mean = self.mean * 2
    return x + self.mean


def returns_the_old_one(self: Any, x: Tensor) -> Tensor:
    before = self.mean
    self.mean = before + x.sum(0)
    return before


def returns_a_view_of_the_old_one(self: Any, x: Tensor) -> Tensor:
    before = self.mean[:2]
    self.mean = self.mean + x.sum(0)
    return before


def returns_the_new_one(self: Any, x: Tensor) -> Tensor:
    self.mean = self.mean + x.sum(0)
    return self.mean


def swaps(self: Any, x: Tensor) -> Tensor:
    self.mean, self.other = self.other + 1, self.mean + x.sum(0)
    return x + self.other


def changes_in_place(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        self.mean.lerp_(x.mean(0), 0.1)
        self.count += 1
    return x - self.mean


def changes_in_place_and_reassigns(self: Any, x: Tensor) -> Tensor:
    self.mean.add_(1)
    self.mean = self.mean + x.sum(0)
    return x - self.mean


def writes_a_part(self: Any, x: Tensor) -> Tensor:
    self.mean[0] = x.sum()
    self.mean[1:] += 1
    return x * self.mean


def changes_data(self: Any, x: Tensor) -> Tensor:
    self.mean.data.add_(x.sum(0))
    return x * self.mean


CHANGES = [
    reassigns,
    reads_then_reassigns,
    reassigns_twice,
    returns_the_old_one,
    returns_a_view_of_the_old_one,
    returns_the_new_one,
    swaps,
    changes_in_place,
    changes_in_place_and_reassigns,
    writes_a_part,
    changes_data,
]


@pytest.mark.parametrize("function", CHANGES)
def test_buffers_over_three_runs_equal_eager(function: Callable[[Any, Tensor], Any]) -> None:
    module = Module(function)
    module.register_buffer("other", torch.ones(3))
    twin = copy.deepcopy(module)
    out = module(data())
    exe = started()
    for batch in (4, 1, 3):
        given = torch.randn(batch, 3)
        torch.testing.assert_close(run(exe, given, out), [twin(given).clone()])
    static.write_back(module)
    torch.testing.assert_close(dict(module.state_dict()), dict(twin.state_dict()))


def test_a_buffer_of_a_submodule_that_is_reassigned_equals_eager() -> None:
    module = nn.Sequential(Module(reassigns), nn.Linear(3, 3), Module(reassigns))
    twin = copy.deepcopy(module)
    out = module(data())
    exe = started()
    for batch in (4, 3):
        given = torch.randn(batch, 3)
        torch.testing.assert_close(run(exe, given, out), [twin(given).detach()])
    static.write_back(module)
    torch.testing.assert_close(dict(module.state_dict()), dict(twin.state_dict()))


def test_the_second_call_in_a_program_reads_what_the_first_assigned() -> None:
    module = Module(reassigns)
    twin = copy.deepcopy(module)
    x = data()
    outs = module(x), module(x * 2)
    given = torch.randn(4, 3)
    torch.testing.assert_close(run(started(), given, *outs), [twin(given), twin(given * 2)])


def test_gradients_use_the_value_that_a_reassigned_buffer_had() -> None:
    module = Module(reads_then_reassigns)
    twin = copy.deepcopy(module)
    x = data()
    x.stop_gradient = False
    (grad,) = gradients(module(x).pow(2).sum(), x)
    exe = started()
    for batch in (4, 2):
        given = torch.randn(batch, 3)
        (actual,) = run(exe, given, grad)
        leaf = given.clone().requires_grad_()
        (wanted,) = torch.autograd.grad(twin(leaf).pow(2).sum(), leaf)
        twin.mean = twin.mean.detach()
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize(
    "value",
    [
        lambda x: x.mean(0).double(),
        lambda x: x.mean(),
        lambda x: x,
        lambda x: x.mean(0)[:2],
        lambda x: x.mean(0)[:1],
    ],
    ids=["dtype", "scalar", "rank", "size", "size 1"],
)
def test_a_buffer_of_another_dtype_or_shape_is_rejected(value: Callable[[Tensor], Tensor]) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        self.mean = value(x)
        return x * 2

    with pytest.raises(ProgramError, match=r"forward assigns .* to buffer 'mean', which is float32\[3\]"):
        Module(function)(data())


@pytest.mark.parametrize("batch", [4, 1])
def test_a_buffer_that_gets_an_unknown_size_is_checked_when_it_is_fed(batch: int) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        self.mean = x[:, 0].clone()
        return x * 2

    out = Module(function)(data())
    exe = started()
    run(exe, torch.randn(3, 3), out)
    with pytest.raises(
        FeedError, match=f"feed 'x' has size {batch} in dimension 0; the program was built for"
    ):
        run(exe, torch.randn(batch, 3), out)


# --- kept tensors -------------------------------------------------------------------------------------


class Attends(nn.Module):
    """Keeps its weights to look at them."""

    attention: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.attention = torch.softmax(self.layer(x), -1)
        return self.attention * x


def test_a_tensor_in_an_attribute_is_a_variable_that_can_be_fetched() -> None:
    module = Attends()
    twin = copy.deepcopy(module)
    out = module(data())
    assert isinstance(module.attention, Variable)
    given = torch.randn(4, 3)
    actual = run(started(), given, out, module.attention)
    torch.testing.assert_close(actual, [twin(given).detach(), twin.attention.detach()])


def test_a_tensor_in_an_attribute_takes_part_in_the_loss() -> None:
    module = Attends()
    twin = copy.deepcopy(module)
    x = data()
    x.stop_gradient = False
    loss = module(x).sum() + module.attention.pow(2).sum()
    (grad,) = gradients(loss, x)
    given = torch.randn(4, 3)
    (actual,) = run(started(), given, grad)
    given.requires_grad_()
    wanted = twin(given).sum() + twin.attention.pow(2).sum()
    torch.testing.assert_close(actual, *torch.autograd.grad(wanted, given))


def test_tensors_in_attributes_of_submodules_are_variables() -> None:
    module = nn.Sequential(Attends(), Attends())
    module(data())
    assert all(isinstance(one.attention, Variable) for one in module)


def test_a_list_and_a_dict_of_tensors_in_attributes_are_variables() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        self.parts = [x + 1, (x * 2, "text")]
        self.named = {"double": self.parts[1][0]}
        return x.relu()

    module = Module(function, parts=None, named=None)
    module(data())
    given = torch.randn(4, 3)
    actual = run(started(), given, module.parts[0], module.parts[1][0], module.named["double"])
    torch.testing.assert_close(actual, [given + 1, given * 2, given * 2])


def test_every_call_sets_the_attribute_again() -> None:
    module = Attends()
    x = data()
    module(x)
    first = module.attention
    module(x * 2)
    assert module.attention is not first


def test_eager_calls_after_the_call_in_a_program_work() -> None:
    module = Attends()
    module(data())
    given = torch.randn(4, 3)
    module(given)
    torch.testing.assert_close(module.attention, torch.softmax(module.layer(given), -1))


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_tensors_that_are_put_into_a_list_or_dict_of_the_module_do_not_stay_there_as_fakes(kind: str) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        y = x * 2
        if kind == "list":
            self.seen.append(y)
        else:
            self.seen["y"] = y
        return y

    module = Module(function, seen=[] if kind == "list" else {})
    try:
        module(data())
    except ProgramError:
        assert not module.seen
        return
    values = module.seen if kind == "list" else list(module.seen.values())
    assert all(isinstance(value, Variable) for value in values)


# --- state that a program does not have ---------------------------------------------------------------


def remembers(self: Any, x: Tensor) -> Tensor:
    self.hidden = x.mean(0) if self.hidden is None else 0.5 * self.hidden + x.mean(0)
    return x + self.hidden


def remembers_from_the_start(self: Any, x: Tensor) -> Tensor:
    self.hidden = 0.5 * self.hidden + x.mean(0)
    return x + self.hidden


@pytest.mark.parametrize(
    ("function", "hidden"),
    [(remembers, None), (remembers_from_the_start, 0.0), (remembers_from_the_start, torch.zeros(3))],
    ids=["None", "number", "tensor"],
)
def test_a_hidden_state_that_the_next_call_reads_is_rejected(
    function: Callable[[Any, Tensor], Tensor], hidden: Any
) -> None:
    module = Module(function, hidden=hidden)
    with pytest.raises(ProgramError, match=r"forward sets hidden and depends on the value in its next call"):
        module(data())


def test_a_hidden_state_of_a_submodule_is_named_by_its_path() -> None:
    module = nn.Sequential(nn.Linear(3, 3), Module(remembers, hidden=None))
    with pytest.raises(ProgramError, match=r"forward sets 1.hidden .*make it a buffer"):
        module(data())


def branches(self: Any, x: Tensor) -> Tensor:
    self.steps += 1
    return x.relu() if self.steps == 1 else x.tanh()


def repeats(self: Any, x: Tensor) -> Tensor:
    self.steps += 1
    for _ in range(self.steps):
        x = x * 2
    return x


def scales(self: Any, x: Tensor) -> Tensor:
    self.steps += 1
    return x * self.steps


def selects(self: Any, x: Tensor) -> Tensor:
    self.steps += 1
    return x[:, : self.steps]


@pytest.mark.parametrize("function", [branches, repeats, scales, selects])
def test_a_counter_that_changes_what_is_computed_is_rejected(
    function: Callable[[Any, Tensor], Tensor],
) -> None:
    with pytest.raises(ProgramError, match="forward sets steps and depends on the value in its next call"):
        Module(function, steps=0)(data())


def test_a_counter_that_changes_nothing_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        self.steps += 1
        return x.relu()

    module = Module(function, steps=4)
    module(data())
    assert "Module: forward changes steps from 4 to 5; the program records one call" in caplog.text
    assert module.steps == 4


def test_what_is_set_to_the_same_value_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        self.batch_first = True
        return x.relu()

    Module(function, batch_first=True)(data())
    assert "forward changes" not in caplog.text


def fills_an_empty_buffer(self: Any, x: Tensor) -> Tensor:
    self.empty = x.mean(0) if self.empty is None else 0.5 * self.empty + x.mean(0)
    return x + self.empty


def registers_a_buffer(self: Any, x: Tensor) -> Tensor:
    if not hasattr(self, "late"):
        self.register_buffer("late", torch.zeros(3))
    self.late += x.sum(0)
    return x + self.late


def assigns_a_parameter(self: Any, x: Tensor) -> Tensor:
    self.weight = nn.Parameter(self.weight.detach() * 2)
    return x * self.weight


def changes_a_parameter_in_place(self: Any, x: Tensor) -> Tensor:
    self.weight.data.mul_(0.5)
    return x * self.weight


def changes_a_plain_tensor_in_place(self: Any, x: Tensor) -> Tensor:
    self.plain.add_(1)
    return x * self.plain


def counts_in_a_list(self: Any, x: Tensor) -> Tensor:
    self.counts[0] += 1
    return x * self.counts[0]


@pytest.mark.parametrize(
    "function",
    [
        fills_an_empty_buffer,
        registers_a_buffer,
        assigns_a_parameter,
        changes_a_parameter_in_place,
        changes_a_plain_tensor_in_place,
        counts_in_a_list,
    ],
)
def test_other_state_is_that_of_eager_or_rejected(function: Callable[[Any, Tensor], Tensor]) -> None:
    module = Module(function, plain=torch.zeros(3), counts=[0], weight=nn.Parameter(torch.ones(3)))
    module.register_buffer("empty", None)
    twin = copy.deepcopy(module)
    try:
        out = module(data())
    except ProgramError:
        return
    exe = started()
    for batch in (4, 2, 3):
        given = torch.randn(batch, 3)
        torch.testing.assert_close(run(exe, given, out), [twin(given).detach()])


def creates_a_parameter(self: Any, x: Tensor) -> Tensor:
    if not hasattr(self, "weight"):
        self.weight = nn.Parameter(torch.ones(3))
    return x * self.weight


def creates_a_layer(self: Any, x: Tensor) -> Tensor:
    if not hasattr(self, "layer"):
        self.layer = nn.Linear(3, 3)
    y: Tensor = self.layer(x)
    return y


@pytest.mark.parametrize("function", [creates_a_parameter, creates_a_layer])
def test_a_parameter_that_forward_creates_is_trained_or_rejected(
    function: Callable[[Any, Tensor], Tensor],
) -> None:
    try:
        Module(function)(data())
    except ProgramError:
        return
    assert default_main_program().all_parameters()


# --- the module afterwards ----------------------------------------------------------------------------


def snapshot(module: nn.Module) -> list[Any]:
    """Identities of all that a module has."""
    return [
        [(name, id(value)) for name, value in store.items()]
        for sub in module.modules()
        for store in (sub._parameters, sub._buffers, sub._modules, sub.__dict__)
    ]


def fails_late(self: Any, x: Tensor) -> Tensor:
    self.mean = self.mean + 1
    self.count += 1
    self.last = x * 2
    self.steps = 7
    self.training = False
    raise ValueError("late")


def needs_a_value(self: Any, x: Tensor) -> Tensor:
    self.last = x * 2
    self.mean = self.mean + 1
    return x if x.sum() > 0 else -x


def mixes_shapes(self: Any, x: Tensor) -> Tensor:
    self.mean = self.mean + 1
    return x @ torch.zeros(4, 4)


@pytest.mark.parametrize("function", [fails_late, needs_a_value, mixes_shapes, remembers, branches])
def test_a_module_is_unchanged_after_an_error(function: Callable[[Any, Tensor], Tensor]) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), Module(function, hidden=None, steps=0))
    values = {key: value.clone() for key, value in module.state_dict().items()}
    before = snapshot(module)
    with pytest.raises(ProgramError):
        module(data())
    assert snapshot(module) == before
    torch.testing.assert_close(dict(module.state_dict()), values, rtol=0, atol=0)


def test_a_module_that_failed_can_be_called_again() -> None:
    module = nn.Sequential(nn.Linear(3, 3), Module(lambda self, x: x @ self.weight, weight=torch.zeros(4, 4)))
    x = data()
    before = str(default_main_program())
    with pytest.raises(ProgramError):
        module(x)
    assert [line for line in str(default_main_program()).splitlines() if "forward" in line[:8]] == [
        line for line in before.splitlines() if "forward" in line[:8]
    ]
    module[1].weight = torch.eye(3)
    out = module(x)
    given = torch.randn(4, 3)
    torch.testing.assert_close(run(started(), given, out), [module(given).detach()])


def test_a_module_has_its_own_tensors_after_the_call() -> None:
    module = nn.Sequential(nn.Linear(3, 3), Module(reassigns))
    before = snapshot(module)
    module(data())
    after = snapshot(module)
    hooks = "_load_state_dict_post_hooks"
    assert [[p for p in part if p[0] != hooks] for part in after] == [
        [p for p in part if p[0] != hooks] for part in before
    ]


def test_with_tensors_reports_what_was_changed() -> None:
    module = nn.Sequential(nn.Linear(3, 3), Module(lambda self, x: x, steps=1, last=None))
    given = {path: tensor.detach().clone() for path, tensor in tensors_of(module).items()}
    new = torch.ones(3)
    with with_tensors(module, given) as changes:
        assert module[0].weight is given["0.weight"]
        module[1].mean = new
        module[1].last = [new]
        module[1].steps = 2
    assert changes.buffers == {"1.mean": new}
    assert changes.tensors == {(module[1], "last"): [new]}
    assert changes.values == {(module[1], "steps"): (1, 2)}
    assert isinstance(module[0].weight, nn.Parameter)
    assert module[1].steps == 1
    assert module[1].last is None


def test_tied_tensors_get_one_tensor() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    given = {path: tensor.detach().clone() for path, tensor in tensors_of(module).items()}
    assert "1.weight" not in given
    with with_tensors(module, given):
        assert module[1].weight is module[0].weight is given["0.weight"]


def test_the_programs_of_two_calls_do_not_share_kept_tensors() -> None:
    module = Attends()
    module(data())
    first = module.attention
    second = Program()
    module(second.data("x", [None, 3]))
    assert first.program is default_main_program()
    assert module.attention.program is second
    assert values_for(second, module)["layer.weight"].name == (
        values_for(default_main_program(), module)["layer.weight"].name
    )
