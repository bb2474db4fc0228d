/**
 * The dashboard of a run, an anywidget front end without dependencies.
 *
 * The kernel pushes the trait `view` (see view.py); `per_rank`, `log_scale` and `stopping` are the user's choices.
 * Text from the run is only ever set as text, never as HTML.
 */

import { Chart, make, number } from "./chart.js";

/** Return seconds as 0:07 or 1:02:03. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (part) => String(part).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  return value >= 1e9 ? `${(value / 1e9).toFixed(1)} GB` : `${Math.round(value / 1e6)} MB`;
}

function stepTime(seconds) {
  if (seconds === null) return "–";
  return seconds < 1 ? `${number(Number((seconds * 1000).toPrecision(3)))} ms` : `${number(seconds)} s`;
}

const percent = (value) => (value === null ? "–" : `${Math.round(value)} %`);

/** Return the bar of one progress record. */
function bar(progress) {
  const { name, done, total, seconds_left: left } = progress;
  const share = total ? Math.min(1, done / total) : null;
  const count = total ? `${number(Math.floor(done))} of ${number(total)}` : `${number(Math.floor(done))} done`;
  const soon = left !== null && left < 0.5 ? "a moment left" : left !== null && `${duration(left)} left`;
  const rest = share === 1 ? "done" : soon;
  const label = name || "progress";
  const text = make("div", { class: "fd-bar-text" }, make("span", {}, label), make("span", { class: "fd-muted" }));
  text.lastChild.textContent = [share === null ? "" : percent(share * 100), count, rest].filter(Boolean).join(" · ");
  const track = make("div", {
    class: "fd-track",
    role: "progressbar",
    "aria-label": label,
    "aria-valuemin": 0,
    "aria-valuemax": 100,
  });
  if (share !== null) {
    track.setAttribute("aria-valuenow", Math.round(share * 100));
    track.append(make("div", { class: "fd-fill", style: `width: ${(share * 100).toFixed(1)}%` }));
  }
  return make("div", {}, text, track);
}

/** Return the rows of the table of ranks; columns that no rank fills are left out. */
function tableRows(ranks) {
  const gpu = ranks.some((row) => row.gpu !== null || row.gpu_memory !== null);
  const names = [
    "rank",
    "worker",
    "state",
    "CPU",
    "memory",
    ...(gpu ? ["GPU", "GPU memory"] : []),
    "samples/s",
    "step",
  ];
  const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
  return [head, ranks.map((row) => tableRow(row, gpu))];
}

function tableRow(row, gpu) {
  const cells = [percent(row.cpu), bytes(row.memory)];
  if (gpu) cells.push(percent(row.gpu), gpuMemory(row));
  cells.push(number(row.samples_per_second));
  const step = make("td", {}, stepTime(row.step_seconds));
  if (row.slowest) step.prepend(make("span", { class: "fd-slow" }, "slowest"), " ");
  const state = make("td", {}, make("span", { class: "fd-state", "data-status": row.state }, row.state));
  const lead = [make("th", { scope: "row" }, String(row.rank)), make("td", { title: row.worker }, row.worker), state];
  return make("tr", {}, ...lead, ...cells.map((cell) => make("td", {}, cell)), step);
}

function gpuMemory(row) {
  return row.gpu_memory_total ? `${bytes(row.gpu_memory)} of ${bytes(row.gpu_memory_total)}` : bytes(row.gpu_memory);
}

/** The whole dashboard on one element. */
class Dashboard {
  constructor(model, root) {
    this.model = model;
    this.charts = new Map();
    this.pressed = false;
    this.status = make("span", { class: "fd-status", role: "status" });
    this.title = make("span", { class: "fd-title" });
    this.facts = make("span", { class: "fd-facts" });
    this.stop = make("button", { class: "fd-stop", type: "button" }, "Stop");
    this.stop.addEventListener("click", () => this.pressStop());
    this.notes = make("div", { class: "fd-notes" });
    this.bars = make("div", { class: "fd-bars" });
    this.perRank = make("button", { class: "fd-small", type: "button" }, "one line a rank");
    this.perRank.addEventListener("click", () => this.set("per_rank", !model.get("per_rank")));
    this.tools = make("div", { class: "fd-tools" }, make("h4", {}, "Reports"), this.perRank);
    this.grid = make("div", { class: "fd-charts" });
    this.head = make("thead");
    this.body = make("tbody");
    const table = make("table", { class: "fd-table", "aria-label": "Ranks" }, this.head, this.body);
    this.logs = make("div");
    const logs = make("details", { class: "fd-logs" }, make("summary", {}, "Last log lines"), this.logs);
    const head = make("div", { class: "fd-head" }, this.status, this.title, this.facts, this.stop);
    const scroll = make("div", { class: "fd-scroll" }, table);
    const card = make("div", { class: "fd-card" }, head, this.notes, this.bars, this.tools, this.grid, scroll, logs);
    root.append(make("section", { class: "fd", "aria-label": "Training run" }, card));
  }

