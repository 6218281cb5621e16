"""timeline --html: the embedded events and tables are those of the traces, and no text breaks out of the page."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest

from argosy import timeline
from argosy.timeline.__main__ import main
from argosy.timeline.node_table import by_node, by_op, by_source
from tests.report.pages import ParsedPage
from tests.timeline.test_step_summary import step
from tests.timeline.traces_by_hand import collective, event, trace, write

HOSTILE = "</script><script>alert(1)</script>"


def decoded(data: dict[str, Any]) -> set[tuple[int, str, float, float, str]]:
    """Rank, name, begin, length and category of each embedded event."""
    events = set()
    for rank in data["ranks"]:
        for track in rank["tracks"]:
            at = 0
            for delta, length, text, info in zip(
                track["begin"], track["length"], track["text"], track["info"], strict=True
            ):
                at += delta
                times = round(at * data["tick_us"], 1), round(length * data["tick_us"], 1)
                events.add((rank["rank"], data["strings"][text], *times, data["infos"][info]["cat"]))
    return events


def test_the_embedded_events_are_those_of_the_traces(tmp_path: Path) -> None:
    ranks = [[*step(3), *step(4)], [*step(3, late=10), *step(4)]]
    write(tmp_path, *(trace(rank, events) for rank, events in enumerate(ranks)))
    page = ParsedPage(timeline.html(tmp_path))
    page.assert_inert()
    origin = min(e["ts"] for e in ranks[0])
    assert decoded(page.data) == {
        (rank, e["name"], round(e["ts"] - origin, 1), round(e["dur"], 1), e["cat"])
        for rank, events in enumerate(ranks)
        for e in events
    }
    infos = [info for info in page.data["infos"] if info["cat"] == "collective"]
    assert infos == [{"cat": "collective", "group": "dp", "bytes": 4_000_000}]
    assert page.data["summary"]["straggler"]["rank"] == 1


def test_tables_have_the_time_per_step_and_the_blocked_part(tmp_path: Path) -> None:
    events = [
        event("step 1", "step", 0, 1000),
        event("step 2", "step", 1000, 2000),
        event("a", "forward", 0, 100, op="mm", source="train.py:8"),
        event("b", "backward", 100, 400, op="mm", source="train.py:8"),
        event("c", "communicate", 1000, 1200, op="wait", source="train.py:9"),
        event("wait for g", "wait", 1050, 1150),
        collective(1, 1050, 1150),
    ]
    traces = timeline.read(write(tmp_path, trace(0, events, size=1)))
    (first, second) = by_source(traces)
    assert (first.name, first.role, first.op, first.per_step, first.ms) == (
        "train.py:8",
        "forward, backward",
        "mm",
        1,
        0.2,
    )
    assert (second.ms, second.blocked_ms) == (pytest.approx(0.1), pytest.approx(0.05))
    assert [(r.name, r.role) for r in by_op(traces)] == [
        ("mm", "backward"),
        ("wait", "communicate"),
        ("mm", "forward"),
    ]
    assert [r.name for r in by_node(traces)] == ["b", "c", "a"]


def test_texts_of_a_trace_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "<b>x"
    folder.mkdir()
    events = [event("step 1", "step", 0, 10), event(HOSTILE, "forward", 0, 5, op=HOSTILE, source=HOSTILE)]
    page = ParsedPage(timeline.html(write(folder, trace(0, events, size=1))))
    page.assert_inert()
    assert len(page.scripts) == 3
    assert HOSTILE in page.data["strings"]


def test_the_command_line_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, trace(0, step(3), size=1))
    assert main([str(tmp_path), "--html"]) == 0
    assert f"page: {tmp_path}/timeline.html" in capsys.readouterr().out
    assert main([str(tmp_path), "--html", str(tmp_path / "x.html")]) == 0
    assert (tmp_path / "x.html").read_text() == (tmp_path / "timeline.html").read_text()
    assert main([str(tmp_path), "--html", str(tmp_path / "no" / "x.html")]) == 2
