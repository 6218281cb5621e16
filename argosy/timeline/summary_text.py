"""Print a summary as tables: with line drawing on a terminal, in ASCII elsewhere."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table

from argosy.timeline.step_summary import Summary

_WIDE = 160  # columns, without a terminal


def show(summary: Summary) -> None:
    """Print a summary."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    for table in tables(summary, box.SIMPLE_HEAD if console.is_terminal else box.ASCII):
        console.print(table)
    for line in findings(summary):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def tables(summary: Summary, style: box.Box) -> Iterator[Table]:
    """The breakdown of the main thread's time, the cost of communication, the longest collectives."""
    steps = summary.ranks[0].steps
    main = _table(f"milliseconds a step, median of {steps}", style, "rank", "host")
    for name in ("step", "forward", "backward", "optimize", "communicate", "other", "exposed"):
        main.add_column(name, justify="right")
    network = _table("communication, milliseconds a step", style, "rank")
    for name in ("communication", "hidden", "exposed", "exposed %", "collectives", "MB"):
        network.add_column(name, justify="right")
    for r in summary.ranks:
        shown = (
            r.step_ms,
            r.forward_ms,
            r.backward_ms,
            r.optimize_ms,
            r.communicate_ms,
            r.other_ms,
            r.exposed_ms,
        )
        main.add_row(str(r.rank), r.host, *(f"{value:.2f}" for value in shown))
        times = (f"{value:.2f}" for value in (r.communication_ms, r.hidden_ms, r.exposed_ms))
        network.add_row(
            str(r.rank), *times, f"{r.exposed_fraction:.0%}", f"{r.collectives:g}", f"{r.megabytes:.3f}"
        )
    yield main
    if not summary.longest:
        return
    yield network
    longest = _table("the longest collectives, median over steps and ranks", style, "collective", "group")
    for name in ("MB", "ms", "queue ms", "wait ms"):
        longest.add_column(name, justify="right")
    for entry in summary.longest:
        times = (f"{value:.2f}" for value in (entry.ms, entry.queue_ms, entry.wait_ms))
        longest.add_row(entry.name, entry.group, f"{entry.bytes / 1e6:.3f}", *times)
    yield longest


def _table(title: str, style: box.Box, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=style)
    for column in columns:
        table.add_column(column)
    return table


def findings(summary: Summary) -> Iterator[str]:
    """The findings that get a line of text."""
    if not summary.longest:
        yield "no collectives in these steps"
    if (straggler := summary.straggler) is not None:
        yield (
            f"straggler: rank {straggler.rank}, busy {straggler.busy_ms:.2f} ms a step; "
            f"rank {straggler.waiting_rank} waits {straggler.extra_wait_ms:.2f} ms a step longer than it; "
            f"it was the last to start {straggler.num_last} of {straggler.num_collectives} collectives"
        )
    for shift in summary.shifts:
        if shift.by != "same clock":
            yield f"clock of rank {shift.rank}: shifted by {shift.us / 1000:.3f} ms, according to the {shift.by}"
