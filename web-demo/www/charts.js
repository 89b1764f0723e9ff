// uPlot in this page's clothes: one look for all charts, that of page.css, light or dark.

import { colour, onScheme } from "./dom.js";

/** @import uPlot from "uplot" */

/** Narrowest, in pixels. */
const SMALLEST = 160;
/** Lines in which the texts of marks stand, so that none covers another, and the height of one. */
const [MARK_LINES, MARK_HEIGHT] = [3, 12];
/** Half the width of a bar's ends. */
const BAR_END = 4;

/** Distances of ticks on the x axis, which counts steps or adapters. */
const WHOLE = [1, 10, 100, 1000, 10_000, 100_000].flatMap((unit) => [unit, 2 * unit, 5 * unit]);
const LIBRARY = "./vendor/uPlot.esm.js";
/** @type {typeof uPlot | undefined} */
let Plot;
/** Loads the library, if no one has. */
let load = () => {};
/** Ends when the library is there, or can't be loaded. @type {Promise<void>} */
const loaded = new Promise((resolve, refuse) => {
  load = () => {
    load = () => {};
    import(LIBRARY).then((library) => { Plot = library.default; }).then(resolve, refuse);
  };
});

/**
 * A line of a chart.
 * @typedef {object} Line
 * @property {string} name
 * @property {string} ink Name of a colour of page.css.
 * @property {number} [width]
 * @property {number[]} [dash]
 * @property {boolean} [points] Marks each value; lines between them pass over gaps.
 */

/**
 * A mark at a place of the x axis.
 * @typedef {{ at: number, text: string }} Mark
 */

/**
 * An upright line from a value to another.
 * @typedef {{ at: number, low: number, high: number }} Bar
 */

/**
 * @typedef {object} Look
 * @property {Line[]} lines
 * @property {(value: number) => string} [format] Of the y axis.
 * @property {(low: number, high: number) => [number, number]} range Of the y axis.
 * @property {(low: number, high: number) => [number, number]} [across] Of the x axis.
 * @property {number[]} [ticks] Of the x axis.
 * @property {(at: number | null) => void} [point] Called with the index that is pointed at.
 */

export class Chart {
  /** @type {uPlot | null} */
  #plot = null;
  /** @type {(number | null)[][]} */
  #data;
  /** @type {Mark[]} */
  marks = [];
  /** @type {Bar[]} */
  bars = [];
  #element;
  #look;
  #end = new AbortController();

