"""Values of torch modules and of the scope: loading before and after startup, several programs, writing back."""

# SPDX-License-Identifier: Apache-2.0
import copy

import pytest
import torch
from torch import Tensor, nn

import argosy as paddle
from argosy import static
from argosy.engine.errors import ProgramError, ScopeError
from argosy.engine.ir.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from argosy.engine.ir.torch_module import values_for
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard

GIVEN = torch.linspace(-1, 1, 20).reshape(5, 4)
# Small, and for a mean: batch norm of few rows amplifies rounding, with large steps beyond any tolerance.
RATE = 0.01


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))


def data() -> Variable:
    return default_main_program().data("x", [None, 4])


def started() -> Executor:
    exe = Executor()
    exe.run(default_startup_program())
    return exe


def fetched(exe: Executor, out: Variable, program: Program | None = None) -> Tensor:
    fetched: Tensor = exe.run(program, feed={"x": GIVEN}, fetch_list=[out], return_numpy=False)[0]
    return fetched


def in_scope(module: nn.Module, program: Program | None = None) -> dict[str, Tensor]:
    """The scope's values of a module."""
    values = values_for(program or default_main_program(), module)
    return {key: global_scope().get(variable.name).clone() for key, variable in values.items()}


def trained(module: nn.Module, steps: int = 2) -> tuple[Executor, Variable]:
    """Build and run a program that trains the module."""
    out = module(data())
    paddle.optimizer.SGD(RATE).minimize(out.pow(2).mean())
    exe = started()
    for _ in range(steps):
        fetched(exe, out)
    return exe, out


def eager_trained(module: nn.Module, steps: int = 2) -> dict[str, Tensor]:
    trainer = torch.optim.SGD(module.parameters(), RATE)
    for _ in range(steps):
        trainer.zero_grad()
        module(GIVEN).pow(2).mean().backward()
        trainer.step()
    return dict(module.state_dict())


# --- loading ------------------------------------------------------------------------------------------


def test_what_is_loaded_between_building_and_startup_is_the_first_value() -> None:
    module, other = model().eval(), model().eval()
    out = module(data())
    module.load_state_dict(other.state_dict())
    torch.testing.assert_close(fetched(started(), out), other(GIVEN).detach())


def test_what_is_changed_in_place_between_building_and_startup_is_the_first_value() -> None:
    module = nn.Linear(4, 3)
    out = module(data())
    nn.init.constant_(module.weight, 0.5)
    nn.init.zeros_(module.bias)
    torch.testing.assert_close(fetched(started(), out), module(GIVEN).detach())


def test_what_is_loaded_after_startup_is_written_to_the_scope() -> None:
    module, other = model(), model()
    exe, out = trained(module)
    module.load_state_dict(other.state_dict())
    torch.testing.assert_close(in_scope(module), dict(other.state_dict()), rtol=0, atol=0)
    torch.testing.assert_close(fetched(exe, out), other(GIVEN).detach())


def test_training_resumes_from_loaded_values() -> None:
    module, other = model(), model()
    exe, out = trained(module)
    module.load_state_dict(other.state_dict())
    for _ in range(2):
        fetched(exe, out)
    torch.testing.assert_close(in_scope(module), eager_trained(other))


def test_what_a_submodule_loads_is_written_to_the_scope() -> None:
    module, other = model(), nn.Linear(5, 4)
    trained(module)
    before = in_scope(module)
    module[2].load_state_dict(other.state_dict())
    after = in_scope(module)
    for key, value in after.items():
        wanted = other.state_dict()[key.removeprefix("2.")] if key.startswith("2.") else before[key]
        torch.testing.assert_close(value, wanted, rtol=0, atol=0)


def test_what_is_loaded_in_part_leaves_the_trained_rest() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4))
    trained(module)
    before = in_scope(module)
    module.load_state_dict({"0.weight": torch.ones(5, 4)}, strict=False)
    after = in_scope(module)
    assert torch.equal(after.pop("0.weight"), torch.ones(5, 4))
    for key, value in after.items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_what_is_loaded_is_written_to_the_current_scope_alone() -> None:
    module, other = nn.Linear(4, 3), nn.Linear(4, 3)
    module(data())
    started()
    before = in_scope(module)
    with scope_guard(Scope()):
        started()
        module.load_state_dict(other.state_dict())
        torch.testing.assert_close(in_scope(module), dict(other.state_dict()), rtol=0, atol=0)
    torch.testing.assert_close(in_scope(module), before, rtol=0, atol=0)


def test_a_module_that_is_no_part_of_a_program_is_loaded_as_ever() -> None:
    module, other = nn.Linear(4, 3), nn.Linear(4, 3)
    module.load_state_dict(other.state_dict(), assign=True)
    assert torch.equal(module.weight, other.weight)


