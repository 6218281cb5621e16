"""docs/reference/torch-modules.md: its snippets print what the page shows, and its table of sizes is true."""

# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import argosy as paddle
from argosy.engine.ir.program import default_main_program
from tests.docs.code_blocks import ROOT, Section, run, sections

PAGE = "docs/reference/torch-modules.md"
_CODE = r"`([^`]+)`"


@pytest.mark.parametrize("section", [s for s in sections(PAGE) if s.title], ids=lambda section: section.title)
def test_the_snippets_print_what_the_page_shows(section: Section, tmp_path: Path) -> None:
    run(PAGE, [section], tmp_path)


def rows_of_sizes() -> list[tuple[str, str, str, str]]:
    """The rows of the table: the shape of x, code, the type of y, the assumption."""
    lines = iter((ROOT / PAGE).read_text().splitlines())
    next(line for line in lines if line.startswith("| `x` | code |"))
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [re.findall(_CODE, cell) for cell in line.strip("|").split(" | ")]
        x, code, y, assumption = ["\n".join(parts) for parts in cells]
        rows.append((x, code, y, assumption))
    return rows


class Given(nn.Module):
    """Its forward is code of the page."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def forward(self, x: Tensor) -> Tensor:
        names = {"torch": torch, "x": x}
        exec(self.code, names)
        return names["y"]


@pytest.mark.parametrize(("shape", "code", "shown", "assumption"), rows_of_sizes())
def test_the_table_of_sizes_is_true(shape: str, code: str, shown: str, assumption: str) -> None:
    sizes = [None if size == "None" else int(size) for size in shape.strip("[]").split(", ")]
    y = Given(code)(paddle.static.data("x", sizes, "float32"))
    symbols = default_main_program().symbols
    assert f"float32[{', '.join(symbols.label(size) for size in y.value.shape)}]" == shown
    required = [symbols.describe(a.condition) for a in symbols.assumptions if a.is_required]
    assert required[:1] == ([assumption] if assumption else [])
