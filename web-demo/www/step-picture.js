// The picture of one step: what the host and each adapter do, from left to right, and the four acts in words. It can be played slowly.
// Loaded when it is first in sight.

import { byId, make, say, short } from "./dom.js";
import { PHASES } from "./lane.js";
import { inkOf, letterOf, paintOf } from "./split.js";

/** @import { AdapterLog, StepLog } from "./messages.js" */

/** An adapter's part of a step, with the slot of its letter and colour. @typedef {{ slot: number, log: AdapterLog }} Placed */
/**
 * What has been played.
 * @typedef {object} Lit
 * @property {number} part Of the step's own time: 0 to 1.
 * @property {string} says The act that is played, in words.
 */

/** Milliseconds for which a step is played. */
const PLAYED_MS = 4000;
/** Width of each act in the picture, which is also how long it is played: the short ones are stretched. */
const WIDTHS = { cut: 14, compute: 52, add: 14, update: 20 };
/** Of the last act, the part after which the adapters have the new weights. */
const ARRIVED = 0.6;
const TITLES = { cut: "Cut the batch", compute: "Compute", add: "Add the gradients", update: "Update the weights" };
/** @typedef {keyof typeof WIDTHS} Act */
const ACTS = /** @type {Act[]} */ (Object.keys(WIDTHS));
/** Where each act begins and ends, in percent of the picture. */
const SPANS = spans();
/** Adapters that are named; of more, the others are counted. */
const NAMED = 4;
const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const LIST = new Intl.ListFormat("en");

function spans() {
  let from = 0;
  return Object.fromEntries(ACTS.map((act) => [act, { from, to: (from += WIDTHS[act]) }]));
}

export class StepPicture {
  #picture = byId("one-step-picture", HTMLElement);
  #acts = ACTS.map((act, at) => make("li", {}, make("b", { textContent: `${at + 1} ${TITLES[act]}` }), make("span")));
  #light;
  #frame = 0;
  /** @type {StepLog | null} */
  #playing = null;
  /** When it began to be played. */
  #since_ms = 0;