# --- replaced tensors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_started", [False, True])
def test_loading_by_assignment_is_rejected(is_started: bool) -> None:
    module = nn.Sequential(nn.Linear(4, 3))
    out = module(data())
    if is_started:
        fetched(started(), out)
    with pytest.raises(ProgramError, match=r"replaced 'weight' of Linear, .*load without assign=True"):
        module.load_state_dict(nn.Sequential(nn.Linear(4, 3)).state_dict(), assign=True)


def test_a_parameter_that_was_replaced_before_startup_is_rejected() -> None:
    module = model()
    module(data())
    module[0].weight = nn.Parameter(torch.zeros(5, 4))
    with pytest.raises(
        ProgramError, match="'0.weight' of Sequential was replaced by another tensor after the program"
    ):
        started()


def test_a_buffer_that_was_replaced_before_startup_is_rejected() -> None:
    module = model()
    module(data())
    module[1].running_mean = torch.ones(5)
    with pytest.raises(ProgramError, match="'1.running_mean' of Sequential was replaced"):
        started()


def test_a_submodule_that_was_replaced_before_startup_is_rejected() -> None:
    module = model()
    module(data())
    module[2] = nn.Linear(5, 4)
    with pytest.raises(ProgramError, match="'2.weight' of Sequential was replaced"):
        started()


def test_a_submodule_that_was_removed_before_startup_is_rejected() -> None:
    module = model()
    module(data())
    del module[2]
    with pytest.raises(ProgramError, match="'2.weight' of Sequential"):
        started()


def test_a_parameter_that_was_replaced_before_the_call_is_the_one() -> None:
    module = nn.Linear(4, 3)
    module.weight = nn.Parameter(torch.zeros(3, 4))
    out = module(data())
    torch.testing.assert_close(fetched(started(), out), module(GIVEN).detach())


def test_a_parametrized_module_starts() -> None:
    module = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    out = module(data())
    torch.testing.assert_close(fetched(started(), out), module(GIVEN).detach())


# --- several programs ---------------------------------------------------------------------------------


def test_a_module_has_the_same_variables_in_two_programs() -> None:
    module = model()
    module(data())
    second = Program()
    with program_guard(second):
        module(second.data("x", [None, 4]))
    first_names, second_names = (
        {key: v.name for key, v in values_for(program, module).items()}
        for program in (default_main_program(), second)
    )
    assert first_names == second_names


def test_what_one_program_trains_the_other_sees() -> None:
    module = model()
    twin = copy.deepcopy(module)
    second = Program()
    with program_guard(second):
        evaluation = module.eval()(second.data("x", [None, 4]))
    exe, _ = trained(module.train())
    eager_trained(twin)
    wanted = twin.eval()(GIVEN).detach()
    torch.testing.assert_close(fetched(exe, evaluation, second), wanted, rtol=2e-5, atol=5e-5)


def test_two_programs_that_train_one_module_take_turns() -> None:
    module = nn.Linear(4, 3)
    twin = copy.deepcopy(module)
    programs = Program(), Program()
    losses = []
    for program, scale in zip(programs, (1.0, 3.0), strict=True):
        with program_guard(program):
            losses.append((module(program.data("x", [None, 4])) * scale).pow(2).mean())
            paddle.optimizer.SGD(0.1).minimize(losses[-1])
    exe = started()
    trainer = torch.optim.SGD(twin.parameters(), 0.1)
    for number in (0, 1, 0):
        fetched(exe, losses[number], programs[number])
        trainer.zero_grad()
        (twin(GIVEN) * (1.0, 3.0)[number]).pow(2).mean().backward()
        trainer.step()
    static.write_back(module, programs[0])
    torch.testing.assert_close(dict(module.state_dict()), dict(twin.state_dict()))


def test_a_second_program_with_a_startup_program_of_its_own_starts_from_the_module() -> None:
    module = nn.Linear(4, 3)
    trained(module)
    main, startup = Program(), Program()
    with program_guard(main, startup):
        out = module(main.data("x", [None, 4]))
    exe = Executor()
    with scope_guard(Scope()):
        exe.run(startup)
        torch.testing.assert_close(fetched(exe, out, main), module(GIVEN).detach())


def test_a_second_startup_program_sets_the_shared_variables_again() -> None:
    module = nn.Linear(4, 3)
    trained(module)
    main, startup = Program(), Program()
    with program_guard(main, startup):
        module(main.data("x", [None, 4]))
    assert not torch.equal(in_scope(module)["weight"], module.weight)
    Executor().run(startup)
    torch.testing.assert_close(in_scope(module), dict(module.state_dict()), rtol=0, atol=0)


