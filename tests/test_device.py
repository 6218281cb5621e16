"""paddle.set_device accepts the CPU, and a GPU with a warning where there is none."""

# SPDX-License-Identifier: Apache-2.0
import logging

import pytest
import torch

import argosy as paddle
from argosy import device
from argosy.engine.errors import ConfigError
from argosy.framework import place


def test_the_cpu_is_the_device() -> None:
    assert device.set_device("cpu") == paddle.CPUPlace()
    assert paddle.get_device() == "cpu"
    for wrong in ("tpu", "gpu:x", "xpu:0"):
        with pytest.raises(ConfigError, match="use 'cpu'"):
            device.set_device(wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_warned", set())
    monkeypatch.setattr(logging.getLogger("argosy"), "propagate", True)
    assert paddle.set_device("gpu:1") == paddle.CUDAPlace(1)
    assert "running on the CPU" in caplog.text
