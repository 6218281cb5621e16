"""merge: one clock for all ranks, found from their common collectives."""

# SPDX-License-Identifier: Apache-2.0
import json
import random
from pathlib import Path

import pytest

from argosy.timeline import merge, read
from argosy.timeline.merge import shifts
from tests.timeline.traces_by_hand import collective, event, trace, write

OFFSET = 7_000_000.0


def test_ranks_of_one_kernel_are_not_shifted(tmp_path: Path) -> None:
    events = [event("step 3", "step", 50, 100)]
    write(tmp_path, trace(0, events), trace(1, [event("step 3", "step", 60, 110)]))
    merged = json.loads(merge(tmp_path, read(tmp_path)).read_text())
    assert [(e["pid"], e["ts"], e["dur"]) for e in merged["traceEvents"]] == [(0, 0, 50), (1, 10, 50)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merged.json", "rank0.json", "rank1.json"]


def test_the_clock_of_another_host_is_found_from_the_ends_of_the_collectives(tmp_path: Path) -> None:
    drawn = random.Random(0)
    ranks = []
    for rank in range(4):
        offset = OFFSET if rank > 1 else 0.0
        events = [event("step 3", "step", -offset, 1000 - offset)]
        for number in range(1, 22):
            end = 40.0 * number + drawn.uniform(-1, 1) - offset
            events.append(collective(number, end - drawn.uniform(5, 30), end, "dp/inter2"))
            local = 40.0 * number + 500 * (rank > 1) - offset  # the same name, another collective
            events.append(collective(number, local - 1, local, "dp/intra2"))
        ranks.append(trace(rank, events, size=4, clock="there" if rank > 1 else "here"))
    offsets = shifts(read(write(tmp_path, *ranks)))
    assert [shift.by for shift in offsets] == ["same clock", "same clock", "collectives", "collectives"]
    assert offsets[0].us == 0
    assert offsets[2].us == offsets[3].us == pytest.approx(OFFSET, abs=0.5)


def test_without_a_common_collective_the_wall_clock_is_used(tmp_path: Path) -> None:
    step = [event("step 3", "step", 0, 10)]
    write(tmp_path, trace(0, step, wall_ns=5_000), trace(1, step, clock="there", wall_ns=12_000))
    offsets = shifts(read(tmp_path))[1]
    assert (offsets.us, offsets.by) == (7.0, "wall clock")
