"""The picture of predicted against measured steps, from the newest result of benchmarks/planner_accuracy.py."""

# SPDX-License-Identifier: Apache-2.0
import json
import math
from typing import Any

from docs.scripts.headlines import newest
from docs.scripts.svg import BLUE, LINE, MUTED, svg, words

SIZE, MARGIN = 460, 70
COLORS = {"mlp": BLUE, "mobilenet": "#0f766e", "transformer": "#b45309"}
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def scatter() -> str:
    """One point for each setting; the diagonal is a perfect prediction, the band is 10 %."""
    path = newest("planner-accuracy")
    lines: list[dict[str, Any]] = json.loads(path.read_text())
    values = [line[key] for line in lines for key in ("predicted_ms", "measured_ms")]
    low, high = math.log(min(values) / 1.3), math.log(max(values) * 1.3)

    def at(ms: float) -> float:
        return (math.log(ms) - low) / (high - low) * (SIZE - MARGIN - 30)

    def x(ms: float) -> float:
        return round(MARGIN + at(ms), 1)

    def y(ms: float) -> float:
        return round(SIZE - MARGIN - at(ms), 1)

    ends = math.exp(low), math.exp(high)
    parts = [words(20, 30, "Predicted and measured steps, ms", more=' font-weight="600" font-size="16"')]
    for tick in (t for t in _TICKS if ends[0] < t < ends[1]):
        dashed = f'stroke="{LINE}" stroke-dasharray="2 4"'
        parts.append(f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{y(ends[0])}" y2="{y(ends[1])}" {dashed}/>')
        parts.append(f'<line x1="{x(ends[0])}" x2="{x(ends[1])}" y1="{y(tick)}" y2="{y(tick)}" {dashed}/>')
        parts.append(words(x(tick), SIZE - MARGIN + 18, f"{tick}", color=MUTED, anchor="middle"))
        parts.append(words(MARGIN - 8, y(tick) + 5, f"{tick}", color=MUTED, anchor="end"))
    for factor, stroke in (
        (1.0, f'stroke="{MUTED}"'),
        (1.1, f'stroke="{LINE}"'),
        (1 / 1.1, f'stroke="{LINE}"'),
    ):
        a, b = ends[0] * max(1, 1 / factor), ends[1] / max(1, factor)
        parts.append(f'<line x1="{x(a)}" y1="{y(a * factor)}" x2="{x(b)}" y2="{y(b * factor)}" {stroke}/>')
    for line in lines:
        place = f'cx="{x(line["measured_ms"])}" cy="{y(line["predicted_ms"])}"'
        title = f"<title>{line['model']}, {line['case']}: {line['error']:+.1%}</title>"
        parts.append(
            f'<circle {place} r="4" fill="{COLORS[line["model"]]}" fill-opacity="0.7">{title}</circle>'
        )
    parts.append(words(MARGIN, SIZE - 26, "measured; lines: equal, and 10 % more or less", color=MUTED))
    for row, (model, color) in enumerate(COLORS.items()):
        parts.append(f'<circle cx="{MARGIN + 20}" cy="{62 + 20 * row}" r="4" fill="{color}"/>')
        parts.append(words(MARGIN + 32, 67 + 20 * row, model))
    parts.append(words(MARGIN, SIZE - 8, f"2 cores, {path.name[:10]}", color=MUTED))
    return svg(SIZE, SIZE, "Predicted and measured steps", parts)
