// A run that was saved as metrics, played on the page: its events come from the file, and nothing is computed. Loaded when a
// file is first chosen: it is no part of page.js, and keeps no state that page.js has, too.

import { byId, make, say, whole } from "./dom.js";

/** @import { Data, EpochLog, Event, Info, Member, Settings, StepLog } from "./messages.js" */

/** A file as the button "Metrics (.json)" saves it. @typedef {{ settings: Settings, members: Map<number, Info>, epochs: EpochLog[], steps: StepLog[], notices: { step: number, message: string }[] }} Run */
/** Settings that a run may change as it goes on, and that steps tell of. @typedef {Partial<Pick<Settings, "learning_rate" | "batch_size">>} Changed */

/** Longest time of a replay, and shortest of a step: a frame. */
const MOST_MS = 30_000;
const LEAST_STEP_MS = 1000 / 60;
/** A replay that is that many times as fast or as slow is called as fast as it was. */
const ALIKE = 1.05;
/** Most that a frame goes on: behind a hidden page a replay waits. */
const MOST_FRAME_MS = 250;
const HELP = "choose a file that the button “Metrics (.json)” of this page saved";

/** What asks the engine for something. The lanes' controls are hidden by page.css: how far one was slowed down is not in the file. */
const PARTS = ".rules, #add, #rigs, .other-model, #tour, #stages-plate, #drawing, #rig-form, .temperature";
const BUTTONS = ["run", "step", "step-slowly", "step-again", "reset", "measure", "export-model", "export-metrics"];

/** Kinds of values: what is needed in words, and whether a value is it. JSON has `null` where a number is not finite. */
const KINDS = /** @type {const} */ ({
  amount: ["a number from 0 up", (/** @type {unknown} */ it) => typeof it === "number" && it >= 0],
  count: ["a whole number from 1 up", (/** @type {unknown} */ it) => Number.isInteger(it) && Number(it) >= 1],
  index: ["a whole number from 0 up", (/** @type {unknown} */ it) => Number.isInteger(it) && Number(it) >= 0],
  result: ["a number, or `null`", (/** @type {unknown} */ it) => typeof it === "number" || it === null],
  text: ["a text", (/** @type {unknown} */ it) => typeof it === "string"],
  flag: ["`true` or `false`", (/** @type {unknown} */ it) => typeof it === "boolean"],
  list: ["a list", (/** @type {unknown} */ it) => Array.isArray(it)],
  object: ["an object", (/** @type {unknown} */ it) => typeof it === "object" && it !== null && !Array.isArray(it)],
});

/** @typedef {Record<string, keyof typeof KINDS>} Fields */

/** @type {Record<"file" | "settings" | "info" | "step" | "adapter" | "epoch" | "notice", Fields>} */
const FIELDS = {
  file: { settings: "object", members: "object", epochs: "list", steps: "list", notices: "list" },
  settings: {
    data: "text", model: "text", adapters: "list", throttles: "list", batch_size: "count", split: "text", batch_norm: "text", learning_rate: "amount",
    seed: "index", epochs: "index", varied_from: "index", temperature: "amount",
  },
  info: { index: "index", name: "text", kind: "text", driver: "text", requested_as: "list" },
  step: {
    step: "count", epoch: "count", batch: "count", batches: "count", rows: "count", loss: "result", accuracy: "result", learning_rate: "amount", gradient_norm: "result",
    is_applied: "flag", ms: "amount", data_ms: "amount", reduce_ms: "amount", update_ms: "amount", samples_per_s: "amount", clock_ms: "amount", adapters: "list",
  },
  adapter: {
    adapter: "index", member: "index", name: "text", rows: "index", ms: "amount", upload_ms: "amount", compute_ms: "amount", readback_ms: "amount", exchange_ms: "amount", wait_ms: "amount", message_ms: "amount",
  },
  epoch: { epoch: "count", step: "count", loss: "result", accuracy: "result", val_loss: "result", val_accuracy: "result", learning_rate: "amount", seconds: "amount", samples_per_s: "amount" },
  notice: { step: "index", message: "text" },
};

/**
 * Checks a value and its fields.
 * @param {string} who
 * @param {unknown} value
 * @param {Fields} fields
 * @returns {any}
 */
