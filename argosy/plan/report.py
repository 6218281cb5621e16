"""Print a prediction as tables: with line drawing on a terminal, in ASCII elsewhere."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table

from argosy.engine.planner.prediction import Prediction

_WIDE = 120  # columns, without a terminal
_NUM_ITEMS = 8


def show(prediction: Prediction) -> None:
    """Print a prediction."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    for table in tables(prediction, box.SIMPLE_HEAD if console.is_terminal else box.ASCII):
        console.print(table)
    for line in lines(prediction):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def tables(p: Prediction, style: box.Box) -> Iterator[Table]:
    """The step, the links, and the critical path."""
    title = f"predicted step of {p.ranks} ranks on {p.hosts} hosts, milliseconds"
    columns = ("step", "5 % to 95 %", "busy", "exposed", "communication", "hidden")
    step = _table(title, style, *columns)
    times = (f"{value:.2f}" for value in (p.busy_ms, p.exposed_ms, p.communication_ms, p.hidden_ms))
    step.add_row(f"{p.step_ms:.2f}", f"{p.low_ms:.2f} to {p.high_ms:.2f}", *times)
    yield step
    if p.links:
        links = _table("links, in a step", style, "link", "MB", "used")
        for use in p.links[:_NUM_ITEMS]:
            links.add_row(use.name, f"{use.megabytes:.3f}", f"{use.utilization:.0%}")
        yield links
    path = _table("the critical path", style, "kind", "what", "ms", "of the step")
    for item in p.critical_path[:_NUM_ITEMS]:
        path.add_row(item.kind, item.name, f"{item.ms:.2f}", f"{item.ms / p.nominal_ms:.0%}")
    rest = p.critical_path[_NUM_ITEMS:]
    if rest:
        ms = sum(item.ms for item in rest)
        path.add_row("", f"{len(rest)} more", f"{ms:.2f}", f"{ms / p.nominal_ms:.0%}")
    yield path


def lines(p: Prediction) -> Iterator[str]:
    """The findings that get a line of text."""
    yield f"bound: {p.bound}"
    if p.step_ms > p.nominal_ms:
        yield f"stragglers: the spread of node times costs {p.step_ms - p.nominal_ms:.2f} ms a step"
    if p.examples_per_s:
        yield f"examples per second: {p.examples_per_s:.0f}"
    if p.memory is not None:
        yield f"memory of a rank: {p.memory.peak_bytes / 1e6:.1f} MB at its peak, as in the trace"
    yield f"simulated: {p.classes} classes of ranks, {p.events} events, {p.repeats} draws"


def _table(title: str, style: box.Box, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=style)
    for column in columns:
        table.add_column(column, justify="left" if column in ("link", "kind", "what") else "right")
    return table
