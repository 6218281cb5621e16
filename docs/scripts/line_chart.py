"""Line charts: panels side by side with one legend; the x axis is logarithmic, with powers of two."""

# SPDX-License-Identifier: Apache-2.0
import math
from dataclasses import dataclass

from docs.scripts.svg import LINE, MUTED, SERIES, TEXT, svg, words

WIDTH, COLUMNS = 860, 3
LEFT, TOP, PANEL_HEIGHT, GAP, BELOW = 56, 66, 190, 24, 46
_SMALL = ' font-size="12"'


@dataclass(frozen=True)
class Curve:
    """Points in the order of x."""

    name: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """A panel."""

    title: str
    curves: list[Curve]


def draw(title: str, charts: list[Chart], x_label: str, y_label: str) -> str:
    """All panels, from 0 to the largest value, with the colors of the first panel's curves."""
    rows = math.ceil(len(charts) / COLUMNS)
    width = (WIDTH - LEFT - 20 - GAP * (COLUMNS - 1)) / COLUMNS
    highest = max(y for chart in charts for curve in chart.curves for _, y in curve.points)
    names = [curve.name for curve in charts[0].curves]
    legend = TOP + rows * (PANEL_HEIGHT + BELOW) + 4
    parts = [
        words(20, 30, title, more=' font-weight="600" font-size="16"'),
        words(20, 50, y_label, color=MUTED, more=_SMALL),
    ]
    for number, chart in enumerate(charts):
        x = LEFT + (number % COLUMNS) * (width + GAP)
        y = TOP + (number // COLUMNS) * (PANEL_HEIGHT + BELOW) + 18
        parts += _panel(chart, x, y, width, PANEL_HEIGHT - 18, max(1.0, highest), number % COLUMNS == 0)
    parts.append(words(WIDTH - 20, legend - 8, x_label, color=MUTED, anchor="end", more=_SMALL))
    for number, name in enumerate(names):
        x, y = 20 + (number % 3) * 280, legend + 12 + (number // 3) * 20
        color = SERIES[number % len(SERIES)]
        parts.append(f'<path d="M{x} {y - 4} h24" stroke="{color}" stroke-width="2.5"/>')
        parts.append(words(x + 30, y, name, more=_SMALL))
    return svg(WIDTH, legend + 24 + 20 * math.ceil(len(names) / 3), title, parts)


def _panel(
    chart: Chart, x: float, y: float, width: float, height: float, highest: float, is_first: bool
) -> list[str]:
    xs = [point[0] for curve in chart.curves for point in curve.points]
    span = math.log2(max(xs) / min(xs)) or 1.0

    def place(point: tuple[float, float]) -> tuple[float, float]:
        part = math.log2(point[0] / min(xs)) / span
        return x + part * width, y + height * (1 - point[1] / highest)

    parts = [words(x, y - 8, chart.title, color=TEXT, more=' font-size="13" font-weight="600"')]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = place((min(xs), tick))[1]
        dashes = "" if tick == 0 else ' stroke-dasharray="2 4"'
        parts.append(f'<path d="M{x:g} {at:.1f} h{width:.1f}" stroke="{LINE}"{dashes}/>')
        if is_first:
            parts.append(words(x - 6, at + 4, f"{tick:.0%}", color=MUTED, anchor="end", more=_SMALL))
    for tick in sorted(set(xs))[::2]:
        parts.append(
            words(
                place((tick, 0))[0], y + height + 16, f"{tick:g}", color=MUTED, anchor="middle", more=_SMALL
            )
        )
    for number, curve in enumerate(chart.curves):
        path = " L".join(f"{px:.1f} {py:.1f}" for px, py in map(place, curve.points))
        color = SERIES[number % len(SERIES)]
        parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>')
    return parts
