"""The report as one HTML page: texts and tables in HTML, the drawings by charts.js from the embedded analysis."""

# SPDX-License-Identifier: Apache-2.0
from importlib.resources import files
from typing import Any

from argosy.charts import script, stylesheet  # `from argosy import charts` would load torch
from argosy.charts.page import page
from argosy.report import html, units

_STATES = {
    "running": ("running", "accent"),
    "completed": ("completed", "good"),
    "failed": ("failed", "bad"),
    "abandoned": ("launcher gone", "bad"),
    "preempted": ("preempted", "warn"),
    "terminated": ("terminated", "warn"),
}


def render(analysis: dict[str, Any], written: float) -> str:
    """The page of one run; `written`: the time of the report."""
    sections = [
        ("failure", "Cause", _failure(analysis)),
        ("figures", "", _problems(analysis) + _figures(analysis)),
        ("curves", "Curves", _curves(analysis)),
        ("steps", "Step time", _steps(analysis)),
        ("breakdown", "Where the time goes", _breakdown(analysis)),
        ("stragglers", "Stragglers", _stragglers(analysis)),
        ("communication", "Communication", _communication(analysis)),
        ("memory", "Memory", _memory(analysis)),
        ("servers", "Parameter servers", _servers(analysis)),
        ("events", "Events", _events(analysis)),
        ("job", "What ran where", _job(analysis)),
        ("output", "Output", _output(analysis)),
    ]
    shown = [(anchor, title, content) for anchor, title, content in sections if content]
    body = header(analysis, [(anchor, title) for anchor, title, _ in shown if title], written)
    body += html.element("main", "".join(content for _, _, content in shown))
    return assemble(f"{analysis['name']}: {analysis['state']}", body, {"report": analysis})


def assemble(title: str, body: str, data: dict[str, Any]) -> str:
    """A page with the assets of the reports."""
    here = files("argosy.report")
    return page(
        title,
        body,
        data,
        styles=(stylesheet(), (here / "report.css").read_text()),
        scripts=(script(), (here / "report.js").read_text()),
    )


def header(analysis: dict[str, Any], anchors: list[tuple[str, str]], written: float, title: str = "") -> str:
    """The head of a page: name, state, links to the sections."""
    job, figures = analysis["job"], analysis["figures"]
    hosts = {p.get("host") for p in analysis["processes"] if p.get("host")}
    facts = [
        job["script"],
        _count(figures["ranks"], "rank") if figures["ranks"] else "",
        _count(figures["servers"], "server") if figures["servers"] else "",
        f"on {_count(len(hosts), 'host')}" if len(hosts) > 1 else f"on {next(iter(hosts))}" if hosts else "",
        f"started {units.moment(job['started'])}" if job["started"] else "",
        units.duration(job["duration_s"]) if job["duration_s"] is not None else "",
    ]
    about = " · ".join(filter(None, facts)) if not title else ""
    links = "".join(html.element("a", html.text(name), href=f"#{anchor}") for anchor, name in anchors)
    return html.element(
        "header",
        html.element(
            "div",
            html.element("h1", html.text(title or analysis["name"]))
            + ("" if title else badge(analysis["state"]))
            + '<button type="button" id="theme" class="theme">Dark theme</button>',
            class_="title",
        )
        + html.element(
            "p",
            html.text(f"{about + ' · ' if about else ''}report of {units.moment(written)}"),
            class_="facts",
        )
        + html.element("nav", links, aria_label="Sections"),
    )


def badge(state: str) -> str:
    """The state of a job in its colour."""
    name, tone = _STATES.get(state, (state, "plain"))
    return html.element("span", html.text(name), class_=f"badge {tone}")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _failure(analysis: dict[str, Any]) -> str:
    failure = analysis["failure"]
    if failure is None:
        return ""
    advice = failure["advice"]
    heading = f"{failure['process'].capitalize() or 'The job'} failed: {advice['kind']}"
    facts = html.pairs({"where": failure["where"], "after": failure["after"], "log": failure["log"]})
    tries = "".join(html.element("li", html.text(step)) for step in advice["steps"])
    waiting = "".join(
        html.element("li", html.element("b", html.text(name)) + " " + html.text(what))
        for name, what in failure["waiting"]
    )
    parts = [
        html.element("h2", html.text(heading)),
        html.element("p", html.text(failure["what"]), class_="what"),
        facts,
        html.element("h3", "What to try")
        + html.element("p", html.text(advice["explanation"]))
        + html.element("ol", tries),
        html.element("h3", "The other processes") + html.element("ul", waiting) if waiting else "",
        html.element("h3", "The end of its log") + html.lines(failure["lines"], "the end of the log")
        if failure["lines"]
        else "",
        html.details("Traceback", html.lines(failure["traceback"].splitlines(), "traceback"))
        if failure["traceback"]
        else "",
        html.details(
            "The launcher's report", html.lines(failure["text"].splitlines(), "the launcher's report")
        )
        if failure["text"]
        else "",
    ]
    return html.element("section", "".join(parts), id="failure", class_="panel failure")


