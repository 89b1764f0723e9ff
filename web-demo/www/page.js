// The page: passes events of the worker to the parts that show them, and actions of the visitor to the worker.

import { Curves } from "./curves.js";
import { DataChoice } from "./data.js";
import { byId, paced, say, whole } from "./dom.js";
import { Draw } from "./draw.js";
import { Exports } from "./exports.js";
import { Link } from "./link.js";
import { announce, banner, clearLog, firstLine, keepLog, log, tellOfAdapters } from "./notices.js";
import { OneStep } from "./one-step.js";
import { Pictures } from "./pictures.js";
import { RigForm } from "./rig-form.js";
import { Reference } from "./reference.js";
import { Rig } from "./rig.js";
import { Rules } from "./rules.js";
import { Measurement } from "./scaling.js";
import { DATA, dataOf, format, parse, startsByItself } from "./settings.js";
import { SimulatedRig } from "./simulated.js";
import { epochSays, goodness, showWords } from "./task.js";
import { Tour } from "./tour.js";
import { Writing } from "./writing.js";

/** @import { Known } from "./data.js" */
/** @import { Data, EpochLog, Event, Info, Member, Settings, State, StepLog, Told } from "./messages.js" */

/** Steps that the metrics keep, the newest: some tens of megabytes. */
const MOST_STEPS = 20_000;
const MOST_NOTICES = 1000;
const FACTS_MS = 200;
/** An error stands in the place of the state for that long. */
const ERROR_MS = 5000;
/** Seconds of opening adapters from which on they are shown. */
const LONG_S = 2;
const TITLE = document.title;
const N_CORES = navigator.hardwareConcurrency || 1;

/** @type {Record<State, string>} */
const STATES = {
  idle: "Ready.",
  opening: "Opening adapters and compiling shaders…",
  running: "Training.",
  paused: "Paused.",
  measuring: "Measuring; training is paused.",
  finished: "All epochs are done. Continue for as many again, or reset.",
};

/** @type {Told<"hello"> | null} */
let hello = null;
/** @type {Settings | null} */
let settings = null;
/** @type {Member[]} */
let members = [];
/** @type {Told<"state">} */
let state = { type: "state", state: "idle", step: 0, epoch: 0 };
/** @type {StepLog[]} */
let steps = [];
/** @type {EpochLog[]} */
let epochs = [];
/** @type {{ step: number, message: string }[]} */
let notices = [];
/** All members of this page's life, by their ids, as logs name them. @type {Map<number, Info>} */
let known = new Map();
/** The button that had the focus when it was disabled. @type {HTMLButtonElement | null} */
let unfocused = null;
/** What had the focus in a part of the page that was made inert. @type {HTMLElement | null} */
let within = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let error_ends;
/** Whether the visitor wants training to continue, whatever the engine does now. */
let is_to_run = false;
let is_dead = false;
/** When adapters began to be opened. */
let opened_ms = 0;
/** The address of this visit, as long as the data that it names were not learned: then empty. */
let address = location.search;
/** Whether other data were chosen, and what the engine still sends may be of the run before. */
let is_of_former = false;
/** What is sent of a run as it goes on. */
const OF_RUN = ["steps", "epoch", "predictions", "written"];

/** A run from a file that is shown in place of the engine's, once it was asked for. @type {import("./replay.js").Replay | null} */
let replay = null;
/** What brings back the page as it was before the replay. */
let restore = () => {};
/** What the engine said during the replay: it is heard after it. @type {Event[]} */
let held = [];
/** What was known of the data that are shown. @type {Known | null} */
let shown = null;

