// The picture of one step: what the host and each adapter do, from left to right, and the four acts in words. It can be played slowly.
// Loaded when it is first in sight.

import { BITS, byId, make, percent, say, short, whole, within } from "./dom.js";
import { PHASES, place } from "./lane.js";
import { inkOf, letterOf, paintOf, swatchOf } from "./split.js";

/** @import { AdapterLog, StepLog } from "./messages.js" */

/** An adapter's part of a step, with the slot of its letter and colour. @typedef {{ slot: number, log: AdapterLog }} Placed */
/**
 * A step, and what is shown of it.
 * @typedef {object} Shown
 * @property {StepLog} step
 * @property {Placed[]} parts
 * @property {boolean} is_alone Whether the rig has one adapter, which updates the weights itself.
 * @property {boolean} is_text Whether a text is learned: its loss is told in bits.
 */
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
/** Between a bar of the host and the arrow behind it. */
const GAP = 2;
/** Narrowest bars of an adapter that have room for its rows, and for the word behind them. */
const ROOM = { rows: 3, word: 8 };
const TITLES = { cut: "Cut the batch", compute: "Compute", add: "Add the gradients", update: "Update the weights" };
/** @typedef {keyof typeof WIDTHS} Act */
const ACTS = /** @type {Act[]} */ (Object.keys(WIDTHS));
/** Where each act begins and ends, in percent of the picture. */
const SPANS = spans();
/** Adapters that are named; of more, the least and the most are told. */
const NAMED = 4;
const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const LIST = new Intl.ListFormat("en");

function spans() {
  let from = 0;
  return Object.fromEntries(ACTS.map((act) => [act, { from, to: (from += WIDTHS[act]) }]));
}