def _problems(analysis: dict[str, Any]) -> str:
    items = "".join(html.element("li", html.text(problem)) for problem in analysis["problems"])
    return html.element("ul", items, class_="panel problems") if items else ""


def _figures(analysis: dict[str, Any]) -> str:
    figures = analysis["figures"]
    tiles = {
        "steps": f"{figures['step']:,}" if figures["step"] else "",
        "step time, median": _known(figures["step_ms"], units.milliseconds),
        "99th percentile": _known(figures["step_p99_ms"], units.milliseconds),
        "examples per second": _known(figures["examples_per_s"] or None, units.number),
        "blocked on others": _known(figures["exposed_fraction"], units.percent),
        "sent by all ranks": _known(figures["sent_bytes"] or None, units.size),
        "peak memory of a rank": _known(figures["peak_rss"], units.size),
        "restarts": str(analysis["job"]["restarts"] or ""),
    }
    tiles |= {
        name: units.number(value) for name, value in list(figures["values"].items())[:4] if value is not None
    }
    content = "".join(
        html.element(
            "div", html.element("b", html.text(value)) + html.element("span", html.text(name)), class_="tile"
        )
        for name, value in tiles.items()
        if value
    )
    return html.element("div", content, class_="tiles", id="figures") if content else ""


def _known(value: float | None, form: Any) -> str:
    return "" if value is None else str(form(value))


def _curves(analysis: dict[str, Any]) -> str:
    places = "".join(html.chart(f"curve-{i}", curve["name"]) for i, curve in enumerate(analysis["curves"]))
    return html.section("curves", "Curves", html.element("div", places, class_="grid")) if places else ""


def _steps(analysis: dict[str, Any]) -> str:
    steps = analysis["steps"]
    if not steps["rows"]:
        return ""
    known = {name: units.milliseconds(ms) for name, ms in steps["quantiles"].items() if ms is not None}
    quantiles = " · ".join(f"{name} {value}" for name, value in known.items())
    note = f"Time from step to step, by rank over the time of the job, without warm-up. {quantiles}."
    return html.section("steps", "Step time", html.chart("steps"), note=note)


def _breakdown(analysis: dict[str, Any]) -> str:
    breakdown, nodes = analysis["breakdown"], analysis["nodes"]
    parts = [
        html.chart("periods", "From step to step", "Mean of all steps after the warm-up, by rank.")
        if breakdown["periods"]
        else "",
        html.chart(
            "inside", "Inside a step", "Median of the sampled steps. Exposed: blocked on a collective."
        )
        if breakdown["inside"]
        else "",
    ]
    grid = html.element("div", "".join(parts), class_="grid wide") if any(parts) else ""
    tables = ""
    if nodes["longest"]:
        tables = html.element(
            "div",
            html.chart("by-source", "By source line") + html.chart("by-op", "By op"),
            class_="grid wide",
        ) + html.details("The longest nodes", html.chart("longest-nodes"))
    return html.section("breakdown", "Where the time goes", grid, tables)


def _stragglers(analysis: dict[str, Any]) -> str:
    stragglers = analysis["stragglers"]
    if len(stragglers["ranks"]) < 2:
        return ""
    items = [
        f"Rank {row['rank']} needs {row['relative']:.2f} times the median rank's own time per step "
        f"(+{units.milliseconds(row['more_ms'])} of {row['cause']}): {'; '.join(row['hints'])}."
        for row in stragglers["slow"]
    ]
    items += [f"{units.moment(e['time'])}: {e['text']}" for e in stragglers["events"]]
    findings = "".join(html.element("li", html.text(item)) for item in items)
    verdict = (
        html.element("ul", findings, class_="findings")
        if findings
        else html.element(
            "p", "No rank was 10 % slower than the median rank over the whole run.", class_="good-text"
        )
    )
    note = "Own time: computation and input, without waiting for others. A rank that is blocked little is waited for."
    return html.section("stragglers", "Stragglers", verdict, html.chart("stragglers"), note=note)