  set(name, value) {
    this.model.set(name, value);
    this.model.save_changes();
    this.update();
  }

  /** Ask the kernel to stop; it answers with the trait `stopping`, late where it is busy. */
  pressStop() {
    this.pressed = true;
    this.model.send({ type: "stop" });
    this.update();
  }

  update() {
    const view = this.model.get("view");
    if (!view?.id) return;
    this.updateHead(view);
    this.bars.replaceChildren(...view.progress.map(bar));
    this.updateCharts(view);
    const [head, rows] = tableRows(view.ranks);
    this.head.replaceChildren(head);
    this.body.replaceChildren(...rows);
    this.updateLogs(view.ranks);
  }

  updateHead(view) {
    const stopping = (this.pressed || this.model.get("stopping")) && !view.ended;
    this.status.textContent = stopping ? "stopping" : view.status;
    this.status.dataset.status = view.status;
    this.title.textContent = view.name || view.id;
    this.title.title = view.id;
    const speed = view.samples_per_second ? `${number(view.samples_per_second)} samples/s` : "";
    const ranks = view.size === 1 ? "1 rank" : `${view.size} ranks`;
    this.facts.textContent = [duration(view.elapsed), ranks, view.backend, speed].filter(Boolean).join(" · ");
    this.stop.disabled = view.ended || stopping;
    this.stop.textContent = stopping ? "Stopping…" : "Stop";
    const notes = view.notices.map((text) => make("div", { class: "fd-note" }, text));
    if (view.error) notes.unshift(make("div", { class: "fd-note", "data-kind": "error" }, view.error));
    this.notes.replaceChildren(...notes);
  }

  updateCharts(view) {
    this.tools.hidden = !view.series.length;
    this.tools.style.display = view.series.length ? "" : "none";
    this.perRank.setAttribute("aria-pressed", String(this.model.get("per_rank")));
    for (const series of view.series) {
      const isNew = !this.charts.has(series.name);
      if (isNew) this.addChart(series.name);
      const chart = this.charts.get(series.name);
      chart.update(series, this.model.get("log_scale").includes(series.name));
      if (isNew) chart.resize();
    }
  }

  addChart(name) {
    const chart = new Chart(name, () => this.toggleLog(name));
    this.charts.set(name, chart);
    this.grid.append(chart.root);
  }

  toggleLog(name) {
    const names = this.model.get("log_scale");
    this.set("log_scale", names.includes(name) ? names.filter((other) => other !== name) : [...names, name]);
  }

  updateLogs(ranks) {
    const written = ranks.filter((row) => row.log.length);
    this.logs.parentElement.hidden = !written.length;
    const blocks = written.map((row) =>
      make(
        "div",
        { class: "fd-log" },
        make("span", { class: "fd-muted" }, `rank ${row.rank}`),
        make("pre", {}, row.log.join("\n")),
      ),
    );
    this.logs.replaceChildren(...blocks);
  }

  resize() {
    for (const chart of this.charts.values()) chart.resize();
  }
}

/** Show the model on an element; returns what to do when the view goes away. */
function render({ model, el }) {
  const dashboard = new Dashboard(model, el);
  const update = () => dashboard.update();
  const names = ["view", "per_rank", "log_scale", "stopping"];
  for (const name of names) model.on(`change:${name}`, update);
  const observer = new ResizeObserver(() => dashboard.resize());
  observer.observe(el);
  update();
  return () => {
    observer.disconnect();
    for (const name of names) model.off(`change:${name}`, update);
  };
}

export default { render };
