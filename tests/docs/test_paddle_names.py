"""The page of Paddle's names: what works is found by the import hook; the list has each name once."""

# SPDX-License-Identifier: Apache-2.0
import sys

from docs.scripts import paddle_names
from docs.scripts.paddle_names import MISSING, NOT_FOR_STATIC, RAISES, WORKS


def test_each_name_is_listed_once() -> None:
    listed = list(paddle_names.listed())
    assert len(listed) == len(set(listed)) > 1400


def test_the_status_is_that_of_the_import() -> None:
    status = {f"{name.module}.{name.name}": name.status for name in paddle_names.names()}
    assert "paddle" not in sys.modules
    assert status["paddle.static.data"] == WORKS
    assert status["paddle.fluid.core.CPUPlace"] == WORKS
    assert status["paddle.utils.unique_name.generate"] == WORKS
    assert status["paddle.fluid.layers.prior_box"] == RAISES
    assert status["paddle.disable_static"] == status["paddle.jit.to_static"] == NOT_FOR_STATIC


def test_the_share_that_works_does_not_fall() -> None:
    counted = [name.status for name in paddle_names.names() if name.status != NOT_FOR_STATIC]
    assert counted.count(WORKS) / len(counted) >= 0.85
    assert counted.count(MISSING) < 20