def _communication(analysis: dict[str, Any]) -> str:
    communication = analysis["communication"]
    if not communication["collectives"]:
        return ""
    totals = communication["totals"]
    source = (
        "what the doctor measured, or the best collective of the group"
        if communication["reference"] == "doctor"
        else "the best collective of its group up to this size"
    )
    note = (
        f"{_count(len(communication['collectives']), 'collective')} in a step, {units.size(totals['bytes'])}, "
        f"{units.milliseconds(totals['ms'])} in flight, {units.milliseconds(totals['wait_ms'])} waited for. "
        f"The rate is that of the last rank to join; the link's is {source}."
    )
    return html.section("communication", "Communication", html.chart("collectives"), note=note)


def _memory(analysis: dict[str, Any]) -> str:
    memory = analysis["memory"]
    rows = [row for row in memory["ranks"] if row["peak_bytes"]]
    largest = next((row for row in rows if row["rank"] == memory["largest_rank"]), None)
    parts = [
        html.chart("rss", "Resident memory over time") if memory["rss"]["rows"] else "",
        html.chart("peak", "The peak of a step, by purpose", "Computed from the lifetimes of all values.")
        if rows
        else "",
    ]
    grid = html.element("div", "".join(parts), class_="grid wide") if any(parts) else ""
    where = ""
    if largest is not None and largest["largest"]:
        at = f"Rank {largest['rank']}: {units.size(largest['peak_bytes'])} at {largest['node']} ({largest['source']})."
        where = html.chart("largest", "The largest values at the peak", at)
    return html.section("memory", "Memory", grid, where)


def _servers(analysis: dict[str, Any]) -> str:
    servers = analysis["servers"]
    if servers is None:
        return ""
    rate = servers["prefetch_hit_rate"]
    note = f"{units.percent(rate)} of the rows were prefetched before their step." if rate is not None else ""
    charts_ = html.chart("server-rate", "Requests per second") + html.chart(
        "server-p99", "99th percentile of the latency"
    )
    return html.section(
        "servers",
        "Parameter servers",
        html.chart("tables", "Tables") if servers["tables"] else "",
        html.element("div", charts_, class_="grid wide"),
        html.chart("requests", "Requests", "Latencies are the largest of any second."),
        html.chart("server-rows", "Servers"),
        note=note,
    )


def _events(analysis: dict[str, Any]) -> str:
    rows = [
        (html.text(units.moment(event["time"])), html.text(event["kind"]), html.text(event["text"]))
        for event in analysis["events"]
    ]
    return (
        html.section("events", "Events", html.table(("time", "kind", "event"), rows, "Events"))
        if rows
        else ""
    )


def _job(analysis: dict[str, Any]) -> str:
    job, strategy = analysis["job"], analysis["strategy"]
    facts = html.pairs(
        {
            "command": job["command"],
            "mode": job["mode"],
            "started": units.moment(job["started"]) if job["started"] else "",
            "ended": units.moment(job["ended"]) if job["ended"] else "",
            "exit code": "" if job["exit_code"] is None else str(job["exit_code"]),
            "versions": ", ".join(f"{name} {version}" for name, version in job["versions"].items()),
            "options": ", ".join(f"{name}={value}" for name, value in job["options"].items()),
            "strategy": strategy["text"],
        }
    )
    settings = html.pairs(strategy["settings"])
    return html.section(
        "job",
        "What ran where",
        facts,
        html.element("h3", "Strategy settings that differ from the defaults") + settings if settings else "",
        html.chart("processes", "Processes") if analysis["processes"] else "",
    )


def _output(analysis: dict[str, Any]) -> str:
    parts = [
        html.details(f"{o['name']} ({o['log']})", html.lines(o["lines"], f"last lines of {o['log']}"))
        for o in analysis["outputs"]
        if o["lines"]
    ]
    return html.section("output", "Output", *parts, note="The last lines of each process.")