function checked(who, value, fields) {
  if (!KINDS.object[1](value)) throw refusal(who, "an object", value);
  const object = /** @type {Record<string, unknown>} */ (value);
  for (const [name, kind] of Object.entries(fields)) {
    const [needed, is_right] = KINDS[kind];
    if (!Object.hasOwn(object, name) || !is_right(object[name])) throw refusal(who, `\`${name}\`, ${needed}`, Object.hasOwn(object, name) ? object[name] : undefined);
  }
  // What was not finite is so again.
  const results = Object.keys(fields).filter((name) => fields[name] === "result" && object[name] === null);
  return { ...object, ...Object.fromEntries(results.map((name) => [name, NaN])) };
}

/** @param {string} who @param {string} needed @param {unknown} got */
function refusal(who, needed, got) {
  const text = got === undefined ? "none" : Array.isArray(got) ? "a list" : typeof got === "object" && got !== null ? "an object" : JSON.stringify(got).slice(0, 40);
  return new Error(`${who} needs ${needed}, but has ${text}\n  help: ${HELP}`);
}

/**
 * Reads a file of metrics. Throws what is wrong with it, in words.
 * @param {string} name
 * @param {string} text
 * @param {readonly Data[]} kinds That the page knows.
 * @returns {Run}
 */
export function read(name, text, kinds) {
  const file = checked(name, parsed(name, text), FIELDS.file);
  /** @type {Settings} */
  const settings = checked(`${name}, its settings,`, file.settings, FIELDS.settings);
  if (!kinds.includes(settings.data)) throw refusal(`${name}, its settings,`, `\`data\`, one of ${kinds.join(", ")}`, settings.data);
  const members = new Map(Object.entries(file.members).map(([id, info]) => [Number(id), checked(`${name}, member ${id},`, info, FIELDS.info)]));
  let last = 0;
  const steps = file.steps.map((/** @type {unknown} */ value, /** @type {number} */ at) => {
    const who = `${name}, entry ${at + 1} of \`steps\`,`;
    /** @type {StepLog} */
    const step = checked(who, value, FIELDS.step);
    if (step.step <= last) throw refusal(who, `\`step\`, a number above ${last}, that of the entry before`, step.step);
    last = step.step;
    const adapters = step.adapters.map((part) => {
      const found = checked(`${who} an entry of its \`adapters\`,`, part, FIELDS.adapter);
      if (!members.has(found.member)) throw refusal(`${who} an entry of its \`adapters\`,`, "`member`, an id of `members`", found.member);
      return found;
    });
    if (adapters.length === 0) throw new Error(`${who} needs \`adapters\`, one or more, but has none\n  help: ${HELP}`);
    return { ...step, adapters };
  });
  if (steps.length === 0) throw new Error(`${name} needs \`steps\`, one or more, but has none\n  help: train some steps, then save the metrics`);
  const all = (/** @type {"epoch" | "notice"} */ kind, /** @type {string} */ list) =>
    file[list].map((/** @type {unknown} */ value, /** @type {number} */ at) => checked(`${name}, entry ${at + 1} of \`${list}\`,`, value, FIELDS[kind]));
  return { settings, members, steps, epochs: all("epoch", "epochs"), notices: all("notice", "notices") };
}

