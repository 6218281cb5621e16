"""fluid.io: the 1.x arguments over static's saving."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError, CorruptFileError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.fluid import io, layers
from argosy.framework.layer import LayerBuilder
from argosy.optimizer import Momentum


def training() -> tuple[Any, Any]:
    """(prediction, loss) of a linear model that has been trained one step."""
    program = default_main_program()
    x: Any = program.data("x", [None, 3])
    y: Any = program.data("y", [None, 2])
    layer = LayerBuilder("fc")
    layer.statistic("seen", [1], "float32", 0.0)
    prediction = layer.run(torch.matmul, x, layer.parameter("w", [3, 2], "float32"))
    loss = (prediction - y).square().mean()
    Momentum(0.1, 0.9).minimize(loss)
    exe = Executor()
    exe.run(default_startup_program())
    exe.run(program, {"x": np.ones((4, 3), np.float32), "y": np.ones((4, 2), np.float32)})
    return prediction, loss


def values() -> dict[str, list[float]]:
    return {name: global_scope().get(name).flatten().tolist() for name in global_scope().names()}


def test_persistables_come_back_and_parameters_are_a_part_of_them(tmp_path: Path) -> None:
    training()
    exe, folder = Executor(), str(tmp_path / "p")
    io.save_persistables(exe, folder)
    saved = values()
    with scope_guard(Scope()):
        io.load_persistables(exe, folder)
        assert values() == saved
    with scope_guard(Scope()):
        io.load_params(exe, folder)
        assert values() == {"w": saved["w"]}


def test_parameters_alone_are_not_enough_for_the_persistables(tmp_path: Path) -> None:
    training()
    io.save_params(None, str(tmp_path), filename="params")
    assert atomic_files.read_tensors(tmp_path / "params")[0].keys() == {"w"}
    with pytest.raises(ConfigError, match="has no variable 'seen'"):
        io.load_persistables(None, str(tmp_path), filename="params")
    io.load_params(None, str(tmp_path), filename="params")


@pytest.mark.parametrize("filenames", [(None, None), ("model", "weights")])
def test_an_inference_model_comes_back(tmp_path: Path, filenames: tuple[str | None, str | None]) -> None:
    prediction, _ = training()
    exe, folder = Executor(), str(tmp_path)
    given = io.save_inference_model(folder, ["x"], [prediction], exe, None, *filenames)
    assert given == [prediction.name]
    assert {p.name for p in tmp_path.iterdir()} == {filenames[0] or "__model__", filenames[1] or "__params__"}
    feed = {"x": np.random.default_rng(0).standard_normal((5, 3), dtype=np.float32)}
    [want] = exe.run(default_main_program().clone(for_test=True), feed, [prediction.name])
    with scope_guard(Scope()):
        program, feeds, fetches = io.load_inference_model(folder, exe, *filenames)
        [actual] = exe.run(program, {feeds[0]: feed["x"]}, fetches)
    assert actual.tobytes() == want.tobytes()


def test_the_program_alone_can_be_written(tmp_path: Path) -> None:
    prediction, _ = training()
    io.save_inference_model(str(tmp_path), ["x"], prediction, program_only=True)
    assert [p.name for p in tmp_path.iterdir()] == ["__model__"]
    io.save_vars(None, str(tmp_path), vars=["w"], filename="__params__")
    assert io.load_inference_model(str(tmp_path))[1] == ["x"]


def test_arguments_that_would_change_the_result_are_refused(tmp_path: Path) -> None:
    prediction, _ = training()
    with pytest.raises(ConfigError, match="export_for_deployment=False"):
        io.save_inference_model(str(tmp_path), ["x"], prediction, export_for_deployment=False)
    with pytest.raises(ConfigError, match="pserver_endpoints"):
        io.load_inference_model(str(tmp_path), pserver_endpoints=["127.0.0.1:80"])


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    training()
    io.save_persistables(None, str(tmp_path))
    whole = (tmp_path / "__vars__").read_bytes()
    (tmp_path / "__vars__").write_bytes(whole[:-1])
    with pytest.raises(CorruptFileError, match="__vars__"):
        io.load_persistables(None, str(tmp_path))


def test_the_parameters_and_persistable_variables_of_a_program() -> None:
    layers.batch_norm(layers.fc(layers.data("x", [3]), 2, param_attr="w"), moving_mean_name="mean")
    program = default_main_program()
    assert "w" in [p.name for p in io.get_program_parameter(program)]
    persistable = [v.name for v in io.get_program_persistable_vars(program)]
    assert {"w", "mean"} <= set(persistable)
    assert "x" not in persistable
