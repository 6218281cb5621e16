"""Layer: attributes, names, sublayers, parameters, hooks, state, training and testing."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

from argosy import nn, static
from argosy.engine.errors import ConfigError, ScopeError, UnknownNameError
from argosy.engine.runtime.scope import global_scope
from argosy.framework.initializer import Constant


class Net(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3)
        self.bn = nn.BatchNorm2D(4)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))

    def forward(self, x: Any) -> Any:
        return self.head(nn.functional.relu(self.bn(self.conv(x))))


def image(batch: int = 2) -> np.ndarray[Any, Any]:
    return np.random.default_rng(batch).standard_normal((batch, 3, 4, 4)).astype("float32")


def test_layers_and_parameters_are_found_as_attributes() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == [
        "conv.weight",
        "conv.bias",
        "bn.weight",
        "bn.bias",
        "head.1.weight",
        "head.1.bias",
    ]
    assert [name for name, _ in net.named_sublayers()] == ["conv", "bn", "head", "head.0", "head.1"]
    assert [name for name, _ in net.named_children()] == ["conv", "bn", "head"]
    assert net.sublayers(include_self=True)[0] is net
    assert [name for name, _ in net.named_buffers()] == ["bn._mean", "bn._variance"]
    assert net.parameters(include_sublayers=False) == []
    assert all(
        a is b for a, b in zip(net.parameters(), static.default_main_program().all_parameters(), strict=True)
    )


def test_names_are_paddle_s() -> None:
    net = Net()
    assert [p.name for p in net.parameters()] == [
        "conv2d_0.w_0",
        "conv2d_0.b_0",
        "batch_norm2d_0.w_0",
        "batch_norm2d_0.b_0",
        "linear_0.w_0",
        "linear_0.b_0",
    ]
    assert [b.name for b in net.buffers()] == ["batch_norm2d_0.w_1", "batch_norm2d_0.w_2"]
    assert (net.full_name(), net.head.full_name()) == ("net_0", "sequential_0")
    assert nn.Conv2DTranspose(1, 1, 1).full_name() == "conv2d_transpose_0"
    assert nn.Layer("scope").full_name() == "scope_0"
    assert nn.Linear(2, 2).weight.name == "linear_1.w_0"


def test_a_network_runs_and_all_of_it_is_differentiated() -> None:
    out = Net()(static.data("x", [None, 3, 4, 4]))
    pairs = static.append_backward((out * out).mean())
    assert len(pairs) == 6
    exe = static.Executor()
    exe.run(static.default_startup_program())
    for batch in (2, 5):
        assert exe.run(feed={"x": image(batch)}, fetch_list=[out])[0].shape == (batch, 2)


def test_eval_builds_inference_and_train_builds_training_again() -> None:
    net = Net()
    dropout = nn.Dropout(0.5)
    net.add_sublayer("dropout", dropout)
    x = static.data("x", [None, 3, 4, 4])
    net.eval()
    assert not any(layer.training for layer in net.sublayers(include_self=True))
    testing = net(x)
    assert dropout(testing) is testing
    net.train()
    training = net(x)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 2),
    ).eval()
    with torch.no_grad():
        for own, name in (
            (module[0].weight, "conv2d_0.w_0"),
            (module[0].bias, "conv2d_0.b_0"),
            (module[4].weight, "linear_0.w_0"),
            (module[4].bias, "linear_0.b_0"),
        ):
            value = global_scope().get(name)
            own.copy_(value.T if name == "linear_0.w_0" else value)  # type: ignore[operator]  # tensors all
        expected = module(torch.from_numpy(image()))
    fetched = exe.run(feed={"x": image()}, fetch_list=[testing, training])
    np.testing.assert_allclose(fetched[0], expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(fetched[1], expected, atol=1e-3)


def test_attributes_can_be_replaced_and_deleted() -> None:
    net = Net()
    first, net.conv = net.conv, nn.Conv2D(3, 2, 1)
    assert net.conv is not first
    assert len(net.parameters()) == 6
    net.head = None
    assert [name for name, _ in net.named_children()] == ["conv", "bn"]
    del net.bn
    with pytest.raises(UnknownNameError, match="Net has no attribute 'bn'"):
        _ = net.bn
    net.conv = 3
    assert (net.conv, net.parameters()) == (3, [])
    net.plain = "text"
    assert net.plain == "text"


def test_shared_layers_and_parameters_are_listed_once() -> None:
    net = nn.Layer()
    net.a = net.b = nn.Linear(2, 2)
    net.c = nn.Linear(2, 2)
    net.c.weight = net.a.weight
    assert [name for name, _ in net.named_sublayers()] == ["a", "c"]
    assert [name for name, _ in net.named_parameters()] == ["a.weight", "a.bias", "c.bias"]


def test_parameters_of_one_s_own() -> None:
    layer = nn.Layer("own")
    layer.scale = layer.create_parameter([3], default_initializer=Constant(2.0))
    layer.add_parameter("shift", layer.create_parameter([3], is_bias=True, dtype="float64"))
    layer.nothing = layer.create_parameter([3], attr=False)
    assert [p.name for p in layer.parameters()] == ["own_0.w_0", "own_0.b_0"]
    assert layer.nothing is None
    assert layer.shift.dtype is torch.float64


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda n: n.add_parameter("p", 3), "a int is not a Parameter; use create_parameter"),
        (lambda n: n.add_sublayer("p", "x"), "a str is not an nn.Layer"),
        (lambda n: n.register_buffer("p", 3), "a int is not a Variable"),
        (lambda n: n.add_sublayer("a.b", nn.ReLU()), "use a non-empty string without dots"),
        (lambda n: n.add_sublayer("forward", nn.ReLU()), "has an attribute 'forward' already"),
    ],
)
def test_what_is_no_part_of_a_layer_is_refused(act: Any, message: str) -> None:
    layer = nn.Layer()
    with pytest.raises(ConfigError, match=message):
        act(layer)


def test_super_must_be_called_first_and_forward_be_there() -> None:
    class Early(nn.Layer):
        def __init__(self) -> None:
            self.fc = nn.Linear(1, 1)

    with pytest.raises(
        ConfigError, match=r"Early\.fc is set before super\(\)\.__init__\(\); call that first"
    ):
        Early()
    with pytest.raises(NotImplementedError, match=r"Layer has no forward\(\)"):
        nn.Layer()(1)


def test_hooks_may_look_and_change() -> None:
    layer = nn.Flatten(0)
    seen: list[Any] = []
    looking = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    changing = layer.register_forward_pre_hook(lambda _, inputs: inputs[0] * 2.0)
    after = layer.register_forward_post_hook(lambda _, inputs, out: out + 1.0)
    x = static.data("x", [2, 1])
    outs = [layer(x)]
    for hook in (looking, changing, after):
        hook.remove()
    outs.append(layer(x))
    assert len(seen) == 1
    fetched = static.Executor().run(feed={"x": np.ones((2, 1), dtype="float32")}, fetch_list=outs)
    assert [v.tolist() for v in fetched] == [[3, 3], [1, 1]]


def test_state_dicts_hold_variables_and_take_arrays() -> None:
    net = Net()
    net.register_buffer("skipped", static.create_global_var([1], 0.0, "float32"), persistable=False)
    state = net.state_dict()
    assert list(state)[-2:] == ["bn._mean", "bn._variance"]
    assert state["conv.weight"] is net.conv.weight
    net.set_state_dict({"conv.bias": np.ones(4, dtype="float32"), "bn._mean": torch.full((4,), 2.0)})
    assert global_scope().get("conv2d_0.b_0").tolist() == [1] * 4
    assert global_scope().get("batch_norm2d_0.w_1").tolist() == [2] * 4
    net.set_state_dict({"linear_0.b_0": np.zeros(2, dtype="float32")}, use_structured_name=False)
    assert global_scope().get("linear_0.b_0").tolist() == [0, 0]
    with pytest.raises(ConfigError, match=r"Net has no 'conv\.biass' to set"):
        net.set_state_dict({"conv.biass": np.ones(4)})
    with pytest.raises(ConfigError, match=r"'conv\.bias' has shape \[4\] and cannot be set to \[3\]"):
        net.set_state_dict({"conv.bias": np.ones(3, dtype="float32")})
    with pytest.raises(ScopeError, match="float32"):
        net.set_state_dict({"conv.bias": np.ones(4, dtype="float64")})


def test_apply_reaches_every_layer_from_the_inside() -> None:
    actual: list[str] = []
    Net().apply(lambda layer: actual.append(type(layer).__name__))
    assert actual == ["Conv2D", "BatchNorm2D", "Flatten", "Linear", "Sequential", "Net"]


def test_a_layer_prints_its_parts() -> None:
    shown = repr(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    assert shown == "Sequential(\n  (0): Linear(in_features=2, out_features=3)\n  (1): ReLU()\n)"
    assert {"conv", "forward"} <= set(dir(Net()))


def test_nn_lists_its_layers_and_names_what_is_missing() -> None:
    assert {"Linear", "functional", "initializer"} <= set(dir(nn))
    for name in nn.__all__:
        assert getattr(nn, name).__doc__, name
    with pytest.raises(UnknownNameError, match=r"argosy\.nn\.Liner is not in Argosy.*Linear"):
        _ = nn.Liner  # type: ignore[attr-defined]  # that is the test
