"""A summary as tables: with lines on a terminal, with plain characters elsewhere."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table

from argosy.timeline.summary import Summary

_WIDE = 160  # where there is no terminal to fit into


def show(summary: Summary) -> None:
    """Print it."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    for table in tables(summary, box.SIMPLE_HEAD if console.is_terminal else box.ASCII):
        console.print(table)
    for line in sentences(summary):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def tables(summary: Summary, style: box.Box) -> Iterator[Table]:
    """Where the main thread's time goes, what communication costs, the longest exchanges."""
    steps = summary.ranks[0].steps
    main = _table(f"milliseconds a step, median of {steps}", style, "rank", "host")
    for name in ("step", "forward", "backward", "optimize", "communicate", "other", "exposed"):
        main.add_column(name, justify="right")
    network = _table("communication, milliseconds a step", style, "rank")
    for name in ("communication", "hidden", "exposed", "exposed share", "exchanges", "MB"):
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
            str(r.rank), *times, f"{r.exposed_share:.0%}", f"{r.exchanges:g}", f"{r.megabytes:.3f}"
        )
    yield main
    if not summary.longest:
        return
    yield network
    longest = _table("the longest exchanges, median over steps and ranks", style, "exchange", "group")
    for name in ("MB", "ms", "queue ms", "wait ms"):
        longest.add_column(name, justify="right")
    for one in summary.longest:
        times = (f"{value:.2f}" for value in (one.ms, one.queue_ms, one.wait_ms))
        longest.add_row(one.name, one.group, f"{one.bytes / 1e6:.3f}", *times)
    yield longest


def _table(title: str, style: box.Box, *words: str) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold", box=style)
    for word in words:
        made.add_column(word)
    return made


def sentences(summary: Summary) -> Iterator[str]:
    """What is worth a line of its own."""
    if not summary.longest:
        yield "nothing was exchanged in these steps"
    if (slowest := summary.slowest) is not None:
        yield (
            f"slowest: rank {slowest.rank}, with {slowest.own_ms:.2f} ms a step of its own work; "
            f"rank {slowest.held_up} waits {slowest.by_ms:.2f} ms a step longer than it, "
            f"which came last to {slowest.last_at} of {slowest.of_exchanges} exchanges"
        )
    for shift in summary.shifts:
        if shift.by != "same clock":
            yield f"clock of rank {shift.rank}: shifted by {shift.us / 1000:.3f} ms, according to the {shift.by}"
