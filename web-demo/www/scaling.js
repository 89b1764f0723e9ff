// Throughput of 1 to N adapters beside the ideal line: measured here, and predicted for a rig that one describes.

import { byId, make, percent, say, short, whole } from "./dom.js";
import { firstLine } from "./notices.js";
import { OverAdapters } from "./over-adapters.js";
import { isGpu } from "./settings.js";

/** @import { Link } from "./link.js" */
/** @import { Member, Point, Report, Spread, Told } from "./messages.js" */

const TITLES = { strong: "Strong: constant batch", weak: "Weak: growing batch" };

const HEAD = ["adapters", "rows of each", "step ms", "rows/s", "of the sum"];

/** Efficiency that is shown as more than 100 %. */
const OVER = 1.005;
const OVER_SAYS = {
  strong: "More than 100 %: alone, each adapter computes the whole batch, of which it gets a part here; and small surpluses lie within the spread.",
  weak: "More than 100 %: together with others, a fast adapter gets more rows than alone, so its fixed times count less.",
};

/**
 * Lines of a number of adapters: their numbers, with the quartiles of measured ones, and the bottleneck of predicted ones.
 * @param {Point} point
 * @param {[low: number, high: number]} [spread] Of its rows a second.
 */
function lines({ n_adapters, batch_size, shares, step_ms, rows_per_s, efficiency, limit }, spread) {
  const n_idle = shares.filter((rows) => rows === 0).length;
  const range = (/** @type {(rows_per_s: number) => string} */ text) => (spread ? [text(spread[0]), text(spread[1])] : []);
  const [slow, fast] = range((speed) => short((batch_size / speed) * 1000));
  const cells = [
    [n_idle > 0 ? `${n_adapters}, ${n_idle} without rows` : String(n_adapters)], [shares.join(" + ")], [short(step_ms), fast, slow],
    [whole(rows_per_s), ...range(whole)], [percent(efficiency, 0), ...range((speed) => percent((efficiency * speed) / rows_per_s, 0)).map((text, at) => (at === 0 ? text.replace(" %", "") : text))],
  ];
  const line = make("tr", { className: limit ? "has-limit" : "" }, ...cells.map(([text, low, high]) => {
    const cell = make("td", { textContent: text });
    if (low) cell.append(make("small", { textContent: `${low}–${high}` }));
    return cell;
  }));
  const why = make("td", { colSpan: HEAD.length, textContent: limit });
  return limit ? [line, make("tr", { className: "limit" }, why)] : [line];
}

/** Two figures. */
class Pair {
  #box;
  /** @type {Record<keyof typeof TITLES, Half> | null} */
  #halves = null;

  /** @param {HTMLElement} box */
  constructor(box) {
    this.#box = box;
  }

  /**
   * @param {Report} report
   * @param {Spread} [spread]
   */
  show(report, spread) {
    if (!this.#halves) {
      this.#halves = { strong: new Half("strong"), weak: new Half("weak") };
      this.#box.append(this.#halves.strong.figure, this.#halves.weak.figure);
    }
    // A chart has the width of what is shown.
    this.#box.hidden = false;
    this.#halves.strong.fill(report.strong, spread?.strong);
    this.#halves.weak.fill(report.weak, spread?.weak);
  }
}

class Half extends OverAdapters {
  #over = make("p", { className: "remark" });

  /** @type {keyof typeof TITLES} */
  #kind;