const link = new Link((event) => {
  if (!replay) return void hear(event);
  held.push(event);
  if (event.type === "failed") endReplay();
});
const rig = new Rig(send);
const reference = new Reference();
const curves = new Curves(reference);
const pictures = new Pictures();
const writing = new Writing((temperature) => change({ temperature }));
const data = new DataChoice(link, { now: () => settings?.data ?? null, chosen: learn });
const draw = new Draw(link);
const one_step = new OneStep({
  step: () => link.send({ type: "step" }),
  pause: () => link.send({ type: "pause" }),
  place: (taken) => ({ step: taken, parts: rig.place(taken), is_alone: members.length === 1, is_text: settings?.data === "text" }),
  light(lit) {
    rig.light(lit?.part ?? null);
    // An error stays, and so does a report.
    if (is_dead || replay || byId("status", HTMLElement).dataset.kind !== "state") return;
    if (lit) status(lit.says, "state");
    else showState();
  },
});
const exports = new Exports(link, {
  settings: () => settings,
  metrics: () => ({ manyhands: hello?.version, settings, adapters: members.map(({ info }) => info), members: Object.fromEntries(known), epochs, steps, notices }),
  picture: () => settings && {
    data: settings.data, split: settings.split, network: hello?.task.models.find(({ id }) => id === settings?.model)?.name ?? settings.model,
    step: state.step, loss: curves.loss_of_late, accuracy: pictures.accuracy, ...rig.batch, ms: rig.step_ms, samples_per_s: curves.samples_per_s,
    simulated: simulated.shown, steps: [...steps], replayed: replay?.name ?? null,
  },
});
const measurement = new Measurement(link, () => settings?.batch_size ?? 64);
const form = new RigForm(link);
const simulated = new SimulatedRig(link, {
  here: thisMachine,
  own: () => ({ title: "Your own rig", rig: form.rig, says: "It is described at the end of this page." }),
});
const rules = new Rules({
  change,
  restart(changed) {
    if (!settings) return;
    Object.assign(settings, changed);
    keepAddress();
    start();
    if ("model" in changed) simulated.learns("as chosen");
  },
});
const tour = new Tour({
  now: () => ({
    step: state.step, ms: rig.step_ms, samples_per_s: curves.samples_per_s ?? 0, loss: curves.loss_of_late, rows: rig.rows, letters: rig.letters, difference: reference.most, has_batch_norm: rules.has_batch_norm,
  }),
  members: () => members,
  most: () => hello?.most_adapters ?? 0,
  send,
  change(changed) {
    change(changed);
    if (settings) rules.show(settings);
  },
  step() {
    byId("one-step", HTMLElement).scrollIntoView();
    one_step.press();
  },
  stages() {
    byId("stages", HTMLElement).scrollIntoView();
    return showStages();
  },
  tell: (text) => status(text, "report"),
  run() {
    if (state.state === "paused" || state.state === "finished") link.send({ type: "resume" });
  },
});
/** The part that shows stages, once it was asked for. @type {import("./stages.js").Stages | null} */
let stages = null;
const show_stages = byId("stages-show", HTMLButtonElement);
const run = byId("run", HTMLButtonElement);
const step = byId("step", HTMLButtonElement);
const reset = byId("reset", HTMLButtonElement);
const drawFacts = paced(showFacts, FACTS_MS);
setInterval(() => { if (state.state === "opening" && !is_dead) showState(); }, 1000);

run.addEventListener("click", () => {
  is_to_run = state.state !== "running";
  one_step.forget();
  if (state.state === "idle") start();
  else link.send({ type: is_to_run ? "resume" : "pause" });
});
step.addEventListener("click", () => one_step.ask());
reset.addEventListener("click", () => {
  one_step.forget();
  link.send({ type: "reset" });
  announce("Back to fresh weights.");
});
// The first word that is pointed at loads them all.
for (const type of ["pointerover", "focusin", "click"]) {
  document.addEventListener(type, ({ target }) => {
    const word = target instanceof Element ? target.closest(".word") : null;
    if (word instanceof HTMLElement) void import("./words.js").then(({ explain }) => explain(word), () => {});
  });
}
show_stages.addEventListener("click", () => void showStages());
const replay_file = byId("replay-file", HTMLInputElement);
replay_file.addEventListener("change", () => {
  const file = replay_file.files?.[0];
  if (file) void play(file);
});

/** @param {import("./messages.js").Request} request */
function send(request) {
  if (request.type === "add") rig.expect();
  link.send(request);
}

