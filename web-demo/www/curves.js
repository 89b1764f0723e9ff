// Loss, accuracy and speed over the training steps.

import { Chart } from "./charts.js";
import { BITS, byId, paced, percent, say, whole } from "./dom.js";
import { Pace } from "./pace.js";

/** @import { EpochLog, StepLog, Task } from "./messages.js" */
/** @import { Mark } from "./charts.js" */
/** @import { Check } from "./check.js" */

/** Points of a curve; above, pairs become one. */
const MOST_POINTS = 1200;
/** Steps over which a bold line looks back, about. */
const LOOK_BACK = 8;
const REDRAW_MS = 250;
/** Marks of events nearer to each other than this part of the axis would cover each other. */
const NEAR = 0.03;

/** @typedef {{ step: number, loss: number, accuracy: number, speed: number, gap: number }} Numbers `gap`: to the loss of one adapter alone; NaN where it was not computed. */

const AVERAGED = /** @type {const} */ (["loss", "accuracy"]);

export class Curves {
  /** @type {{ raw: Numbers, smooth: Numbers }[]} */
  #points = [];
  /** @type {{ raw: Numbers, smooth: Numbers }[]} Steps not yet merged into a point. */
  #open = [];
  #stride = 1;
  /** @type {Numbers | null} Running means, and their weight. */
  #mean = null;
  #weight = 0;
  #pace = new Pace();
  /** @type {EpochLog[]} */
  #epochs = [];
  /** @type {Mark[]} */
  #marks = [];
  #draw = paced(() => this.#redraw(), REDRAW_MS);

  /** In which losses are shown: those of a text in bits. */
  #unit = 1;
  /** The loss by the frequencies of characters alone. @type {number | null} */
  #chance = null;

  #check;
  /** The point that is pointed at. @type {number | null} */
  #pointed = null;

  /** @param {Check} check */
  constructor(check) {
    this.#check = check;
    const alone = { ink: "a0", width: 0, points: true, name: "one adapter alone" };
    const point = (/** @type {number | null} */ at) => {
      this.#pointed = at;
      this.#tell();
    };
    const batch = { ink: "edge", width: 1, name: "each batch" };
    const smooth = { ink: "ink", width: 2, name: "smoothed" };
    const test = { ink: "ink", width: 1, dash: [4, 4], points: true, name: "test rows" };
    const chance = { ink: "edge", width: 1, dash: [1, 4], name: "frequencies alone" };
    /** @param {number} _ @param {number} high @returns {[number, number]} */
    const from0 = (_, high) => [0, high > 0 ? high * 1.08 : 1];
    this.loss = new Chart(byId("loss-chart", HTMLElement), { lines: [{ ...batch, ink: "ink" }, alone, test, chance], range: from0, format: (v) => v.toFixed(1), point });
    this.accuracy = new Chart(byId("accuracy-chart", HTMLElement), {
      lines: [batch, smooth, test], range: () => [0, 1.12], format: (value) => `${Math.round(100 * value)} %`, point,
    });
    this.speed = new Chart(byId("speed-chart", HTMLElement), { lines: [batch, smooth], range: from0, format: (v) => compact(v), point });
  }

