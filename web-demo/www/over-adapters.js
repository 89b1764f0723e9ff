// A figure of samples each second over the number of adapters: a chart, and a table of its numbers.

import { Chart } from "./charts.js";
import { make, say, whole } from "./dom.js";

/** @import { Line } from "./charts.js" */

/**
 * @typedef {object} Shown
 * @property {number[]} counts Of adapters.
 * @property {(number | null)[][]} speeds Of each curve.
 * @property {[low: number, high: number][]} [spread] Of the last curve.
 * @property {HTMLTableRowElement[]} rows
 * @property {string} caption
 */

export class OverAdapters {
  /** @type {string} */
  #title;
  /** @type {Line[]} */
  #curves;
  #caption = make("span", { className: "number" });
  #box;
  #head;
  #table = make("table");
  /** @type {Chart | null} */
  #chart = null;
  figure;

  /**
   * @param {string} title
   * @param {{ small: string, head: string[], curves: Line[] }} about Small print of the title, head of the table.
   */
  constructor(title, { small, head, curves }) {
    [this.#title, this.#curves] = [title, curves];
    this.#box = make("div", { className: "chart", role: "img", ariaLabel: this.#label("") });
    this.#head = make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col", textContent: text }))));
    const scroll = make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: `${title}: the numbers` }, this.#table);
    this.figure = make("figure", {}, make("figcaption", {}, make("span", {}, title, make("small", { textContent: ` ${small}` })), this.#caption), this.#box, scroll);
  }

  /** @param {string} more */
  #label(more) {
    return `${this.#title}: samples each second over the number of adapters${more}`;
  }

  /** @param {Shown} shown */
  show({ counts, speeds, spread, rows, caption }) {
    // A chart keeps its ticks: it is made anew for another number of adapters.
    this.close();
    this.#chart = new Chart(this.#box, {
      lines: this.#curves,
      range: (_, high) => [0, Math.max(high, ...(spread ?? []).map(([, most]) => most)) * 1.12],
      across: () => [0.75, counts.length + 0.25],
      ticks: counts,
      format: (value) => (value >= 10_000 ? `${Math.round(value / 1000)}k` : String(Math.round(value))),
    });
    this.#chart.bars = (spread ?? []).map(([low, high], at) => ({ at: counts[at], low, high }));
    this.#chart.data = [counts, ...speeds];
    this.#table.replaceChildren(this.#head, make("tbody", {}, ...rows));
    this.#box.ariaLabel = this.#label(`. ${this.#curves.map(({ name }, at) => spoken(name, counts, speeds[at])).join(". ")}. The table has all numbers`);
    say(this.#caption, caption);
  }

  /** Draws no more. */
  close() {
    this.#chart?.close();
    this.#chart = null;
  }
}

/**
 * A curve in words: its ends, and its highest point between them.
 * @param {string} name
 * @param {number[]} counts
 * @param {(number | null)[]} speeds
 */
function spoken(name, counts, speeds) {
  const known = speeds.flatMap((speed, at) => (speed === null ? [] : [{ speed, count: counts[at] }]));
  if (known.length === 0) return `${name}: no number`;
  const told = new Set([known[0], known.reduce((most, one) => (one.speed > most.speed ? one : most)), known[known.length - 1]]);
  return `${name}: ${[...told].sort((a, b) => a.count - b.count).map(({ speed, count }) => `${whole(speed)} with ${count}`).join(", ")}`;
}
