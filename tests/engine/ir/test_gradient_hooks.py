"""Hooks of tensors, parameters and modules change a program's gradients as they change eager mode's."""

# SPDX-License-Identifier: Apache-2.0
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks

import argosy as paddle
from argosy import static
from argosy.engine.errors import ProgramError
from argosy.engine.ir.backward import append_backward, gradients
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.torch_module import values_for
from argosy.engine.runtime.executor import Executor

Add = Callable[[nn.Sequential], Any]
"""Adds hooks to a model."""


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def squares(y: Any) -> Any:
    return y.pow(2).sum()


def program_gradients(
    module: nn.Module, given: Tensor, after: Add | None = None, of_input: bool = False
) -> dict[str, Tensor]:
    """The gradients of the parameters by a program; `after` is called between forward and backward."""
    program = default_main_program()
    x = program.data("x", [None, 4])
    x.stop_gradient = not of_input
    out = module(x)
    if after is not None:
        after(module)
    values = {key: v.name for key, v in values_for(program, module).items()}
    loss = squares(out)
    grads: dict[str, Any] = {parameter.name: grad for parameter, grad in append_backward(loss)}
    if of_input:
        values["x"], grads["x"] = "x", gradients(loss, x)[0]
    exe = Executor()
    exe.run(default_startup_program())
    fetched = exe.run(
        feed={"x": given}, fetch_list=[grads[name] for name in values.values()], return_numpy=False
    )
    return dict(zip(values, fetched, strict=True))


def eager_gradients(module: nn.Module, given: Tensor, of_input: bool = False) -> dict[str, Any]:
    x = given.clone().requires_grad_(of_input)
    squares(module(x)).backward()
    grads: dict[str, Any] = {key: p.grad for key, p in module.named_parameters()}
    return {**grads, "x": x.grad} if of_input else grads


def assert_equals_eager(add: Add, is_after: bool = False, of_input: bool = False) -> None:
    """Same gradients in both, and others than without the hooks."""
    module = model()
    twin, plain = copy.deepcopy(module), copy.deepcopy(module)
    add(twin)
    if not is_after:
        add(module)
    given = torch.randn(6, 4)
    wanted = eager_gradients(twin, given, of_input)
    actual = program_gradients(module, given, add if is_after else None, of_input)
    torch.testing.assert_close(actual, wanted)
    unchanged = eager_gradients(plain, given, of_input)
    assert any(not torch.equal(wanted[key], unchanged[key]) for key in wanted)


# --- hooks of parameters ------------------------------------------------------------------------------

MASK = torch.tensor([1.0, 0.0, 1.0, 0.0])


def masks(module: nn.Sequential) -> None:
    module[0].weight.register_hook(lambda grad: grad * MASK)


def clips(module: nn.Sequential) -> None:
    for parameter in module.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-0.5, 0.5))


def adds_then_doubles(module: nn.Sequential) -> None:
    module[2].weight.register_hook(lambda grad: grad + 1)
    module[2].weight.register_hook(lambda grad: grad * 2)


def normalizes(module: nn.Sequential) -> None:
    module[0].weight.register_hook(lambda grad: grad / grad.norm())


def decays(module: nn.Sequential) -> None:
    weight = module[0].weight
    weight.register_hook(lambda grad: grad + 0.1 * weight.detach())


def changes_in_place(module: nn.Sequential) -> None:
    def change(grad: Tensor) -> None:
        grad.mul_(2)

    module[0].weight.register_hook(change)


def accumulated(change: Callable[[Tensor], Any]) -> Add:
    return lambda module: module[0].weight.register_post_accumulate_grad_hook(change)


def doubled(parameter: Tensor) -> None:
    parameter.grad = parameter.grad * 2


def halved_and_clipped(parameter: Tensor) -> None:
    parameter.grad.mul_(0.5).clamp_(-1, 1)


def increased(parameter: Tensor) -> None:
    parameter.grad.add_(parameter.detach() + 1)


def clipped(parameter: Tensor) -> None:
    nn.utils.clip_grad_norm_(parameter, 0.1)


