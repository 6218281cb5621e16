// Draws the charts of a report or comparison into the elements [data-chart], from the JSON in #data.
// SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  charts.theme.button(document.getElementById("theme"));
  const draw = {};

  const minutes = (over) => over.rows.length ? over.rows[0].map((_, i) => (over.from_s + i * over.width_s) / timeUnit(over)[0]) : [];
  function timeUnit(over) {
    const seconds = over.rows.length ? over.from_s + over.rows[0].length * over.width_s : 0;
    return seconds > 3 * 3600 ? [3600, "hours"] : seconds > 300 ? [60, "minutes"] : [1, "seconds"];
  }
  const text = (title) => ({ title, kind: "text" });
  const code = (title) => ({ title, kind: "code" });
  const unit = (title, kind, bar = false, help = "") => ({ title, kind, bar, help });
  const percent = (fraction) => (fraction === null || fraction === undefined ? null : 100 * fraction);

  // Many ranks: the lowest, the median and the highest one instead of a line each.
  function overTime(element, over, what, yUnit, scale = 1) {
    const [, label] = timeUnit(over);
    const x = minutes(over);
    let series = over.rows.map((row, i) => ({ name: `${what} ${over.names[i]}`, x, y: row.map((v) => (v === null ? null : v / scale)) }));
    if (series.length > 8) {
      const sorted = x.map((_, c) => series.map((s) => s.y[c]).filter((v) => v !== null && v !== undefined).sort((a, b) => a - b));
      const pick = (q) => sorted.map((values) => (values.length ? values[Math.round(q * (values.length - 1))] : null));
      series = [["highest", 1], ["median", 0.5], ["lowest", 0]].map(([name, q]) => ({ name: `${name} of ${over.rows.length}`, x, y: pick(q) }));
    }
    charts.lines(element, { series, unit: yUnit, xLabel: `${label} since the start`, label: what, legend: true });
  }

  function report(r) {
    r.curves.forEach((curve, i) => {
      const formats = { step: "ms" };
      draw[`curve-${i}`] = (e) => charts.lines(e, {
        series: [{ name: curve.name, x: curve.steps, y: curve.values }], unit: formats[curve.kind], xLabel: "step", label: curve.name, height: 190,
      });
    });
    draw.steps = (e) => charts.heatmap(e, {
      rows: r.steps.names.map((n) => `rank ${n}`), columns: minutes(r.steps), values: r.steps.rows, unit: "ms",
      columnLabel: `${timeUnit(r.steps)[1]} since the start`, label: "Step time by rank",
    });
    const bars = (rows, parts) => ({
      rows: rows.map((row) => `rank ${row.rank}`), unit: "ms", parts: parts.map((name) => ({ name, values: rows.map((row) => row[name]) })),
    });
    draw.periods = (e) => charts.stacked(e, { ...bars(r.breakdown.periods, ["computation", "blocked", "script", "input"]), label: "From step to step" });
    draw.inside = (e) => charts.stacked(e, { ...bars(r.breakdown.inside, r.breakdown.phases), label: "Inside a step" });
    draw["by-source"] = (e) => charts.table(e, {
      columns: [code("source"), unit("ms per step", "ms", true)], rows: r.nodes.by_source, limit: 15, label: "Time by source line",
    });
    draw["by-op"] = (e) => charts.table(e, { columns: [code("op and role"), unit("ms per step", "ms", true)], rows: r.nodes.by_op, limit: 15, label: "Time by op" });
    draw["longest-nodes"] = (e) => charts.table(e, {
      columns: [code("node"), code("op"), text("role"), code("source"), unit("ms", "ms", true)],
      rows: r.nodes.longest.map((n) => [n.name, n.op, n.role, n.source, n.ms]), label: "The longest nodes",
    });
    draw.stragglers = (e) => charts.table(e, {
      columns: [unit("rank", "integer"), text("host"), unit("own time", "ms", true), unit("× median", "number"), unit("computation", "ms"),
        unit("input", "ms"), unit("blocked", "ms"), unit("CPU", "percent", false, "processor time per second; 100 % is one core"),
        unit("no core", "percent", false, "ready to run, but without a core"), unit("major faults/s", "number"), unit("preempted/s", "number"), unit("MHz", "integer")],
      rows: r.stragglers.ranks.map((row) => [row.rank, row.host, row.own_ms,
        { value: row.relative, state: row.relative >= 1.1 ? "bad" : undefined }, row.busy_ms, row.input_ms, row.blocked_ms,
        percent(row.cpu), percent(row.delay), row.major_faults_per_s, row.preempted_per_s, row.mhz]),
      label: "Own time by rank",
    });
    draw.collectives = (e) => charts.table(e, {
      columns: [code("collective"), text("group"), unit("size", "bytes"), unit("time", "ms", true), unit("queued", "ms"), unit("waited for", "ms"),
        unit("rate", "bytes/s"), unit("link", "bytes/s"), unit("of the link", "percent")],
      rows: r.communication.collectives.map((c) => [c.name, c.group, c.bytes, c.ms, c.queue_ms, c.wait_ms, c.bytes_per_s, c.link_bytes_per_s,
        { value: percent(c.link_fraction), state: c.link_fraction !== null && c.link_fraction < 0.5 ? "warn" : undefined }]),
      limit: 30, label: "Collectives of a step",
    });
    draw.rss = (e) => overTime(e, r.memory.rss, "rank", "MB", 1e6);
    const peaks = r.memory.ranks.filter((row) => row.peak_bytes);
    const purposes = [...new Set(peaks.flatMap((row) => Object.keys(row.breakdown)))];
    draw.peak = (e) => charts.stacked(e, {
      rows: peaks.map((row) => `rank ${row.rank}`), unit: "bytes", label: "Peak memory of a step",
      parts: purposes.length ? purposes.map((name) => ({ name, values: peaks.map((row) => row.breakdown[name] || 0) })) : [{ name: "peak", values: peaks.map((row) => row.peak_bytes) }],
    });
    const largest = r.memory.ranks.find((row) => row.rank === r.memory.largest_rank);
    draw.largest = (e) => charts.table(e, {
      columns: [code("value"), text("type"), text("purpose"), code("source"), unit("size", "bytes", true)],
      rows: largest.largest.map((v) => [v.name, v.kind, v.what, v.source, v.bytes]), label: "Largest values at the peak",
    });
    draw.processes = (e) => charts.table(e, {
      columns: [text("role"), unit("rank", "integer"), text("host"), unit("pid", "number"), text("state"), unit("exit", "number"), unit("steps", "integer"),
        unit("examples", "integer"), unit("starts", "integer"), unit("threads", "integer"), unit("peak memory", "bytes")],
      rows: r.processes.map((p) => [p.role, p.rank, p.host, { value: p.pid, text: p.pid === null || p.pid === undefined ? "–" : String(p.pid) },
        { value: p.state, state: { failed: "bad", done: "good", terminated: "warn" }[p.state], title: p.outcome || "" },
        p.exit, p.step, p.examples, p.starts, p.threads, p.peak_rss]),
      limit: 70, label: "Processes",
    });
    if (r.servers) servers(r.servers);
  }

  function servers(s) {
    draw.tables = (e) => charts.table(e, {
      columns: [code("table"), unit("rows", "integer", true), unit("size", "bytes"), unit("pulled rows/s", "integer"), unit("pushed rows/s", "integer"), unit("spilled", "percent")],
      rows: s.tables.map((t) => [t.name, t.rows, t.bytes, t.pulled_per_s, t.pushed_per_s, percent(t.spilled)]), label: "Tables",
    });
    draw["server-rate"] = (e) => overTime(e, s.rate, "server", "number");
    draw["server-p99"] = (e) => overTime(e, s.p99, "server", "ms");
    draw.requests = (e) => charts.table(e, {
      columns: [unit("server", "integer"), text("request"), unit("count", "integer", true), unit("bytes", "bytes"), unit("p50", "ms"), unit("p90", "ms"), unit("p99", "ms")],
      rows: s.servers.flatMap((row) => Object.entries(row.requests).map(([kind, q]) => [row.server, kind, q.count, q.bytes, q.p50_ms, q.p90_ms, q.p99_ms])),
      sort: { column: 2, descending: true }, limit: 20, label: "Requests by kind",
    });
    draw["server-rows"] = (e) => charts.table(e, {
      columns: [unit("server", "integer"), text("host"), unit("requests/s", "integer"), unit("longest queue", "integer"), unit("largest staleness", "number"),
        unit("trainers", "integer"), unit("dense variables", "bytes"), unit("peak memory", "bytes")],
      rows: s.servers.map((row) => [row.server, row.host, row.requests_per_s, row.max_queue, row.max_staleness, row.trainers, row.dense_bytes, row.peak_rss]),
      label: "Servers",
    });
  }

  function comparison(c) {
    c.curves.forEach((curve, i) => {
      const formats = { step: "ms" };
      const series = [["A", curve.a], ["B", curve.b]].map(([name, s]) => ({ name, x: s ? s.steps : [], y: s ? s.values : [] }));
      draw[`both-${i}`] = (e) => charts.lines(e, { series, unit: formats[curve.kind], xLabel: "step", label: curve.name, height: 190, legend: true });
    });
    for (const key of ["periods", "inside"]) {
      draw[`compare-${key}`] = (e) => charts.stacked(e, {
        rows: ["A", "B"], unit: "ms", label: "Time of a step", parts: c.phases[key].map((row) => ({ name: row.name, values: [row.a, row.b] })),
      });
    }
    const difference = (value, noise) => ({ value, text: value === null ? "–" : `${value > 0 ? "+" : value < 0 ? "−" : ""}${charts.format(Math.abs(value), "ms")}`,
      state: value > noise ? "bad" : value < -noise ? "good" : undefined });
    const total = c.phases.periods.reduce((sum, row) => sum + (row.a || 0), 0);
    const times = (first, rows) => ({
      columns: [first, unit("A", "ms"), unit("B", "ms"), unit("B − A", "ms")], limit: 15,
      rows: rows.map((row) => [row.name, row.a, row.b, difference(row.difference, 0.01 * total)]),
    });
    draw["compare-phases"] = (e) => charts.table(e, {
      ...times(text("phase"), [...c.phases.periods.map((row) => ({ ...row, name: `step to step: ${row.name}` })),
        ...c.phases.inside.map((row) => ({ ...row, name: `inside: ${row.name}` }))].filter((row) => row.a !== null || row.b !== null)), label: "Time by phase",
    });
    draw["compare-nodes"] = (e) => charts.table(e, { ...times(code("source"), c.nodes), label: "Time by source line" });
    draw["compare-ops"] = (e) => charts.table(e, { ...times(code("op and role"), c.ops), label: "Time by op" });
    draw["compare-memory"] = (e) => charts.table(e, {
      columns: [text("memory"), unit("A", "bytes"), unit("B", "bytes"), unit("B − A", "bytes")], label: "Memory",
      rows: c.memory.map((row) => [row.name, row.a, row.b, { value: row.difference,
        text: `${row.difference > 0 ? "+" : row.difference < 0 ? "−" : ""}${charts.format(Math.abs(row.difference), "bytes")}` }]),
    });
  }

  if (data.report) report(data.report);
  if (data.comparison) comparison(data.comparison);
  for (const element of document.querySelectorAll("[data-chart]")) draw[element.dataset.chart](element);
  document.body.dataset.drawn = "true";
})();
