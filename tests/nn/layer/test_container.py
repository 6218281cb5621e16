"""Sequential, LayerList, ParameterList."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest

from argosy import nn
from argosy.engine.errors import ConfigError

Agree = Callable[..., None]


def test_sequential_runs_one_after_the_other(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        lambda p, x: (
            (x @ p["linear_0.w_0"] + p["linear_0.b_0"]).tanh() @ p["linear_1.w_0"] + p["linear_1.b_0"]
        ),
        (None, 3),
    )


def test_sequential_is_a_list_with_names() -> None:
    net = nn.Sequential(("first", nn.ReLU()), ("second", nn.Tanh()))
    assert net[0] is net["first"]
    assert net[-1] is net.second
    assert len(net) == 2
    assert [type(layer) for layer in net[:1]] == [nn.ReLU]
    net["second"] = nn.Sigmoid()
    net[0] = nn.GELU()
    assert [type(layer) for layer in net.sublayers()] == [nn.GELU, nn.Sigmoid]
    del net[0]
    assert [name for name, _ in net.named_children()] == ["second"]


def test_a_layer_list_behaves_as_a_list_and_owns_its_parameters() -> None:
    items = nn.LayerList([nn.Linear(2, 2) for _ in range(2)])
    items.append(nn.ReLU()).extend([nn.Tanh()])
    items.insert(0, nn.Sigmoid())
    assert [type(layer) for layer in items] == [nn.Sigmoid, nn.Linear, nn.Linear, nn.ReLU, nn.Tanh]
    assert [name for name, _ in items.named_parameters()][:2] == ["1.weight", "1.bias"]
    items[-1] = nn.ReLU6()
    del items[0]
    assert len(items) == 4
    assert type(items[-1]) is nn.ReLU6
    assert [type(layer) for layer in items[1:3]] == [nn.Linear, nn.ReLU]
    with pytest.raises(ConfigError, match="no entry 4 in a list of 4; use append"):
        items[4] = nn.ReLU()


def test_a_parameter_list_holds_parameters() -> None:
    owner = nn.Layer("owner")
    items = nn.ParameterList([owner.create_parameter([i + 1]) for i in range(2)])
    items.append(owner.create_parameter([3]))
    assert [p.shape for p in items] == [(1,), (2,), (3,)]
    assert [name for name, _ in items.named_parameters()] == ["0", "1", "2"]
    items[-1] = items[0]
    assert items[2] is items[0]
    assert len(items) == 3
