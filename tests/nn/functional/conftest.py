"""The fixture `agree`, shared with tests/tensor: test folders are no packages, so there is nothing to import."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from runpy import run_path

agree = run_path(str(Path(__file__).parents[2] / "tensor" / "conftest.py"))["agree"]
