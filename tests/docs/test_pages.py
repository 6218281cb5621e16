"""Every code block of README and docs runs, or is checked where it cannot run (see code_blocks.py)."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT, run, sections
from tests.ranks import ForkServer

ELSEWHERE = {"docs/tutorial/from-torch.md", "docs/reference/torch-modules.md"}
"""Pages that have a test of their own."""
PAGES = [
    str(page.relative_to(ROOT))
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
]


JOBS = {
    *("docs/how-to/doctor.md", "docs/how-to/timeline.md"),
    *("docs/tutorial/from-paddle.md", "docs/tutorial/parameter-server.md"),
}
"""Pages whose commands start several processes; README.md does, too, and is in the fast suite."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, marks=pytest.mark.slow if p in JOBS else [])
        for p in PAGES
        if p not in ELSEWHERE and sections(p)
    ],
)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path, ranks: ForkServer) -> None:
    run(page, sections(page), tmp_path, ranks)


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