  /**
   * @param {HTMLElement} element
   * @param {Look} look
   */
  constructor(element, look) {
    this.#element = element;
    this.#look = look;
    this.#data = [[], ...look.lines.map(() => [])];
    const observer = new ResizeObserver(() => this.#fit());
    observer.observe(element);
    this.#end.signal.addEventListener("abort", () => observer.disconnect());
    onScheme(() => this.#make(), this.#end.signal);
    if (Plot) this.#make();
    // All but the charts works without it.
    else loaded.then(() => this.#make(), () => {
      // A picture's text is not read aloud.
      element.removeAttribute("role");
      element.textContent = "The library of charts did not load. Load the page again.";
    });
  }

  /** Draws no more. */
  close() {
    this.#end.abort();
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** The x axis, then each line. The library comes with the first value, behind the engine: until then there are no axes, either. @param {(number | null)[][]} data */
  set data(data) {
    this.#data = data;
    if (data[0].length > 0) load();
    this.#plot?.setData(/** @type {uPlot.AlignedData} */ (data));
  }

  #fit() {
    const { width, height } = this.#size();
    if (this.#plot && (this.#plot.width !== width || this.#plot.height !== height)) this.#plot.setSize({ width, height });
  }

  /** That of the element in pixels, whose height page.css gives. */
  #size() {
    return { width: Math.max(SMALLEST, Math.floor(this.#element.clientWidth)), height: parseFloat(getComputedStyle(this.#element).height) };
  }

  #make() {
    this.#plot?.destroy();
    if (!Plot || this.#end.signal.aborted) return;
    const { lines, format, range, across, ticks, point } = this.#look;
    const [ink, soft, line, paper] = ["ink", "soft", "line", "paper"].map(colour);
    const font = `11px ${colour("mono")}`;
    const axis = { stroke: soft, font, grid: { stroke: line, width: 1 }, ticks: { show: false }, gap: 6 };
    /** @type {uPlot.Options} */
    const options = {
      ...this.#size(),
      padding: [10, 16, 0, 0],
      legend: { show: false },
      cursor: { x: true, y: false, drag: { x: false, y: false }, points: { size: 7, width: 2 } },
      scales: {
        x: { time: false, range: (_, low, high) => (across ? across(low, high) : [low ?? 0, Math.max(high ?? 1, (low ?? 0) + 1)]) },
        y: { range: (_, low, high) => range(low ?? 0, high ?? 1) },
      },
      axes: [
        { ...axis, size: 26, space: 60, incrs: WHOLE, grid: { show: false }, ...(ticks ? { splits: () => ticks } : {}) },
        { ...axis, size: 44, space: 36, ...(format ? { values: (_, splits) => splits.map(format) } : {}) },
      ],
      series: [
        {},
        ...lines.map((it) => ({
          label: it.name,
          stroke: colour(it.ink),
          width: it.width ?? 1.75,
          ...(it.dash ? { dash: it.dash } : {}),
          spanGaps: it.points === true,
          points: { show: it.points === true, size: 7, width: 2, stroke: colour(it.ink), fill: paper },
        })),
      ],
      hooks: {
        // Beneath the points.
        drawAxes: [(plot) => this.#drawBars(plot, ink)],
        draw: [(plot) => this.#drawMarks(plot, ink, font)],
        setCursor: [(plot) => point?.(plot.cursor.idx ?? null)],
      },
    };
    this.#plot = new Plot(options, /** @type {uPlot.AlignedData} */ (this.#data), this.#element);
  }

  /**
   * @param {uPlot} plot
   * @param {string} ink
   * @param {string} font
   */
  #drawMarks(plot, ink, font) {
    const { ctx: context, bbox } = plot;
    const ratio = window.devicePixelRatio || 1;
    context.save();
    context.strokeStyle = context.fillStyle = ink;
    context.lineWidth = ratio;
    context.setLineDash([2 * ratio, 3 * ratio]);
    context.font = font.replace("11px", `${11 * ratio}px`);
    context.textBaseline = "top";
    context.textAlign = "left";
    /** Where the last text of each line ends. */
    const ends = Array(MARK_LINES).fill(-Infinity);
    for (const { at, text } of this.marks) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      context.beginPath();
      context.moveTo(x, bbox.top);
      context.lineTo(x, bbox.top + bbox.height);
      context.stroke();
      const wide = context.measureText(text).width;
      const is_at_end = x + wide + 4 * ratio > bbox.left + bbox.width;
      const left = is_at_end ? x - wide - 4 * ratio : x + 4 * ratio;
      const line = ends.findIndex((end) => end < left);
      // Where no line has room, the mark stands without its text.
      if (line < 0) continue;
      ends[line] = left + wide + 4 * ratio;
      context.fillText(text, left, bbox.top + line * MARK_HEIGHT * ratio);
    }
    context.restore();
  }

  /**
   * @param {uPlot} plot
   * @param {string} ink
   */
  #drawBars(plot, ink) {
    const { ctx: context } = plot;
    const ratio = window.devicePixelRatio || 1;
    context.save();
    context.strokeStyle = ink;
    context.lineWidth = 1.5 * ratio;
    for (const { at, low, high } of this.bars) {
      const x = plot.valToPos(at, "x", true);
      const [top, bottom] = [plot.valToPos(high, "y", true), plot.valToPos(low, "y", true)];
      context.beginPath();
      for (const y of [top, bottom]) {
        context.moveTo(x - BAR_END * ratio, y);
        context.lineTo(x + BAR_END * ratio, y);
      }
      context.moveTo(x, top);
      context.lineTo(x, bottom);
      context.stroke();
    }
    context.restore();
  }
}
