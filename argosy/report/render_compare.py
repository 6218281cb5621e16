"""The comparison of two runs as one HTML page."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.report import html, units
from argosy.report.render import assemble, badge, header

_FORMS = {
    "ms": units.milliseconds,
    "number": units.number,
    "fraction": units.percent,
    "bytes": units.size,
    "integer": lambda value: units.UNKNOWN if value is None else f"{value:,.0f}",
    "s": units.duration,
}


def render_compare(a: dict[str, Any], b: dict[str, Any], comparison: dict[str, Any], written: float) -> str:
    """The page of a comparison."""
    sections = [
        ("summary", "Summary", _summary(a, b, comparison)),
        ("settings", "Settings", _settings(comparison)),
        ("curves", "Curves", _curves(comparison)),
        ("time", "Time", _time(comparison)),
        ("communication", "Communication", _communication(comparison)),
        ("memory", "Memory", html.section("memory", "Memory", html.chart("compare-memory"))),
    ]
    if not comparison["memory"]:
        sections.pop()
    shown = [(anchor, title, content) for anchor, title, content in sections if content]
    title = f"{a['name']} and {b['name']}"
    body = header(b, [(anchor, name) for anchor, name, _ in shown], written, title=title)
    body += html.element("main", "".join(content for _, _, content in shown))
    data = {"comparison": comparison, "names": [a["name"], b["name"]]}
    return assemble(f"{title}: comparison", body, data)


def _summary(a: dict[str, Any], b: dict[str, Any], comparison: dict[str, Any]) -> str:
    runs = "".join(
        html.element(
            "div",
            html.element("span", letter, class_=f"letter {letter.lower()}")
            + html.element("b", html.text(run["name"]))
            + badge(run["state"])
            + html.element("span", html.text(_about(run)), class_="note"),
            class_="run",
        )
        for letter, run in (("A", a), ("B", b))
    )
    rows = [
        (
            html.text(row["name"]),
            html.text(_FORMS[row["unit"]](row["a"])),
            html.text(_FORMS[row["unit"]](row["b"])),
            _change(row),
        )
        for row in comparison["figures"]
    ]
    return html.section(
        "summary",
        "Summary",
        html.element("p", html.text(comparison["sentence"]), class_="sentence"),
        html.element("div", runs, class_="runs"),
        html.table(("", "A", "B", "B against A"), rows, "Figures of both runs"),
    )


def _about(run: dict[str, Any]) -> str:
    started = run["job"]["started"]
    cause = f"{run['failure']['advice']['kind']}: {run['failure']['what'][:200]}" if run["failure"] else ""
    parts = (run["job"]["script"], f"started {units.moment(started)}" if started else "", cause)
    return " · ".join(filter(None, parts))


def _change(row: dict[str, Any]) -> str:
    change = row["change"]
    if change is None:
        return ""
    tone = "" if abs(change) < 0.02 or not row["better"] else "good" if change * row["better"] > 0 else "bad"
    shown = f"× {units.number(1 + change, 3)}" if change >= 2 else f"{change:+.1%}".replace("-", "−")
    return html.element("span", html.text(shown), class_=f"change {tone}".strip())


def _settings(comparison: dict[str, Any]) -> str:
    rows = [tuple(html.element("code", html.text(cell)) for cell in row) for row in comparison["settings"]]
    if not rows:
        return html.section("settings", "Settings", html.element("p", "Nothing differs that was recorded."))
    return html.section(
        "settings", "Settings that differ", html.table(("setting", "A", "B"), rows, "Settings")
    )


def _curves(comparison: dict[str, Any]) -> str:
    places = "".join(html.chart(f"both-{i}", curve["name"]) for i, curve in enumerate(comparison["curves"]))
    return html.section("curves", "Curves", html.element("div", places, class_="grid")) if places else ""


def _time(comparison: dict[str, Any]) -> str:
    phases = comparison["phases"]
    parts = [
        html.chart(f"compare-{key}", title, "Mean over the ranks.")
        if any(row["a"] is not None or row["b"] is not None for row in phases[key])
        else ""
        for key, title in (("periods", "From step to step"), ("inside", "Inside a sampled step"))
    ]
    grid = html.element("div", "".join(parts), class_="grid wide") if any(parts) else ""
    tables = [
        html.chart(f"compare-{key}", title)
        for key, title in (("nodes", "By source line"), ("ops", "By op"))
        if comparison[key]
    ]
    return html.section(
        "time",
        "Where the time differs",
        grid,
        html.chart("compare-phases") if any(parts) else "",
        html.element("div", "".join(tables), class_="grid wide") if tables else "",
    )


def _communication(comparison: dict[str, Any]) -> str:
    a, b = comparison["collectives"]["a"], comparison["collectives"]["b"]
    if not a["number"] and not b["number"]:
        return ""
    rows = [
        ("collectives in a step", f"{a['number']:,}", f"{b['number']:,}"),
        ("bytes", units.size(a["bytes"]), units.size(b["bytes"])),
        ("in flight", units.milliseconds(a["ms"]), units.milliseconds(b["ms"])),
        ("waited for", units.milliseconds(a["wait_ms"]), units.milliseconds(b["wait_ms"])),
    ]
    cells = [tuple(map(html.text, row)) for row in rows]
    return html.section("communication", "Communication", html.table(("", "A", "B"), cells, "Communication"))
