// The page of a running job: one event stream brings the state, then changes; panels draw what has changed.
//
//   EventSource ──▶ apply(change) ──▶ state (bounded) ──▶ draw(): the panels whose data changed, once per frame
//
// Profiles and log lines are fetched when their panel shows them. SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const MAX_EVENTS = 300;
  const MAX_LOG_LINES = 2000;
  const PROFILE_EVERY_MS = 5000;
  const PHASES = ["forward", "backward", "optimize", "communicate", "exposed", "other"];
  const $ = (id) => document.getElementById(id);
  const { node, format } = charts;

  let state = emptyState();
  let csrf = "";
  const dirty = new Set();
  const views = {};

  function emptyState() {
    return {
      job: {}, overview: {}, ranks: {}, samples: {}, servers: {}, profiles: {}, logs: {}, timeline: {},
      series: {}, heat: { width: 1, ranks: [], columns: new Map() }, events: [], numEvents: 0,
    };
  }

  // --- the stream -------------------------------------------------------------------------------------------

  let source = null;
  let lastId = "";
  let lastData = null;
  let retry = 0;
  let retryMs = 1000;

  function connect() {
    if (source || document.hidden) return;
    clearTimeout(retry);
    showConnection(lastData ? "reconnecting" : "connecting", "");
    const stream = new EventSource(`/events?last=${encodeURIComponent(lastId)}`);
    source = stream;
    stream.onmessage = (event) => {
      lastId = event.lastEventId;
      lastData = new Date();
      retryMs = 1000;
      apply(JSON.parse(event.data));
      showConnection("live", "good");
    };
    stream.onopen = () => showConnection("live", "good");
    stream.onerror = () => {
      disconnect();
      showConnection(lastData ? `disconnected, last data of ${lastData.toLocaleTimeString("en-GB")}` : "no connection", "bad");
      retry = setTimeout(connect, retryMs);
      retryMs = Math.min(10000, retryMs * 1.5);
    };
  }

  function disconnect() {
    if (source) source.close();
    source = null;
  }

  // A browser holds six streams per host: a hidden page gives its own back.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      disconnect();
      clearTimeout(retry);
      showConnection("paused", "");
    } else connect();
  });
  window.addEventListener("pagehide", disconnect);

  function showConnection(text, level) {
    const badge = $("connection");
    if (badge.textContent !== text) badge.textContent = text;
    badge.className = `badge quiet ${level}`;
  }

  // --- changes ----------------------------------------------------------------------------------------------

  function apply(change) {
    if (change.reset) {
      state = emptyState();
      csrf = change.csrf || csrf;
      for (const name of Object.keys(panels)) touch(name);
    }
    for (const section of ["job", "overview", "ranks", "samples", "servers", "profiles", "logs", "timeline"]) {
      if (!change[section]) continue;
      Object.assign(state[section], change[section]);
      touch(section);
    }
    for (const [name, points] of Object.entries(change.series || {})) applySeries(name, points);
    if (change.heat) applyHeat(change.heat);
    if (change.events) applyEvents(change.events);
  }

  function applySeries(name, { from, x, y, reduce }) {
    const series = state.series[name] || (state.series[name] = { x: [], y: [], reduce });
    let keep = series.x.length;
    while (keep > 0 && series.x[keep - 1] >= from) keep -= 1;
    series.x.length = keep;
    series.y.length = keep;
    for (let i = 0; i < x.length; i += 1) {
      series.x.push(x[i]);
      series.y.push(y[i]);
    }
    touch("series");
  }

  function applyHeat({ reset, width, ranks, columns }) {
    const heat = state.heat;
    if (reset) heat.columns.clear();
    heat.width = width;
    heat.ranks = ranks;
    for (const [start, values] of Object.entries(columns)) heat.columns.set(Number(start), values);
    touch("heat");
  }

  function applyEvents({ first, list }) {
    list.forEach((event, index) => {
      if (first + index < state.numEvents) return;
      state.events.push(event);
      state.numEvents = first + index + 1;
    });
    state.events.splice(0, Math.max(0, state.events.length - MAX_EVENTS));
    touch("events");
  }

  // --- drawing ----------------------------------------------------------------------------------------------

  let frame = 0;

  function touch(section) {
    dirty.add(section);
    if (!frame) frame = requestAnimationFrame(draw);
  }

  function draw() {
    frame = 0;
    const sections = new Set(dirty);
    dirty.clear();
    const done = new Set();
    for (const section of sections) {
      for (const panel of panels[section] || []) {
        if (done.has(panel)) continue;
        done.add(panel);
        panel();
      }
    }
  }

  function chart(id, kind, options) {
    if (views[id]) views[id].update(options);
    else views[id] = charts[kind]($(id), options);
  }

  const processes = () => state.job.processes || [];
  const rankNumbers = () => Object.keys(state.ranks).map(Number).sort((a, b) => a - b);
  const isServer = (process) => process.role === "server";
  const STATES = { running: "good", completed: "good", done: "good", failed: "bad", gone: "bad", terminated: "warn", preempted: "warn" };

  function drawJob() {
    const job = state.job;
    const script = (job.script || "").split("/").pop() || "job";
    $("script").textContent = script;
    $("command").textContent = Array.isArray(job.command) ? job.command.join(" ") : job.command || job.directory || "";
    $("command").title = $("command").textContent;
    document.title = `${job.state === "running" ? "" : `${job.state || "…"}: `}${script} · Argosy`;
    const text = { gone: "launcher is gone", waiting: "waiting for a job" }[job.state] || job.state || "…";
    $("state").textContent = text + (job.restart ? `, restart ${job.restart}` : "") + (job.is_reading ? ", reading its records …" : "");
    $("state").className = `badge ${STATES[job.state] || ""}`;
    $("record").disabled = job.state !== "running" || !rankNumbers().length;
    const versions = Object.entries(job.versions || {}).map(([name, version]) => `${name} ${version}`).join(", ");
    const strategy = job.strategy && job.strategy.text ? `strategy: ${job.strategy.text}` : "";
    const malformed = job.num_malformed ? `${job.num_malformed} malformed records left out` : "";
    const thin = job.thin > 1 ? `of the earlier steps one record in ${job.thin} is shown` : "";
    $("about").textContent = [job.directory, versions, strategy, malformed, thin].filter(Boolean).join(" · ");
    drawFailure(job);
  }

  function drawFailure(job) {
    const failure = job.failure;
    const gone = processes().filter((p) => p.state === "gone" || p.state === "failed");
    const isShown = Boolean(failure) || (gone.length > 0 && job.state !== "completed");
    $("failure").hidden = !isShown;
    if (!isShown) return;
    const first = failure || {};
    const names = gone.slice(0, 4).map((p) => `${isServer(p) ? "server" : "rank"} ${p.rank}`).join(", ");
    const title = first.process ? `${describe(first.process)} failed${first.type ? `: ${first.type}` : ""}` : names ? `${names} ended unexpectedly` : "The job failed";
    $("failure-title").textContent = title;
    $("failure-what").textContent = [first.what, first.where && `at ${describe(first.where)}`].filter(Boolean).map(String).join("\n");
    $("failure-hint").textContent = [first.hint, first.waiting && `The others: ${describe(first.waiting)}`].filter(Boolean).join("\n");
    $("failure-text").textContent = first.text || "";
    $("failure-text").parentElement.hidden = !first.text;
  }

  function describe(value) {
    if (value === null || value === undefined) return "";
    if (Array.isArray(value)) return value.map(describe).join("; ");
    if (typeof value !== "object") return String(value);
    if (value.process && value.what) return `${describe(value.process)}: ${describe(value.what)}`;
    if (value.role !== undefined && value.rank !== undefined) return `${value.role === "server" ? "server" : "rank"} ${value.rank}`;
    return Object.entries(value).map(([key, entry]) => `${key}: ${describe(entry)}`).join(", ");
  }

  const SIGNALS = { 1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM" };
  const exitName = (exit) => (typeof exit === "number" && exit < 0 ? SIGNALS[-exit] || `signal ${-exit}` : typeof exit === "number" ? `exit code ${exit}` : describe(exit));

  let tiles = null;

  function drawTiles() {
    const { overview: o, job } = state;
    const all = processes();
    const up = all.filter((p) => p.state === "running").length;
    const workers = rankNumbers();
    const p = o.progress || {};
    const epoch = p.epoch !== null && p.epoch !== undefined ? `epoch ${p.epoch}${p.epochs ? ` of ${p.epochs}` : ""}` : "";
    const batch = p.batches ? `, batch ${p.batch} of ${p.batches}` : "";
    const servers = Object.keys(state.servers).length;
    const content = [
      ["Processes up", all.length ? `${up} of ${all.length}` : String(workers.length + servers), `${workers.length} ranks${servers ? `, ${servers} servers` : ""}`],
      ["Step", format(o.step, "integer"), epoch + batch],
      ["Step time", format(o.step_ms, "ms"), "median of the ranks"],
      ["Examples/s", format(o.examples_per_s), "all ranks"],
      ["Exposed", o.exposed === null || o.exposed === undefined ? "–" : format(100 * o.exposed, "percent"), "blocked on others"],
      ["Sent", format(o.sent_per_s, "bytes/s"), "all ranks"],
      ["Slowest rank", o.slowest === null || o.slowest === undefined ? "–" : String(o.slowest), slowestNote(o.slowest)],
      ["Running for", elapsed(job, o), o.remaining_s ? `${format(o.remaining_s, "s")} left` : ""],
    ];
    if (!tiles) {
      tiles = content.map(([name]) => {
        const [value, note] = [node("dd"), node("dd", { class: "note" })];
        $("tiles").append(node("div", {}, node("dt", {}, name), value, note));
        return [value, note];
      });
    }
    content.forEach(([, value, note], index) => {
      if (tiles[index][0].textContent !== value) tiles[index][0].textContent = value;
      if (tiles[index][1].textContent !== note) tiles[index][1].textContent = note;
    });
  }

  function slowestNote(rank) {
    const row = state.ranks[rank];
    return row && row.busy_ms !== null ? `${format(ownMs(row), "ms")} of its own` : "";
  }

  const ownMs = (row) => (row.busy_ms === null || row.busy_ms === undefined ? null : row.busy_ms + (row.outside_ms || 0));

  function elapsed(job, overview) {
    if (!job.started) return "–";
    return format(Math.max(0, (job.ended || overview.time || job.started) - job.started), "s");
  }

  // Small multiples: values differ in scale, so each has its own chart.
  const valueCharts = new Map();

  function drawSeries() {
    const wanted = $("values-filter").value.trim().toLowerCase();
    const logY = $("log-scale").checked;
    const names = Object.keys(state.series).filter((name) => state.series[name].x.length);
    names.sort((a, b) => (a === "examples/s") - (b === "examples/s")); // the job's own measure after the user's values
    const shown = names.filter((name) => name.toLowerCase().includes(wanted));
    for (const [name, view] of valueCharts) {
      if (shown.includes(name)) continue;
      view.chart.remove();
      view.box.remove();
      valueCharts.delete(name);
    }
    for (const name of shown) {
      const series = state.series[name];
      const options = { series: [{ name, x: series.x, y: series.y }], xLabel: "step", logY, height: 170, label: name };
      let view = valueCharts.get(name);
      if (!view) {
        const [last, area] = [node("span"), node("div")];
        const how = series.reduce && name !== "examples/s" ? ` (${series.reduce} of the ranks)` : "";
        const box = node("div", {}, node("h3", {}, node("span", { title: name + how }, name), last), area);
        $("values-charts").append(box);
        view = { box, last, chart: charts.lines(area, options) };
        valueCharts.set(name, view);
      } else view.chart.update(options);
      view.last.textContent = format(series.y[series.y.length - 1]);
    }
    const hidden = state.job.num_hidden_series;
    $("values-note").textContent = hidden ? `${hidden} more values are recorded and not shown.`
      : names.some((name) => name !== "examples/s") ? "" : "No watched values yet: argosy.metrics.log(step=…, loss=…) records some.";
  }

  function drawHeat() {
    const { heat } = state;
    const key = $("steps-key").value;
    const starts = [...heat.columns.keys()].sort((a, b) => a - b);
    chart("steps-chart", "heatmap", {
      rows: heat.ranks.map(String), columns: starts, unit: "ms", rowLabel: "rank", columnLabel: "step", label: "Step time by rank",
      values: heat.ranks.map((_, row) => starts.map((start) => heat.columns.get(start)[key][row])),
    });
  }

  function drawPhases() {
    const ranks = rankNumbers();
    const sampled = ranks.filter((rank) => state.samples[rank]);
    if ($("phases-from").value === "samples" && sampled.length) {
      chart("phases-chart", "stacked", {
        rows: sampled.map(String), unit: "ms", rowLabel: "rank", label: "Time of a step by rank",
        parts: PHASES.map((name) => ({ name, values: sampled.map((rank) => state.samples[rank][name] || 0) })),
      });
      return;
    }
    const of = (key) => ranks.map((rank) => state.ranks[rank][key] || 0);
    const input = of("input_ms");
    chart("phases-chart", "stacked", {
      rows: ranks.map(String), unit: "ms", rowLabel: "rank", label: "Time from step to step by rank",
      parts: [
        { name: "computation", values: of("busy_ms") },
        { name: "input wait", values: input },
        { name: "script", values: of("outside_ms").map((ms, index) => Math.max(0, ms - input[index])) },
        { name: "blocked on others", values: of("exposed_ms") },
      ],
    });
  }

  function drawRanks() {
    const known = processes().map((p) => [isServer(p) ? "server" : "rank", p.rank]);
    const missing = rankNumbers().filter((rank) => !known.some(([role, number]) => role === "rank" && number === rank));
    const missingServers = Object.keys(state.servers).map(Number).filter((n) => !known.some(([role, number]) => role === "server" && number === n));
    const rows = [...known, ...missing.map((rank) => ["rank", rank]), ...missingServers.map((n) => ["server", n])].map(processRow);
    chart("ranks-table", "table", {
      label: "Processes", limit: 64, rows,
      columns: [
        { title: "Process" }, { title: "State" }, { title: "Host" }, { title: "PID", kind: "text" }, { title: "Step", kind: "integer" },
        { title: "Step time", kind: "ms" }, { title: "Own time", kind: "ms", help: "computation, script and input, without waiting for others" },
        { title: "Exposed", kind: "percent" }, { title: "Input wait", kind: "ms" }, { title: "Examples/s", kind: "number" }, { title: "Sent", kind: "bytes/s" },
        { title: "CPU", kind: "number", help: "cores in use" }, { title: "Memory", kind: "bytes" }, { title: "Peak", kind: "bytes" },
      ],
    });
  }

  function processRow([role, number]) {
    const process = processes().find((p) => p.rank === number && isServer(p) === (role === "server")) || {};
    const server = role === "server" ? state.servers[number] || {} : null;
    const row = (server ? {} : state.ranks[number]) || {};
    const record = (server && server.record) || {};
    const failed = row.outcome && row.outcome !== "done";
    const text = process.state || (row.outcome === "done" ? "done" : failed ? "failed" : "running");
    const exit = process.exit !== null && process.exit !== undefined && process.exit !== 0 ? ` (${exitName(process.exit)})` : "";
    return [
      { value: `${role} ${String(number).padStart(5, "0")}`, text: `${role} ${number}` },
      { value: text, text: text + exit, state: STATES[text], title: failed ? row.outcome : undefined },
      process.host || row.host || (server && server.host) || null, String(process.pid || row.pid || (server && server.pid) || "–"),
      row.step, row.period_ms, ownMs(row), row.period_ms ? (100 * (row.exposed_ms || 0)) / row.period_ms : null, row.input_ms, row.examples_per_s,
      row.sent_per_s, row.cpu, row.rss || record.rss, row.peak_rss,
    ];
  }

  // --- the profile of a rank --------------------------------------------------------------------------------

  let profile = null;
  let profileKey = "";
  let profileTimer = 0;
  let profileTime = 0;

  function drawProfileChoice() {
    const select = $("profile-rank");
    const ranks = Object.keys(state.profiles).map(Number).sort((a, b) => a - b);
    if (ranks.join() !== [...select.options].map((o) => o.value).join()) {
      const chosen = select.value;
      select.replaceChildren(...ranks.map((rank) => node("option", { value: rank }, `rank ${rank}`)));
      if (ranks.includes(Number(chosen)) && chosen !== "") select.value = chosen;
    }
    fetchProfile(false);
  }

  async function fetchProfile(atOnce) {
    const rank = $("profile-rank").value;
    if (rank === "") {
      profile = null;
      drawProfile();
      return;
    }
    const key = `${state.job.started}/${rank}/${state.profiles[rank]}`;
    if (key === profileKey) return;
    const wait = profileTime + PROFILE_EVERY_MS - performance.now();
    if (!atOnce && wait > 0) {
      clearTimeout(profileTimer);
      profileTimer = setTimeout(() => fetchProfile(true), wait);
      return;
    }
    profileKey = key;
    profileTime = performance.now();
    const loaded = await get(`/profile?rank=${rank}`);
    if (loaded && $("profile-rank").value === rank) {
      profile = loaded;
      drawProfile();
    }
  }

  function drawProfile() {
    $("collectives").hidden = state.job.mode === "ps";
    const collectives = (profile && profile.collectives) || [];
    $("profile-about").textContent = profile ? `sampled at step ${format(profile.step, "integer")}, medians of the last samples` : "No sampled step yet.";
    const groups = new Map();
    for (const c of collectives) {
      const sum = groups.get(c.group) || { count: 0, bytes: 0, ms: 0, wait: 0 };
      groups.set(c.group, { count: sum.count + 1, bytes: sum.bytes + (c.bytes || 0), ms: sum.ms + (c.ms || 0), wait: sum.wait + (c.wait_ms || 0) });
    }
    if (!collectives.length && state.job.mode === "ps") drawServerLinks();
    else chart("links-table", "table", {
      label: "Links", empty: "No collective in the sampled step.",
      columns: [{ title: "Link" }, { title: "Collectives", kind: "integer" }, { title: "Bytes", kind: "bytes" }, { title: "Time", kind: "ms" }, { title: "Bandwidth", kind: "bytes/s", bar: true }, { title: "Waited", kind: "ms" }],
      rows: [...groups].map(([name, sum]) => [name, sum.count, sum.bytes, sum.ms, rate(sum.bytes, sum.ms), sum.wait]),
    });
    chart("buckets-table", "table", {
      label: "Collectives", empty: "None.", limit: 100,
      columns: [{ title: "Collective", kind: "code" }, { title: "Link" }, { title: "Bytes", kind: "bytes" }, { title: "Time", kind: "ms" }, { title: "Bandwidth", kind: "bytes/s", bar: true }, { title: "Queued", kind: "ms" }, { title: "Waited", kind: "ms" }],
      rows: collectives.map((c) => [c.name, c.group, c.bytes, c.ms, rate(c.bytes, c.ms), c.queue_ms, c.wait_ms]),
    });
    drawMemory((profile && profile.memory) || {});
    chart("program-tree", "tree", { label: "Program by role and layer", unit: "ms", roots: programTree((profile && profile.nodes) || []), empty: "No sampled step yet." });
  }

  // With parameter servers: what each worker sends, and what each server receives and sends.
  function drawServerLinks() {
    const servers = Object.entries(state.servers).map(([n, server]) => {
      const record = server.record || {};
      const bytes = Object.values(record.requests || {}).reduce((sum, r) => sum + (r.bytes || 0), 0);
      return [`server ${n}`, "requests", bytes / (record.interval_s || 1)];
    });
    chart("links-table", "table", {
      label: "Links", empty: "No requests yet.",
      columns: [{ title: "Link" }, { title: "What" }, { title: "Bandwidth in use", kind: "bytes/s", bar: true }],
      rows: [...rankNumbers().map((rank) => [`rank ${rank} → servers`, "sent", state.ranks[rank].sent_per_s]), ...servers],
    });
  }

  const rate = (bytes, ms) => (bytes && ms ? (1000 * bytes) / ms : null);

  function drawMemory(memory) {
    $("memory-peak").textContent = memory.peak_bytes ? `${format(memory.peak_bytes, "bytes")}${memory.source ? ` at ${memory.source}` : memory.node ? ` at ${memory.node}` : ""}` : "";
    const parts = breakdown(memory.breakdown);
    chart("memory-breakdown", "stacked", { label: "Memory at its peak by kind", unit: "bytes", rows: parts.length ? ["peak"] : [], parts: parts.map(([name, bytes]) => ({ name, values: [bytes] })) });
    const layers = new Map();
    for (const value of memory.largest || []) {
      const name = value.source || "–";
      const layer = layers.get(name) || { bytes: 0, names: [], kinds: new Set() };
      layer.bytes += value.nbytes || 0;
      layer.names.push(value.name);
      layer.kinds.add(value.what || value.kind || "");
      layers.set(name, layer);
    }
    chart("memory-layers", "table", {
      label: "Memory by layer", limit: 50,
      columns: [{ title: "Layer", kind: "code" }, { title: "Bytes", kind: "bytes", bar: true }, { title: "What" }, { title: "Largest values", kind: "code" }],
      rows: [...layers].sort((a, b) => b[1].bytes - a[1].bytes).map(([name, layer]) => [name, layer.bytes, [...layer.kinds].join(", "), layer.names.slice(0, 3).join(", ") + (layer.names.length > 3 ? ` and ${layer.names.length - 3} more` : "")]),
    });
  }

  // {kind: bytes}, or a list of [kind, bytes] or of objects.
  function breakdown(value) {
    const entries = Array.isArray(value) ? value.map((entry) => (Array.isArray(entry) ? entry : [entry.kind || entry.name, entry.bytes || entry.nbytes])) : Object.entries(value || {});
    return entries.filter(([, bytes]) => typeof bytes === "number" && bytes > 0).sort((a, b) => b[1] - a[1]);
  }

  function programTree(nodes) {
    const roles = new Map();
    for (const n of nodes) {
      const role = roles.get(n.role || "other") || new Map();
      roles.set(n.role || "other", role);
      const layer = n.source || "without a source line";
      role.set(layer, [...(role.get(layer) || []), n]);
    }
    const sum = (list) => list.reduce((total, entry) => total + (entry.value || 0), 0);
    return [...roles].map(([role, layers]) => {
      const children = [...layers].map(([layer, list]) => {
        const leaves = list.map((n) => ({ name: n.name, detail: n.op || n.kind || "", value: n.ms || 0 }));
        return { name: layer, detail: `${list.length} node${list.length === 1 ? "" : "s"}`, value: sum(leaves), children: leaves };
      });
      return { name: role, detail: `${children.length} layer${children.length === 1 ? "" : "s"}`, value: sum(children), children };
    });
  }

  // --- parameter servers ------------------------------------------------------------------------------------

  function drawServers() {
    const numbers = Object.keys(state.servers).map(Number).sort((a, b) => a - b);
    $("servers").hidden = !numbers.length;
    document.querySelector('nav a[href="#servers"]').hidden = !numbers.length;
    if (!numbers.length) return;
    const record = (n) => state.servers[n].record || {};
    const tables = new Map();
    for (const n of numbers) {
      const seconds = record(n).interval_s || 1;
      for (const t of record(n).tables || []) {
        const sum = tables.get(t.name) || { servers: 0, rows: 0, bytes: 0, pulled: 0, pushed: 0, spilled: 0 };
        sum.servers += 1;
        sum.rows += t.rows || 0;
        sum.bytes += t.bytes || 0;
        sum.pulled += (t.pulled_rows || 0) / seconds;
        sum.pushed += (t.pushed_rows || 0) / seconds;
        sum.spilled += (t.spilled_fraction || 0) * (t.rows || 0);
        tables.set(t.name, sum);
      }
    }
    const { prefetch } = state.overview;
    chart("tables-table", "table", {
      label: "Tables of the parameter servers", empty: "No sparse tables.",
      columns: [{ title: "Table", kind: "code" }, { title: "Servers", kind: "integer" }, { title: "Rows", kind: "integer" }, { title: "Bytes", kind: "bytes", bar: true }, { title: "Pulled rows/s", kind: "number" }, { title: "Pushed rows/s", kind: "number" }, { title: "Spilled", kind: "percent" }, { title: "Prefetch hits", kind: "percent" }],
      rows: [...tables].map(([name, t]) => [name, t.servers, t.rows, t.bytes, t.pulled, t.pushed, t.rows ? (100 * t.spilled) / t.rows : 0, prefetch === null || prefetch === undefined ? null : 100 * prefetch]),
    });
    chart("servers-table", "table", {
      label: "Parameter servers",
      columns: [{ title: "Server" }, { title: "Host" }, { title: "Trainers", kind: "integer" }, { title: "Queue", kind: "integer" }, { title: "Staleness, mean", kind: "number" }, { title: "Staleness, max", kind: "number" }, { title: "Dense variables", kind: "integer" }, { title: "Dense", kind: "bytes" }, { title: "Memory", kind: "bytes" }],
      rows: numbers.map((n) => {
        const r = record(n);
        const [staleness, dense] = [r.staleness || {}, r.dense || {}];
        return [`server ${n}`, state.servers[n].host, count(r.trainers), r.queue, staleness.mean, staleness.max, count(dense.variables), dense.bytes, r.rss];
      }),
    });
    chart("requests-table", "table", {
      label: "Requests to the parameter servers", empty: "No requests in the last second.",
      columns: [{ title: "Request", kind: "code" }, { title: "Server" }, { title: "Per second", kind: "number", bar: true }, { title: "p50", kind: "ms" }, { title: "p90", kind: "ms" }, { title: "p99", kind: "ms" }, { title: "Bytes", kind: "bytes/s" }],
      rows: numbers.flatMap((n) => Object.entries(record(n).requests || {}).map(([kind, r]) => {
        const seconds = record(n).interval_s || 1;
        return [kind, `server ${n}`, (r.count || 0) / seconds, r.p50_ms, r.p90_ms, r.p99_ms, (r.bytes || 0) / seconds];
      })),
    });
  }

  const count = (value) => (Array.isArray(value) ? value.length : value);

  // --- events -----------------------------------------------------------------------------------------------

  const EVENT_STATES = { straggler: "warn", failure: "bad", restart: "warn", straggler_recovered: "good" };

  function drawEvents() {
    chart("events-table", "table", {
      label: "Events", limit: 50, empty: "No stragglers, restarts or failures.",
      columns: [{ title: "Time", kind: "time" }, { title: "Kind" }, { title: "Process" }, { title: "What" }],
      rows: [...state.events].reverse().map((e) => [
        e.time, { value: e.kind, text: String(e.kind).replaceAll("_", " "), state: EVENT_STATES[e.kind] },
        e.rank === undefined || e.rank === null ? null : `${e.role === "server" ? "server" : "rank"} ${e.rank}`, e.text || e.cause || "",
      ]),
    });
  }

  // --- timelines --------------------------------------------------------------------------------------------

  async function recordTimeline() {
    if ($("record").disabled) return;
    $("record").disabled = true;
    const answer = await post("/timeline");
    if (answer) {
      state.timeline = answer;
      drawTimeline();
    }
    drawJob();
  }

  function drawTimeline() {
    const t = state.timeline;
    const box = $("timeline");
    box.hidden = !t.id;
    if (!t.id) return;
    const steps = `steps ${t.first_step} to ${t.last_step}`;
    const text = {
      waiting: `Timeline: ${steps} will be recorded; the job is at step ${format(state.overview.step, "integer")}.`,
      recording: `Timeline: recording ${steps}; ${t.done} of ${t.ranks} ranks have written theirs.`,
      ready: `Timeline of ${steps}, ${t.done} of ${t.ranks} ranks:`,
      lost: `The job ended before it recorded ${steps}.`,
    }[t.state] || t.state;
    box.replaceChildren(text);
    if (t.state !== "ready") return;
    box.append(node("a", { href: `/timeline/${t.id}/view`, target: "_blank", rel: "noopener" }, "Open"));
    box.append(node("a", { href: `/timeline/${t.id}/merged.json`, download: "" }, "Download for Perfetto"));
  }

  // --- logs -------------------------------------------------------------------------------------------------

  const log = { name: "", start: 0, end: 0, loading: false, searching: false, chosen: false };

  function drawLogChoice() {
    const names = state.logs.order || [];
    const select = $("log-name");
    const labels = names.map(logLabel);
    if (labels.join() !== [...select.options].map((o) => o.textContent).join()) {
      const chosen = select.value;
      select.replaceChildren(...names.map((name, index) => node("option", { value: name }, labels[index])));
      if (log.chosen && names.includes(chosen)) select.value = chosen;
    }
    if (select.value !== log.name) openLog(select.value);
    else if (!log.searching && (state.logs.sizes || {})[log.name] !== log.end) readLog();
  }

  function logLabel(name) {
    const match = /^(node\d+\.)?(worker|server)(log|error)\.(\d+)$/.exec(name);
    if (!match) return name;
    const file = `${match[1] || ""}${match[2]}log.${match[4]}`;
    const process = processes().find((p) => (p.log || "").split("/").pop() === file);
    const who = process ? `${match[2] === "server" ? "server" : "rank"} ${process.rank}` : file;
    return match[3] === "error" ? `exception of ${who}` : `${who}${process && ["failed", "gone"].includes(process.state) ? ` (${process.state})` : ""}`;
  }

  async function openLog(name) {
    log.name = name;
    log.searching = false;
    $("search-clear").hidden = true;
    if (!name) {
      $("log-lines").replaceChildren();
      $("log-note").textContent = "No logs yet.";
      return;
    }
    const answer = await get(`/log?name=${encodeURIComponent(name)}`);
    if (!answer || log.name !== name) return;
    log.start = answer.start;
    log.end = answer.end;
    $("log-lines").replaceChildren(...answer.lines.map(lineNode));
    showLogNote();
    follow();
  }

  async function readLog() {
    if (log.loading || !log.name) return;
    log.loading = true;
    const name = log.name;
    const answer = await get(`/log?name=${encodeURIComponent(name)}&after=${log.end}`);
    log.loading = false;
    if (!answer || log.name !== name || log.searching) return;
    const lines = $("log-lines");
    if (answer.start < log.start || answer.skipped || answer.end < log.end) {
      lines.replaceChildren();
      log.start = answer.start;
    }
    log.end = answer.end;
    lines.append(...answer.lines.map(lineNode));
    let removed = lines.childElementCount - MAX_LOG_LINES;
    if (removed > 0) log.start = null; // what "earlier" would be is not known any more
    for (; removed > 0; removed -= 1) lines.firstChild.remove();
    showLogNote();
    follow();
  }

  async function earlierLines() {
    const name = log.name;
    const answer = await get(`/log?name=${encodeURIComponent(name)}&before=${log.start}`);
    if (!answer || log.name !== name) return;
    $("follow").checked = false;
    log.start = answer.start;
    $("log-lines").prepend(...answer.lines.map(lineNode));
    showLogNote();
  }

  function showLogNote() {
    const size = (state.logs.sizes || {})[log.name];
    $("log-note").textContent = `${log.name}, ${format(size, "bytes")}`;
    $("log-earlier").hidden = !log.start || log.searching || $("log-lines").childElementCount >= MAX_LOG_LINES;
  }

  function follow() {
    if ($("follow").checked) $("log-lines").scrollTop = $("log-lines").scrollHeight;
  }

  const lineNode = ([text, level]) => node("div", { class: ["", "warn", "bad"][level] }, text || "\u00a0");

  async function search(errorsOnly) {
    const text = $("search-text").value;
    if (!text && !errorsOnly) {
      openLog(log.name);
      return;
    }
    const everywhere = errorsOnly || $("search-all").checked;
    const query = new URLSearchParams({ text: errorsOnly ? "" : text, name: everywhere ? "" : log.name, errors: errorsOnly ? "1" : "0" });
    log.searching = true;
    $("log-earlier").hidden = true;
    $("search-clear").hidden = false;
    $("log-note").textContent = "Searching…";
    const answer = await get(`/search?${query}`);
    if (!answer || !log.searching) return;
    $("log-lines").replaceChildren(...answer.matches.map((match) => matchNode(match, errorsOnly ? "" : text)));
    const where = everywhere ? "all logs" : log.name;
    const what = errorsOnly ? `${answer.count} errors` : `${answer.count} lines with “${text}”`;
    const shown = answer.count > answer.matches.length ? `; the first ${answer.matches.length}, errors first` : "";
    const rest = answer.unsearched_bytes ? `; the first ${format(answer.unsearched_bytes, "bytes")} were not searched` : "";
    $("log-note").textContent = `${what} in ${where}${shown}${rest}`;
    $("log-lines").scrollTop = 0;
  }

  function matchNode([name, number, text, level], wanted) {
    const line = node("div", { class: ["", "warn", "bad"][level] }, node("span", { class: "where" }, `${name}:${number}`));
    let rest = text;
    for (let at; wanted && (at = rest.toLowerCase().indexOf(wanted.toLowerCase())) >= 0;) {
      line.append(rest.slice(0, at), node("mark", {}, rest.slice(at, at + wanted.length)));
      rest = rest.slice(at + wanted.length);
    }
    line.append(rest);
    return line;
  }

  // --- requests ---------------------------------------------------------------------------------------------

  async function get(url) {
    try {
      const response = await fetch(url);
      return response.ok ? await response.json() : null;
    } catch (error) {
      return null; // the connection's badge says it
    }
  }

  async function post(url) {
    try {
      const response = await fetch(url, { method: "POST", headers: { "X-CSRF-Token": csrf } });
      const answer = response.headers.get("content-type").startsWith("application/json") ? await response.json() : { error: await response.text() };
      if (response.ok) return answer;
      notice(answer.error);
    } catch (error) {
      notice("The server does not answer.");
    }
    return null;
  }

  function notice(text) {
    $("timeline").hidden = false;
    $("timeline").replaceChildren(text);
  }

  // --- controls ---------------------------------------------------------------------------------------------

  const panels = {
    job: [drawJob, drawTiles, drawRanks, drawLogChoice],
    overview: [drawTiles, drawTimeline],
    ranks: [drawTiles, drawRanks, drawPhases, drawJob],
    samples: [drawPhases],
    servers: [drawServers, drawRanks, drawTiles, drawProfile],
    profiles: [drawProfileChoice],
    logs: [drawLogChoice],
    timeline: [drawTimeline],
    series: [drawSeries],
    heat: [drawHeat],
    events: [drawEvents],
  };

  let keysOn = true;
  try {
    keysOn = localStorage.getItem("dashboard-keys") !== "off";
  } catch (error) { /* no storage: the default */ }

  function goTo(id) {
    $(id).scrollIntoView();
    $(id).focus({ preventScroll: true });
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea") || $("shortcuts").open) return;
    if (event.key === "?") $("shortcuts").showModal();
    else if (!keysOn) return;
    else if (event.key === "/") {
      event.preventDefault();
      goTo("logs");
      $("search-text").focus();
    } else if (event.key === "e") {
      goTo("logs");
      search(true);
    } else if (event.key === "r") recordTimeline();
    else if (event.key === "t") charts.theme.toggle();
    else if (/^[0-9]$/.test(event.key)) {
      const links = [...document.querySelectorAll("nav a")];
      const link = links[(Number(event.key) + 9) % 10];
      if (link && !link.hidden) goTo(link.hash.slice(1));
    }
  }

  charts.theme.button($("theme"));
  $("record").addEventListener("click", recordTimeline);
  $("help").addEventListener("click", () => $("shortcuts").showModal());
  $("keys-on").checked = keysOn;
  $("keys-on").addEventListener("change", () => {
    keysOn = $("keys-on").checked;
    try {
      localStorage.setItem("dashboard-keys", keysOn ? "on" : "off");
    } catch (error) { /* lasts as long as the page */ }
  });
  $("log-scale").addEventListener("change", drawSeries);
  $("values-filter").addEventListener("input", drawSeries);
  $("steps-key").addEventListener("change", drawHeat);
  $("phases-from").addEventListener("change", drawPhases);
  $("profile-rank").addEventListener("change", () => fetchProfile(true));
  $("log-name").addEventListener("change", () => {
    log.chosen = true;
    openLog($("log-name").value);
  });
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search(false);
  });
  $("errors").addEventListener("click", () => search(true));
  $("search-clear").addEventListener("click", () => openLog(log.name));
  $("log-earlier").addEventListener("click", earlierLines);
  $("follow").addEventListener("change", follow);
  document.addEventListener("keydown", onKey);
  window.dashboard = { get state() { return state; }, connect, disconnect }; // for tests
  for (const section of Object.keys(panels)) touch(section);
  connect();
})();
