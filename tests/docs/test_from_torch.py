"""docs/tutorial/from-torch.md: its scripts run, and train the same in eager mode, as a program and on two ranks."""

# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest

from tests.docs.code_blocks import run, sections

pytestmark = pytest.mark.slow

PAGE = "docs/tutorial/from-torch.md"
CONVERTED = (
    ["python train_static.py"],
    ["python train_and_save.py 2", "python train_and_save.py 3"],
    ["fleetrun --nproc_per_node=2 train_fleet.py"],
)
"""The commands that train as the torch script does."""


def losses(printed: str) -> list[float]:
    return [float(text) for text in re.findall(r"loss (\d+\.\d+)", printed)]


def test_the_scripts_print_what_the_page_shows_and_train_as_the_torch_script_does(tmp_path: Path) -> None:
    printed = run(PAGE, sections(PAGE), tmp_path)
    wanted = losses(printed["python train_eager.py"])
    assert len(wanted) == 6
    for commands in CONVERTED:
        actual = losses("".join(printed[command] for command in commands))
        # Within 1e-5, of figures that are rounded to five digits.
        assert actual == pytest.approx(wanted, rel=0, abs=1.5e-5), commands
