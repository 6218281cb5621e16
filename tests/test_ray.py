"""argosy.ray without a cluster: options, metrics outside of a job on Ray."""

# SPDX-License-Identifier: Apache-2.0
import logging
import subprocess
import sys

import numpy as np
import pytest

import argosy.ray
from argosy.engine import log
from argosy.engine.errors import ConfigError


def test_unknown_options_suggest_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="argosy.ray.run has no option nproc_per_nod.*nproc_per_node"):
        argosy.ray.run("train.py", nproc_per_nod=2)
    with pytest.raises(ConfigError, match="argosy.ray.run has no option master"):
        argosy.ray.run("train.py", master="host:1")


def test_outside_of_a_job_on_ray_metrics_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[str] = []
    monkeypatch.setattr(log.logger, "info", lambda text, *values: records.append(text % values))
    argosy.ray.report(loss=np.float32(0.5), shape=np.arange(2), name="a")
    assert records == ['metrics: {"loss": 0.5, "shape": [0, 1], "name": "a"}']
    with pytest.raises(ConfigError, match="a metric is a Logger; report numbers"):
        argosy.ray.report(loss=logging.getLogger("a"))


def test_the_module_imports_neither_torch_nor_ray() -> None:
    source = "import sys, argosy.ray; assert not {'torch', 'ray', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", source], check=True)
