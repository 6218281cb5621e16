"""paddle.save and paddle.load: state dicts there and back, and what they refuse."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy.engine.errors import ConfigError, CorruptFileError


def test_the_state_of_a_layer_goes_there_and_back(tmp_path: Path) -> None:
    layer = paddle.nn.Linear(2, 3)
    paddle.static.Executor().run(paddle.static.default_startup_program())
    weight = paddle.static.global_scope().get(layer.weight.name)
    before = weight.clone()
    paddle.save(layer.state_dict(), str(tmp_path / "model.pdparams"))
    weight.zero_()
    layer.set_state_dict(paddle.load(str(tmp_path / "model.pdparams")))
    assert torch.equal(paddle.static.global_scope().get(layer.weight.name), before)


def test_numbers_and_texts_lie_beside_the_tensors(tmp_path: Path) -> None:
    path = str(tmp_path / "state.pdopt")
    paddle.save({"a": np.arange(3), "LR_Scheduler": {"last_epoch": 3, "last_lr": 0.1}, "epoch": 2}, path)
    actual = paddle.load(path, return_numpy=True)
    assert actual.pop("a").tolist() == [0, 1, 2]
    assert actual == {"LR_Scheduler": {"last_epoch": 3, "last_lr": 0.1}, "epoch": 2}


@pytest.mark.parametrize("value", [[1, 2], {1: np.ones(2)}, paddle.static.Program()])
def test_what_is_no_state_dict_is_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a state_dict"):
        paddle.save(value, str(tmp_path / "x"))
    assert not list(tmp_path.iterdir())


def test_a_state_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a state dict contains tensors"):
        paddle.save({"a": object()}, str(tmp_path / "x"))


def test_a_pickle_of_paddle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(CorruptFileError, match="not a valid safetensors file"):
        paddle.load(str(tmp_path / "x"))
    with pytest.raises(ConfigError, match="there is no file"):
        paddle.load(str(tmp_path / "y"))
