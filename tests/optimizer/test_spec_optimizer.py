"""Descriptions of optimizers: classes agree with them, wrong ones are rejected, and a new one is one file."""

# SPDX-License-Identifier: Apache-2.0
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy.distributed.ps.row_specs import row_optimizer
from argosy.engine.errors import ConfigError
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ops.updates import update_op
from argosy.engine.optimizers import OPTIMIZERS, optimizer_spec, register
from argosy.engine.optimizers.spec import OptimizerSpec, Slot
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.ps.table.table import SparseTable
from argosy.engine.ps.table.table_spec import TableSpec
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import optimizer as fluid
from argosy.optimizer.algorithms import ALGORITHMS
from argosy.optimizer.spec_optimizer import SpecOptimizer
from argosy.optimizer.wrapper import OptimizerWrapper
from tests.fusing import fused
from tests.optimizer.signum import SPEC, Signum

Array = np.ndarray[Any, Any]
FLUID: tuple[type[SpecOptimizer], ...] = tuple(
    kind
    for kind in (getattr(fluid, name) for name in fluid.__all__ if name.endswith("Optimizer"))
    if not issubclass(kind, OptimizerWrapper)
)
REQUIRED_IN_1X = {"momentum"}


@pytest.mark.parametrize("kind", [*ALGORITHMS, *FLUID])
def test_a_class_has_the_settings_and_defaults_of_its_description(kind: type[SpecOptimizer]) -> None:
    arguments = inspect.signature(kind).parameters
    for setting in kind.spec.settings:
        default = arguments[setting.name].default
        if default is inspect.Parameter.empty:
            assert kind in FLUID
            assert setting.name in REQUIRED_IN_1X
        else:
            assert default == setting.default
        assert isinstance(default, bool) == isinstance(setting.default, bool)


def test_every_description_has_a_class_and_an_op_with_its_name() -> None:
    assert {kind.spec.name for kind in (*ALGORITHMS, Signum)} == OPTIMIZERS.keys()
    for name in OPTIMIZERS:
        assert update_op(name)._opname == name


def expected(first: Array, grads: list[Array], decay: float) -> Array:
    """Signum by NumPy: rate 0.125, momentum 0.5, power 1."""
    p, v = first.copy(), np.zeros_like(first)
    for t, g in enumerate(grads, 1):
        v = 0.5 * v + 0.5 * (g + decay * p)
        p = p - 0.125 * np.sign(v) / t
    return p


@pytest.mark.parametrize("fuses", [False, True])
def test_a_new_optimizer_trains_a_program(fuses: bool) -> None:
    x = paddle.static.data("x", [None, 3], "float32")
    parts = [paddle.static.create_parameter([3], "float32", name=name) for name in ("w", "b")]
    loss = paddle.sum(x * parts[0]) + 2 * paddle.sum(x * parts[1])
    Signum(0.125, 0.5, 1.0, weight_decay=0.25).minimize(loss)
    main, exe = default_main_program(), paddle.static.Executor()
    assert "signum(w, w@GRAD, w_velocity_0, w_step_0, learning_rate_0, 1.0, 0.5, 1.0, 0.25)" in str(main)
    main.build = Build(fusions=(FuseOptimizer(),) if fuses else ())
    exe.run(default_startup_program())
    first = {name: global_scope().get(name).numpy().copy() for name in ("w", "b")}
    feeds = [np.float32(np.random.default_rng(i).standard_normal((1, 3))) for i in range(4)]
    for feed in feeds:
        exe.run(main, feed={"x": feed})
    for name, factor in (("w", 1), ("b", 2)):
        wanted = expected(first[name], [factor * feed[0] for feed in feeds], 0.25)
        np.testing.assert_allclose(global_scope().get(name).numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert fused(main, FuseOptimizer())[0]["fused_signum"] == 1


def test_a_new_optimizer_trains_the_rows_of_a_table() -> None:
    (embedding,) = [paddle.static.create_parameter([9, 3], "float32", name="emb")]
    described = row_optimizer(embedding, Signum(0.125, 0.5, 1.0, weight_decay=0.25))
    assert described.settings == {"momentum": 0.5, "power": 1.0, "l2": 0.25}
    table = SparseTable(TableSpec("emb", 3, optimizer=described))
    ids, draw = torch.tensor([4, 7]), np.random.default_rng(0)
    first = table.pull(ids).numpy().copy()
    grads = [np.float32(draw.standard_normal((2, 3))) for _ in range(4)]
    for step, grad in enumerate(grads):  # row 7 is touched in every second step
        rows = [0, 1] if step % 2 == 0 else [0]
        table.push(ids[rows], torch.from_numpy(grad[rows]), 0.125)
    wanted = [
        expected(first[0], [g[0] for g in grads], 0.25),
        expected(first[1], [g[1] for g in grads[::2]], 0.25),
    ]
    np.testing.assert_allclose(table.pull(ids).numpy(), wanted, rtol=1e-5, atol=1e-6)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "name": (lambda: register(replace(SPEC, name="sgd")), "there is an optimizer 'sgd' already"),
    "no rows": (lambda: replace(SPEC, update_rows=None), "give `update_rows` for tables"),
    "fused": (lambda: OptimizerSpec("a", print, is_fused=True), "set takes_lists=True"),
    "count": (
        lambda: OptimizerSpec("a", print, slots=(Slot("t", is_count=True), Slot("v"))),
        "not the last slot",
    ),
    "unknown": (
        lambda: optimizer_spec("adma"),
        "no optimizer 'adma'; use sgd, .*register it in this process",
    ),
    "setting": (lambda: Signum(0.1, momentum=1.0), "Signum momentum is 1.0; .* below 1"),
}


@pytest.mark.parametrize("pair", WRONG.values(), ids=WRONG.keys())
def test_wrong_descriptions_and_settings_are_rejected(pair: tuple[Callable[[], Any], str]) -> None:
    with pytest.raises(ConfigError, match=pair[1]):
        pair[0]()


def test_registering_a_description_again_changes_nothing() -> None:
    assert register(SPEC) is SPEC