/** @param {string} name @param {string} text @returns {unknown} */
function parsed(name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name} needs to be JSON, but is not: ${/** @type {Error} */ (error).message}\n  help: ${HELP}`);
  }
}

/**
 * The settings at each step that begins with others: a file has those of its end alone.
 * @param {Run} run
 * @returns {Map<number, Changed>} By the steps' places.
 */
function changesOf({ settings, steps }) {
  // An epoch's last batch may be short.
  const sizeOf = (/** @type {StepLog} */ { batch, batches, rows }) => (batch < batches ? rows : undefined);
  const rate_at_end = steps[steps.length - 1].learning_rate;
  const size_at_end = sizeOf(steps.findLast((step) => sizeOf(step) !== undefined) ?? steps[0]);
  /** @type {Map<number, Changed>} */
  const changes = new Map();
  let [rate, size] = [rate_at_end, size_at_end];
  steps.forEach((step, at) => {
    const size_now = sizeOf(step) ?? size;
    /** @type {Changed} */
    const changed = {};
    // Logged numbers may be rounded, or count otherwise: those of the end stand for the settings.
    if (step.learning_rate !== rate) changed.learning_rate = step.learning_rate === rate_at_end ? settings.learning_rate : step.learning_rate;
    if (size_now !== undefined && size_now !== size) changed.batch_size = size_now === size_at_end ? settings.batch_size : size_now;
    [rate, size] = [step.learning_rate, size_now];
    if (Object.keys(changed).length > 0) changes.set(at, changed);
  });
  return changes;
}

/**
 * The members at each step: each from the first step in which it has rows to the last.
 * @param {Run} run
 * @returns {Map<number, Member[]>} By the places of steps that begin with other members than the step before had.
 */
function rigsOf({ members, steps }) {
  /** @type {Map<number, { first: number, last: number }>} */
  const spans = new Map();
  steps.forEach(({ adapters }, at) => {
    for (const { member } of adapters) spans.set(member, { first: spans.get(member)?.first ?? at, last: at });
  });
  // Ids are given once, and go up.
  const ids = [...spans.keys()].sort((a, b) => a - b);
  const places = new Set([...spans.values()].flatMap(({ first, last }) => [first, last + 1]).filter((at) => at < steps.length));
  return new Map([...places].map((at) => {
    const there = ids.filter((id) => { const span = spans.get(id); return span && span.first <= at && at <= span.last; });
    const infoOf = (/** @type {number} */ id) => /** @type {Info} */ (members.get(id));
    const twinOf = (/** @type {number} */ id) => there.find((other) => other < id && infoOf(other).index === infoOf(id).index) ?? null;
    return [at, there.map((id, position) => ({
      id, position, info: infoOf(id), presence: /** @type {const} */ ("active"), again_ms: null, is_excluded: false, throttle: 1, shares_device_with: twinOf(id),
    }))];
  }));
}

export class Replay {
  #run;
  #rigs;
  #changes;
  #act;
  /** Times as fast as the lengths of the steps, and as the recording. */
  #speed;
  #pace;
  /** Members now. @type {Member[]} */
  #members = [];
  /** The next step, epoch and notice. */
  #at = 0;
  #epoch = 0;
  #notice = 0;
  /** Recorded time that has been played, and that at which the next step ends. */
  #clock_ms = 0;
  #due_ms = 0;
  #frame = 0;
  /** Time of the last frame; `null`: none since it goes on. @type {number | null} */
  #last_ms = null;
  #is_paused = false;
  #pause = make("button", { className: "small", textContent: "Pause" });
  #end = make("button", { className: "small", textContent: "End the replay" });
  #banner;
  /** What brings back the headings of the engine's run. */
  #headings = () => {};

  /**
   * @param {string} name Of the file.
   * @param {Run} run
   * @param {{ hear: (event: Event) => void, change: (changed: Changed) => void, end: () => void }} act What the page does with an event, and with settings that
   *   change in the run. What is called when the visitor ends it.
   */
  constructor(name, run, act) {
    this.name = name;
    this.#run = run;
    this.#act = act;
    this.#rigs = rigsOf(run);
    this.#changes = changesOf(run);
    const all_ms = run.steps.reduce((sum, step) => sum + lengthOf(step), 0);
    this.#speed = Math.max(1, all_ms / MOST_MS);
    this.#pace = (this.#speed * run.steps.reduce((sum, { clock_ms }) => sum + clock_ms, 0)) / all_ms;
    this.#due_ms = lengthOf(run.steps[0]);
    while (run.epochs[this.#epoch]?.step < run.steps[0].step) this.#epoch += 1;
    this.#banner = make("p", { className: "banner" }, `Replay of ${name}: nothing is computed here. `, this.#pause, " ", this.#end);
    this.#banner.dataset.kind = "replay";
    this.#pause.addEventListener("click", () => this.#turn());
    this.#end.addEventListener("click", () => act.end());
  }

  /** Begins to play. The page is empty, and shows the settings of the run. */
  start() {
    byId("banners", HTMLElement).prepend(this.#banner);
    this.#hold(true);
    document.body.dataset.state = "replay";
    this.#headings = head(this.name);
    this.#say();
    say(byId("pictures-says", HTMLElement), "Metrics hold no predictions.");
    // There it is seen, and can be ended.
    this.#end.focus();
    const rig = this.#rigs.get(0);
    if (rig) this.#takeRig(rig);
    this.#tell(this.#run.steps[0].step - 1);
    this.#frame = requestAnimationFrame((now_ms) => this.#go(now_ms));
  }

  /** Plays no more. The page's controls act again. */
  close() {
    cancelAnimationFrame(this.#frame);
    this.#banner.remove();
    this.#headings();
    this.#hold(false);
  }

  /** @param {boolean} is_held */
  #hold(is_held) {
    for (const part of document.querySelectorAll(PARTS)) if (part instanceof HTMLElement) part.inert = is_held;
    for (const id of BUTTONS) byId(id, HTMLButtonElement).disabled = is_held;
    byId("replay-file", HTMLInputElement).disabled = is_held;
    // More adapters than fit are scrolled, by keyboard, too, where they have no controls.
    if (is_held) byId("lanes", HTMLElement).tabIndex = 0;
    else byId("lanes", HTMLElement).removeAttribute("tabindex");
  }

  #turn() {
    this.#is_paused = !this.#is_paused;
    this.#last_ms = null;
    say(this.#pause, this.#is_paused ? "Continue" : "Pause");
    this.#say();
    if (this.#is_paused) cancelAnimationFrame(this.#frame);
    else this.#frame = requestAnimationFrame((now_ms) => this.#go(now_ms));
  }

  #say() {
    const line = byId("status", HTMLElement);
    line.dataset.kind = "report";
    const last = this.#run.steps[this.#run.steps.length - 1].step;
    say(line, this.#at >= this.#run.steps.length ? `The replay is over: step ${whole(last)} was the last.`
      : this.#is_paused ? "The replay is paused."
        : this.#pace > ALIKE ? `Replay, ${this.#pace.toFixed(1)} times as fast as it was.`
          : this.#pace < 1 / ALIKE ? `Replay, ${(1 / this.#pace).toFixed(1)} times as slow as it was: a frame for each step.`
            : "Replay, as fast as it was.");
  }

  /** @param {number} now_ms */
  #go(now_ms) {
    this.#clock_ms += Math.min(MOST_FRAME_MS, now_ms - (this.#last_ms ?? now_ms)) * this.#speed;
    this.#last_ms = now_ms;
    const { steps } = this.#run;
    /** @type {StepLog[]} Not told yet. */
    let now = [];
    const tell = () => {
      if (now.length > 0) this.#act.hear({ type: "steps", steps: now });
      now = [];
    };
    for (; this.#at < steps.length && this.#due_ms <= this.#clock_ms; this.#at += 1) {
      const step = steps[this.#at];
      const [rig, changed] = [this.#rigs.get(this.#at), this.#changes.get(this.#at)];
      if (rig || changed) tell();
      if (changed) this.#act.change(changed);
      if (rig && rig !== this.#members) this.#takeRig(rig);
      const places = new Map(this.#members.map(({ id }, place) => [id, place]));
      now.push({ ...step, adapters: step.adapters.map((part) => ({ ...part, adapter: places.get(part.member) ?? 0 })) });
      if (this.#isNews(step.step)) {
        tell();
        this.#tell(step.step);
      }
      if (this.#at + 1 < steps.length) this.#due_ms += lengthOf(steps[this.#at + 1]);
    }
    tell();
    if (this.#at < steps.length) this.#frame = requestAnimationFrame((later_ms) => this.#go(later_ms));
    else this.#finish();
  }

  #finish() {
    this.#say();
    if (document.activeElement === this.#pause) this.#end.focus({ preventScroll: true });
    this.#pause.remove();
  }

  /** @param {Member[]} members */
  #takeRig(members) {
    this.#members = members;
    this.#act.hear({ type: "rig", members });
  }

  /** Whether something was told up to a step that is not told yet. @param {number} step */
  #isNews(step) {
    const { epochs, notices } = this.#run;
    return epochs[this.#epoch]?.step <= step || notices[this.#notice]?.step <= step;
  }

  /** Tells what was told up to a step. @param {number} upTo */
  #tell(upTo) {
    const { epochs, notices } = this.#run;
    for (; epochs[this.#epoch]?.step <= upTo; this.#epoch += 1) this.#act.hear({ type: "epoch", epoch: epochs[this.#epoch] });
    for (; notices[this.#notice]?.step <= upTo; this.#notice += 1) {
      const { step, message } = notices[this.#notice];
      this.#act.hear({ type: "notice", level: "info", step, message });
    }
  }
}

/**
 * Says in the headings of what was measured that it is from a file. Gives what brings them back.
 * @param {string} name Of the file.
 */
function head(name) {
  const title = byId("rig-title", HTMLElement);
  const kept = [...title.childNodes];
  title.replaceChildren(make("span", { className: "file-name", title: name, textContent: `In ${name}` }), " ", make("span", { className: "tag", textContent: "replayed" }));
  const tags = document.querySelectorAll(":is(.curves, #one-step) h2 .tag");
  tags.forEach((tag) => say(tag, "replayed"));
  return () => {
    title.replaceChildren(...kept);
    tags.forEach((tag) => say(tag, "measured"));
  };
}

/** How long a step is played, at the pace of the recording. @param {StepLog} step */
function lengthOf({ clock_ms }) {
  return Math.max(LEAST_STEP_MS, clock_ms);
}