  /** @param {(lit: Lit | null) => void} light */
  constructor(light) {
    this.#light = light;
    byId("one-step-acts", HTMLElement).replaceChildren(...this.#acts);
  }

  get is_playing() {
    return this.#playing !== null;
  }

  /** Shows a step, all of it lit. @param {StepLog | null} step @param {Placed[]} parts */
  show(step, parts) {
    this.#picture.replaceChildren(...(step && parts.length > 0 ? [whoOf(parts), courseOf(step, parts)] : []));
    this.#picture.setAttribute("aria-label", step ? spoken(step, parts) : "No step yet");
    const says = step ? sayings(step, parts) : null;
    this.#acts.forEach((item, at) => say(/** @type {Element} */ (item.lastChild), says?.[ACTS[at]] ?? ""));
    say(byId("one-step-says", HTMLElement), step ? `Step ${step.step} took ${short(step.ms)} ms.` : "Pauses training, and has one step computed, which is then shown slowly.");
  }

  /** Plays a step. One that is still played ends. @param {StepLog} step @param {Placed[]} parts */
  play(step, parts) {
    this.end();
    this.show(step, parts);
    if (CALM.matches) return;
    [this.#playing, this.#since_ms] = [step, performance.now()];
    this.#picture.classList.add("played");
    say(byId("one-step-says", HTMLElement), `Step ${step.step} took ${short(step.ms)} ms. Here it takes ${PLAYED_MS / 1000} s.`);
    this.#turn();
  }

  /** Ends what is played: all is lit. */
  end() {
    if (!this.#playing) return;
    cancelAnimationFrame(this.#frame);
    this.#playing = null;
    this.#picture.classList.remove("played");
    for (const item of this.#acts) item.classList.remove("lit");
    this.#light(null);
  }

  #turn() {
    const step = this.#playing;
    if (!step) return;
    const at = (100 * (performance.now() - this.#since_ms)) / PLAYED_MS;
    const act = ACTS.find((name) => at < SPANS[name].to);
    if (!act) return this.end();
    const { from, to } = SPANS[act];
    const times = timesOf(step)[act];
    const now_ms = times.from + ((at - from) / (to - from)) * (times.to - times.from);
    this.#picture.style.setProperty("--played", `${at.toFixed(2)}%`);
    this.#acts.forEach((item, place) => item.classList.toggle("lit", ACTS[place] === act));
    this.#light({ part: now_ms / step.ms, says: `Step ${step.step}, slowly: ${ACTS.indexOf(act) + 1} of ${ACTS.length}, ${TITLES[act].toLowerCase()}.` });
    this.#frame = requestAnimationFrame(() => this.#turn());
  }
}

/**
 * Milliseconds of a step at which each act begins and ends.
 * @param {StepLog} step
 * @returns {Record<Act, { from: number, to: number }>}
 */
function timesOf({ ms, data_ms, reduce_ms, update_ms }) {
  const [update, add] = [ms - update_ms, ms - update_ms - reduce_ms];
  return { cut: { from: 0, to: data_ms }, compute: { from: data_ms, to: add }, add: { from: add, to: update }, update: { from: update, to: ms } };
}

/** The letters beside the picture: the adapters', and the host. @param {Placed[]} parts */
function whoOf(parts) {
  const letters = parts.map(({ slot }) => {
    const swatch = make("span", { className: "swatch", textContent: letterOf(slot) });
    [swatch.style.background, swatch.style.color] = [paintOf(slot), inkOf(slot)];
    return swatch;
  });
  return make("div", { className: "one-step-who" }, ...letters, make("span", { className: "remark", textContent: "host" }));
}

/** Bars and arrows. @param {StepLog} step @param {Placed[]} parts */
function courseOf(step, parts) {
  const { cut, compute, add, update } = SPANS;
  const arrived = update.from + ARRIVED * WIDTHS.update;
  const course = make("div", { className: "course" });
  parts.forEach(({ slot, log }, row) => {
    const scale = WIDTHS.compute / Math.max(1e-9, timesOf(step).compute.to - step.data_ms);
    let at = compute.from;
    const bars = PHASES.map((phase) => {
      const bar = barOf(phase, at, Math.min(log[`${phase}_ms`] * scale, compute.to - at), row);
      at = Math.min(compute.to, at + log[`${phase}_ms`] * scale);
      if (phase === "compute") [bar.textContent, bar.style.color] = [`${log.rows} ${log.rows === 1 ? "row" : "rows"}`, inkOf(slot)];
      return bar;
    });
    const ready = compute.from + (log.upload_ms + log.compute_ms + log.readback_ms) * scale;
    const weights = barOf("update", arrived, update.to - arrived, row);
    weights.append(wordOf("weights"));
    const lines = [lineOf("up", cut.to - 1, row), lineOf("down", Math.min(compute.to, ready), row), lineOf("up", arrived - 1, row)];
    for (const element of [...bars, ...lines]) element.style.setProperty("--lane", paintOf(slot));
    course.append(...lines, ...bars, weights);
  });
  const host = parts.length;
  const bars = [barOf("data", cut.from, WIDTHS.cut - 2, host), barOf("gradients", compute.from, WIDTHS.compute, host), barOf("reduce", add.from, WIDTHS.add, host), barOf("update", update.from, arrived - 2 - update.from, host)];
  ["cut", "gradients arrive", "add", "update"].forEach((word, at) => bars[at].append(String(at + 1), wordOf(word)));
  course.append(...bars);
  course.style.setProperty("--lanes", String(host));
  return course;
}

/** @param {string} phase @param {number} from Percent. @param {number} wide Percent. @param {number} row */
function barOf(phase, from, wide, row) {
  const bar = make("i", { className: phase });
  place(bar, from, wide, row);
  return bar;
}

/** A word in a bar, for which a phone has no room. @param {string} text */
function wordOf(text) {
  return make("span", { textContent: ` ${text}` });
}

/** Between an adapter and the host. @param {"up" | "down"} way @param {number} at Percent. @param {number} row */
function lineOf(way, at, row) {
  const line = make("i", { className: `way ${way}` });
  line.style.left = `${at.toFixed(2)}%`;
  line.style.setProperty("--row", String(row));
  return line;
}

/** @param {HTMLElement} element @param {number} from Percent. @param {number} wide Percent. @param {number} row */
function place(element, from, wide, row) {
  [element.style.left, element.style.width] = [`${from.toFixed(2)}%`, `${Math.max(0, wide).toFixed(2)}%`];
  element.style.setProperty("--row", String(row));
}

/**
 * What happens in each act.
 * @param {StepLog} step
 * @param {Placed[]} parts
 * @returns {Record<Act, string>}
 */
function sayings(step, parts) {
  const { rows, reduce_ms, update_ms, loss, is_applied } = step;
  const one = parts.length === 1;
  const letters = parts.map(({ slot }) => letterOf(slot));
  const each = (/** @type {(log: AdapterLog) => string} */ tell) => listed(parts.map(({ slot, log }) => `${letterOf(slot)} ${tell(log)}`));
  const order = parts.length > NAMED ? "always in the same order" : `always in the order ${letters.join(", ")}`;
  const time = (/** @type {number} */ ms) => (ms > 0 ? `${short(ms)} ms` : "less time than the clock tells");
  return {
    cut: one ? `${letters[0]} gets all ${rows} rows of the batch.` : `The host cuts a batch of ${rows} rows: ${each((log) => `gets ${log.rows}`)}.`,
    compute: `${one ? "It" : "Each adapter"} loads its rows, computes them forward and back, and sends its gradients: ${each((log) => `takes ${short(log.ms)} ms`)}.`,
    add: one ? "There is one adapter, so there is nothing to add."
      : `The host adds the gradients, ${order}, in ${time(reduce_ms)}. Until here nothing has changed: if an adapter is lost, its rows run on the others.`,
    update: !is_applied ? "A value is not finite, so no weight is updated."
      : `${one && reduce_ms + update_ms === 0 ? "The adapter updates its weights itself" : `The host updates the weights once, and sends all adapters the same, in ${time(update_ms)}`}. The loss of the batch was ${loss.toFixed(3)}.`,
  };
}

/** @param {string[]} texts */
function listed(texts) {
  return LIST.format(texts.length > NAMED ? [...texts.slice(0, NAMED - 1), `${texts.length - NAMED + 1} others`] : texts);
}

/** @param {StepLog} step @param {Placed[]} parts */
function spoken(step, parts) {
  const lanes = parts.map(({ slot, log }) => `${letterOf(slot)}: ${PHASES.map((phase) => `${phase} ${short(log[`${phase}_ms`])}`).join(", ")} ms`);
  return `Step ${step.step} of ${short(step.ms)} ms. ${lanes.join(". ")}. Host: data ${short(step.data_ms)}, sums ${short(step.reduce_ms)}, update ${short(step.update_ms)} ms`;
}
