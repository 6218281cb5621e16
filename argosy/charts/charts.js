// Charts without dependencies: lines, heat maps, stacked bars, sortable tables, foldable trees.
//
//   const chart = charts.lines(element, {series: [{name, x, y}], xLabel, yLabel, logY, height, label});
//   charts.heatmap(element, {rows, columns, values, unit, rowLabel, columnLabel});     values[row][column], null: no value
//   charts.stacked(element, {rows, parts: [{name, values}], unit, rowLabel});           values[row]
//   charts.table(element, {columns: [{title, kind, bar}], rows, sort: {column, descending}, limit});
//   charts.tree(element, {roots: [{name, detail, value, children}], unit});
//   chart.update({...});                                                               the options that changed
//
// kinds of columns: text, code, or a unit of charts.format: number, integer, ms, s, bytes, bytes/s, percent, time.
// A cell is a value, or {value, text, state: "good" | "warn" | "bad", title}. Every chart has a text for screen readers, and
// shows on keyboard focus what it shows on hover: the arrow keys move through its points.
// Colours are CSS variables of charts.css. No inline style attribute: pages may forbid them (Content-Security-Policy).
// SPDX-License-Identifier: Apache-2.0
"use strict";
const charts = (() => {
  const MAX_POINTS = 2000; // of a series; more are thinned out, keeping extremes
  const SVG = "http://www.w3.org/2000/svg";
  const NUM_COLORS = 8;
  const redraws = new Set();

  // --- elements ---------------------------------------------------------------------------------------------

  function node(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    return fill(element, attributes, children);
  }

  function svg(tag, attributes = {}, ...children) {
    return fill(document.createElementNS(SVG, tag), attributes, children);
  }

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  }

  // --- numbers ----------------------------------------------------------------------------------------------

  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

  function significant(value, digits = 4) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("e+", "e");
    if (size >= 10 ** (digits - 1)) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(digits)));
  }

  function scaled(value, units, base) {
    let index = 0;
    while (Math.abs(value) >= base && index < units.length - 1) {
      value /= base;
      index += 1;
    }
    return `${index === 0 ? Math.round(value) : significant(value, 3)} ${units[index]}`;
  }

  // A value with its unit, as a person writes it; "–" for what is unknown.
  function format(value, unit = "number") {
    if (value === null || value === undefined) return "–";
    if (typeof value === "string") return value;
    if (!Number.isFinite(value)) return String(value);
    switch (unit) {
      case "ms":
        return value >= 10000 ? `${significant(value / 1000, 3)} s` : value >= 100 ? `${Math.round(value)} ms`
          : value < 0.1 && value > 0 ? `${significant(value * 1000, 2)} µs` : `${significant(value, 3)} ms`;
      case "s": {
        if (value < 60) return `${significant(value, 3)} s`;
        const minutes = Math.floor(value / 60);
        return minutes < 60 ? `${minutes} min ${Math.floor(value % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
      }
      case "bytes": return scaled(value, ["B", "kB", "MB", "GB", "TB"], 1000);
      case "bytes/s": return scaled(value, ["B/s", "kB/s", "MB/s", "GB/s"], 1000);
      case "percent": return `${significant(value, 3)} %`;
      case "integer": return Math.round(value).toLocaleString("en-US");
      case "time": return new Date(value * 1000).toLocaleTimeString("en-GB");
      case "number": case "text": case "code": return significant(value);
      default: return `${significant(value)} ${unit}`;
    }
  }

  function ticks(low, high, count) {
    const rough = (high - low) / Math.max(1, count);
    if (!(rough > 0)) return [low];
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(Number((i * step).toPrecision(12)));
    return found;
  }

  function logTicks(low, high) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e += 1) if (10 ** e >= low) found.push(10 ** e);
    return found.length > 1 ? found : [low, high];
  }

  function extent(lists) {
    let low = Infinity;
    let high = -Infinity;
    for (const list of lists) {
      for (const value of list) {
        if (!isNumber(value)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    return low <= high ? [low, high] : null;
  }

  // At most `limit` points: of each bucket of points the lowest and the highest one, in their order.
  function thinned(x, y, limit) {
    if (x.length <= limit) return [x, y];
    const size = Math.ceil((2 * x.length) / limit);
    const xs = [];
    const ys = [];
    for (let start = 0; start < x.length; start += size) {
      let low = start;
      let high = start;
      for (let i = start; i < Math.min(start + size, x.length); i += 1) {
        if (y[i] < y[low]) low = i;
        if (y[i] > y[high]) high = i;
      }
      for (const i of low === high ? [low] : [Math.min(low, high), Math.max(low, high)]) {
        xs.push(x[i]);
        ys.push(y[i]);
      }
    }
    return [xs, ys];
  }

  function nearest(sorted, value) {
    let low = 0;
    let high = sorted.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low > 0 && value - sorted[low - 1] < sorted[low] - value ? low - 1 : low;
  }

  const color = (index) => `var(--chart-${(index % NUM_COLORS) + 1})`;
  const dashes = (index) => ["none", "6 3", "2 3"][Math.floor(index / NUM_COLORS) % 3];

  // --- theme ------------------------------------------------------------------------------------------------

  const theme = {
    get current() {
      return document.documentElement.dataset.theme || "light";
    },
    // "light", "dark", or null: what the system prefers.
    set(name) {
      try {
        if (name) localStorage.setItem("charts-theme", name);
        else localStorage.removeItem("charts-theme");
      } catch (error) { /* a page from a file may have no storage: the choice lasts as long as the page */ }
      theme.chosen = name;
      theme.apply();
    },
    toggle() {
      theme.set(theme.current === "dark" ? "light" : "dark");
    },
    apply() {
      const wanted = theme.chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
      if (wanted === document.documentElement.dataset.theme) return;
      document.documentElement.dataset.theme = wanted;
      for (const redraw of redraws) redraw();
    },
    chosen: null,
    // Turn a button into the toggle.
    button(element) {
      const show = () => {
        element.textContent = theme.current === "dark" ? "Light theme" : "Dark theme";
      };
      element.addEventListener("click", () => theme.toggle());
      redraws.add(show);
      show();
    },
  };
  try {
    theme.chosen = localStorage.getItem("charts-theme");
  } catch (error) { /* as above */ }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme.apply);
  theme.apply();

  // --- what all charts share --------------------------------------------------------------------------------

  // Draws at once, at each update, and when the width or the theme changes; a hidden element is drawn when it is shown.
  function chart(element, options, draw) {
    element.classList.add("chart");
    let current = { ...options };
    let width = 0;
    let stale = true;
    let frame = 0;
    const paint = () => {
      frame = 0;
      if (!element.isConnected) {
        redraws.delete(request);
        observer.disconnect();
        return;
      }
      if (element.clientWidth === 0) return;
      stale = false;
      width = element.clientWidth;
      draw(current, width);
    };
    function request() {
      stale = true;
      if (!frame) frame = requestAnimationFrame(paint);
    }
    const observer = new ResizeObserver(() => {
      if (stale || Math.abs(element.clientWidth - width) > 1) request();
    });
    observer.observe(element);
    redraws.add(request);
    request();
    return {
      update(changed) {
        current = { ...current, ...changed };
        request();
      },
      remove() {
        redraws.delete(request);
        observer.disconnect();
        element.replaceChildren();
      },
    };
  }

  // The box that shows a point: at the pointer, and at the keyboard's cursor.
  function tooltip(plot) {
    const box = node("div", { class: "chart-tip", hidden: true, role: "status" });
    plot.append(box);
    return {
      show(x, y, title, entries) {
        const lines = entries.map(([name, text, index]) => {
          const label = node("span", {}, name);
          if (index !== undefined) {
            const key = node("i");
            key.style.cssText = `display:inline-block;width:8px;height:8px;border-radius:2px;margin-right:6px;background:${color(index)}`;
            label.prepend(key);
          }
          return node("div", {}, label, node("b", {}, text));
        });
        box.replaceChildren(node("b", {}, title), ...lines);
        box.hidden = false;
        const left = x + 14 + box.offsetWidth > plot.clientWidth ? x - 14 - box.offsetWidth : x + 14;
        box.style.left = `${Math.max(0, left)}px`;
        box.style.top = `${Math.max(0, Math.min(y, plot.clientHeight - box.offsetHeight))}px`;
      },
      hide() {
        box.hidden = true;
      },
    };
  }

  function empty(element, options) {
    element.replaceChildren(node("div", { class: "chart-empty" }, options.empty || "No data yet."));
  }

  // Pointer and arrow keys both call show(…); leaving, blur and Escape call hide().
  function interact(surface, { pointer, step, hide }) {
    surface.setAttribute("tabindex", "0");
    surface.addEventListener("pointermove", (event) => {
      const box = surface.getBoundingClientRect();
      pointer(event.clientX - box.left, event.clientY - box.top);
    });
    surface.addEventListener("pointerleave", hide);
    surface.addEventListener("blur", hide);
    surface.addEventListener("focus", () => {
      if (surface.matches(":focus-visible")) step(0, 0);
    });
    surface.addEventListener("keydown", (event) => {
      const far = event.shiftKey ? 10 : 1;
      const moves = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, -far], ArrowDown: [0, far], Home: [-Infinity, 0], End: [Infinity, 0] };
      if (event.key === "Escape") hide();
      else if (moves[event.key]) {
        event.preventDefault();
        step(...moves[event.key]);
      }
    });
  }

  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

  // --- lines ------------------------------------------------------------------------------------------------

  function lines(element, options) {
    const hidden = new Set();
    const plot = node("div", { class: "chart-plot" });
    const surface = svg("svg", { role: "img" });
    const tip = tooltip(plot);
    const legend = node("ul", { class: "chart-legend" });
    plot.prepend(surface);
    let cursor = null; // the x of the cursor while it is shown
    let state = null;
    let keys = "";

    function draw(opts, width) {
      const all = (opts.series || []).map((s, index) => {
        const [x, y] = thinned(s.x, s.y, MAX_POINTS);
        return { name: s.name, x, y, index };
      });
      if (!all.some((s) => s.x.length)) {
        empty(element, opts);
        keys = "";
        return;
      }
      if (plot.parentNode !== element) element.replaceChildren(legend, plot);
      drawLegend(all, opts, width);
      const shown = all.filter((s) => !hidden.has(s.name) && s.x.length);
      const height = opts.height || 220;
      const xs = extent(shown.map((s) => s.x)) || [0, 1];
      let ys = extent(shown.map((s) => s.y)) || [0, 1];
      const positive = extent(shown.map((s) => s.y.filter((v) => v > 0)));
      const log = Boolean(opts.logY && positive);
      if (log) ys = positive[0] === positive[1] ? [positive[0] / 2, positive[1] * 2] : positive;
      else if (ys[0] === ys[1]) ys = [ys[0] - (Math.abs(ys[0]) || 1) * 0.1, ys[1] + (Math.abs(ys[1]) || 1) * 0.1];
      else {
        const span = ys[1] - ys[0];
        ys = [ys[0] >= 0 && ys[0] < span ? 0 : ys[0] - span * 0.05, ys[1] + span * 0.05];
      }
      const yTicks = log ? logTicks(ys[0], ys[1]) : ticks(ys[0], ys[1], height / 45);
      const margin = { left: 12 + 6.4 * Math.max(...yTicks.map((t) => format(t, opts.unit).length)), right: 12, top: 16, bottom: 32 };
      const inner = { width: Math.max(10, width - margin.left - margin.right), height: height - margin.top - margin.bottom };
      const px = (x) => margin.left + (xs[1] === xs[0] ? 0.5 : (x - xs[0]) / (xs[1] - xs[0])) * inner.width;
      const fraction = (y) => (log ? Math.log(y / ys[0]) / Math.log(ys[1] / ys[0]) : (y - ys[0]) / (ys[1] - ys[0]));
      const py = (y) => margin.top + (1 - fraction(y)) * inner.height;
      state = { opts, shown, px, py, xs, margin, inner, height, log };

      const content = [];
      for (const t of yTicks) {
        content.push(svg("line", { class: "chart-grid", x1: margin.left, x2: width - margin.right, y1: py(t), y2: py(t) }));
        content.push(svg("text", { x: margin.left - 6, y: py(t) + 4, "text-anchor": "end" }, format(t, opts.unit)));
      }
      for (const t of ticks(xs[0], xs[1], inner.width / 90)) {
        content.push(svg("text", { x: px(t), y: height - 17, "text-anchor": "middle" }, format(t, "integer")));
      }
      content.push(svg("line", { class: "chart-axis", x1: margin.left, x2: width - margin.right, y1: height - margin.bottom, y2: height - margin.bottom }));
      content.push(svg("text", { x: width - margin.right, y: height - 3, "text-anchor": "end" }, opts.xLabel || ""));
      content.push(svg("text", { x: 2, y: 10 }, opts.yLabel || ""));
      for (const s of shown) content.push(...paths(s, px, py, log, inner.width));
      content.push(svg("g"));
      surface.replaceChildren(...content);
      surface.setAttribute("width", width);
      surface.setAttribute("height", height);
      surface.setAttribute("aria-label", `${opts.label || opts.yLabel || "Lines"}. ${shown.map((s) => summary(s, opts)).join("; ")}`);
      if (cursor !== null) show(cursor);
    }

    function paths(s, px, py, log, innerWidth) {
      const [x, y] = thinned(s.x, s.y, Math.max(50, Math.floor(innerWidth * 2)));
      let d = "";
      let pen = "M";
      let drawn = 0;
      for (let i = 0; i < x.length; i += 1) {
        if (!isNumber(y[i]) || (log && y[i] <= 0)) {
          pen = "M";
          continue;
        }
        d += `${pen}${px(x[i]).toFixed(1)} ${py(y[i]).toFixed(1)}`;
        pen = "L";
        drawn += 1;
      }
      const line = svg("path", { class: "chart-series", d, "stroke-dasharray": dashes(s.index) });
      line.style.stroke = color(s.index);
      if (drawn !== 1) return [line];
      const only = y.findIndex((v) => isNumber(v) && !(log && v <= 0));
      const dot = svg("circle", { cx: px(x[only]), cy: py(y[only]), r: 3 });
      dot.style.fill = color(s.index);
      return [line, dot];
    }

    function summary(s, opts) {
      const [low, high] = extent([s.y]) || [NaN, NaN];
      const last = s.y.length - 1;
      return `${s.name}: ${format(s.y[last], opts.unit)} at ${format(s.x[last], "integer")}, from ${format(low, opts.unit)} to ${format(high, opts.unit)}`;
    }

    function drawLegend(all, opts, width) {
      legend.hidden = all.length < 2 && !opts.legend;
      const key = JSON.stringify([all.map((s) => s.name), [...hidden]]);
      if (key === keys) return; // keeps the focus on a button
      keys = key;
      legend.replaceChildren(...all.map((s) => {
        const button = node("button", { type: "button", "aria-pressed": String(!hidden.has(s.name)), title: "Show or hide" }, node("i"), s.name);
        button.style.setProperty("--key", color(s.index));
        button.addEventListener("click", () => {
          if (!hidden.delete(s.name)) hidden.add(s.name);
          button.setAttribute("aria-pressed", String(!hidden.has(s.name)));
          keys = JSON.stringify([all.map((t) => t.name), [...hidden]]);
          draw(opts, width);
        });
        return node("li", {}, button);
      }));
    }

    function show(x) {
      const { opts, shown, px, py, xs, margin, height, log } = state;
      if (!shown.length) return;
      const longest = shown.reduce((a, b) => (b.x.length > a.x.length ? b : a));
      cursor = longest.x[nearest(longest.x, clamp(x, xs[0], xs[1]))];
      const marks = [svg("line", { class: "chart-cursor", x1: px(cursor), x2: px(cursor), y1: margin.top, y2: height - margin.bottom })];
      const entries = [];
      for (const s of shown) {
        const at = nearest(s.x, cursor);
        if (!isNumber(s.y[at]) || (log && s.y[at] <= 0)) continue;
        const mark = svg("circle", { class: "chart-mark", cx: px(s.x[at]), cy: py(s.y[at]), r: 4 });
        mark.style.fill = color(s.index);
        marks.push(mark);
        if (entries.length < 12) entries.push([s.name, format(s.y[at], opts.unit), s.index]);
      }
      surface.lastChild.replaceChildren(...marks);
      tip.show(px(cursor), margin.top, `${opts.xLabel || "x"} ${format(cursor, "integer")}`, entries);
    }

    function hide() {
      cursor = null;
      tip.hide();
      if (surface.lastChild) surface.lastChild.replaceChildren();
    }

    interact(surface, {
      hide,
      pointer(x) {
        const { xs, margin, inner } = state;
        show(xs[0] + ((x - margin.left) / inner.width) * (xs[1] - xs[0]));
      },
      step(dx) {
        const longest = state.shown.reduce((a, b) => (b.x.length > a.x.length ? b : a), { x: [] });
        if (!longest.x.length) return;
        const at = cursor === null ? longest.x.length - 1 : nearest(longest.x, cursor);
        show(longest.x[clamp(at + dx, 0, longest.x.length - 1)]);
      },
    });
    return chart(element, options, draw);
  }

  // --- heat map ---------------------------------------------------------------------------------------------

  function heatmap(element, options) {
    const plot = node("div", { class: "chart-plot" });
    const surface = node("canvas", { role: "img" });
    const tip = tooltip(plot);
    const scale = node("div", { class: "chart-scale", "aria-hidden": "true" });
    plot.prepend(surface);
    let state = null;
    let cursor = null;

    function draw(opts, width) {
      const { rows = [], columns = [], values = [] } = opts;
      const known = values.flat().filter(isNumber).sort((a, b) => a - b);
      if (!known.length) {
        empty(element, opts);
        return;
      }
      if (plot.parentNode !== element) element.replaceChildren(plot, scale);
      // The scale spans most of the values: one outlier must not make all others look alike.
      let low = known[Math.floor(known.length * 0.02)];
      let high = known[Math.ceil(known.length * 0.98) - 1];
      if (high - low < 0.05 * Math.abs(high)) { // an even job shows one calm colour, not its noise
        const middle = (low + high) / 2;
        [low, high] = [middle * 0.9, middle * 1.25];
      }
      const cell = clamp(Math.floor((opts.height || 320) / rows.length), 5, 26);
      const left = 14 + 6.6 * Math.max(...rows.map((r) => String(r).length));
      const inner = Math.max(10, width - left - 6);
      const height = cell * rows.length;
      const ratio = devicePixelRatio || 1;
      surface.width = Math.round(width * ratio);
      surface.height = Math.round((height + 34) * ratio);
      surface.style.width = `${width}px`;
      surface.style.height = `${height + 34}px`;
      const style = getComputedStyle(element);
      const colors = [0, 1, 2, 3].map((i) => rgb(style.getPropertyValue(`--heat-${i}`)));
      const context = surface.getContext("2d");
      context.scale(ratio, ratio);
      context.clearRect(0, 0, width, height + 34);
      const gap = cell > 8 ? 1 : 0;
      const columnWidth = inner / columns.length;
      for (let r = 0; r < rows.length; r += 1) {
        for (let c = 0; c < columns.length; c += 1) {
          const value = (values[r] || [])[c];
          if (!isNumber(value)) continue;
          context.fillStyle = mix(colors, clamp((value - low) / (high - low || 1), 0, 1));
          const x0 = Math.round(left + c * columnWidth);
          const x1 = Math.round(left + (c + 1) * columnWidth);
          context.fillRect(x0, r * cell, Math.max(1, x1 - x0 - (columnWidth > 6 ? 1 : 0)), cell - gap);
        }
      }
      context.fillStyle = style.getPropertyValue("--muted");
      context.font = `11px ${style.getPropertyValue("--font")}`;
      context.textAlign = "right";
      const every = Math.ceil(13 / cell);
      for (let r = 0; r < rows.length; r += every) context.fillText(rows[r], left - 6, r * cell + cell / 2 + 4);
      context.textAlign = "center";
      const stride = Math.max(1, Math.ceil(columns.length / Math.max(2, inner / 80)));
      for (let c = 0; c < columns.length; c += stride) {
        const x = left + (c + 0.5) * columnWidth;
        if (x > width - 24) break;
        context.fillText(format(columns[c], "integer"), Math.max(x, left + 8), height + 14);
      }
      context.textAlign = "right";
      context.fillText(opts.columnLabel || "", width - 6, height + 29);
      scale.replaceChildren(format(low, opts.unit), node("i"), format(high, opts.unit));
      state = { opts, rows, columns, values, cell, left, columnWidth, height };
      const worst = rows.map((name, r) => [name, mean(values[r])]).filter(([, m]) => isNumber(m)).sort((a, b) => b[1] - a[1])[0];
      surface.setAttribute("aria-label", `${opts.label || "Heat map"}: ${rows.length} rows, ${columns.length} columns, `
        + `${format(known[0], opts.unit)} to ${format(known[known.length - 1], opts.unit)}; highest mean: ${worst[0]}, ${format(worst[1], opts.unit)}. Arrow keys move through the cells.`);
      if (cursor) show(...cursor);
    }

    function mean(list) {
      const known = (list || []).filter(isNumber);
      return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
    }

    function show(row, column) {
      const { opts, rows, columns, values, cell, left, columnWidth } = state;
      row = clamp(row, 0, rows.length - 1);
      column = clamp(column, 0, columns.length - 1);
      cursor = [row, column];
      tip.show(left + (column + 0.5) * columnWidth, row * cell, `${opts.rowLabel || ""} ${rows[row]}`.trim(), [
        [`${opts.columnLabel || "column"} ${format(columns[column], "integer")}`, format((values[row] || [])[column], opts.unit)],
      ]);
    }

    function hide() {
      cursor = null;
      tip.hide();
    }

    interact(surface, {
      hide,
      pointer(x, y) {
        if (x < state.left || y > state.height) hide();
        else show(Math.floor(y / state.cell), Math.floor((x - state.left) / state.columnWidth));
      },
      step(dx, dy) {
        const [row, column] = cursor || [0, state.columns.length - 1];
        show(row + dy, column + dx);
      },
    });
    return chart(element, options, draw);
  }

  function rgb(text) {
    const hex = text.trim().replace("#", "");
    return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  }

  function mix(colors, share) {
    const place = share * (colors.length - 1);
    const index = Math.min(colors.length - 2, Math.floor(place));
    const parts = colors[index].map((v, i) => Math.round(v + (colors[index + 1][i] - v) * (place - index)));
    return `rgb(${parts.join(",")})`;
  }

  // --- horizontal stacked bars ------------------------------------------------------------------------------

  function stacked(element, options) {
    const plot = node("div", { class: "chart-plot" });
    const surface = svg("svg", { role: "img" });
    const tip = tooltip(plot);
    const legend = node("ul", { class: "chart-legend" });
    plot.prepend(surface);
    let state = null;
    let cursor = null;
    let keys = "";

    function draw(opts, width) {
      const { rows = [], parts = [] } = opts;
      const totals = rows.map((_, r) => parts.reduce((sum, p) => sum + (isNumber(p.values[r]) ? p.values[r] : 0), 0));
      if (!rows.length || !totals.some((t) => t > 0)) {
        empty(element, opts);
        keys = "";
        return;
      }
      if (plot.parentNode !== element) element.replaceChildren(legend, plot);
      const key = parts.map((p) => p.name).join("\n");
      if (key !== keys) {
        keys = key;
        legend.replaceChildren(...parts.map((p, index) => {
          const entry = node("span", { class: "chart-key" }, node("i"), p.name);
          entry.style.setProperty("--key", color(index));
          return node("li", {}, entry);
        }));
      }
      const cell = clamp(Math.floor((opts.height || 320) / rows.length), 5, 24);
      const left = 14 + 6.6 * Math.max(...rows.map((r) => String(r).length));
      const longest = Math.max(...totals);
      const right = 12 + 6.4 * Math.max(...totals.map((t) => format(t, opts.unit).length));
      const inner = Math.max(10, width - left - right);
      const height = cell * rows.length + 20;
      const content = [svg("g")];
      for (const t of ticks(0, longest, inner / 90)) {
        const x = left + (t / longest) * inner;
        content.push(svg("line", { class: "chart-grid", x1: x, x2: x, y1: 0, y2: height - 18 }));
        content.push(svg("text", { x, y: height - 4, "text-anchor": "middle" }, format(t, opts.unit)));
      }
      const every = Math.ceil(12 / cell);
      rows.forEach((name, r) => {
        let x = left;
        const y = r * cell + 1;
        if (r % every === 0) {
          content.push(svg("text", { x: left - 6, y: y + cell / 2 + 3, "text-anchor": "end" }, name));
          content.push(svg("text", { x: left + (totals[r] / longest) * inner + 5, y: y + cell / 2 + 3 }, format(totals[r], opts.unit)));
        }
        parts.forEach((p, index) => {
          const length = ((isNumber(p.values[r]) ? p.values[r] : 0) / longest) * inner;
          if (!(length > 0)) return;
          const bar = svg("rect", { x, y, width: length, height: cell - (cell > 12 ? 4 : cell > 7 ? 1 : 0.5) });
          bar.style.fill = color(index);
          content.push(bar);
          x += length;
        });
      });
      surface.replaceChildren(...content);
      surface.setAttribute("width", width);
      surface.setAttribute("height", height);
      surface.setAttribute("aria-label", `${opts.label || "Stacked bars"}: ${rows.slice(0, 8).map((name, r) => `${name}: ${format(totals[r], opts.unit)}`).join("; ")}`
        + `${rows.length > 8 ? ` and ${rows.length - 8} more` : ""}. Arrow keys move through the bars.`);
      state = { opts, rows, parts, totals, cell, left, width };
      if (cursor !== null) show(cursor);
    }

    function show(row) {
      const { opts, rows, parts, totals, cell, left, width } = state;
      cursor = clamp(row, 0, rows.length - 1);
      surface.firstChild.replaceChildren(svg("rect", { class: "chart-row-cursor", x: 0, y: cursor * cell - 1, width, height: cell }));
      const entries = parts.map((p, index) => [p.name, `${format(p.values[cursor], opts.unit)}`, index]).filter((_, index) => isNumber(parts[index].values[cursor]));
      tip.show(left + 40, (cursor + 1) * cell, `${opts.rowLabel || ""} ${rows[cursor]}: ${format(totals[cursor], opts.unit)}`.trim(), entries);
    }

    function hide() {
      cursor = null;
      tip.hide();
      if (surface.firstChild) surface.firstChild.replaceChildren();
    }

    interact(surface, {
      hide,
      pointer(x, y) {
        const row = Math.floor(y / state.cell);
        if (row >= state.rows.length) hide();
        else show(row);
      },
      step(dx, dy) {
        show((cursor === null ? 0 : cursor) + dy + (cursor === null ? 0 : dx));
      },
    });
    return chart(element, options, draw);
  }

  // --- table ------------------------------------------------------------------------------------------------

  function table(element, options) {
    const body = node("tbody");
    const head = node("tr");
    const caption = node("caption", { class: "chart-hidden" });
    const scroll = node("div", { class: "chart-scroll", tabindex: "0", role: "group" }, node("table", {}, caption, node("thead", {}, head), body));
    const more = node("button", { type: "button", class: "chart-more" });
    let sort = options.sort || null;
    let all = false;
    let keys = "";
    let last = null;
    more.addEventListener("click", () => {
      all = true;
      draw(last);
    });

    const isText = (kind) => ["text", "code", "time", undefined].includes(kind);
    const raw = (cell) => (cell !== null && typeof cell === "object" ? cell.value : cell);

    function draw(opts) {
      last = opts;
      const { columns = [], rows = [] } = opts;
      if (!rows.length) {
        empty(element, opts);
        return;
      }
      if (scroll.parentNode !== element) element.replaceChildren(scroll, more);
      caption.textContent = opts.label || "";
      scroll.setAttribute("aria-label", opts.label || "table");
      drawHead(columns);
      const sorted = sort ? sortedRows(rows, columns) : rows;
      const limit = all ? MAX_POINTS : opts.limit || 200;
      const shown = sorted.slice(0, limit);
      more.hidden = rows.length <= limit || all;
      more.textContent = `Show all ${rows.length} rows`;
      const maxima = columns.map((c, i) => (c.bar ? Math.max(...rows.map((r) => raw(r[i]) || 0)) : 0));
      while (body.rows.length > shown.length) body.lastChild.remove();
      shown.forEach((row, r) => {
        const line = body.rows[r] || body.appendChild(node("tr"));
        columns.forEach((column, c) => drawCell(line.cells[c] || line.appendChild(node("td")), row[c], column, maxima[c]));
        while (line.cells.length > columns.length) line.lastChild.remove();
      });
    }

    function drawHead(columns) {
      const key = JSON.stringify(columns);
      if (key !== keys) {
        keys = key;
        head.replaceChildren(...columns.map((column, index) => {
          const button = node("button", { type: "button", title: column.help }, column.title);
          button.addEventListener("click", () => {
            const first = !isText(column.kind) || column.kind === "time"; // numbers: the largest first
            sort = { column: index, descending: sort && sort.column === index ? !sort.descending : first };
            draw(last);
          });
          return node("th", { scope: "col", class: isText(column.kind) ? "" : "chart-number" }, button);
        }));
      }
      [...head.cells].forEach((cell, index) => {
        cell.setAttribute("aria-sort", sort && sort.column === index ? (sort.descending ? "descending" : "ascending") : "none");
      });
    }

    function sortedRows(rows) {
      const sign = sort.descending ? -1 : 1;
      const missing = (value) => value === null || value === undefined || Number.isNaN(value);
      return [...rows].sort((a, b) => {
        const [x, y] = [raw(a[sort.column]), raw(b[sort.column])];
        if (missing(x) || missing(y)) return missing(x) - missing(y);
        if (typeof x === "number" && typeof y === "number") return sign * (x - y);
        return sign * String(x).localeCompare(String(y), "en", { numeric: true });
      });
    }

    function drawCell(td, cell, column, maximum) {
      const value = raw(cell);
      const object = cell !== null && typeof cell === "object" ? cell : {};
      const text = object.text !== undefined ? object.text : format(value, column.kind);
      if (td.textContent !== text) td.textContent = text;
      const names = [isText(column.kind) ? "" : "chart-number", column.kind === "code" ? "chart-code" : "", object.state ? `chart-${object.state}` : "", column.bar ? "chart-bar" : ""];
      const name = names.filter(Boolean).join(" ");
      if (td.className !== name) td.className = name;
      if (column.bar) td.style.setProperty("--share", `${maximum > 0 ? (100 * (value || 0)) / maximum : 0}%`);
      if (object.title) td.title = object.title;
      else td.removeAttribute("title");
    }

    return chart(element, options, draw);
  }

  // --- tree -------------------------------------------------------------------------------------------------

  // Children are created when their parent is unfolded; what is unfolded stays so at an update.
  function tree(element, options) {
    const list = node("ul", { class: "chart-tree", role: "tree" });
    const scroll = node("div", { class: "chart-scroll" }, list);
    const open = new Set();
    let total = 0;
    let unit = "number";
    let focused = null;

    function draw(opts) {
      const roots = opts.roots || [];
      if (!roots.length) {
        empty(element, opts);
        return;
      }
      if (scroll.parentNode !== element) element.replaceChildren(scroll);
      unit = opts.unit || "number";
      total = roots.reduce((sum, root) => sum + (root.value || 0), 0);
      list.setAttribute("aria-label", opts.label || "tree");
      const hadFocus = list.contains(document.activeElement);
      list.replaceChildren(...roots.map((root) => item(root, "", 1)));
      const items = [...list.querySelectorAll("li")];
      const target = items.find((li) => li.dataset.path === focused) || items[0];
      target.tabIndex = 0;
      if (hadFocus) target.focus({ preventScroll: true });
    }

    function item(entry, parent, level) {
      const path = `${parent}/${entry.name}`;
      const children = entry.children || [];
      const fold = node("span", { class: "chart-fold", "aria-hidden": "true" });
      const name = node("span", { class: "chart-name", title: `${entry.name} ${entry.detail || ""}` }, entry.name);
      if (entry.detail) name.append(node("span", { class: "chart-detail" }, entry.detail));
      const meter = node("span", { class: "chart-meter", "aria-hidden": "true" }, node("i"));
      meter.style.setProperty("--share", `${total > 0 ? (100 * (entry.value || 0)) / total : 0}%`);
      const line = node("div", { class: "chart-node" }, fold, name, meter, node("span", { class: "chart-amount" }, format(entry.value, unit)));
      const li = node("li", { role: "treeitem", tabindex: "-1", "aria-level": level }, line);
      li.dataset.path = path;
      const set = (unfolded) => {
        if (!children.length) return;
        if (unfolded) open.add(path);
        else open.delete(path);
        li.setAttribute("aria-expanded", String(unfolded));
        fold.textContent = unfolded ? "▾" : "▸";
        const inside = li.querySelector(":scope > ul");
        if (inside) inside.remove();
        if (unfolded) li.append(node("ul", { role: "group" }, ...children.map((child) => item(child, path, level + 1))));
      };
      set(open.has(path));
      line.addEventListener("click", () => {
        set(!open.has(path));
        focus(li);
      });
      li.addEventListener("keydown", (event) => {
        if (event.target !== li) return;
        const items = [...list.querySelectorAll("li")];
        const at = items.indexOf(li);
        const actions = {
          ArrowDown: () => focus(items[at + 1]),
          ArrowUp: () => focus(items[at - 1]),
          Home: () => focus(items[0]),
          End: () => focus(items[items.length - 1]),
          ArrowRight: () => (children.length && !open.has(path) ? set(true) : focus(items[at + 1])),
          ArrowLeft: () => (open.has(path) ? set(false) : focus(li.parentElement.closest("li"))),
          Enter: () => set(!open.has(path)),
          " ": () => set(!open.has(path)),
        };
        if (!actions[event.key]) return;
        event.preventDefault();
        actions[event.key]();
      });
      return li;
    }

    function focus(li) {
      if (!li) return;
      for (const other of list.querySelectorAll('li[tabindex="0"]')) other.tabIndex = -1;
      li.tabIndex = 0;
      focused = li.dataset.path;
      li.focus();
    }

    return chart(element, options, draw);
  }

  return { lines, heatmap, stacked, table, tree, format, theme, node, svg, MAX_POINTS };
})();
