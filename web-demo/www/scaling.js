// Throughput of 1 to N adapters beside the ideal line: measured here, and predicted for a rig that one describes.

import { Chart } from "./charts.js";
import { byId, make, percent, say, short, whole } from "./dom.js";
import { firstLine } from "./notices.js";
import { isGpu } from "./settings.js";

/** @import { Link } from "./link.js" */
/** @import { Measuring, Member, Point, Report } from "./messages.js" */

const TITLES = { strong: "Strong: constant batch", weak: "Weak: growing batch" };

const HEAD = ["adapters", "rows of each", "step ms", "rows/s", "of the sum"];

/** Efficiency that is shown as more than 100 %. */
const OVER = 1.005;
const OVER_SAYS = "More than 100 %: together with others, a fast adapter gets more rows than alone, so its fixed times count less.";

/** Line with the bottleneck of a number of adapters. @param {Point} point */
function lines({ n_adapters, shares, step_ms, rows_per_s, efficiency, limit }) {
  const n_idle = shares.filter((rows) => rows === 0).length;
  const texts = [n_idle > 0 ? `${n_adapters}, ${n_idle} without rows` : String(n_adapters), shares.join(" + "), short(step_ms), whole(rows_per_s), percent(efficiency, 0)];
  const line = make("tr", { className: limit ? "has-limit" : "" }, ...texts.map((text) => make("td", { textContent: text })));
  const why = make("td", { colSpan: HEAD.length, textContent: limit });
  return limit ? [line, make("tr", { className: "limit" }, why)] : [line];
}

/** Two charts with their tables. */
class Pair {
  #box;
  /** @type {number[]} */
  #counts = [];
  /** @type {Chart[]} */
  #charts = [];

  /** @param {HTMLElement} box */
  constructor(box) {
    this.#box = box;
  }

  /** @param {Report} report */
  show(report) {
    this.#box.hidden = false;
    this.#counts = report.strong.map((point) => point.n_adapters);
    // A chart keeps its ticks: it is made anew for another number of adapters.
    this.#charts.forEach((chart) => chart.close());
    const halves = { strong: this.#half("strong"), weak: this.#half("weak") };
    this.#charts = [halves.strong.chart, halves.weak.chart];
    this.#box.replaceChildren(halves.strong.figure, halves.weak.figure);
    this.#fill(halves.strong, report.strong);
    this.#fill(halves.weak, report.weak);
  }

  /** @param {"strong" | "weak"} scaling */
  #half(scaling) {
    const caption = make("span", { className: "number" });
    const element = make("div", { className: "chart", role: "img", ariaLabel: `${TITLES[scaling]}: samples each second over the number of adapters` });
    const table = make("table");
    const over = make("p", { className: "remark" });
    const figure = make(
      "figure", {}, make("figcaption", {}, make("span", {}, TITLES[scaling], make("small", { textContent: " samples/s" })), caption), element, make("div", { className: "scroll", tabIndex: 0 }, table), over,
    );
    figure.querySelector(".scroll")?.setAttribute("role", "region");
    figure.querySelector(".scroll")?.setAttribute("aria-label", `${TITLES[scaling]}: the numbers`);
    const counts = this.#counts;
    const chart = new Chart(element, {
      lines: [
        { name: "ideal", ink: "edge", width: 1.5, dash: [5, 4] },
        { name: "together", ink: "ink", width: 2, points: true },
      ],
      range: (_, high) => [0, high * 1.12],
      across: () => [0.75, counts.length + 0.25],
      ticks: counts,
      format: (value) => (value >= 10_000 ? `${Math.round(value / 1000)}k` : String(Math.round(value))),
    });
    return { chart, table, caption, over, figure };
  }

  /**
   * @param {{ chart: Chart, table: HTMLTableElement, caption: HTMLElement, over: HTMLElement }} half
   * @param {Point[]} points
   */
  #fill({ chart, table, caption, over }, points) {
    const ideal = points.map((point) => point.rows_per_s / point.efficiency);
    chart.data = [points.map((point) => point.n_adapters), ideal, points.map((point) => point.rows_per_s)];
    const last = points[points.length - 1];
    if (last) say(caption, `${percent(last.efficiency, 0)} of the sum`);
    say(over, points.some(({ efficiency }) => efficiency >= OVER) ? OVER_SAYS : "");
    const head = HEAD.map((text) => make("th", { scope: "col", textContent: text }));
    table.replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...points.flatMap(lines)));
  }
}

/** Measures the rig of this page. */
export class Measurement {
  #pair = new Pair(byId("measured", HTMLElement));
  #button = byId("measure", HTMLButtonElement);
  #says = byId("measure-says", HTMLElement);
  #is_running = false;
  #link;
  #batchSize;

  /**
   * @param {Link} link
   * @param {() => number} batchSize
   */
  constructor(link, batchSize) {
    this.#link = link;
    this.#batchSize = batchSize;
    this.#button.addEventListener("click", ({ detail }) => {
      // The second click of a double one would cancel what the first began.
      if (detail > 1) return;
      if (this.#is_running) link.send({ type: "cancel" });
      else void this.#measure();
    });
  }

  async #measure() {
    this.#is_running = true;
    this.#button.textContent = "Cancel";
    say(this.#says, "Measuring…");
    try {
      const { report } = await this.#link.ask({ type: "measure", batch_size: this.#batchSize() });
      this.#pair.show(report);
      say(this.#says, `Batch of ${report.batch_size}; in the order ${report.adapters.join(", ")}.`);
    } catch (error) {
      say(this.#says, firstLine(/** @type {Error} */ (error).message));
    }
    this.#is_running = false;
    this.#button.textContent = "Measure again";
  }

  /** @param {Measuring} event */
  progress({ scaling, n_adapters, done, total }) {
    const what = scaling === "alone" ? "each alone" : `${scaling} scaling, ${n_adapters} ${n_adapters === 1 ? "adapter" : "adapters"}`;
    // The region is live: a percentage at each part would be read aloud each time.
    say(this.#says, `Measuring ${what}: part ${done + 1} of ${total}.`);
  }

  /**
   * Limits of the ideal line on this machine.
   * @param {Member[]} members
   */
  set members(members) {
    const shared = members.some(({ info, shares_device_with }) => isGpu(info) && shares_device_with !== null);
    const on_processor = members.filter(({ info }) => info.kind === "cpu" || info.kind === "software").length;
    const texts = [];
    if (members.length === 1) texts.push("There is one adapter: add another to see scaling.");
    if (shared) texts.push("Devices on one GPU share it: they are not further GPUs, so expect no gain.");
    if (on_processor > 1) texts.push("Adapters that compute on the CPU share its cores, so together they fall short of the dashed line.");
    say(byId("scaling-honest", HTMLElement), texts.join(" "));
  }

  /** @param {boolean} is_ready */
  set enabled(is_ready) {
    this.#button.disabled = !is_ready && !this.#is_running;
  }
}

/** Shows predictions. */
export class Prediction extends Pair {
  constructor() {
    super(byId("predicted", HTMLElement));
  }
}
