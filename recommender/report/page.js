"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const UNITS = ["cores", "GiB"], NAMES = ["CPU", "Memory"];

  // ---- parts, closed on a phone until they are asked for -----------------------------------------------------------
  const parts = document.querySelectorAll("details.part");
  const setParts = (open) => { for (const part of parts) part.open = open; };
  const openPart = (id) => { byId(id)?.querySelector("details.part")?.setAttribute("open", ""); };
  if (matchMedia("(max-width: 40rem)").matches) setParts(false);
  openPart(location.hash.slice(1));
  addEventListener("click", (event) => openPart(event.target.closest?.("a[href^='#']")?.hash.slice(1)));
  addEventListener("beforeprint", () => setParts(true));

  // ---- tables ------------------------------------------------------------------------------------------------------
  function valueOf(row, column) {
    const text = row.cells[column].dataset.v;
    const number = Number(text);
    return text !== "" && Number.isFinite(number) ? number : text;
  }
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  }
  function sortBy(table, heading) {
    const column = heading.cellIndex;
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row, column), row]);
    // Rows without a value come last in either direction.
    rows.sort(([a], [b]) => (a === "") - (b === "") || (up ? compare(a, b) : compare(b, a)));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const heading of table.tHead.rows[0].cells) {
      heading.querySelector("button").addEventListener("click", () => sortBy(table, heading));
    }
  }

  const find = byId("find"), harmed = byId("harmed");
  function filter() {
    const wanted = find.value.trim().toLowerCase();
    let shown = 0;
    const rows = byId("container-table").tBodies[0].rows;
    for (const row of rows) {
      const names = `${row.cells[0].dataset.v} ${row.cells[1].dataset.v}`.toLowerCase();
      row.hidden = !names.includes(wanted) || (harmed.checked && !("harmed" in row.dataset));
      if (!row.hidden) shown += 1;
    }
    byId("found").textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown`;
  }
  if (find) {
    find.addEventListener("input", filter);
    harmed.addEventListener("change", filter);
    filter();
  }

  // ---- timelines ---------------------------------------------------------------------------------------------------
  const which = byId("which");
  if (!which) return;
  const drawing = byId("drawing"), readout = byId("readout");
  const boxes = [...document.querySelectorAll("#lines input[value]")].filter((box) => box.id !== "bands");
  const LEFT = 62, RIGHT = 10, PLOT = 190, TITLE = 26, GAP = 26, LANE = 13;
  const MARKS = {
    asked: ["resize requested", "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0Z"],
    applied: ["resize applied", "M0,-4L4,3.5H-4Z"],
    deferred: ["deferred: less memory than in use", "M0,-4.5L4.5,0L0,4.5L-4.5,0Z"],
    killed: ["OOM-killed", "M-4,-4L4,4M-4,4L4,-4"],
  };
  let scene = null;

  function make(name, attributes, parent, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  }
  function html(name, parent, text, className) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    parent.append(element);
    return element;
  }
  function steps(top, about) {
    const rough = top / about, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
    return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);
  }
  const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
  function timeSteps(length, about) {
    const step = TIMES.find((s) => length / s <= about) || Math.ceil(length / about / 604800) * 604800;
    return Array.from({ length: Math.floor(length / step) + 1 }, (_, i) => i * step);
  }
  function duration(exact) {
    const seconds = Math.round(exact);
    const d = Math.floor(seconds / 86400), h = Math.floor(seconds / 3600) % 24;
    const m = Math.floor(seconds / 60) % 60, s = seconds % 60;
    const parts = [[d, "d"], [h, "h"], [m, "min"], [s, "s"]].filter(([n]) => n > 0).slice(0, 2);
    return parts.length ? parts.map(([n, unit]) => `${n} ${unit}`).join(" ") : "0";
  }
  function amount(value) {
    if (value === null || value === undefined) return "–";
    return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(value < 0.1 ? 3 : 2);
  }
  // Index of the last entry of a sorted list that is not above `time`; -1 if all are.
  function lastIndexAt(times, time) {
    let low = 0, high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= time) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  function checkedPolicies(line) {
    return boxes.filter((box) => box.checked).map((box) => Number(box.value)).filter((i) => line.allocations[i]);
  }

  function linePath(line, x, y) {
    let path = "", pen = "M";
    for (let i = 0; i < line.t.length; i += 1) {
      if (line.v[i] === null) { pen = "M"; continue; }
      path += `${pen}${x(line.t[i]).toFixed(1)},${y(line.v[i]).toFixed(1)}`;
      if (pen === "M") path += "h0"; // a sample between two gaps is a dot
      pen = "L";
    }
    return path;
  }
  function stepPath(times, values, end, x, y) {
    let path = "";
    for (let i = 0; i < times.length; i += 1) {
      const until = i + 1 < times.length ? times[i + 1] : end;
      path += `${i ? "V" : `M${x(times[i]).toFixed(1)},`}${y(values[i]).toFixed(1)}H${x(until).toFixed(1)}`;
    }
    return path;
  }

  function drawBands(svg, line, x, top, height) {
    for (const [begin, end, phase] of line.phases) {
      const attributes = { x: x(begin).toFixed(1), y: top, width: Math.max(x(end) - x(begin), 0.5).toFixed(1), height };
      if (phase < 0) attributes.class = "unknown"; else attributes.style = `fill: var(--phase-${phase % data.phase_colours})`;
      make("title", {}, make("rect", attributes, svg), phase < 0 ? "phase unknown" : `phase ${phase}`);
    }
  }

  function drawResource(svg, line, resource, policies, top, width, x) {
    const usage = line.usage[resource];
    let most = 0;
    for (const value of usage.v) if (value > most) most = value;
    for (const i of policies) for (const value of line.allocations[i].v[resource]) if (value > most) most = value;
    most = (most || 1) * 1.06;
    const y = (value) => top + PLOT * (1 - value / most);
    if (byId("bands").checked) drawBands(svg, line, x, top, PLOT);
    for (const value of steps(most, 4)) {
      make("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }, svg);
      make("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, svg, String(+value.toPrecision(6)));
    }
    make("text", { class: "title", x: LEFT, y: top - 8 }, svg, `${NAMES[resource]}, ${UNITS[resource]}`);
    make("path", { class: "usage", d: linePath(usage, x, y) }, svg);
    policies.forEach((i, row) => {
      const own = line.allocations[i], policy = data.policies[i];
      const path = make("path", {
        class: `alloc p${i}`, "stroke-dasharray": policy.dash, d: stepPath(own.t, own.v[resource], line.length, x, y),
      }, svg);
      make("title", {}, path, policy.name);
      const level = top + PLOT + 7 + row * 7;
      let marks = "";
      for (const [begin, end] of own.short[resource]) marks += `M${x(begin).toFixed(1)},${level}H${Math.max(x(end), x(begin) + 1.5).toFixed(1)}`;
      if (marks) make("title", {}, make("path", { class: `short p${i}`, d: marks }, svg), `${policy.name}: use above the reservation`);
    });
  }

  // Events of the container in one lane per policy, below both charts.
  function drawMarks(svg, line, policies, top, x) {
    policies.forEach((i, row) => {
      const level = top + LANE * (row + 0.5);
      for (const [what, times] of Object.entries(line.marks[i])) {
        for (const time of times) {
          const position = `translate(${x(time).toFixed(1)} ${level.toFixed(1)})`;
          const path = make("path", { class: `mark ${what} p${i}`, d: MARKS[what][1], transform: position }, svg);
          make("title", {}, path, `${data.policies[i].name}, ${duration(time)}: ${MARKS[what][0]}`);
        }
      }
    });
  }

  function draw() {
    const line = data.timelines[Number(which.value)];
    const policies = checkedPolicies(line);
    const width = Math.max(drawing.clientWidth, 260);
    const strip = 8 + policies.length * 7;
    const marked = policies.filter((i) => line.marks[i]);
    const second = TITLE + PLOT + strip + GAP, lanes = second + PLOT + strip, bottom = lanes + marked.length * LANE;
    const height = bottom + 38;
    const x = (time) => LEFT + (width - LEFT - RIGHT) * (line.length ? time / line.length : 0);
    drawing.replaceChildren();
    const description = `${line.container}: use of CPU and memory over ${duration(line.length)}, with the reservations of ` +
      (policies.map((i) => data.policies[i].name).join(", ") || "no policy");
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": description });
    const pattern = make("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, make("defs", {}, svg));
    make("line", { class: "grid", x1: 0, y1: 0, x2: 0, y2: 6, style: "stroke-width: 3" }, pattern);
    drawResource(svg, line, 0, policies, TITLE, width, x);
    drawResource(svg, line, 1, policies, second, width, x);
    drawMarks(svg, line, marked, lanes, x);
    for (const time of timeSteps(line.length, Math.max(Math.floor(width / 110), 2))) {
      for (const top of [TITLE, second]) make("line", { class: "grid", x1: x(time), x2: x(time), y1: top + PLOT, y2: top + PLOT + 4 }, svg);
      const anchor = x(time) > width - 40 ? "end" : "middle";
      make("text", { x: x(time), y: bottom + 14, "text-anchor": anchor }, svg, duration(time));
    }
    make("text", { x: (LEFT + width - RIGHT) / 2, y: bottom + 32, "text-anchor": "middle" }, svg, "time since the first sample");
    const cursor = make("line", { class: "cursor", y1: TITLE, y2: bottom, visibility: "hidden" }, svg);
    drawing.append(svg);
    scene = { line, policies, x, width, cursor, svg, time: line.length / 2 };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const share = ((event.clientX - box.left) * width / box.width - LEFT) / (width - LEFT - RIGHT);
      pointAt(Math.min(Math.max(share, 0), 1) * line.length);
    });
    svg.addEventListener("keydown", (event) => {
      const share = { ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: 0.1, PageUp: -0.1, Home: -1, End: 1 }[event.key];
      if (share === undefined) return;
      event.preventDefault();
      pointAt(Math.min(Math.max(scene.time + share * line.length, 0), line.length));
    });
    legend(line);
    reasons(line, line.length);
  }

  function pointAt(time) {
    const { line, policies, x, cursor } = scene;
    scene.time = time;
    cursor.setAttribute("x1", x(time));
    cursor.setAttribute("x2", x(time));
    cursor.setAttribute("visibility", "visible");
    const band = line.phases[lastIndexAt(line.phases.map((entry) => entry[0]), time)];
    const phase = !band ? "" : band[2] < 0 ? ", phase unknown" : `, phase ${band[2]}`;
    const used = line.usage.map((one) => one.v[lastIndexAt(one.t, time)]);
    const parts = [`${duration(time)}${phase}: used ${amount(used[0])} cores, ${amount(used[1])} GiB`];
    for (const i of policies) {
      const own = line.allocations[i], at = lastIndexAt(own.t, time);
      if (at >= 0) parts.push(`${data.policies[i].name} ${amount(own.v[0][at])} cores, ${amount(own.v[1][at])} GiB`);
    }
    readout.textContent = parts.join(" · ");
    reasons(line, time);
  }

  function legend(line) {
    const list = byId("phase-legend");
    list.replaceChildren();
    const phases = [...new Set(line.phases.map((entry) => entry[2]))].sort((a, b) => a - b);
    for (const phase of phases) {
      const entry = html("span", list);
      const chip = html("span", entry, phase < 0 ? "?" : String(phase), phase < 0 ? "chip unknown" : "chip");
      if (phase >= 0) chip.style.setProperty("--chip", `var(--phase-${phase % data.phase_colours})`);
      html("span", entry, phase < 0 ? "unknown phase" : data.phases[phase] || `phase ${phase}`);
    }
  }

  function markLegend() {
    for (const [what, [words, path]] of Object.entries(MARKS)) {
      const entry = html("span", byId("mark-legend"));
      const sign = make("svg", { class: "sign", viewBox: "-6 -6 12 12", "aria-hidden": "true" }, entry);
      make("path", { class: `mark ${what}`, d: path }, sign);
      html("span", entry, words);
    }
  }

  // Of rows of the engine the reasons for the target at this time, of other policies those for the last decision.
  function reasons(line, time) {
    const section = byId("why");
    section.replaceChildren();
    const cards = Object.entries(line.reasons).map(([i, { t, v }]) => {
      const at = lastIndexAt(t, time);
      return { policy: data.policies[i].name, facts: at < 0 ? [] : [["since", duration(t[at])], ...v[at]] };
    });
    for (const { policy, facts } of [...cards, ...line.why]) {
      const card = html("div", section);
      html("h4", card, policy);
      const list = html("dl", card);
      for (const [key, value] of facts) {
        html("dt", list, key);
        html("dd", list, value);
      }
    }
    if (!section.children.length) html("p", section, "No policy gave a reason for this container.");
  }

  for (const box of boxes) {
    box.checked = data.policies[Number(box.value)].checked;
    box.addEventListener("change", draw);
  }
  byId("bands").addEventListener("change", draw);
  which.addEventListener("change", draw);
  if (byId("mark-legend")) markLegend();
  let pending = 0;
  let drawnWidth = drawing.clientWidth;
  new ResizeObserver(() => {
    if (drawing.clientWidth === drawnWidth) return;
    drawnWidth = drawing.clientWidth;
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(draw);
  }).observe(drawing);
  draw();
})();
