"""Charts of the dashboard and the reports: a small renderer of our own, as the text of its assets; no torch.

A page that must work alone, such as a report, inlines the assets:

    <style>{stylesheet()}</style> <script type="application/json" id="data">{json_text(data)}</script>
    <script>{script()}</script>   <script>charts.lines(document.getElementById("loss"), {…})</script>
"""

# SPDX-License-Identifier: Apache-2.0
import json
from importlib.resources import files
from typing import Any


def script() -> str:
    """charts.js: it defines the global `charts`."""
    return (files(__name__) / "charts.js").read_text()


def stylesheet() -> str:
    """charts.css: colours of both themes as CSS variables, and the classes that charts.js uses."""
    return (files(__name__) / "charts.css").read_text()


def json_text(data: Any) -> str:
    """JSON that may stand inside a <script type="application/json"> element; raises ValueError on NaN."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


__all__ = ["json_text", "script", "stylesheet"]
