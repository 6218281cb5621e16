"""All fusions together: which passes a build strategy asks for, and nets with corner cases."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as T

import argosy as paddle
from argosy.engine import kernels
from argosy.engine.ir import names
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.show import op_name
from argosy.engine.log import NOTICE
from argosy.engine.passes import FUSION_NAMES, default_fusions
from argosy.engine.runtime.compile import compile_program
from argosy.engine.runtime.scope import Scope, scope_guard
from argosy.static.fusions import fusions, switched_off
from tests.fusing import FUSIONS

F, nn = paddle.nn.functional, paddle.static.nn
OTHERS = ("in_place", "rematerialize", "choose_kernels", "channels_last")
PLAIN = Build(without_passes=frozenset({*OTHERS, *FUSION_NAMES}))
Net = Callable[[], list[Any]]


def all_on() -> paddle.static.BuildStrategy:
    build = paddle.static.BuildStrategy()
    for name in FUSIONS:
        setattr(build, name, True)
    return build


def test_the_passes_stand_in_paddles_order() -> None:
    assert [one.name for one in fusions(all_on())] == [
        "fuse_relu_depthwise_conv",
        "fuse_bn_act",
        "fuse_bn_add_act",
        "fuse_elewise_add_act",
        "native_batch_norm",
        "fuse_optimizer",
    ]


def compiled_with(build: paddle.static.BuildStrategy) -> list[str]:
    """The names of the fusions that run when a program is compiled with this strategy."""
    return [fusion.name for fusion in default_fusions(fusions(build), switched_off(build))]


def test_a_program_without_a_strategy_is_fused() -> None:
    build = paddle.static.BuildStrategy()
    assert compiled_with(build) == [name for name in FUSION_NAMES if name != "fuse_bn_add_act"]
    assert fusions(build) == ()  # the printed program shows what was asked for, only


@pytest.mark.parametrize("field", FUSIONS)
def test_false_switches_a_fusion_off_and_true_asks_for_it(field: str) -> None:
    off, on = paddle.static.BuildStrategy(), paddle.static.BuildStrategy()
    setattr(off, field, False)
    setattr(on, field, True)
    switched = set(FUSION_NAMES) - set(compiled_with(off)) - {"fuse_bn_add_act"}
    assert set(compiled_with(on)) - set(compiled_with(off)) >= switched
    assert switched | {"fuse_bn_add_act"} >= {fusion.name for fusion in fusions(on)}


def test_a_fusion_that_is_asked_for_keeps_its_place_among_the_defaults() -> None:
    build = paddle.static.BuildStrategy()
    build.fuse_bn_add_act_ops = True
    assert compiled_with(build) == list(FUSION_NAMES)


def computed(build: Build | None = None) -> set[str]:
    """The names of the ops that a small net's step runs."""
    x = feed("x", 4, 3, 6, 5)
    loss = paddle.mean(nn.batch_norm(conv(x), act="relu") ** 2)
    paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    main = paddle.static.default_main_program()
    compiled = compile_program(main, [loss], build=build)
    return {op_name(node) for node in compiled.step.nodes}


def test_a_plain_executor_runs_fused_ops() -> None:
    assert {"bn_act", "bn_act_backward", "fused_momentum"} <= computed()


def test_a_plain_executor_runs_no_fused_op_that_is_switched_off() -> None:
    assert not {"bn_act", "fused_momentum"} & computed(Build(frozenset(FUSION_NAMES)))


def test_a_process_without_built_kernels_runs_unfused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "are_ready", lambda waits: False)
    assert not {"bn_act", "fused_momentum"} & computed()


def test_default_fusions_log_nothing_at_the_default_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(NOTICE):
        computed()
    assert caplog.text == ""


# --- nets -----------------------------------------------------------------------------------------------


def feed(name: str, *shape: int) -> Any:
    return paddle.static.data(name, list(shape), "float32")


def weight(*shape: int) -> Any:
    return paddle.static.create_parameter(list(shape), "float32")


def conv(x: Any) -> Any:
    return nn.conv2d(x, 8, 3, padding=1, bias_attr=False)


def norm(x: Any) -> Any:
    return T.batch_norm(x, None, None, weight(8), weight(8), True, 0.1, 1e-5)


def with_gradients(loss: Any) -> list[Any]:
    return [loss, *(gradient for _, gradient in paddle.static.append_backward(loss))]


def a_bias_in_channels_last() -> list[Any]:
    return [F.relu(conv(feed("x", 4, 3, 6, 5)) + weight(5))]


def a_bias_on_a_transposed_value() -> list[Any]:
    return [F.relu(torch.transpose(feed("x", 4, 5, 6), 1, 2) + weight(5))]


def a_norm_of_a_transposed_value() -> list[Any]:
    x, z = feed("x", 4, 7, 8), feed("z", 4, 7, 8)
    y = F.relu(norm(torch.transpose(x, 1, 2) * weight(8, 7)))
    return with_gradients(torch.sum(y * torch.transpose(z, 1, 2)))