/** Changes settings of the run as it goes on. @param {import("./rules.js").Changed} changed */
function change(changed) {
  if (!settings) return;
  Object.assign(settings, changed);
  keepAddress();
  link.send({ type: "change", ...changed });
  reference.change(changed, state.step);
  rules.tell(settings, members.length);
}

/** @param {Event} event */
function hear(event) {
  if (is_of_former && OF_RUN.includes(event.type)) return undefined;
  switch (event.type) {
    case "hello": return greet(event);
    case "failed": return fail(event.message);
    case "state": return follow(event);
    case "rig": return takeRig(event.members);
    case "steps": return takeSteps(event.steps);
    case "epoch": return takeEpoch(event.epoch);
    case "predictions": return takePredictions(event);
    case "written": return takeWritten(event);
    case "notice": return tell(event.step, event.message);
    case "measuring": return measurement.progress(event);
    case "error": return takeError(event);
    default: return undefined;
  }
}

/** @param {Told<"hello">} said */
async function greet(said) {
  hello = said;
  data.hello = said;
  tellOfAdapters(said);
  say(byId("version", HTMLElement), said.version);
  const wanted = dataOf(address);
  if (wanted !== "digits") say(byId("status", HTMLElement), "Loading the data…");
  const known = await data.take(wanted);
  // Others may have been chosen meanwhile.
  if (!settings) begin(known ?? said);
}

/** The first run. @param {Known} known */
function begin(known) {
  if (!hello || is_dead) return;
  show(known, settingsFor(known));
  rig.offer(hello.adapters, hello.most_adapters);
  exports.enable();
  replay_file.disabled = false;
  form.enabled = true;
  show_stages.disabled = false;
  is_to_run = startsByItself() || location.hash.startsWith("#try-");
  start();
  simulated.start(known.task.data === "digits" ? "usual" : "here");
  tour.start();
}

/** Settings for some data: those of this visit's address, once, then the defaults. @param {Known} known */
function settingsFor({ task }) {
  const { settings: given, remarks } = parse(address, { .../** @type {Told<"hello">} */ (hello), task }, N_CORES);
  remarks.forEach((remark) => banner(remark, "address"));
  if (dataOf(address) === task.data) address = "";
  return given;
}

/** Shows what can be learned from some data, and the settings for it. @param {Known} known @param {Settings} given */
function show(known, given) {
  if (!hello) return;
  const { task, test_pixels, test_labels } = known;
  shown = known;
  // From now on its defaults are those of this task.
  hello = { ...hello, task };
  settings = given;
  rules.offer(task);
  rules.show(settings);
  showWords(task.data);
  curves.task = task;
  writing.show(settings);
  draw.enabled = task.data === "digits";
  pictures.show(task, test_pixels, test_labels);
}

/** Learns other data: a run from fresh weights. @param {Known} known */
function learn(known) {
  if (!settings) return begin(known);
  const { adapters, throttles, split, batch_norm, seed, epochs } = settings;
  show(known, { ...settingsFor(known), adapters, throttles, split, batch_norm, seed, epochs });
  is_of_former = true;
  clear();
  showFacts();
  keepAddress();
  start();
  simulated.learns(known.task.data === "digits" ? "as chosen" : "shown");
}

/** Loads the part that shows stages, and has it simulate. Gives what came of it in words. */
async function showStages() {
  const says = byId("stages-says", HTMLElement);
  say(says, "Loading…");
  try {
    const { Stages } = await import("./stages.js");
    stages ??= new Stages(link);
    const had_focus = document.activeElement === show_stages;
    show_stages.hidden = true;
    if (had_focus) byId("stages-plate", HTMLElement).querySelector("select")?.focus({ preventScroll: true });
    return await stages.simulate();
  } catch (error) {
    const text = `This part of the page could not be loaded: ${/** @type {Error} */ (error).message}. Try again.`;
    say(says, text);
    return text;
  }
}

