"""A self-contained HTML page: styles, scripts and data inside, and a policy that forbids everything else.

The Content-Security-Policy names the hashes of the page's own scripts and styles. Even text that escaped its escaping
could not run, load or send anything.
"""

# SPDX-License-Identifier: Apache-2.0
import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Any

from argosy.charts import json_text

DATA = "data"
"""The id of the element with the page's data."""


def page(title: str, body: str, data: Any, *, styles: Sequence[str], scripts: Sequence[str]) -> str:
    """The page. `body` is HTML with all texts escaped; raises ValueError if `data` has a NaN."""
    for asset in (*styles, *scripts):
        if "</script" in asset.lower() or "</style" in asset.lower():
            raise ValueError("an inlined script or style must not contain its own end tag")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hashes(scripts)}",
            f"style-src {_hashes(styles)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)}</title>",
            *(f"<style>{style}</style>" for style in styles),
            "</head>",
            "<body>",
            body,
            f'<script type="application/json" id="{DATA}">{json_text(data)}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            "</body>",
            "</html>",
            "",
        )
    )


def _hashes(assets: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(asset.encode()).digest()).decode() for asset in assets)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
