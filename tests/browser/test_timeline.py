"""The page of a timeline in a browser: zoom, pan, tooltip, search and tables; also with 100,000 events."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest

from argosy import timeline
from tests.browser.chromium import Page
from tests.timeline.test_step_summary import step
from tests.timeline.traces_by_hand import event, trace, write

pytestmark = pytest.mark.engines


def show(page: Page, folder: Path, *ranks: list[dict[str, Any]]) -> None:
    write(folder, *(trace(rank, events, size=len(ranks)) for rank, events in enumerate(ranks)))
    path = folder / "page.html"
    path.write_text(timeline.html(folder))
    page.open(path.as_uri())
    page.wait("document.body.dataset.drawn === 'true'")


def span(page: Page) -> float:
    return float(page.evaluate("timeline.view.to - timeline.view.from"))


def steps(*numbers: int, late: float = 0.0) -> list[dict[str, Any]]:
    """Steps with a track per kind, as ranks record them."""
    tracks = {"step": 1, "wait": 3, "collective": 4}
    events = [e | {"tid": tracks.get(e["cat"], 2)} for number in numbers for e in step(number, late=late)]
    named = {1: "step", 2: "compute", 3: "blocked", 4: "dp"}
    return [
        {"ph": "M", "name": "thread_name", "tid": tid, "args": {"name": n}} for tid, n in named.items()
    ] + events


def center(page: Page, track: str, index: int) -> tuple[float, float]:
    """Where an event of rank 0 is drawn."""
    position = page.evaluate(
        """([name, i]) => {
            const row = timeline.rows().find((r) => r.isTrack && r.track.name === name);
            const box = document.getElementById('tracks').getBoundingClientRect();
            const middle = row.track.begin[i] + row.track.length[i] / 2;
            return [box.left + timeline.px(middle), box.top + row.y + row.height / 2];
        }""",
        [track, index],
    )
    return position[0], position[1]


def test_wheel_keys_and_drag_zoom_and_move(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, steps(3, 4), steps(3, 4, late=10))
    whole = span(page)
    page.page.mouse.move(700, 150)
    page.page.mouse.wheel(0, -600)
    page.wait("whole => timeline.view.to - timeline.view.from < 0.6 * whole", whole)
    before = page.evaluate("timeline.view.from")
    page.page.mouse.down()
    page.page.mouse.move(600, 150, steps=4)
    page.page.mouse.up()
    assert page.evaluate("timeline.view.from") > before
    page.page.focus("#tracks")
    zoomed = span(page)
    page.page.keyboard.press("w")
    assert span(page) == pytest.approx(0.7 * zoomed)
    page.page.keyboard.press("0")
    assert span(page) == pytest.approx(whole, rel=0.03)


def test_tooltip_and_selection_show_the_fields_of_an_event(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, steps(3, 4))
    page.page.mouse.move(*center(page, "dp", 0))
    page.wait("!document.getElementById('tip').hidden")
    assert page.text("#tip").splitlines()[0].startswith("all_reduce g")
    assert "size: 4 MB" in page.text("#tip")
    page.page.mouse.click(*center(page, "compute", 1))
    assert "mm duration 30 ms" in page.text("#selected")
    page.page.keyboard.press(".")
    assert "wait duration 25 ms" in page.text("#selected")


def test_search_counts_and_zooms_to_matches(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, steps(3, 4), steps(3, 4))
    page.page.focus("#tracks")
    page.page.keyboard.press("/")
    page.page.keyboard.type("SGD")
    assert page.text("#matches") == "4, 40 ms"
    page.page.keyboard.press("Enter")
    assert "sgd" in page.text("#selected")
    assert span(page) == pytest.approx(30_000)


def test_tables_are_switched_by_keyboard(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, steps(3, 4), steps(3, 4))
    page.wait("document.querySelector('#table table')")
    page.page.focus("[data-table=source]")
    page.page.keyboard.press("ArrowRight")
    page.wait("document.querySelector('#table th')?.textContent === 'op'")
    assert page.evaluate("document.activeElement.dataset.table") == "op"
    page.page.click("[data-table=rank]")
    page.wait("document.querySelectorAll('#table tbody tr').length === 2")


def test_a_hundred_thousand_events_are_drawn_and_folded(page: Page, tmp_path: Path) -> None:
    def rank(number: int) -> list[dict[str, Any]]:
        nodes = [
            event(f"n{i % 500}", "forward", i * 10.0, i * 10.0 + 9, op="mm", source="a.py:1")
            for i in range(12_500)
        ]
        return [event("step 1", "step", 0, 125_000) | {"tid": 0}, *nodes]

    show(page, tmp_path, *(rank(r) for r in range(8)))
    assert page.evaluate("timeline.count") == 100_008
    assert "100,008 events" in page.text("#about")
    assert page.evaluate("timeline.ranks.every((r) => r.folded)")
    page.page.click("#fold")
    # In one call: the unfolded page may resize its canvas, which clears it, before it draws again.
    inked = page.evaluate(
        "timeline.show(50_000, 50_100), timeline.draw(),"
        " new Uint32Array(document.getElementById('tracks').getContext('2d')"
        ".getImageData(200, 30, 600, 120).data.buffer).filter((v) => v !== 0).length"
    )
    assert inked > 1000