/** This machine as a rig for the simulator. */
function thisMachine() {
  const adapters = rig.specs;
  if (!settings || adapters.length === 0) return "Start training first: the speeds of this machine are measured in its steps.";
  return {
    title: "This machine",
    rig: { preset: /** @type {const} */ ("here"), batch_size: settings.batch_size, host: { copy_gb_s: 10 }, adapters },
    says: "Each adapter has the computing speed that was measured here; what they share, and exchanges within a step, are left out.",
  };
}

/** From fresh weights. The display stays until the engine has begun. */
function start() {
  if (settings) link.send({ type: "start", settings: { ...settings }, paused: !is_to_run });
}

function clear() {
  [steps, epochs, notices] = [[], [], []];
  rig.clear();
  if (settings) reference.begin(settings);
  one_step.clear();
  curves.clear();
  pictures.forget();
  writing.clear();
  clearLog();
  drawFacts();
}

/** @param {string} message */
function fail(message) {
  if (is_dead) return;
  one_step.clear();
  is_dead = true;
  const text = `The engine could not continue: ${firstLine(message)}`;
  banner(`${text}. It needs a recent browser with WebAssembly; loading the page again may help.`, "failed");
  say(byId("status", HTMLElement), "The engine has stopped.");
  announce(text);
  // Measurements are kept, and can still be saved.
  for (const button of document.querySelectorAll("button:not(.word)")) if (button instanceof HTMLButtonElement) button.disabled = button.id !== "export-metrics" || hello === null;
  for (const list of document.querySelectorAll("select")) list.disabled = true;
  replay_file.disabled = true;
}

/** @param {Told<"state">} said */
function follow(said) {
  const before = state.state;
  state = said;
  if (is_dead) return;
  // Steps of the run before may have been under way when it ended.
  if (said.state === "opening") {
    opened_ms = performance.now();
    is_of_former = false;
    clear();
  }
  const is_open = said.state === "paused" || said.state === "finished" || said.state === "running";
  if (is_open || said.state === "idle") is_to_run = said.state === "running";
  enable(run, is_open || said.state === "idle");
  say(run, said.state === "running" ? "Pause" : said.step === 0 ? "Start" : "Continue");
  enable(step, said.state === "paused");
  enable(one_step.button, said.state === "paused" || said.state === "running");
  enable(one_step.again, said.state === "paused" && one_step.has_step);
  enable(reset, is_open);
  measurement.enabled = is_open;
  one_step.follow(said.state);
  if (unfocused?.disabled && !run.disabled) {
    // Some browsers leave the focus on a button that is disabled.
    if (document.activeElement === document.body || document.activeElement === unfocused) run.focus();
    unfocused = null;
  }
  // Members that are being opened can't be changed yet.
  for (const id of ["add", "lanes"]) setInert(byId(id, HTMLElement), said.state === "opening");
  showState();
  document.body.dataset.state = said.state;
  if (before !== said.state) announce(STATES[said.state]);
  drawFacts();
}

/**
 * Enables a button, or not. If it had the focus when it was disabled, it gets the focus back.
 * @param {HTMLButtonElement} button
 * @param {boolean} is_enabled
 */
function enable(button, is_enabled) {
  if (!is_enabled && document.activeElement === button) unfocused = button;
  button.disabled = !is_enabled;
  if (!is_enabled || unfocused !== button) return;
  unfocused = null;
  if (document.activeElement === document.body) button.focus();
}

/**
 * Makes a part of the page inert, or not. If it had the focus, it gets the focus back.
 * @param {HTMLElement} part
 * @param {boolean} is_inert
 */
function setInert(part, is_inert) {
  const focused = document.activeElement;
  if (is_inert && !part.inert && focused instanceof HTMLElement && part.contains(focused)) within = focused;
  part.inert = is_inert;
  if (is_inert || !within || (within.isConnected && !part.contains(within))) return;
  if (focused === document.body) (within.isConnected ? within : byId("add", HTMLElement).querySelector("button"))?.focus();
  within = null;
}

