"""fluid.initializer: the arguments of 1.x, seeds of single layers, the global initializer."""

# SPDX-License-Identifier: Apache-2.0
import inspect
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import fluid
from argosy.engine.ir import names
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.fluid import initializer as init

SIGNATURES = {
    "Constant": "value=0.0, force_cpu=False",
    "Uniform": "low=-1.0, high=1.0, seed=0, diag_num=0, diag_step=0, diag_val=1.0",
    "Normal": "loc=0.0, scale=1.0, seed=0",
    "TruncatedNormal": "loc=0.0, scale=1.0, seed=0",
    "Xavier": "uniform=True, fan_in=None, fan_out=None, seed=0",
    "MSRA": "uniform=True, fan_in=None, seed=0",
}


def test_names_and_arguments_are_those_of_1x() -> None:
    for name, wanted in SIGNATURES.items():
        kind = getattr(init, name)
        assert kind is getattr(init, f"{name}Initializer")
        shown = [f"{p.name}={p.default!r}" for p in inspect.signature(kind).parameters.values()]
        assert ", ".join(shown) == wanted
    assert init.NumpyArrayInitializer is init.NumpyArray
    assert init.BilinearInitializer is init.Bilinear
    assert not init.force_init_on_cpu()
    with pytest.raises(NotImplementedError, match="diag_num"):
        init.Uniform(diag_num=3)
    with pytest.raises(TypeError, match="seed"):
        init.Normal(seed="7")  # type: ignore[arg-type]


def started(initializers: list[Any], program_seed: int, extra_layers: int) -> list[np.ndarray[Any, Any]]:
    """The initial values of parameters with these initializers, and what two layers with a seed draw in two runs."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = program_seed
    layers = fluid.layers
    with fluid.program_guard(main, startup), names.guard(), scope_guard(Scope()):
        x = fluid.data("x", [None, 8])
        for _ in range(extra_layers):
            layers.dropout(layers.fc(x, 8), 0.5)
        values: list[Any] = [
            layers.create_parameter([30, 20], "float32", default_initializer=initializer)
            for initializer in initializers
        ]
        values += [
            layers.dropout(x, 0.5, seed=5),
            layers.uniform_random([4], seed=3),
            layers.gaussian_random([4], seed=3),
        ]
        exe, feed = fluid.Executor(), {"x": np.ones((16, 8), "float32")}
        exe.run(startup)
        runs = [exe.run(main, feed=feed, fetch_list=values) for _ in range(2)]
        for first, second in zip(*runs, strict=True):
            np.testing.assert_array_equal(first, second)
        test = exe.run(main.clone(for_test=True), feed=feed, fetch_list=[values[len(initializers)].name])[0]
        np.testing.assert_array_equal(test, np.full((16, 8), 0.5, "float32"))
        return runs[0]


def test_a_seed_of_one_layer_is_independent_of_the_program() -> None:
    kinds = [
        init.Uniform(seed=1),
        init.Normal(1.0, 2.0, 2),
        init.TruncatedNormal(seed=3),
        init.Xavier(seed=4),
    ]
    kinds += [init.MSRA(uniform=False, seed=5)]
    alone, among_others = started(kinds, 0, 0), started(kinds, 11, 2)
    for first, second in zip(alone, among_others, strict=True):
        np.testing.assert_array_equal(first, second)
    uniform, normal, truncated, xavier, msra, dropped, drawn, _ = alone
    assert np.abs(uniform).max() <= 1
    assert (normal.mean(), normal.std()) == pytest.approx((1, 2), abs=0.2)
    assert np.abs(truncated).max() <= 2
    assert np.abs(xavier).max() == pytest.approx(np.sqrt(6 / 50), rel=0.01)
    assert msra.std() == pytest.approx(np.sqrt(2 / 30), rel=0.1)
    assert 0.3 < (dropped == 0).mean() < 0.7
    assert set(np.unique(dropped)) == {0.0, 1.0}  # downgrade_in_infer does not scale while training
    assert not np.array_equal(drawn, started([init.Uniform(seed=1)], 0, 0)[0].ravel()[:4])


def test_bilinear_weights_upsample_like_torch() -> None:
    weight = init.Bilinear()([1, 1, 4, 4], torch.float32)
    image = torch.arange(16, dtype=torch.float32).reshape(1, 1, 4, 4)
    wanted = F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)
    resized = F.conv_transpose2d(image, weight, stride=2, padding=1)
    torch.testing.assert_close(resized[..., 1:-1, 1:-1], wanted[..., 1:-1, 1:-1])
    with pytest.raises(ValueError, match=r"\[4, 4\] is not"):
        init.Bilinear()([4, 4], torch.float32)


def test_the_global_initializer_applies_unless_the_attribute_has_one() -> None:
    init.set_global_initializer(init.Constant(2.0), init.Constant(3.0))
    try:
        x = fluid.data("x", [None, 2])
        fluid.layers.fc(x, 2)
        fluid.layers.fc(x, 2, param_attr=fluid.ParamAttr(initializer=init.Constant(5.0)), bias_attr=False)
    finally:
        init.set_global_initializer(None)
    fluid.layers.fc(x, 2)
    fluid.Executor().run(fluid.default_startup_program())
    values = {name: global_scope().get(name) for name in ("fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_2.b_0")}
    assert {name: value.mean().item() for name, value in values.items()} == {
        "fc_0.w_0": 2.0,
        "fc_0.b_0": 3.0,
        "fc_1.w_0": 5.0,
        "fc_2.b_0": 0.0,
    }
    with pytest.raises(TypeError, match="weight_init is 3"):
        init.set_global_initializer(3)  # type: ignore[arg-type]