def test_a_submodule_called_alone_shares_the_variables_of_the_whole() -> None:
    module = model()
    whole, part = module(data()), module[0](data())
    assert (
        values_for(default_main_program(), module)["0.weight"]
        is (values_for(default_main_program(), module[0])["weight"])
    )
    exe = started()
    torch.testing.assert_close(fetched(exe, part), module[0](GIVEN).detach())
    torch.testing.assert_close(fetched(exe, whole), module(GIVEN).detach())


def test_a_deep_copy_has_variables_of_its_own() -> None:
    module = nn.Linear(4, 4)
    x = data()
    hidden = module(x)
    other = copy.deepcopy(module)
    out = other(hidden)
    names = [v.name for one in (module, other) for v in values_for(default_main_program(), one).values()]
    assert len(set(names)) == 4
    exe = started()
    other.load_state_dict(nn.Linear(4, 4).state_dict())
    torch.testing.assert_close(fetched(exe, out), other(module(GIVEN)).detach())
    torch.testing.assert_close(in_scope(module), dict(module.state_dict()), rtol=0, atol=0)


def test_a_deep_copy_made_after_the_call_trains_alone() -> None:
    module = nn.Linear(4, 4)
    trained(module)
    other = copy.deepcopy(module)
    before = {key: value.clone() for key, value in other.state_dict().items()}
    main, startup = Program(), Program()
    with program_guard(main, startup):
        out = other(main.data("x", [None, 4]))
    exe = Executor()
    exe.run(startup)
    torch.testing.assert_close(fetched(exe, out, main), other(GIVEN).detach())
    torch.testing.assert_close(in_scope(other, main), before, rtol=0, atol=0)
    assert not torch.equal(in_scope(module)["weight"], before["weight"])


# --- tied weights -------------------------------------------------------------------------------------


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x).tanh())
        return y


def test_tied_weights_are_one_variable_and_train_as_one() -> None:
    module = Tied()
    twin = copy.deepcopy(module)
    trained(module)
    assert len(default_main_program().all_parameters()) == 3
    static.write_back(module)
    torch.testing.assert_close(dict(module.state_dict()), eager_trained(twin))
    assert module.first.weight is module.second.weight


def test_tied_weights_are_loaded_after_startup() -> None:
    module, other = Tied(), Tied()
    exe, out = trained(module)
    module.load_state_dict(other.state_dict())
    torch.testing.assert_close(fetched(exe, out), other(GIVEN).detach())


def test_two_modules_with_one_weight_share_its_variable() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    second(first(data()))
    names = [values_for(default_main_program(), one)["weight"].name for one in (first, second)]
    assert names[0] == names[1]
    assert len(default_main_program().all_parameters()) == 3


# --- writing back -------------------------------------------------------------------------------------


class Counts(nn.Module):
    """Has a buffer that is no part of the state dict."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        y: Tensor = self.layer(x)
        return y


def test_write_back_restores_trained_values_and_buffers() -> None:
    module = model()
    twin = copy.deepcopy(module)
    trained(module)
    assert static.write_back(module) is module
    torch.testing.assert_close(dict(module.state_dict()), eager_trained(twin))


def test_write_back_keeps_the_tensors_of_the_module() -> None:
    module = nn.Linear(4, 4)
    before = [id(parameter) for parameter in module.parameters()]
    trained(module)
    static.write_back(module)
    assert [id(parameter) for parameter in module.parameters()] == before
    assert not any(parameter.grad is not None for parameter in module.parameters())


def test_write_back_restores_buffers_that_are_not_persistent() -> None:
    module = Counts()
    trained(module, steps=3)
    static.write_back(module)
    assert module.count == 3


def test_write_back_takes_a_compiled_module() -> None:
    module = Counts()
    twin = copy.deepcopy(module)
    compiled = torch.compile(module, backend="eager")
    trained(compiled)
    static.write_back(compiled)
    torch.testing.assert_close(dict(module.state_dict()), eager_trained(twin))
    assert module.count == 2


def test_a_compiled_module_and_what_it_was_made_from_are_one() -> None:
    module = nn.Linear(4, 4)
    torch.compile(module, backend="eager")(module(data()))
    assert len(default_main_program().all_parameters()) == 2


def test_what_was_written_back_and_loaded_again_is_the_same() -> None:
    module, other = model(), model()
    exe, out = trained(module)
    static.write_back(module)
    other.load_state_dict(module.state_dict())
    module.load_state_dict(copy.deepcopy(other.state_dict()))
    torch.testing.assert_close(fetched(exe, out), other(GIVEN).detach())


def test_write_back_before_startup_says_that_there_is_no_value() -> None:
    module = nn.Linear(4, 4)
    module(data())
    with pytest.raises(ScopeError, match="linear_0.weight"):
        static.write_back(module)