def doubles_then_increases(module: nn.Sequential) -> None:
    module[0].weight.register_post_accumulate_grad_hook(doubled)
    module[0].weight.register_post_accumulate_grad_hook(increased)


def both_kinds(module: nn.Sequential) -> None:
    module[0].weight.register_post_accumulate_grad_hook(increased)
    module[0].weight.register_hook(lambda grad: grad * 3)


PARAMETER_HOOKS: dict[str, Add] = {
    "masks": masks,
    "clips": clips,
    "adds, then doubles": adds_then_doubles,
    "normalizes": normalizes,
    "divides by a number": lambda m: m[0].weight.register_hook(lambda grad: grad / grad.norm().item()),
    "decays": decays,
    "changes in place": changes_in_place,
    "accumulated: in place": accumulated(halved_and_clipped),
    "accumulated: replaced": accumulated(doubled),
    "accumulated: clipped": accumulated(clipped),
    "accumulated: two": doubles_then_increases,
    "both kinds": both_kinds,
}


@pytest.mark.parametrize("is_after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("add", PARAMETER_HOOKS.values(), ids=PARAMETER_HOOKS)
def test_hooks_of_parameters_equal_eager(add: Add, is_after: bool) -> None:
    assert_equals_eager(add, is_after)


def test_a_hook_that_was_removed_is_not_called() -> None:
    module = model()
    twin = copy.deepcopy(module)
    module[0].weight.register_hook(lambda grad: grad * 2).remove()
    module[0].weight.register_post_accumulate_grad_hook(doubled).remove()
    given = torch.randn(6, 4)
    torch.testing.assert_close(program_gradients(module, given), eager_gradients(twin, given))


def test_a_hook_of_a_shared_parameter_is_called_once_with_the_whole_gradient() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(self.layer(x).tanh())
            return y

    module = Twice()
    twin = copy.deepcopy(module)
    for one in (module, twin):
        one.layer.weight.register_hook(lambda grad: grad + 1)
        one.layer.bias.register_post_accumulate_grad_hook(increased)
    given = torch.randn(6, 4)
    torch.testing.assert_close(program_gradients(module, given), eager_gradients(twin, given))


def test_hooks_of_a_parameter_without_a_module_equal_eager() -> None:
    weight = nn.Parameter(torch.randn(4, 3))
    weight.register_hook(lambda grad: grad * 2)
    weight.register_post_accumulate_grad_hook(increased)
    ((_, grad),) = append_backward(squares(default_main_program().data("x", [None, 4]) @ weight))
    exe = Executor()
    exe.run(default_startup_program())
    given = torch.randn(6, 4)
    (actual,) = exe.run(feed={"x": given}, fetch_list=[grad], return_numpy=False)
    squares(given @ weight).backward()
    torch.testing.assert_close(actual, weight.grad)


def test_a_hook_that_returns_nothing_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    module = model()
    twin = copy.deepcopy(module)
    seen: list[Tensor] = []
    module[0].weight.register_hook(seen.append)
    given = torch.randn(6, 4)
    torch.testing.assert_close(program_gradients(module, given), eager_gradients(twin, given))
    name = values_for(default_main_program(), module)["0.weight"].name
    assert f"a hook of {name} returns nothing" in caplog.text
    assert f"fetch '{name}@GRAD'" in caplog.text


def test_a_hook_that_returns_a_gradient_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    module = model()
    clips(module)
    program_gradients(module, torch.randn(6, 4))
    assert "returns nothing" not in caplog.text


def changed_in_place(parameter: Tensor) -> None:
    parameter.sub_(0.1 * parameter.grad)


def changed_data(parameter: Tensor) -> None:
    parameter.data.sub_(0.1 * parameter.grad)


@pytest.mark.parametrize("change", [changed_in_place, changed_data])
def test_a_hook_that_changes_the_parameter_is_rejected(change: Callable[[Tensor], None]) -> None:
    module = model()
    module[0].weight.register_post_accumulate_grad_hook(change)
    with pytest.raises(
        ProgramError, match="hook of '.*0.weight' changes the parameter, but only the optimizer"
    ):
        program_gradients(module, torch.randn(6, 4))


def test_a_hook_that_drops_the_gradient_is_rejected() -> None:
    def drops(parameter: Tensor) -> None:
        parameter.grad = None

    module = model()
    module[0].weight.register_post_accumulate_grad_hook(drops)
    with pytest.raises(ProgramError, match="hook of '.*0.weight' drops the gradient, but only the optimizer"):
        program_gradients(module, torch.randn(6, 4))


# --- hooks of modules and of values inside of them ----------------------------------------------------


class Hooked(nn.Module):
    """Hooks a value inside of its forward."""

    def __init__(self, inner: nn.Sequential) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner[0](x)
        y.register_hook(lambda grad: grad * 3)
        y.register_hook(lambda grad: grad + 1)
        z: Tensor = self.inner[2](y.tanh())
        return z


MODULE_HOOKS: dict[str, Add] = {
    "forward": lambda m: m[0].register_forward_hook(lambda module, args, out: out * 2),
    "forward by a number": lambda m: m[0].register_forward_hook(
        lambda module, args, out: out / out.max().item()
    ),
    "forward of the whole": lambda m: m.register_forward_hook(lambda module, args, out: out + args[0].sum()),
    "forward with keywords": lambda m: m[0].register_forward_hook(
        lambda module, args, kwargs, out: out.sin(), with_kwargs=True
    ),
    "forward pre": lambda m: m[2].register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "forward pre of the whole": lambda m: m.register_forward_pre_hook(lambda module, args: args[0].tanh()),
    "full backward": lambda m: m[1].register_full_backward_hook(lambda module, dx, dy: (dx[0] * 2,)),
    "full backward of the whole": lambda m: m.register_full_backward_hook(
        lambda module, dx, dy: (dx[0] + 1,)
    ),
    "full backward pre": lambda m: m[1].register_full_backward_pre_hook(
        lambda module, dy: (dy[0].clamp(-1, 1),)
    ),
    "full backward pre of the whole": lambda m: m.register_full_backward_pre_hook(
        lambda module, dy: (dy[0] * 2,)
    ),
}


@pytest.mark.parametrize("add", MODULE_HOOKS.values(), ids=MODULE_HOOKS)
def test_hooks_of_modules_equal_eager(add: Add) -> None:
    assert_equals_eager(add, of_input=True)


def test_hooks_of_values_inside_of_a_module_equal_eager() -> None:
    module = model()
    twin = copy.deepcopy(module)
    given = torch.randn(6, 4)
    torch.testing.assert_close(program_gradients(Hooked(module), given), eager_gradients(Hooked(twin), given))


def test_hooks_of_variables_equal_eager() -> None:
    x = default_main_program().data("x", [None, 4])
    x.stop_gradient = False
    h = x.tanh()
    handle = h.register_hook(lambda grad: grad * 3)
    x.register_hook(lambda grad: grad + 1)
    (grad,) = gradients(squares(h), x)
    given = torch.randn(6, 4)
    (actual,) = Executor().run(feed={"x": given}, fetch_list=[grad], return_numpy=False)
    h_value = given.tanh()
    torch.testing.assert_close(actual, 3 * 2 * h_value * (1 - h_value**2) + 1)
    handle.remove()


def test_a_hook_of_a_variable_that_was_removed_is_not_called() -> None:
    x = default_main_program().data("x", [None, 4])
    x.stop_gradient = False
    h = x.tanh()
    h.register_hook(lambda grad: grad * 3).remove()
    (grad,) = gradients(h.sum(), x)
    given = torch.randn(6, 4)
    (actual,) = Executor().run(feed={"x": given}, fetch_list=[grad], return_numpy=False)
    torch.testing.assert_close(actual, 1 - given.tanh() ** 2)


GLOBAL_HOOKS: dict[str, Callable[[], Any]] = {
    "forward": lambda: global_hooks.register_module_forward_hook(
        lambda module, args, out: out * 2 if isinstance(module, nn.Linear) else None
    ),
    "forward pre": lambda: global_hooks.register_module_forward_pre_hook(
        lambda module, args: (args[0] + 1,) if isinstance(module, nn.Tanh) else None
    ),
    "full backward": lambda: global_hooks.register_module_full_backward_hook(
        lambda module, dx, dy: (dx[0] * 2,) if isinstance(module, nn.Tanh) else None
    ),
    "full backward pre": lambda: global_hooks.register_module_full_backward_pre_hook(
        lambda module, dy: (dy[0] * 2,) if isinstance(module, nn.Tanh) else None
    ),
}


@pytest.mark.parametrize("register", GLOBAL_HOOKS.values(), ids=GLOBAL_HOOKS)
def test_global_hooks_equal_eager(register: Callable[[], Any]) -> None:
    module = model()
    twin, given = copy.deepcopy(module), torch.randn(6, 4)
    unchanged = eager_gradients(copy.deepcopy(module), given, of_input=True)
    handle = register()
    try:
        wanted = eager_gradients(twin, given, of_input=True)
        torch.testing.assert_close(program_gradients(module, given, of_input=True), wanted)
    finally:
        handle.remove()
    assert not torch.equal(wanted["0.weight"], unchanged["0.weight"])


# --- hooks that need a value --------------------------------------------------------------------------


def clips_by_number(grad: Tensor) -> Tensor:
    return grad / max(1.0, grad.norm().item())


def clips_by_branch(grad: Tensor) -> Tensor:
    return grad / grad.norm() if grad.norm() > 1 else grad


def clips_in_place(parameter: Tensor) -> None:
    if parameter.grad.norm() > 1:
        parameter.grad.div_(parameter.grad.norm())


NEEDS_A_VALUE: dict[str, Add] = {
    "parameter, number and branch": lambda m: m[0].weight.register_hook(clips_by_number),
    "parameter, branch": lambda m: m[0].weight.register_hook(clips_by_branch),
    "accumulated, branch": lambda m: m[0].weight.register_post_accumulate_grad_hook(clips_in_place),
    "full backward": lambda m: m[1].register_full_backward_hook(
        lambda module, dx, dy: (clips_by_branch(dx[0]),)
    ),
}


@pytest.mark.parametrize("add", NEEDS_A_VALUE.values(), ids=NEEDS_A_VALUE)
def test_a_hook_that_needs_a_value_is_rejected_with_the_line(add: Add) -> None:
    module = model()
    add(module)
    with pytest.raises(ProgramError, match=r"test_gradient_hooks.py:\d+.*needs the value of a variable"):
        program_gradients(module, torch.randn(6, 4))


def test_a_forward_hook_that_needs_a_value_is_rejected_with_the_line() -> None:
    module = model()
    module[0].register_forward_hook(lambda module, args, out: clips_by_branch(out))
    with pytest.raises(
        ProgramError, match=r"Sequential called at test_gradient_hooks.py:\d+.*needs the value of a variable"
    ):
        program_gradients(module, torch.randn(6, 4))


# --- training -----------------------------------------------------------------------------------------


def several(module: nn.Sequential) -> None:
    masks(module)
    doubles_then_increases(module)
    module[1].register_full_backward_hook(lambda module, dx, dy: (dx[0] * 2,))
    module[2].register_forward_hook(lambda module, args, out: out + 1)
    module[2].bias.register_post_accumulate_grad_hook(doubled)


@pytest.mark.parametrize("is_after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("add", [masks, accumulated(doubled), several], ids=["masks", "doubles", "several"])
def test_two_steps_of_sgd_equal_eager(add: Add, is_after: bool) -> None:
    module = model()
    twin = copy.deepcopy(module)
    add(twin)
    if not is_after or add is several:  # a module hook counts when the module is called
        add(module)
    loss = squares(module(default_main_program().data("x", [None, 4])))
    if is_after and add is not several:
        add(module)
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = Executor()
    exe.run(default_startup_program())
    trainer = torch.optim.SGD(twin.parameters(), 0.1)
    for batch in (2, 3):
        given = torch.randn(batch, 4)
        exe.run(feed={"x": given}, fetch_list=[loss])
        trainer.zero_grad()
        squares(twin(given)).backward()
        trainer.step()
    static.write_back(module)
    torch.testing.assert_close(dict(module.state_dict()), dict(twin.state_dict()))