export class StepPicture {
  #picture = byId("one-step-picture", HTMLElement);
  #says = byId("one-step-says", HTMLElement);
  #list = byId("one-step-acts", HTMLElement);
  #key = byId("one-step-key", HTMLElement);
  #acts = ACTS.map((act, at) => {
    const [time, text] = [make("small", { className: "number" }), make("span")];
    return { text, time, item: make("li", {}, make("b", { textContent: `${at + 1} ${TITLES[act]} ` }), time, text) };
  });
  /** The acts at their true lengths: the picture stretches the short ones. */
  #scale = make("p", { className: "to-scale remark" });
  #hint;
  #light;
  #frame = 0;
  /** @type {StepLog | null} */
  #playing = null;
  /** When it began to be played. */
  #since_ms = 0;

  /**
   * @param {string} hint Said where there is no step.
   * @param {(lit: Lit | null) => void} light
   */
  constructor(hint, light) {
    this.#hint = hint;
    this.#light = light;
    this.#list.replaceChildren(...this.#acts.map(({ item }) => item));
    this.#picture.after(this.#scale);
    // The same as that of the lanes.
    this.#key.replaceChildren(within(byId("rig", HTMLElement), ".key", HTMLElement).cloneNode(true));
  }

  get is_playing() {
    return this.#playing !== null;
  }

  /** Shows a step, all of it lit. @param {Shown | null} shown */
  show(shown) {
    const is_there = shown !== null && shown.parts.length > 0;
    this.#picture.replaceChildren(...(is_there ? [whoOf(shown.parts), courseOf(shown)] : []));
    this.#picture.setAttribute("aria-label", is_there ? spoken(shown) : "No step yet");
    for (const part of [this.#list, this.#key, this.#scale]) part.hidden = !is_there;
    say(this.#says, shown ? tookOf(shown.step) : this.#hint);
    if (!is_there) return;
    const [says, times] = [sayings(shown), timesOf(shown.step)];
    this.#scale.replaceChildren(...scaleOf(times, shown.step.ms));
    ACTS.forEach((act, at) => {
      say(this.#acts[at].text, says[act]);
      say(this.#acts[at].time, `${short(times[act].to - times[act].from)} ms`);
    });
  }

  /** Plays a step. One that is still played ends. @param {Shown} shown */
  play(shown) {
    this.end();
    this.show(shown);
    if (CALM.matches || shown.parts.length === 0) return;
    [this.#playing, this.#since_ms] = [shown.step, performance.now()];
    this.#picture.classList.add("played");
    say(this.#says, `${tookOf(shown.step)} Here it takes ${PLAYED_MS / 1000} s.`);
    this.#turn();
  }

  /** Ends what is played: all is lit. */
  end() {
    const step = this.#playing;
    if (!step) return;
    cancelAnimationFrame(this.#frame);
    this.#playing = null;
    this.#picture.classList.remove("played");
    for (const { item } of this.#acts) item.classList.remove("lit");
    say(this.#says, tookOf(step));
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
    this.#acts.forEach(({ item }, place) => item.classList.toggle("lit", ACTS[place] === act));
    this.#light({ part: now_ms / step.ms, says: `Step ${whole(step.step)}, slowly: ${ACTS.indexOf(act) + 1} of ${ACTS.length}, ${TITLES[act].toLowerCase()}.` });
    this.#frame = requestAnimationFrame(() => this.#turn());
  }
}

/** @param {StepLog} step */
function tookOf({ step, ms }) {
  return `Step ${whole(step)} took ${short(ms)} ms.`;
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

/** The acts as parts of the step's time. @param {Record<Act, { from: number, to: number }>} times @param {number} ms */
function scaleOf(times, ms) {
  const parts = ACTS.map((act) => (times[act].to - times[act].from) / ms);
  const bar = make("span", { className: "scale-bar", role: "img", ariaLabel: ACTS.map((act, at) => `${TITLES[act]}: ${percent(parts[at])}`).join(", ") }, ...parts.map((part, at) => {
    const piece = make("i", { className: `scale-${ACTS[at]}` });
    piece.style.width = `${(100 * part).toFixed(2)}%`;
    return piece;
  }));
  return ["The picture stretches short acts. Their true lengths: ", bar];
}

/** The letters beside the picture: the adapters', and the host. @param {Placed[]} parts */
function whoOf(parts) {
  return make("div", { className: "one-step-who" }, ...parts.map(({ slot }) => swatchOf(slot)), make("span", { className: "remark", textContent: "host" }));
}

/** Bars and arrows. @param {Shown} shown */
function courseOf({ step, parts, is_alone }) {
  const { cut, compute, add, update } = SPANS;
  const arrived = update.from + ARRIVED * WIDTHS.update;
  const host = parts.length;
  const course = make("div", { className: "course" });
  course.style.setProperty("--lanes", String(host));
  parts.forEach((part, row) => {
    const { bars, ready } = barsOf(step, part, row);
    const lines = [lineOf("up", cut.to - 1, row), ...(is_alone ? [] : [lineOf("down", ready, row), lineOf("up", arrived - 1, row)])];
    for (const element of [...bars, ...lines]) element.style.setProperty("--lane", paintOf(part.slot));
    const weights = is_alone ? barOf("update", update.from, WIDTHS.update, row, "4", "update") : barOf("update", arrived, update.to - arrived, row, "", "weights");
    course.append(...lines, ...bars, weights);
  });
  course.append(barOf("data", cut.from, WIDTHS.cut - GAP, host, "1", "cut"));
  if (is_alone) return course;
  course.append(
    barOf("gradients", compute.from, WIDTHS.compute, host, "2", "gradients arrive"), barOf("reduce", add.from, WIDTHS.add, host, "3", "add"),
    barOf("update", update.from, arrived - GAP - update.from, host, "4", "update"),
  );
  return course;
}

/** The phases of an adapter, and where its gradients are ready. @param {StepLog} step @param {Placed} part @param {number} row */
function barsOf(step, { slot, log }, row) {
  const { from, to } = SPANS.compute;
  const scale = WIDTHS.compute / Math.max(1e-9, timesOf(step).compute.to - step.data_ms);
  let [at, ready] = [from, from];
  const bars = PHASES.map((phase) => {
    const wide = Math.min(log[`${phase}_ms`] * scale, to - at);
    const is_work = phase === "compute" && wide >= ROOM.rows;
    const bar = barOf(phase, at, wide, row, is_work ? String(log.rows) : "", is_work && wide >= ROOM.word ? (log.rows === 1 ? "row" : "rows") : "");
    at += wide;
    if (phase === "readback") ready = at;
    bar.style.color = inkOf(slot);
    return bar;
  });
  return { bars, ready };
}

/**
 * A bar with a number, and a word behind it for which a phone has no room.
 * @param {string} phase
 * @param {number} from Percent.
 * @param {number} wide Percent.
 * @param {number} row
 * @param {string} number
 * @param {string} word
 */
function barOf(phase, from, wide, row, number, word) {
  const bar = make("i", { className: phase }, number, ...(word ? [make("span", { textContent: ` ${word}` })] : []));
  place(bar, from, Math.max(0, wide));
  bar.style.setProperty("--row", String(row));
  return bar;
}

/** Between an adapter and the host. @param {"up" | "down"} way @param {number} at Percent. @param {number} row */
function lineOf(way, at, row) {
  const line = make("i", { className: `way ${way}` });
  line.style.left = `${at.toFixed(2)}%`;
  line.style.setProperty("--row", String(row));
  return line;
}

/** What happens in each act. @param {Shown} shown @returns {Record<Act, string>} */
function sayings(shown) {
  const { step, parts } = shown;
  const letter = letterOf(parts[0].slot);
  const [is_one, is_many] = [parts.length === 1, parts.length > NAMED];
  const each = (/** @type {(log: AdapterLog) => string} */ tell) => LIST.format(parts.map(({ slot, log }) => `${letterOf(slot)} ${tell(log)}`));
  const rows = range(parts, ({ rows }) => rows, String);
  return {
    cut: is_one ? `${letter} gets ${step.rows === 1 ? "the only row" : `all ${step.rows} rows`} of the batch.`
      : `The host cuts a batch of ${step.rows} rows${is_many ? ` over ${parts.length} adapters: each gets ${rows}` : `: ${each((log) => `gets ${log.rows}`)}`}.`,
    compute: computes(shown, is_many ? `each is busy for ${range(parts, ({ ms }) => ms, short)} ms` : each((log) => `is busy for ${short(log.ms)} ms`)),
    add: shown.is_alone ? "There is one adapter, so there is nothing to add." : is_one ? `Only ${letter} has rows, so there is nothing to add.`
      : `The host adds the gradients in ${timeOf(step.reduce_ms)}, always in ${is_many ? "the same order" : `the order ${parts.map(({ slot }) => letterOf(slot)).join(", ")}`}. Until here nothing has changed: if an adapter is lost, its rows run on the others.`,
    update: updates(shown),
  };
}

/** @param {Shown} shown @param {string} times */
function computes({ parts, is_alone }, times) {
  const most = Math.max(...parts.map(({ log }) => log.exchange_ms));
  const exchange = most > 0 ? ` At each batch-norm they wait for one another’s statistics, ${range(parts, ({ exchange_ms }) => exchange_ms, short)} ms in all.` : "";
  const who = parts.length === 1 ? "It" : "Each";
  return `${who} loads its rows, ${is_alone ? "and computes them forward and back" : "computes them forward and back, and sends its gradients"}: ${times}.${exchange}`;
}

/** @param {Shown} shown */
function updates({ step, is_alone, is_text }) {
  if (!step.is_applied) return "A value is not finite, so no weight is updated.";
  const loss = is_text ? `${(BITS * step.loss).toFixed(3)} bits a character` : step.loss.toFixed(3);
  const what = is_alone ? "The adapter updates its weights itself." : `The host updates the weights once, in ${timeOf(step.update_ms)}, and all adapters get the same.`;
  return `${what} The loss of the batch was ${loss}.`;
}

/** @param {number} ms */
function timeOf(ms) {
  return ms > 0 ? `${short(ms)} ms` : "less time than the clock tells";
}

/**
 * The least and the most of all parts, or the one value.
 * @param {Placed[]} parts
 * @param {(log: AdapterLog) => number} of
 * @param {(value: number) => string} tell
 */
function range(parts, of, tell) {
  const values = parts.map(({ log }) => of(log));
  const [least, most] = [tell(Math.min(...values)), tell(Math.max(...values))];
  return least === most ? least : `${least} to ${most}`;
}

/** @param {Shown} shown */
function spoken({ step, parts }) {
  const lanes = parts.map(({ slot, log }) => `${letterOf(slot)}: ${PHASES.map((phase) => `${phase} ${short(log[`${phase}_ms`])}`).join(", ")} ms`);
  return `Step ${whole(step.step)} of ${short(step.ms)} ms. ${lanes.join(". ")}. Host: data ${short(step.data_ms)}, sums ${short(step.reduce_ms)}, update ${short(step.update_ms)} ms`;
}
