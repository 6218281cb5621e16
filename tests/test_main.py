"""python -m argosy shows the versions, and commands that exist."""

# SPDX-License-Identifier: Apache-2.0
import importlib.util
import re
import subprocess
import sys

import torch

import argosy


def test_the_overview_names_versions_and_modules_that_exist() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "argosy"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith(f"Argosy {argosy.__version__}: static-graph distributed training (torch ")
    assert torch.__version__.partition("+")[0] in shown
    modules = re.findall(r"python -m ([\w.]+)", shown)
    assert modules
    assert all(importlib.util.find_spec(name) is not None for name in modules)
