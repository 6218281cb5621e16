// The page of a timeline: one canvas with a track per rank and communicator, search, and tables.
// Events are columns of numbers; only those on the screen are drawn, and those of one pixel once.
// SPDX-License-Identifier: Apache-2.0
"use strict";
const timeline = (() => {
  const LABELS = 150; // width of the names of the tracks
  const AXIS = 24;
  const TRACK = 19;
  const HEAD = 24;
  const COLORS = {
    step: "--muted", forward: "--chart-1", backward: "--chart-2", optimize: "--chart-3", communicate: "--chart-4", wait: "--chart-5", collective: "--chart-7",
  };
  const NAMES = {
    step: "step", forward: "forward", backward: "backward", optimize: "optimize", communicate: "communicate (starts collectives)", wait: "blocked",
    collective: "collective",
  };
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  const canvas = element("tracks");
  const scroll = element("scroll");
  const tip = element("tip");
  const context = canvas.getContext("2d");
  charts.theme.button(element("theme"));

  // --- events -----------------------------------------------------------------------------------------------

  const ranks = data.ranks.map((rank) => ({
    ...rank,
    folded: data.ranks.length > 6,
    tracks: rank.tracks.map((track) => {
      const begin = new Float64Array(track.begin.length);
      const length = Float64Array.from(track.length, (v) => v * data.tick_us);
      let at = 0;
      let longest = 0;
      for (let i = 0; i < begin.length; i += 1) {
        at += track.begin[i];
        begin[i] = at * data.tick_us;
        longest = Math.max(longest, length[i]);
      }
      return { ...track, begin, length, longest, text: Uint32Array.from(track.text), info: Uint32Array.from(track.info) };
    }),
  }));
  let end = 1;
  let count = 0;
  for (const rank of ranks) {
    for (const track of rank.tracks) {
      count += track.begin.length;
      for (let i = Math.max(0, track.begin.length - 1000); i < track.begin.length; i += 1) end = Math.max(end, track.begin[i] + track.length[i]);
    }
  }
  const view = { from: 0, to: end }; // microseconds
  let rows = [];
  let found = null; // the events that match the search: a Set of infos and of texts
  let selected = null;
  let hovered = null;
  let measured = null;
  let width = 0;
  let height = 0;
  let colors = {};
  let frame = 0;

  function layout() {
    rows = [];
    let y = AXIS;
    for (const rank of ranks) {
      rows.push({ rank, y, height: HEAD, track: rank.folded ? rank.tracks[Math.min(1, rank.tracks.length - 1)] : null });
      y += HEAD;
      if (!rank.folded) {
        for (const track of rank.tracks) {
          rows.push({ rank, track, y, height: TRACK, isTrack: true });
          y += TRACK;
        }
        y += 6;
      }
    }
    scroll.style.setProperty("--tracks", `${y + 8}px`);
    element("space").style.height = `${y + 8}px`;
  }

  // The first event that may be visible from this time on.
  function first(track, time) {
    const from = time - track.longest;
    let low = 0;
    let high = track.begin.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (track.begin[middle] < from) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // --- drawing ----------------------------------------------------------------------------------------------

  const scale = () => (width - LABELS) / (view.to - view.from);
  const px = (time) => LABELS + (time - view.from) * scale();
  const timeAt = (x) => view.from + (x - LABELS) / scale();
  const isMatch = (track, i) => found === null || found.texts.has(track.text[i]) || found.infos.has(track.info[i]);

  function request() {
    if (!frame) frame = requestAnimationFrame(draw);
  }

  function resize() {
    width = scroll.clientWidth;
    height = scroll.clientHeight;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const style = getComputedStyle(document.documentElement);
    colors = Object.fromEntries(["--ink", "--muted", "--line", "--grid", "--panel", "--hover", "--focus", ...Object.values(COLORS)]
      .map((name) => [name, style.getPropertyValue(name).trim()]));
    colors.font = style.getPropertyValue("--font");
    request();
  }

  function draw() {
    frame = 0;
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `11px ${colors.font}`;
    context.textBaseline = "middle";
    const top = scroll.scrollTop;
    const ticks = axisTicks();
    context.fillStyle = colors["--grid"];
    for (const tick of ticks.at) context.fillRect(Math.round(px(tick)), AXIS, 1, height);
    for (const row of rows) {
      const y = row.y - top;
      if (y + row.height < AXIS || y > height) continue;
      if (row.track) drawTrack(row.track, y + 2, row.height - 3);
    }
    context.fillStyle = colors["--panel"];
    context.fillRect(0, 0, LABELS, height);
    for (const row of rows) {
      const y = row.y - top + row.height / 2;
      if (y < 0 || y > height + HEAD) continue;
      context.fillStyle = row.isTrack ? colors["--muted"] : colors["--ink"];
      context.font = `${row.isTrack ? "" : "600 "}11px ${colors.font}`;
      const label = row.isTrack ? row.track.name : `${row.rank.folded ? "▸" : "▾"} rank ${row.rank.rank}  ${row.rank.host}`;
      context.fillText(fit(label, LABELS - (row.isTrack ? 30 : 14)), row.isTrack ? 22 : 8, y);
    }
    drawAxis(ticks);
    context.fillStyle = colors["--line"];
    context.fillRect(LABELS - 1, 0, 1, height);
    if (measured) drawMeasure();
  }

  function fit(text, pixels) {
    const most = Math.floor(pixels / 6.1);
    return text.length <= most ? text : most > 2 ? `${text.slice(0, most - 1)}…` : "";
  }

  function drawTrack(track, y, tall) {
    const { from, to } = view;
    const k = scale();
    let last = -1;
    let lastMatches = false;
    for (let i = first(track, from); i < track.begin.length && track.begin[i] < to; i += 1) {
      const begin = track.begin[i];
      const stop = begin + track.length[i];
      if (stop < from) continue;
      const matches = isMatch(track, i);
      const x0 = Math.max(LABELS, LABELS + (begin - from) * k);
      const x1 = Math.min(width, LABELS + (stop - from) * k);
      const pixel = Math.floor(x1);
      if (pixel === last && (lastMatches || !matches)) continue; // several events in one pixel
      last = pixel;
      lastMatches = matches;
      const wide = Math.max(x1 - x0, 0.7);
      context.globalAlpha = matches ? 1 : 0.15;
      context.fillStyle = colors[COLORS[data.infos[track.info[i]].cat]] || colors["--muted"];
      context.fillRect(x0, y, wide > 3 ? wide - 0.6 : wide, tall);
      if (wide > 26) {
        context.fillStyle = colors["--panel"];
        context.fillText(fit(data.strings[track.text[i]], wide - 6), x0 + 4, y + tall / 2 + 0.5);
      }
      if (selected && selected.track === track && selected.i === i) {
        context.globalAlpha = 1;
        context.lineWidth = 2;
        context.strokeStyle = colors["--ink"];
        context.strokeRect(x0, y, Math.max(wide, 3), tall);
      }
    }
    context.globalAlpha = 1;
  }

  function axisTicks() {
    const rough = (view.to - view.from) / Math.max(2, (width - LABELS) / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const at = [];
    for (let i = Math.ceil(view.from / step); i * step <= view.to; i += 1) at.push(i * step);
    return { at, step };
  }

  function drawAxis({ at, step }) {
    context.fillStyle = colors["--panel"];
    context.fillRect(0, 0, width, AXIS);
    context.fillStyle = colors["--muted"];
    context.font = `11px ${colors.font}`;
    const digits = Math.max(0, Math.ceil(-Math.log10(step / 1000) - 1e-9));
    for (const tick of at) if (px(tick) > LABELS - 1) context.fillText(`${(tick / 1000).toFixed(digits)} ms`, px(tick) + 4, AXIS / 2);
    context.fillStyle = colors["--line"];
    context.fillRect(0, AXIS - 1, width, 1);
  }

  function drawMeasure() {
    const [a, b] = [Math.min(...measured), Math.max(...measured)];
    context.globalAlpha = 0.18;
    context.fillStyle = colors["--focus"];
    context.fillRect(px(a), AXIS, px(b) - px(a), height);
    context.globalAlpha = 1;
    context.fillText(microseconds(b - a), Math.max(LABELS, px(a)) + 4, AXIS + 10);
  }

  const microseconds = (us) => charts.format(us / 1000, "ms");

  // --- what is under the pointer ----------------------------------------------------------------------------

  function eventAt(x, y) {
    if (x < LABELS || y < AXIS) return null;
    const at = y + scroll.scrollTop;
    const row = rows.find((r) => at >= r.y && at < r.y + r.height);
    if (!row || !row.track) return null;
    const { track } = row;
    const slack = 2 / scale();
    const time = timeAt(x);
    let best = null;
    for (let i = first(track, time - slack); i < track.begin.length && track.begin[i] <= time + slack; i += 1) {
      const away = Math.max(track.begin[i] - time, time - track.begin[i] - track.length[i], 0);
      if (away <= slack && (best === null || away <= best.away)) best = { track, i, rank: row.rank, away };
    }
    return best;
  }

  // Names and values of an event, for the tooltip and the line below the tracks.
  function described({ track, i, rank }) {
    const info = data.infos[track.info[i]];
    const more = track.more && track.more[i];
    const fields = [["duration", microseconds(track.length[i])], ["at", `${(track.begin[i] / 1000).toFixed(3)} ms`], ["rank", String(rank.rank)], ["what", NAMES[info.cat] || info.cat]];
    for (const [key, label] of [["op", "op"], ["type", "type"], ["source", "source"], ["group", "group"], ["program", "program"]]) {
      if (info[key] !== undefined) fields.push([label, String(info[key])]);
    }
    if (info.bytes !== undefined) {
      fields.push(["size", charts.format(info.bytes, "bytes")]);
      if (track.length[i] > 0) fields.push(["rate", charts.format((info.bytes / track.length[i]) * 1e6, "bytes/s")]);
    }
    if (more) fields.push(["number", String(more[0])], ["queued", microseconds(more[1])], ["waited for", microseconds(more[2])]);
    return { name: data.strings[track.text[i]], fields };
  }

  function showTip(event, x, y) {
    hovered = event;
    tip.hidden = !event;
    if (!event) return;
    const { name, fields } = described(event);
    tip.replaceChildren(charts.node("b", {}, name), ...fields.map(([key, value]) => charts.node("div", {}, `${key}: ${value}`)));
    tip.style.left = `${Math.max(0, Math.min(x + 14, width - tip.offsetWidth - 4))}px`;
    const below = y + 18 + tip.offsetHeight < height;
    tip.style.top = `${scroll.scrollTop + (below ? y + 18 : Math.max(0, y - 10 - tip.offsetHeight))}px`;
  }

  function select(event) {
    selected = event;
    const box = element("selected");
    if (!event) box.replaceChildren();
    else {
      const { name, fields } = described(event);
      const parts = fields.flatMap(([key, value]) => [" ", charts.node("span", {}, charts.node("i", {}, `${key} `), value)]);
      box.replaceChildren(charts.node("span", {}, charts.node("b", {}, name)), ...parts);
    }
    request();
  }

  // --- moving -----------------------------------------------------------------------------------------------

  function show(from, to) {
    const span = Math.max(0.5, Math.min(to - from, end * 1.02));
    const middle = (from + to) / 2;
    view.from = Math.max(-0.01 * end, Math.min(middle - span / 2, end * 1.01 - span));
    view.to = view.from + span;
    request();
  }

  function zoom(factor, at = (view.from + view.to) / 2) {
    const span = (view.to - view.from) * factor;
    const share = (at - view.from) / (view.to - view.from);
    show(at - share * span, at + (1 - share) * span);
  }

  const pan = (share) => {
    const by = share * (view.to - view.from);
    show(view.from + by, view.to + by);
  };

  function zoomTo(event) {
    const begin = event.track.begin[event.i];
    const length = Math.max(event.track.length[event.i], 1);
    show(begin - length, begin + 2 * length);
    reveal(event);
  }

  function reveal(event) {
    if (event.rank.folded) fold(event.rank, false);
    const row = rows.find((r) => r.isTrack && r.track === event.track);
    if (row && (row.y < scroll.scrollTop + AXIS || row.y + TRACK > scroll.scrollTop + height)) scroll.scrollTop = row.y - height / 2;
  }

  function fold(rank, folded) {
    rank.folded = folded;
    layout();
    resize();
    showFold();
  }

  function showFold() {
    element("fold").textContent = ranks.every((r) => r.folded) ? "Unfold ranks" : "Fold ranks";
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [x] = place(event);
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(((event.deltaX || event.deltaY) / width) * 1.5);
    else zoom(1.0018 ** event.deltaY, timeAt(Math.max(x, LABELS)));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    canvas.setPointerCapture(event.pointerId);
    drag = { x, y, from: view.from, to: view.to, top: scroll.scrollTop, moved: false, measures: event.shiftKey };
    if (event.shiftKey) measured = [timeAt(x), timeAt(x)];
    else measured = null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!drag) {
      showTip(eventAt(x, y), x, y);
      return;
    }
    if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    showTip(null);
    if (drag.measures) measured = [measured[0], timeAt(x)];
    else {
      const by = (drag.x - x) / ((width - LABELS) / (drag.to - drag.from));
      show(drag.from + by, drag.to + by);
      scroll.scrollTop = drag.top + drag.y - y;
    }
    request();
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = place(event);
    if (drag && !drag.moved) {
      const at = y + scroll.scrollTop;
      const head = rows.find((r) => !r.isTrack && at >= r.y && at < r.y + r.height);
      if (head && x < LABELS) fold(head.rank, !head.rank.folded);
      else select(eventAt(x, y));
    }
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => showTip(null));
  canvas.addEventListener("dblclick", (event) => {
    const target = eventAt(...place(event));
    if (target) zoomTo(target);
  });

  // The previous or next event of the selected track; without a selection the first visible event.
  function step(by) {
    if (!selected) {
      const row = rows.find((r) => r.track && r.isTrack && r.track.name === "compute") || rows.find((r) => r.track);
      if (row) select({ track: row.track, i: Math.min(first(row.track, view.from), row.track.begin.length - 1), rank: row.rank });
    } else select({ ...selected, i: Math.max(0, Math.min(selected.i + by, selected.track.begin.length - 1)) });
    if (!selected) return;
    const begin = selected.track.begin[selected.i];
    if (begin < view.from || begin > view.to) {
      const half = (view.to - view.from) / 2;
      show(begin - half, begin + half);
    }
    reveal(selected);
  }

  const KEYS = {
    w: () => zoom(0.7), "+": () => zoom(0.7), "=": () => zoom(0.7), s: () => zoom(1 / 0.7), "-": () => zoom(1 / 0.7),
    a: () => pan(-0.15), ArrowLeft: () => pan(-0.15), d: () => pan(0.15), ArrowRight: () => pan(0.15),
    ArrowUp: () => { scroll.scrollTop -= 60; }, ArrowDown: () => { scroll.scrollTop += 60; },
    0: () => show(0, end), Home: () => show(0, end), f: () => selected && zoomTo(selected), ",": () => step(-1), ".": () => step(1),
    n: () => nextMatch(1), N: () => nextMatch(-1), "/": () => element("search").focus(),
    Escape: () => {
      select(null);
      measured = null;
      request();
    },
  };
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || target === element("search")) return;
    if (target !== canvas && target !== document.body && event.key !== "/") return;
    const action = KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });

  // --- search -----------------------------------------------------------------------------------------------

  let matches = []; // {track, i, rank}, by time
  function search(text) {
    const wanted = text.trim().toLowerCase();
    matches = [];
    if (!wanted) {
      found = null;
      element("matches").textContent = "";
      request();
      return;
    }
    const has = (value) => typeof value === "string" && value.toLowerCase().includes(wanted);
    found = { texts: new Set(), infos: new Set() };
    data.strings.forEach((s, i) => has(s) && found.texts.add(i));
    data.infos.forEach((info, i) => (has(info.op) || has(info.source)) && found.infos.add(i));
    let total = 0;
    for (const rank of ranks) {
      for (const track of rank.tracks) {
        for (let i = 0; i < track.begin.length; i += 1) {
          if (!isMatch(track, i)) continue;
          matches.push({ track, i, rank });
          total += track.length[i];
        }
      }
    }
    matches.sort((a, b) => a.track.begin[a.i] - b.track.begin[b.i]);
    element("matches").textContent = matches.length ? `${matches.length.toLocaleString("en-US")}, ${microseconds(total)}` : "no match";
    request();
  }

  function nextMatch(by) {
    if (!matches.length) return;
    const at = selected ? matches.findIndex((m) => m.track === selected.track && m.i === selected.i) : -1;
    select(matches[(at + by + matches.length) % matches.length]);
    zoomTo(selected);
  }

  element("search").addEventListener("input", (event) => search(event.target.value));
  element("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      event.target.value = "";
      search("");
      canvas.focus();
    }
  });

  // --- tables -----------------------------------------------------------------------------------------------

  const column = (title, kind, bar = false) => ({ title, kind, bar });
  const nodes = (title) => [column(title, "code"), column("role", "text"), column("op", "code"), column("source", "code"), column("per step", "number"), column("ms per step", "ms", true), column("of it blocked", "ms")];
  const shown = (columns, rowsOf, hidden) => ({
    columns: columns.filter((_, i) => i !== hidden), rows: rowsOf.map((row) => row.filter((_, i) => i !== hidden)), limit: 40, label: "Time per step", sort: null,
  });
  const fields = ["step_ms", "forward_ms", "backward_ms", "optimize_ms", "communicate_ms", "other_ms", "exposed_ms", "hidden_ms"];
  const TABLES = {
    source: () => shown(nodes("line"), data.tables.source, 3),
    op: () => shown(nodes("op"), data.tables.op, 2),
    node: () => shown(nodes("node"), data.tables.node, -1),
    collective: () => shown([column("collective", "code"), column("group", "code"), column("size", "bytes"), column("per step", "number"),
      column("time", "ms", true), column("queued", "ms"), column("waited for", "ms")], data.tables.collective, -1),
    rank: () => shown([column("rank", "integer"), column("host", "text"), ...fields.map((f) => column(f.replace("_ms", ""), "ms", f === "step_ms")), column("collectives", "number")],
      data.summary.ranks.map((r) => [r.rank, r.host, ...fields.map((f) => r[f]), r.collectives]), -1),
  };
  function tab(name) {
    for (const button of document.querySelectorAll("[data-table]")) {
      button.setAttribute("aria-selected", String(button.dataset.table === name));
      button.tabIndex = button.dataset.table === name ? 0 : -1;
    }
    const place = charts.node("div");
    element("table").replaceChildren(place);
    charts.table(place, { ...TABLES[name](), empty: "Nothing in these steps." });
  }
  const tabs = [...document.querySelectorAll("[data-table]")];
  tabs.forEach((button, i) => {
    button.addEventListener("click", () => tab(button.dataset.table));
    button.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      const next = tabs[(i + by + tabs.length) % tabs.length];
      tab(next.dataset.table);
      next.focus();
    });
  });

  // --- start ------------------------------------------------------------------------------------------------

  const used = new Set(data.infos.map((info) => info.cat));
  element("legend").append(...Object.keys(COLORS).filter((cat) => used.has(cat)).map((cat) => {
    const key = charts.node("i");
    key.style.setProperty("--key", `var(${COLORS[cat]})`);
    return charts.node("li", {}, key, NAMES[cat]);
  }));
  const steps = data.summary.ranks[0].steps;
  element("about").textContent = `${ranks.length} rank${ranks.length === 1 ? "" : "s"} · ${steps} steps · ${count.toLocaleString("en-US")} events`;
  element("reset").addEventListener("click", () => show(0, end));
  element("fold").addEventListener("click", () => {
    const folds = !ranks.every((r) => r.folded);
    for (const rank of ranks) rank.folded = folds;
    layout();
    resize();
    showFold();
  });
  scroll.addEventListener("scroll", () => {
    showTip(null);
    request();
  });
  new ResizeObserver(resize).observe(scroll);
  new MutationObserver(resize).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  layout();
  resize();
  showFold();
  show(0, end);
  tab("source");
  draw();
  document.body.dataset.drawn = "true";
  return { view, ranks, draw, show, search, eventAt, px, rows: () => rows, selected: () => selected, hovered: () => hovered, count };
})();
