"""What this rank exchanges, with times, while a timeline is recorded; nothing at all otherwise.

started ──queue──▶ began ──────▶ ended          times are time.perf_counter_ns()
                      waited: when the main thread stood still for it
"""

# SPDX-License-Identifier: Apache-2.0
import time
from dataclasses import dataclass, field


@dataclass
class Exchange:
    """One collective of one group, as this rank saw it."""

    collective: str
    what: str
    group: str
    """dp; dp.1: the second communicator; dp/inner2, dp.1/across2: a part of its ranks."""
    number: int
    """Counts the exchanges of the group; the same exchange has the same number on every rank."""
    nbytes: int
    started_ns: int
    began_ns: int = 0
    """0: not known. Then it began when the one before it in the group had ended."""
    ended_ns: int = 0
    waited: list[tuple[int, int]] = field(default_factory=list)
    """Intervals in which the main thread was blocked for it, or did the work itself."""


recording: list[Exchange] | None = None
"""None: nothing is recorded."""


def note_start(collective: str, what: str, group: str, number: int, nbytes: int) -> Exchange | None:
    """An exchange starts now; gives its record, or None if nothing is recorded."""
    if recording is None:
        return None
    made = Exchange(collective, what, group, number, nbytes, time.perf_counter_ns())
    recording.append(made)
    return made