/** @param {Member[]} now */
function takeRig(now) {
  for (const member of now) {
    const before = members.find(({ id }) => id === member.id);
    known.set(member.id, member.info);
    const is_news = before && before.presence !== member.presence && member.presence !== "returning";
    if (is_news && state.step > 0) {
      const at = now.indexOf(member);
      queueMicrotask(() => curves.mark(state.step, `${rig.letters[at]} ${member.presence === "lost" ? "lost" : "back"}`));
    }
  }
  members = now;
  rig.members = now;
  measurement.members = now;
  if (!settings) return;
  settings.adapters = now.map(({ info }) => info.index);
  settings.throttles = now.map(({ throttle }) => throttle);
  keepAddress();
  rules.tell(settings, now.length);
}

/** @param {StepLog[]} now */
function takeSteps(now) {
  const last = now[now.length - 1];
  if (!last) return;
  state = { ...state, step: last.step, epoch: last.epoch };
  goBackTo(now[0].step);
  steps.push(...now);
  if (steps.length > MOST_STEPS) steps = steps.slice(-MOST_STEPS);
  rig.take(now, one_step.is_asked ? "step" : "mean");
  one_step.take(last);
  curves.take(now);
  drawFacts();
  if (replay) return;
  tour.learned();
  draw.learned();
}

/**
 * Removes a step and all later ones, which are trained again: after the only adapter was lost, from the last copy of its
 * weights.
 * @param {number} first
 */
function goBackTo(first) {
  const last = steps[steps.length - 1];
  if (!last || last.step < first) return;
  steps = steps.filter(({ step }) => step < first);
  epochs = epochs.filter(({ step }) => step < first);
  curves.goBackTo(first);
}

/** @param {Told<"predictions">} predictions */
function takePredictions(predictions) {
  pictures.predictions = predictions;
  draw.learned();
  drawFacts();
}

/** @param {Told<"written">} line */
function takeWritten(line) {
  writing.take(line);
}

/** @param {EpochLog} epoch */
function takeEpoch(epoch) {
  epochs.push(epoch);
  curves.takeEpoch(epoch);
  announce(epochSays(settings?.data ?? "digits", epoch));
  drawFacts();
}

/**
 * @param {number} at
 * @param {string} message
 */
function tell(at, message) {
  message = rig.named(message);
  notices.push({ step: at, message });
  if (notices.length > MOST_NOTICES) notices.shift();
  log(at, message);
  announce(firstLine(message));
}

/** @param {Told<"error">} problem */
function takeError({ request, message }) {
  tell(state.step, message);
  status(firstLine(rig.named(message)), "error");
  if (request === "add") rig.giveUp();
  clearTimeout(error_ends);
  // If the run has ended with it, it stays.
  error_ends = setTimeout(() => { if (state.state !== "idle" && !is_dead) showState(); }, ERROR_MS);
  // What was pressed can be pressed again.
  if (request === "remove" || request === "unplug") rig.members = members;
}

/** Shows the state in words. */
function showState() {
  const seconds = Math.floor((performance.now() - opened_ms) / 1000);
  if (state.state === "opening" && seconds >= LONG_S) {
    return status(`Opening ${settings?.adapters.length === 1 ? "the adapter" : `${settings?.adapters.length} adapters`} and compiling shaders, for ${seconds} s so far…`, "state");
  }
  return status(state.state === "paused" && state.step === 0 ? "Ready: press Start." : STATES[state.state], "state");
}

/**
 * The line beside the buttons.
 * @param {string} text
 * @param {"state" | "report" | "error"} kind All but the state are shown on a phone, too.
 */
function status(text, kind) {
  const line = byId("status", HTMLElement);
  line.dataset.kind = kind;
  say(line, text);
}

