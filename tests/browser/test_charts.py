"""charts.js in a browser: every kind of chart draws its data, is read by keyboard, and follows the theme."""

# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import pytest

from argosy import charts
from tests.browser.chromium import Page

pytestmark = pytest.mark.engines


def show(page: Page, kind: str, options: dict[str, Any]) -> None:
    """A page with one chart in the element #chart; its handle is `handle`."""
    page.page.set_content(
        f"<!doctype html><html><head><style>{charts.stylesheet()}</style></head><body><div id=chart></div>"
        f"<script type='application/json' id=data>{charts.json_text(options)}</script><script>{charts.script()}"
        f"const handle = charts.{kind}(document.getElementById('chart'), "
        "JSON.parse(document.getElementById('data').textContent));</script></body></html>"
    )
    page.wait("document.getElementById('chart').childElementCount > 0")


def tip(page: Page) -> str:
    page.wait("!document.querySelector('.chart-tip').hidden")
    return page.text(".chart-tip")


def test_lines_are_read_by_keyboard_and_described_in_words(page: Page) -> None:
    show(
        page, "lines", {"series": [{"name": "loss", "x": [1, 2, 3], "y": [4.0, 2.0, 1.0]}], "xLabel": "step"}
    )
    page.page.focus("#chart svg")
    page.page.keyboard.press("ArrowLeft")
    assert tip(page).split() == ["step", "2", "loss", "2"]
    label = page.page.get_attribute("#chart svg", "aria-label")
    assert "loss: 1 at 3, from 1 to 4" in label


def test_a_logarithmic_axis_leaves_out_zeros(page: Page) -> None:
    show(page, "lines", {"series": [{"name": "g", "x": [1, 2, 3], "y": [1.0, 0.0, 100.0]}], "logY": True})
    path = page.page.get_attribute("#chart path", "d")
    assert path.count("M") == 2
    assert "NaN" not in path
    assert "Infinity" not in path


def test_long_series_are_thinned_out_and_keep_their_extremes(page: Page) -> None:
    y = [0.0] * 100_000
    y[71_003] = 9.0
    show(page, "lines", {"series": [{"name": "v", "x": list(range(len(y))), "y": y}]})
    path = page.page.get_attribute("#chart path", "d")
    assert path.count("L") < 3000
    assert "from 0 to 9" in page.page.get_attribute("#chart svg", "aria-label")


def test_a_series_is_hidden_by_its_key_in_the_legend(page: Page) -> None:
    series = [{"name": name, "x": [1, 2], "y": [1.0, 2.0]} for name in ("a", "b")]
    show(page, "lines", {"series": series})
    page.page.click("#chart .chart-legend button >> nth=0")
    page.wait("document.querySelectorAll('#chart path').length === 1")
    assert page.page.get_attribute("#chart .chart-legend button >> nth=0", "aria-pressed") == "false"


def test_a_heat_map_shows_a_cell_and_skips_missing_ones(page: Page) -> None:
    values = [[1.0, None, 3.0], [2.0, 2.0, 9.0]]
    show(page, "heatmap", {"rows": ["0", "1"], "columns": [10, 20, 30], "values": values, "unit": "ms"})
    page.page.focus("#chart canvas")
    page.page.keyboard.press("ArrowDown")
    assert "9 ms" in tip(page)
    assert "highest mean: 1" in page.page.get_attribute("#chart canvas", "aria-label")


def test_bars_show_the_parts_of_a_row(page: Page) -> None:
    parts = [{"name": "forward", "values": [3.0, 4.0]}, {"name": "backward", "values": [6.0, 5.0]}]
    show(page, "stacked", {"rows": ["0", "1"], "parts": parts, "unit": "ms", "rowLabel": "rank"})
    page.page.focus("#chart svg")
    page.page.keyboard.press("ArrowDown")
    assert tip(page).split() == ["rank", "1:", "9", "ms", "forward", "4", "ms", "backward", "5", "ms"]


def test_a_table_is_sorted_by_keyboard_with_missing_values_last(page: Page) -> None:
    columns = [{"title": "name"}, {"title": "size", "kind": "bytes", "bar": True}]
    show(page, "table", {"columns": columns, "rows": [["a", 2_000], ["b", None], ["c", 3_000_000]]})
    page.page.focus("#chart th >> nth=1 >> button")
    page.page.keyboard.press("Enter")
    names = "[...document.querySelectorAll('#chart tbody tr')].map(r => r.cells[0].textContent).join('')"
    assert page.evaluate(names) == "cab"
    page.page.keyboard.press("Enter")
    assert page.evaluate(names) == "acb"
    assert page.text("#chart tbody tr >> nth=1 >> td >> nth=1") == "3 MB"


def test_an_update_of_a_table_keeps_the_order_and_the_focus(page: Page) -> None:
    columns = [{"title": "name"}, {"title": "n", "kind": "integer"}]
    show(page, "table", {"columns": columns, "rows": [["a", 1], ["b", 2]]})
    page.page.focus("#chart th >> nth=1 >> button")
    page.page.keyboard.press("Enter")
    page.evaluate("handle.update({rows: [['a', 1], ['b', 2], ['c', 3]]})")
    page.wait("document.querySelector('#chart td').textContent === 'c'")
    assert page.evaluate("document.activeElement.textContent") == "n"


def test_a_tree_is_unfolded_by_keyboard_and_stays_so_at_an_update(page: Page) -> None:
    roots = [
        {"name": "forward", "value": 9, "children": [{"name": "conv", "value": 5, "detail": "train.py:3"}]}
    ]
    show(page, "tree", {"roots": roots, "unit": "ms"})
    assert page.evaluate("document.querySelectorAll('#chart li').length") == 1
    page.page.focus("#chart li")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowDown")
    assert "conv" in page.evaluate("document.activeElement.textContent")
    roots[0]["children"][0]["value"] = 6
    page.evaluate("roots => handle.update({roots})", roots)
    page.wait("document.activeElement.textContent.includes('6 ms')")


def test_names_are_text_and_never_markup(page: Page) -> None:
    evil = "<img src=x onerror=alert(1)></script>"
    show(page, "table", {"columns": [{"title": evil}], "rows": [[evil]]})
    assert page.evaluate("document.querySelector('#chart td').textContent") == evil
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert json.loads(charts.json_text({"name": evil})) == {"name": evil}


def test_the_theme_is_the_systems_until_it_is_chosen(page: Page) -> None:
    show(page, "lines", {"series": []})
    assert "No data yet" in page.text("#chart")
    page.page.emulate_media(color_scheme="dark")
    page.wait("document.documentElement.dataset.theme === 'dark'")
    page.evaluate("charts.theme.toggle()")
    assert page.evaluate("charts.theme.current") == "light"