def a_norm_of_volumes_in_channels_last() -> list[Any]:
    x, z, order = feed("x", 2, 4, 5, 3, 8), feed("z", 2, 4, 5, 3, 8), (0, 4, 1, 2, 3)
    y = F.relu(norm(torch.permute(x, order) * weight(8, 4, 5, 3)))
    return with_gradients(torch.sum(y * torch.permute(z, order)))


def a_norm_and_a_sum_in_two_orders() -> list[Any]:
    x, z = feed("x", 4, 5, 5, 8), feed("z", 4, 8, 5, 5)
    h = torch.permute(x, (0, 3, 1, 2)) * weight(8, 5, 5)
    return with_gradients(torch.sum(F.relu(z * weight(8, 5, 5) + norm(h)) * z))


def a_view_of_a_fused_value() -> list[Any]:
    h = torch.permute(feed("x", 2, 4, 5, 3, 8) @ weight(8, 8), (0, 4, 1, 2, 3))
    return [torch.permute(F.relu(norm(h)), (0, 2, 3, 4, 1)).reshape(120, 8) @ weight(8, 2)]


def weights_that_are_slices() -> list[Any]:
    table = weight(8, 3)
    return [F.relu(T.batch_norm(feed("x", 4, 8, 5, 5), None, None, table[:, 1], table[:, 2], True))]


def a_weight_that_is_expanded() -> list[Any]:
    return [F.relu(T.batch_norm(feed("x", 4, 8, 5, 5), None, None, weight(1).expand(8), None, True))]


def a_summand_that_changes_before_the_relu() -> list[Any]:
    x = feed("x", 4, 6)
    a, b = x @ weight(6, 7), x @ weight(6, 7)
    total = a + b
    a.add_(1.0)
    return [F.relu(total), a]


def an_input_that_changes_before_the_sum() -> list[Any]:
    x = feed("x", 4, 6)
    a, b = x @ weight(6, 7), x @ weight(6, 7)
    activated = F.silu(b)
    b.mul_(2.0)
    return [a + activated, b]


def a_residual_that_changes_before_it_is_added() -> list[Any]:
    x = feed("x", 4, 8, 5, 5)
    other = x * 1.5
    normed = norm(x)
    view = other.view(4, 200)
    view.add_(1.0)
    return [F.relu(normed + other), view]


def a_parameter_that_is_updated_before_the_activation() -> list[Any]:
    x, w = feed("x", 4, 6), weight(6)
    total = w * 2.0 + w
    paddle.optimizer.SGD(0.1).minimize(paddle.mean((x * w) ** 2))
    return [paddle.tanh(total)]


def an_activation_that_is_added_to_itself() -> list[Any]:
    doubled = feed("x", 4, 6) * 2.0
    activated = F.silu(doubled @ weight(6, 7))
    return [doubled + doubled, *with_gradients(torch.sum(activated + activated))]


def a_gradient_that_is_fetched() -> list[Any]:
    h = conv(feed("x", 4, 8, 5, 5))
    t = norm(h)
    loss = paddle.mean(F.relu(t) ** 2)
    return [loss, *paddle.static.gradients(loss, [t, h])]


def a_value_that_is_added_to_its_transpose() -> list[Any]:
    h = F.relu(feed("x", 6, 6) @ weight(6, 6))
    return [h + torch.t(h)]


def a_norm_behind_an_update() -> list[Any]:
    x = feed("x", 4, 8, 5, 5)
    paddle.optimizer.SGD(0.1).minimize(paddle.mean(conv(x)))
    return [nn.batch_norm(conv(x))]


def a_norm_between_two_linear_layers() -> list[Any]:
    h = torch.transpose(nn.fc(feed("x", 4, 7, 8), 8, num_flatten_dims=2), 1, 2)
    return [nn.fc(torch.transpose(F.relu(norm(h)), 1, 2), 3, num_flatten_dims=2)]


NETS = (
    a_bias_in_channels_last,
    a_bias_on_a_transposed_value,
    a_norm_of_a_transposed_value,
    a_norm_of_volumes_in_channels_last,
    a_norm_and_a_sum_in_two_orders,
    a_view_of_a_fused_value,
    weights_that_are_slices,
    a_weight_that_is_expanded,
    a_summand_that_changes_before_the_relu,
    an_input_that_changes_before_the_sum,
    a_residual_that_changes_before_it_is_added,
    a_parameter_that_is_updated_before_the_activation,
    an_activation_that_is_added_to_itself,
    a_gradient_that_is_fetched,
    a_value_that_is_added_to_its_transpose,
    a_norm_behind_an_update,
    a_norm_between_two_linear_layers,
)


def fetched(net: Net, build: Build) -> list[Any]:
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard(), scope_guard(Scope()):
        fetches = net()
        main.build = build
        torch.manual_seed(0)
        exe = paddle.static.Executor()
        exe.run(startup)
        rng = np.random.default_rng(0)
        given = {
            name: rng.standard_normal(v.shape).astype("float32") for name, v in main.vars.items() if v.is_data
        }
        return exe.run(main, feed=given, fetch_list=fetches)


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.__name__)
def test_comes_out_as_without_any_pass(net: Net) -> None:
    wanted = fetched(net, PLAIN)
    for build in (Build(), Build(fusions=fusions(all_on()), memory_optimize=True)):
        for one, other in zip(fetched(net, build), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