  /** @param {keyof typeof TITLES} kind */
  constructor(kind) {
    super(TITLES[kind], {
      small: "samples/s", head: HEAD,
      curves: [{ name: "ideal", ink: "edge", width: 1.5, dash: [5, 4] }, { name: "together", ink: "ink", width: 2, points: true }],
    });
    this.#kind = kind;
    this.figure.append(this.#over);
  }

  /**
   * @param {Point[]} points
   * @param {[low: number, high: number][]} [spread]
   */
  fill(points, spread) {
    const last = points[points.length - 1];
    this.show({
      counts: points.map((point) => point.n_adapters),
      speeds: [points.map((point) => point.rows_per_s / point.efficiency), points.map((point) => point.rows_per_s)],
      spread, rows: points.flatMap((point, at) => lines(point, spread?.[at])),
      caption: last ? `${percent(last.efficiency, 0)} of the sum` : "",
    });
    const texts = [points.some(({ efficiency }) => efficiency >= OVER) ? OVER_SAYS[this.#kind] : "", spread ? unlike(points, spread) : ""];
    say(this.#over, texts.filter((text) => text).join(" "));
  }
}

/**
 * What a measurement can't tell.
 * @param {Point[]} points
 * @param {[low: number, high: number][]} spread
 */
function unlike(points, spread) {
  const alike = points.slice(1).filter((_, at) => spread[at + 1][0] <= spread[at][1] && spread[at][0] <= spread[at + 1][1]);
  return alike.map(({ n_adapters }) => `${n_adapters - 1} and ${n_adapters} adapters can’t be told apart: their bars overlap.`).join(" ");
}

/**
 * How many times as fast all adapters are as the fastest of them alone, with the same batch.
 * @param {Point[]} points
 */
function gain(points) {
  const sums = points.map(({ rows_per_s, efficiency }) => rows_per_s / efficiency);
  const alone = sums.map((sum, at) => sum - (at > 0 ? sums[at - 1] : 0));
  return points[points.length - 1].rows_per_s / Math.max(...alone);
}

/** Measures the rig of this page. */
export class Measurement {
  #pair = new Pair(byId("measured", HTMLElement));
  #button = byId("measure", HTMLButtonElement);
  /** How much faster all are than the fastest alone, beside the speed; measured when it is clicked. */
  #gain = byId("fact-gain", HTMLButtonElement);
  /** The adapters as they are, and as they were when they were measured. */
  #rig = "";
  #measured = "";
  #is_ready = false;
  #gained = "";
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
    for (const button of [this.#button, this.#gain]) {
      button.addEventListener("click", ({ detail }) => {
        // The second click of a double one would cancel what the first began.
        if (detail > 1) return;
        if (this.#is_running) link.send({ type: "cancel" });
        else void this.#measure();
      });
    }
  }

  async #measure() {
    this.#is_running = true;
    this.#button.textContent = "Cancel";
    this.#showGain("…");
    say(this.#says, "Measuring…");
    const rig = this.#rig;
    try {
      const { report, spread, rounds } = await this.#link.ask({ type: "measure", batch_size: this.#batchSize() });
      this.#pair.show(report, spread);
      this.#measured = rig;
      this.#gained = gain(report.strong).toFixed(2);
      say(this.#says, `Batch of ${report.batch_size}; in the order ${report.adapters.join(", ")}. Medians of ${rounds} rounds in alternation; half of the steps lie within a bar, and within the small numbers.`);
    } catch (error) {
      say(this.#says, firstLine(/** @type {Error} */ (error).message));
    }
    this.#is_running = false;
    this.#button.textContent = "Measure again";
    this.#showGain();
  }

  /** @param {string} [text] */
  #showGain(text) {
    const is_known = this.#gained !== "" && this.#measured === this.#rig;
    const is_one = !this.#rig.includes(",");
    say(this.#gain, text ?? (is_one ? "–" : is_known ? this.#gained : this.#is_ready ? "measure" : "–"));
    this.#gain.disabled = is_one || (!this.#is_ready && !this.#is_running);
  }

  /** @param {Told<"measuring">} event */
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
    this.#rig = members.filter(({ presence }) => presence === "active").map(({ id, throttle }) => `${id}:${throttle}`).join(",");
    this.#showGain(this.#is_running ? "…" : undefined);
    const shared = members.some(({ info, shares_device_with }) => isGpu(info) && shares_device_with !== null);
    const on_processor = members.filter(({ info }) => info.kind === "cpu" || info.kind === "software").length;
    const texts = [];
    if (members.length === 1) texts.push("There is one adapter: add another to see scaling.");
    if (shared) texts.push("Devices on one GPU share it: they are not further GPUs, so expect no gain.");
    if (on_processor > 1) texts.push("Adapters that compute on the CPU share its cores: together they are not as fast as the sum of each alone, but for the spread.");
    say(byId("scaling-honest", HTMLElement), texts.join(" "));
  }

  /** @param {boolean} is_ready */
  set enabled(is_ready) {
    this.#button.disabled = !is_ready && !this.#is_running;
    this.#is_ready = is_ready;
    this.#showGain(this.#is_running ? "…" : undefined);
  }
}

/** Shows predictions. */
export class Prediction extends Pair {
  constructor() {
    super(byId("predicted", HTMLElement));
  }
}
