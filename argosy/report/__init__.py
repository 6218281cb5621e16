"""The report of a job: one self-contained HTML page from its log directory, also after a failure.

python -m argosy.report log                    writes log/report.html
python -m argosy.report --compare log-a log-b  writes log-b/compare.html: two runs side by side

collect (reads the directory) ──▶ analyse (numbers) ──▶ render (HTML)
"""

# SPDX-License-Identifier: Apache-2.0
import os
import time
from pathlib import Path
from typing import Any

from argosy.engine.files import replacement
from argosy.report.analyse import analyse as _analyse
from argosy.report.collect import collect as _collect
from argosy.report.comparison import compare as _compare
from argosy.report.render import render as _render
from argosy.report.render_compare import render_compare as _render_compare

REPORT, COMPARISON = "report.html", "compare.html"


def report(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """The numbers of a job's report; raises ConfigError if there is no job in the directory."""
    return _analyse(_collect(directory))


def compare(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> dict[str, Any]:
    """The numbers of a comparison: A is the baseline; raises ConfigError if one has no job."""
    return _compare(report(a), report(b))


def write(directory: str | os.PathLike[str], output: str | os.PathLike[str] | None = None) -> Path:
    """Write the page of a job, by default to report.html in its directory; raises ConfigError or OSError."""
    run = _collect(directory)
    return _replace(Path(output or run.path / REPORT), _render(_analyse(run), time.time()))


def write_comparison(
    a: str | os.PathLike[str], b: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> Path:
    """Write the page of a comparison, by default to compare.html in the directory of B."""
    first, run = report(a), _collect(b)
    second = _analyse(run)
    text = _render_compare(first, second, _compare(first, second), time.time())
    return _replace(Path(output or run.path / COMPARISON), text)


def _replace(path: Path, text: str) -> Path:
    with replacement(path) as temporary:
        # A log line may have a lone surrogate, which UTF-8 has no bytes for.
        temporary.write_text(text, encoding="utf-8", errors="replace")
    return path


__all__ = ["compare", "report", "write", "write_comparison"]