function showFacts() {
  // Metrics have no predictions, but what came of them.
  const accuracy = pictures.accuracy ?? (replay ? (epochs[epochs.length - 1]?.val_accuracy ?? null) : null);
  const good = goodness(settings?.data ?? "digits", { accuracy, loss: curves.loss_of_late });
  const speed = curves.samples_per_s;
  say(byId("fact-step", HTMLElement), whole(state.step));
  // Seen from another tab.
  const title = state.step > 0 ? `step ${whole(state.step)}${good === "–" ? "" : `, ${good}${settings?.data === "text" ? " bits" : ""}`} · manyhands` : TITLE;
  if (document.title !== title) document.title = title;
  say(byId("fact-epoch", HTMLElement), settings && settings.epochs > 0 ? `${state.epoch} of ${lastEpoch(settings.epochs)}` : String(state.epoch));
  say(byId("fact-accuracy", HTMLElement), good);
  say(byId("fact-speed", HTMLElement), speed === null ? "–" : whole(speed));
}

/** Continuing at the end adds as many epochs. @param {number} epochs */
function lastEpoch(epochs) {
  return epochs * Math.max(1, Math.ceil(state.epoch / epochs));
}

function keepAddress() {
  if (!settings || !hello) return;
  void exports.showLines();
  if (replay) return;
  const query = format(settings, hello, N_CORES);
  history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
}

/** Plays the run of a file of metrics. The engine's waits meanwhile. @param {File} file */
async function play(file) {
  const says = byId("export-says", HTMLElement);
  try {
    say(says, "Loading…");
    const part = await import("./replay.js").catch((error) => { throw new Error(`This part of the page could not be loaded: ${error.message}. Try again.`); });
    const run = part.read(file.name, await file.text(), DATA);
    const known = await dataFor(run.settings.data);
    if (!known) throw new Error(`The data of ${file.name} can’t be had: see above, beside “Data”.`);
    say(says, "");
    if (replay) return;
    if (!settings || is_dead || is_of_former || state.state === "opening" || state.state === "measuring") throw new Error("The engine is busy: choose the file again in a moment.");
    if (state.state === "running") link.send({ type: "pause" });
    restore = setAside();
    link.is_muted = true;
    show(known, { ...run.settings });
    state = { type: "state", state: "paused", step: 0, epoch: 0 };
    clear();
    replay = new part.Replay(file.name, run, { hear, change: follows, end: endReplay });
    replay.start();
    announce(`Replay of ${file.name}.`);
  } catch (error) {
    say(says, /** @type {Error} */ (error).message);
  } finally {
    // The same file can be chosen again.
    replay_file.value = "";
  }
}

/** Data of a run from a file. If they can't be had, those of the page stay chosen. @param {Data} name */
async function dataFor(name) {
  // What was chosen and is still loading is not waited for.
  const known = await data.take(name);
  const list = byId("data", HTMLSelectElement);
  if (!known && settings && list.value === name) list.value = settings.data;
  return known;
}

/** Settings change in a run from a file. @param {import("./replay.js").Changed} changed */
function follows(changed) {
  if (!settings) return;
  Object.assign(settings, changed);
  reference.change(changed, state.step);
  rules.show(settings);
}

/** Keeps the run of the engine. Gives what brings it back. */
function setAside() {
  const before = { shown, settings, members, state, steps, epochs, notices, known };
  const parts = [rig, one_step, reference, curves, pictures, writing].map((part) => part.keep());
  parts.push(keepLog());
  known = new Map();
  return () => {
    ({ members, state, steps, epochs, notices, known } = before);
    if (before.shown && before.settings) show(before.shown, before.settings);
    byId("data", HTMLSelectElement).value = settings?.data ?? "digits";
    for (const bring of parts) bring();
    measurement.members = members;
    if (settings) rules.tell(settings, members.length);
    follow(state);
  };
}

/** Back to the engine's run. If it was training, it goes on. */
function endReplay() {
  if (!replay) return;
  replay.close();
  [replay, link.is_muted] = [null, false];
  restore();
  const was_running = state.state === "running";
  const events = held;
  held = [];
  for (const event of events) hear(event);
  draw.learned();
  if (is_dead) return;
  if (was_running && state.state !== "finished") link.send({ type: "resume" });
  announce("The replay has ended.");
  // The button that was pressed is gone.
  if (document.activeElement === document.body) run.focus({ preventScroll: true });
}
