"""Draws the pictures of the documentation: `python -m docs.scripts.pictures` writes docs/pictures/*.svg.

Each picture has a light panel of its own, so that it is legible on a dark page.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.scripts.headlines import PLOTS, Comparison, Plot, newest, read
from docs.scripts.line_chart import Chart, Curve, draw
from docs.scripts.planner_accuracy import scatter
from docs.scripts.svg import AMBER, BLUE, GREEN, LINE, MUTED, PALE, svg, words

PICTURES = Path(__file__).parents[1] / "pictures"
ARROW = f'fill="none" stroke="{MUTED}" stroke-width="1.5" marker-end="url(#head)"'


# --- bar charts ---------------------------------------------------------------------------------------

WIDTH, LEFT, RIGHT, ROW = 860, 440, 130, 30


def bars(plot: Plot) -> str:
    """A bar from 1 to the ratio of the best times, and a mark at that of the medians, for each comparison."""
    values = [value for c in plot.comparisons for value in (c.best, c.median)]
    is_wide = max(values) > 8
    top = max(values) * (1.15 if is_wide else 1.04)

    def at(value: float) -> float:
        part = math.log(value) / math.log(top) if is_wide else value / top
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    dates = sorted({c.date for c in plot.comparisons})
    bottom = 62 + ROW * len(plot.comparisons)
    ticks = (1, 2, 5, 10, 20) if is_wide else [n / 2 for n in range(math.floor(2 * top) + 1)]
    parts = [words(20, 30, plot.title, more=' font-weight="600" font-size="16"')]
    for tick in ticks:
        stroke = f'stroke="{MUTED}"' if tick == 1 else f'stroke="{LINE}" stroke-dasharray="2 4"'
        parts.append(f'<line x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="46" y2="{bottom}" {stroke}/>')
        parts.append(words(round(at(tick), 1), bottom + 18, f"{tick:g}", color=MUTED, anchor="middle"))
    for row, comparison in enumerate(plot.comparisons):
        parts += _bar(comparison, 52 + ROW * row, at(1 if is_wide else 0), at)
    note = f"times as fast{', logarithmic' if is_wide else ''}; bar: best, mark: median; 2 cores, {', '.join(dates)}"
    parts.append(words(20, bottom + 44, note, color=MUTED))
    return svg(WIDTH, bottom + 60, plot.title, parts)


def _bar(comparison: Comparison, y: float, start: float, at: Callable[[float], float]) -> list[str]:
    best, median = at(comparison.best), at(comparison.median)
    return [
        words(LEFT - 12, y + 16, comparison.label, anchor="end", more=' font-size="13"'),
        f'<rect x="{start:.1f}" y="{y}" width="{best - start:.1f}" height="20" fill="{BLUE}"/>',
        f'<line x1="{median:.1f}" x2="{median:.1f}" y1="{y - 3}" y2="{y + 23}" stroke="#f59e0b" stroke-width="3"/>',
        words(round(max(best, median) + 10, 1), y + 16, f"{comparison.best:.2f} / {comparison.median:.2f}"),
    ]


# --- the architecture ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """A rectangle with a bold headline and lines below it."""

    x: int
    y: int
    width: int
    height: int
    fill: str
    head: str
    lines: tuple[str, ...] = ()

    def draw(self) -> list[str]:
        middle = self.x + self.width / 2
        return [
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6" fill="{self.fill}" '
            f'stroke="{LINE}"/>',
            words(middle, self.y + 24, self.head, anchor="middle", more=' font-weight="600"'),
            *(
                words(
                    middle, self.y + 45 + 19 * i, line, color=MUTED, anchor="middle", more=' font-size="13"'
                )
                for i, line in enumerate(self.lines)
            ),
        ]


def arrow(x1: float, y1: float, x2: float, y2: float, label: str = "", dx: float = 10) -> list[str]:
    """An arrow with a label to the right of its middle."""
    line = f'<path d="M{x1} {y1} L{x2} {y2}" {ARROW}/>'
    middle = words((x1 + x2) / 2 + dx, (y1 + y2) / 2 + 5, label, color=BLUE, more=' font-size="13"')
    return [line, middle] if label else [line]


def architecture() -> str:
    """From a script to kernels and collectives."""
    script = Box(
        30, 20, 400, 72, PALE, "Your script", ("argosy.static, nn, fluid, optimizer, any torch.nn.Module",)
    )
    program = Box(
        30,
        134,
        400,
        90,
        PALE,
        "Program",
        ("one fx graph of ATen ops:", "forward, backward, optimizer updates"),
    )
    passes = Box(
        *(30, 266, 400, 90, PALE, "Passes"),
        ("all-reduce buckets, overlap, hierarchy, fusion,", "memory format, kernels, rematerialization"),
    )
    step = Box(
        30, 398, 400, 72, PALE, "Compiled step", ("one Python function, one line per node; Executor.run",)
    )
    kernels = Box(30, 512, 190, 72, GREEN, "Kernels", ("ATen, Argosy's C++",))
    collective = Box(240, 512, 190, 72, GREEN, "Collectives", ("shared memory, gloo, NCCL",))
    launcher = Box(
        *(490, 20, 340, 110, AMBER, "fleetrun"),
        ("starts, supervises and restarts", "ranks, servers and workers;", "logs and failure reports"),
    )
    ranks = Box(
        *(490, 204, 340, 110, AMBER, "Other ranks"),
        ("run the same compiled step;", "heartbeats, schedules compared", "before the first step"),
    )
    servers = Box(
        *(490, 386, 340, 160, AMBER, "Parameter servers"),
        (
            "blocks of parameters and their optimizer",
            "sharded embedding tables",
            "write-ahead log, snapshots",
            "sync, async, half-async, geo, DC-ASGD",
            "exactly-once requests over ZeroMQ",
        ),
    )
    boxes = (script, program, passes, step, kernels, collective, launcher, ranks, servers)
    head = (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{MUTED}"/></marker></defs>'
    )
    arrows = [
        *arrow(230, 92, 230, 132, "records; minimize differentiates"),
        *arrow(230, 224, 230, 264, "strategy"),
        *arrow(230, 356, 230, 396, "compile"),
        *arrow(125, 470, 125, 510),
        *arrow(335, 470, 335, 510),
        *arrow(490, 56, 432, 56),
        *arrow(660, 130, 660, 202, "starts"),
        # From the collectives to the other ranks, around the compiled step.
        f'<path d="M430 535 H460 V260 H488" {ARROW}/>',
        f'<path d="M430 440 H488" {ARROW}/>',
    ]
    return svg(860, 604, "Architecture of Argosy", [head, *(p for box in boxes for p in box.draw()), *arrows])


def weak_scaling() -> str:
    """Predicted efficiency of ResNet50 over hosts, by link and setting."""
    content = read(newest("weak-scaling"))
    rows = content["rows"]
    charts = []
    for speed in sorted({row["speed"] for row in rows}):
        for gbit in sorted({row["gbit_per_s"] for row in rows}):
            chosen = [row for row in rows if (row["speed"], row["gbit_per_s"]) == (speed, gbit)]
            faster = "hosts like this machine" if speed == 1 else f"hosts {speed} times as fast"
            charts.append(Chart(f"{gbit} Gbit/s, {faster}", _efficiencies(chosen)))
    title = f"ResNet50, weak scaling: predicted, not measured ({content['date']})"
    return draw(title, charts, "hosts", "efficiency: examples/s per host, of one host with the defaults")


def _efficiencies(rows: list[dict[str, Any]]) -> list[Curve]:
    """A curve for each setting, against one host with the defaults."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    one = next(row for row in rows if (row["setting"], row["hosts"]) == (settings[0], 1))["examples_per_s"]
    return [
        Curve(
            name, [(r["hosts"], r["examples_per_s"] / r["hosts"] / one) for r in rows if r["setting"] == name]
        )
        for name in settings
    ]


def pictures() -> dict[str, str]:
    """All pictures: file name and contents."""
    drawn = {
        "architecture.svg": architecture(),
        "weak-scaling.svg": weak_scaling(),
        "planner-accuracy.svg": scatter(),
    }
    return drawn | {f"{plot.name}.svg": bars(plot) for plot in PLOTS}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (PICTURES / name).write_text(text)


if __name__ == "__main__":
    main()
