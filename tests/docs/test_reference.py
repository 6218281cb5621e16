"""The generated parts of the documentation are current, and the table of environment variables is complete."""

# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest

from argosy.engine.env_table import GROUPS
from docs.scripts import reference
from docs.scripts.pictures import PICTURES, pictures
from tests.docs.code_blocks import ROOT

AGAIN = "run `make docs-generate`"
PREFIXES = "ARGOSY|FLAGS|PADDLE|TORCHELASTIC|SLURM|OMPI|PMI|GLOO|MASTER|LOCAL|GROUP|NODE|POD"
OTHERS = {"PADDLE_HETER_TRAINER_IP_PORT_LIST", "SLURM_JOB_ID", "SLURM_NODEID", "SLURM_NODELIST"}
OTHERS |= {"SLURM_TASKS_PER_NODE", "SLURM_JOB_NODELIST", "SLURM_CONF", "PMIX_NAMESPACE", "NODE_FAIL"}
"""Variables that fleetrun removes, those of Slurm and Open MPI that users need not know, and a job state."""


@pytest.mark.parametrize("page", reference.PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_generated_parts_are_current(page: Path) -> None:
    text = page.read_text()
    assert reference.written(text) == text, AGAIN


def test_every_part_is_on_a_page() -> None:
    used = [name for page in reference.PAGES for _, name, _, _ in reference.PART.findall(page.read_text())]
    assert {*used} == {*reference.PARTS}


def test_pictures_are_current() -> None:
    actual = {path.name: path.read_text() for path in PICTURES.glob("*.svg")}
    assert actual == pictures(), AGAIN


def test_the_table_has_every_environment_variable_of_the_code() -> None:
    sources = [path for path in (ROOT / "argosy").rglob("*.py") if path.name != "env_table.py"]
    pattern = re.compile(rf"""["']((?:{PREFIXES})_[A-Za-z_]+)["']""")
    read = {name for path in sources for name in pattern.findall(path.read_text())}
    listed = {name for group in GROUPS for variable in group.variables for name in variable.names}
    assert read - listed - OTHERS == set(), "add these to argosy/engine/env_table.py"


def test_the_table_has_no_variable_that_the_code_does_not_name() -> None:
    code = "".join(p.read_text() for p in (ROOT / "argosy").rglob("*.py") if p.name != "env_table.py")
    listed = [name for group in GROUPS for variable in group.variables for name in variable.names]
    known = [name for name in listed if not name.startswith("FLAGS_communicator_")]  # built by a format
    assert [name for name in known if name not in code] == []
    assert len(listed) == len(set(listed))
