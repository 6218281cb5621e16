"""Parts of SVG pictures: the panel, text and colors."""

# SPDX-License-Identifier: Apache-2.0
from html import escape

TEXT, MUTED, LINE, PANEL = "#1f2937", "#4b5563", "#cbd5e1", "#fbfcfe"
BLUE, PALE, GREEN, AMBER = "#3949ab", "#e8eaf6", "#e3f1e8", "#fdf1dc"
SERIES = ("#3949ab", "#c2410c", "#15803d", "#9333ea", "#0e7490", "#a16207")
"""Colors of lines, legible on the panel."""


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    """An SVG image on a light panel."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="14">',
            f"<title>{escape(title)}</title>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{PANEL}" stroke="{LINE}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def words(x: float, y: float, text: str, *, color: str = TEXT, anchor: str = "start", more: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" fill="{color}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
