"""`python -m argosy.timeline DIR`: merge the timelines of all ranks and print a breakdown of the step time."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from argosy.engine.errors import ConfigError
from argosy.timeline.merge import merge
from argosy.timeline.step_summary import summarize
from argosy.timeline.summary_text import show
from argosy.timeline.timeline_page import PAGE, write_html
from argosy.timeline.traces import read


def parser() -> argparse.ArgumentParser:
    """The arguments of `python -m argosy.timeline`."""
    p = argparse.ArgumentParser(prog="python -m argosy.timeline", description=__doc__)
    p.add_argument("directory", metavar="DIR", help="the directory given to fleetrun --timeline")
    p.add_argument("--json", action="store_true", help="print the numbers as JSON")
    p.add_argument(
        "--html",
        nargs="?",
        const="",
        metavar="FILE",
        help="write a page to zoom into (default: DIR/timeline.html)",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0, or 2 if there is no complete timeline."""
    known = parser().parse_args(argv)
    try:
        traces = read(known.directory)
        path = merge(known.directory, traces)
        page = None if known.html is None else Path(known.html or Path(known.directory) / PAGE)
        if page is not None:
            write_html(page, traces, Path(known.directory).absolute().name)
    except (ConfigError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    summary = summarize(traces)
    if known.json:
        print(json.dumps(asdict(summary), indent=1))
        return 0
    show(summary)
    if page is not None:
        print(f"page: {page} (open it in a browser)")
    print(f"all ranks: {path} (open it in https://ui.perfetto.dev or chrome://tracing)")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
