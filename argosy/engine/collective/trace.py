"""Trace of the collectives of this rank, while a timeline is recorded; off by default.

started ──queue──▶ began ──────▶ ended          times are time.perf_counter_ns()
                      waited: intervals in which the main thread was blocked on it
"""

# SPDX-License-Identifier: Apache-2.0
import time
from dataclasses import dataclass, field


@dataclass
class TracedCollective:
    """One collective of one process group, as this rank saw it."""

    collective: str
    what: str
    group: str
    """dp; dp.1: the second communicator; dp/intra2, dp.1/inter2: a subset of its ranks."""
    number: int
    """Sequence number in the group; the same collective has the same number on every rank."""
    nbytes: int
    started_ns: int
    began_ns: int = 0
    """0: unknown. Then it began when the previous collective of the group ended."""
    ended_ns: int = 0
    waited: list[tuple[int, int]] = field(default_factory=list)
    """Intervals in which the main thread was blocked on it, or did the work itself."""


recording: list[TracedCollective] | None = None
"""Where collectives are recorded; None: tracing is off."""


def record_start(collective: str, what: str, group: str, number: int, nbytes: int) -> TracedCollective | None:
    """Record that a collective starts now; None if tracing is off."""
    if recording is None:
        return None
    traced = TracedCollective(collective, what, group, number, nbytes, time.perf_counter_ns())
    recording.append(traced)
    return traced


summed: list[TracedCollective] | None = None
"""Where the sums that divided updates compute are recorded (ops/host_updates.py); None: they are not."""


def record_sum(what: str, group: str, nbytes: int) -> None:
    """Record that updates begin, which read the gradients of all ranks: so many bytes of each."""
    if summed is not None:
        now = time.perf_counter_ns()
        summed.append(TracedCollective("sum in updates", what, group, 0, nbytes, now, now))


def record_sum_end() -> None:
    """Record that these updates have ended on this rank."""
    if summed and not summed[-1].ended_ns:
        summed[-1].ended_ns = time.perf_counter_ns()