  /** @param {StepLog[]} steps */
  take(steps) {
    for (const log of steps) {
      const { step, loss, accuracy, rows, clock_ms, alone } = log;
      this.#pace.add(rows, clock_ms);
      const raw = { step, loss: loss * this.#unit, accuracy, speed: (1000 * rows) / clock_ms, gap: alone ? (alone.loss - loss) * this.#unit : NaN };
      this.#check.take(log);
      this.#open.push({ raw, smooth: this.#smoothed(raw) });
      if (this.#open.length >= this.#stride) this.#close();
    }
    this.#draw();
  }

  /** @param {EpochLog} epoch */
  takeEpoch(epoch) {
    this.#epochs.push({ ...epoch, val_loss: epoch.val_loss * this.#unit });
    this.#draw();
  }

  /**
   * Marks an event.
   * @param {number} step
   * @param {string} text A letter or two.
   */
  mark(step, text) {
    this.#marks.push({ at: step, text });
    this.#draw();
  }

  /**
   * Removes a step and all later ones.
   * @param {number} first
   */
  goBackTo(first) {
    const is_before = (/** @type {{ raw: Numbers }} */ { raw }) => raw.step < first;
    [this.#points, this.#open] = [this.#points.filter(is_before), this.#open.filter(is_before)];
    this.#epochs = this.#epochs.filter(({ step }) => step < first);
    this.#marks = this.#marks.map((mark) => ({ ...mark, at: Math.min(mark.at, first) }));
  }

  /** Other data are learned. @param {Task} task */
  set task({ frequencies_loss }) {
    this.#unit = frequencies_loss === null ? 1 : BITS;
    this.#chance = frequencies_loss === null ? null : frequencies_loss * this.#unit;
    say(byId("loss-unit", HTMLElement), frequencies_loss === null ? "" : ", bits a character");
  }

  /** What brings back the curves of now, for the same data. */
  keep() {
    const [points, open, epochs, marks] = [this.#points, this.#open, this.#epochs, this.#marks];
    const [stride, mean, weight, pace] = [this.#stride, this.#mean, this.#weight, this.#pace];
    return () => {
      [this.#points, this.#open, this.#epochs, this.#marks] = [points, open, epochs, marks];
      [this.#stride, this.#mean, this.#weight, this.#pace] = [stride, mean, weight, pace];
      this.#draw();
    };
  }

  clear() {
    [this.#points, this.#open, this.#epochs, this.#marks] = [[], [], [], []];
    [this.#stride, this.#mean, this.#weight, this.#pace] = [1, null, 0, new Pace()];
    this.#draw();
  }

  /**
   * A running mean that is right from its first value on.
   * @param {Numbers} raw
   */
  #smoothed(raw) {
    const keep = 1 - 1 / LOOK_BACK;
    this.#weight = this.#weight * keep + 1;
    const mean = this.#mean ?? { ...raw };
    for (const name of AVERAGED) mean[name] += (raw[name] - mean[name]) / this.#weight;
    this.#mean = mean;
    return { ...raw, loss: mean.loss, accuracy: mean.accuracy, speed: this.#pace.samples_per_s };
  }

  #close() {
    this.#points.push(merged(this.#open));
    this.#open = [];
    if (this.#points.length < MOST_POINTS) return;
    const halves = [];
    for (let at = 0; at + 1 < this.#points.length; at += 2) halves.push(merged(this.#points.slice(at, at + 2)));
    this.#points = halves;
    this.#stride *= 2;
  }

  #redraw() {
    const steps = this.#points.map(({ raw }) => raw.step);
    const of = (/** @type {"raw" | "smooth"} */ which, /** @type {keyof Numbers} */ name) => this.#points.map((point) => point[which][name]);
    const test = (/** @type {"val_loss" | "val_accuracy"} */ name) => {
      /** @type {(number | null)[]} */
      const values = steps.map(() => null);
      // Both go up.
      let at = 0;
      for (const epoch of this.#epochs) {
        while (at < steps.length && steps[at] < epoch.step) at += 1;
        if (at < steps.length) values[at] = epoch[name];
      }
      return values;
    };
    const marks = apart(this.#marks, steps[steps.length - 1] ?? 1);
    for (const chart of [this.loss, this.accuracy, this.speed]) chart.marks = marks;
    // Where several steps are a point, their mean with the gap.
    const alone = this.#points.map(({ raw }) => (Number.isNaN(raw.gap) ? null : raw.loss + raw.gap));
    this.loss.data = [steps, of("raw", "loss"), alone, test("val_loss"), steps.map(() => this.#chance)];
    this.accuracy.data = [steps, of("raw", "accuracy"), of("smooth", "accuracy"), test("val_accuracy")];
    this.speed.data = [steps, of("raw", "speed"), of("smooth", "speed")];
    const chance = this.#chance === null ? "" : `Dotted: ${this.#chance.toFixed(2)} bits, by the frequencies of the characters alone. `;
    say(byId("check-says", HTMLElement), `${chance}${this.#check.says}`);
    const [now, first] = [this.#mean, this.#points[0]?.raw];
    if (now && first) {
      byId("loss-chart", HTMLElement).ariaLabel = `Loss over the training steps: ${first.loss.toFixed(3)} at first, ${now.loss.toFixed(3)} of late`;
      byId("accuracy-chart", HTMLElement).ariaLabel = `Accuracy over the training steps: ${percent(first.accuracy)} at first, ${percent(now.accuracy)} of late`;
      byId("speed-chart", HTMLElement).ariaLabel = `Samples each second over the training steps: ${whole(this.#pace.samples_per_s)} of late`;
    }
    this.#tell();
  }

  /** The numbers above the charts: of late, or of the point that is pointed at. */
  #tell() {
    const pointed = this.#pointed === null ? undefined : this.#points[this.#pointed]?.raw;
    if (pointed) {
      const { step, loss, accuracy, speed } = pointed;
      say(byId("loss-is", HTMLElement), `step ${Math.round(step)}: ${loss.toFixed(3)}`);
      say(byId("accuracy-is", HTMLElement), `step ${Math.round(step)}: ${percent(accuracy)}`);
      say(byId("speed-is", HTMLElement), `step ${Math.round(step)}: ${whole(speed)}`);
      return;
    }
    const last = this.#points[this.#points.length - 1]?.smooth;
    const epoch = this.#epochs[this.#epochs.length - 1];
    say(byId("loss-is", HTMLElement), last ? `${last.loss.toFixed(3)}${epoch ? ` · test ${epoch.val_loss.toFixed(3)}` : ""}` : "");
    say(byId("accuracy-is", HTMLElement), last ? `${percent(last.accuracy)}${epoch ? ` · test ${percent(epoch.val_accuracy)}` : ""}` : "");
    say(byId("speed-is", HTMLElement), last ? whole(this.#pace.samples_per_s) : "");
  }

  /** Loss of late. */
  get loss_of_late() {
    return this.#mean?.loss ?? NaN;
  }

  /** Samples each second of late by the clock, or `null` before the first step. */
  get samples_per_s() {
    return this.#mean ? this.#pace.samples_per_s : null;
  }
}

/** @param {{ raw: Numbers, smooth: Numbers }[]} points */
function merged(points) {
  const mean = (/** @type {"raw" | "smooth"} */ which) => {
    const of = (/** @type {keyof Numbers} */ name) => {
      const known = points.map((point) => point[which][name]).filter((value) => !Number.isNaN(value));
      return known.length === 0 ? NaN : known.reduce((sum, value) => sum + value, 0) / known.length;
    };
    return { step: points[points.length - 1].raw.step, loss: of("loss"), accuracy: of("accuracy"), speed: of("speed"), gap: of("gap") };
  };
  return { raw: mean("raw"), smooth: mean("smooth") };
}

/**
 * @param {Mark[]} marks
 * @param {number} span
 */
function apart(marks, span) {
  /** @type {Mark[]} */
  const shown = [];
  for (const mark of marks) {
    const last = shown[shown.length - 1];
    if (last && mark.at - last.at < NEAR * span) last.text += ` ${mark.text}`;
    else shown.push({ ...mark });
  }
  return shown;
}

/** @param {number} value */
function compact(value) {
  return value >= 10_000 ? `${Math.round(value / 1000)}k` : value >= 1000 ? `${(value / 1000).toFixed(1)}k` : String(Math.round(value));
}
