"""run_check trains a step and leaves the default programs and the scope alone."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy import fluid, utils
from argosy.engine.ir.program import default_main_program


def test_it_trains_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    utils.run_check()
    assert "installed successfully" in capsys.readouterr().out
    assert not default_main_program().vars
    assert fluid.install_check.run_check is utils.run_check
