"""Timelines of training steps: record them, merge those of all ranks, summarize them.

with argosy.timeline.record("timeline"):        in a script; or fleetrun --timeline DIR
    train()

python -m argosy.timeline timeline              merges the ranks and prints a breakdown of the step time
python -m argosy.timeline timeline --html       writes a page to zoom into
"""

# SPDX-License-Identifier: Apache-2.0
import os
from contextlib import AbstractContextManager
from pathlib import Path

from argosy.engine import env
from argosy.timeline.merge import merge
from argosy.timeline.step_summary import Summary, summarize
from argosy.timeline.timeline_page import html
from argosy.timeline.traces import Trace, read


def record(
    directory: str | os.PathLike[str], steps: str = env.TIMELINE_STEPS
) -> AbstractContextManager[None]:
    """Record the training steps inside, `steps` of them ("3-12", counted from 1), to directory/rankN.json."""
    from argosy.engine.runtime import timeline  # not at the top: python -m argosy.timeline needs no torch

    return timeline.recording(Path(directory).absolute(), env.step_range(str(steps), "steps"))


__all__ = ["Summary", "Trace", "html", "merge", "read", "record", "summarize"]
