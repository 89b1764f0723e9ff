// The page: passes events of the worker to the parts that show them, and actions of the visitor to the worker.

import { BATCHES, HOST_GB_S } from "./cards.js";
import { Check } from "./check.js";
import { Curves } from "./curves.js";
import { DataChoice } from "./data.js";
import { NOT_LOADED, byId, make, paced, percent, say, whole } from "./dom.js";
import { Draw } from "./draw.js";
import { Exports } from "./exports.js";
import { sizeOf } from "./fetched.js";
import { Focus } from "./focus.js";
import { LATER } from "./later.js";
import { Link, engine } from "./link.js";
import { announce, banner, clearLog, firstLine, keepLog, log, tellOfAdapters } from "./notices.js";
import { OneStep } from "./one-step.js";
import { Pictures } from "./pictures.js";
import { RigForm } from "./rig-form.js";
import { Rig } from "./rig.js";
import { Rules } from "./rules.js";
import { Measurement } from "./scaling.js";
import { DATA, dataOf, format, isText, parse, startsByItself } from "./settings.js";
import { SimulatedRig } from "./simulated.js";
import { Store } from "./store.js";
import { epochSays, goodness, showWords } from "./task.js";
import { Tour } from "./tour.js";
import { Writing } from "./writing.js";

/** @import { Known } from "./data.js" */
/** @import { Data, EpochLog, Event, Member, Request, Settings, State, StepLog, Told } from "./messages.js" */

const FACTS_MS = 200;
/** An error stands in the place of the state for that long. */
const ERROR_MS = 5000;
/** Seconds of opening adapters from which on they are shown. */
const LONG_S = 2;
/** The step from which on nothing waits for the parts that are used late. */
const PREFETCHED_AT = 40;
/** Chromium's words for a GPU process that is gone. */
const NOT_FOR_VISITORS = /(Unknown: )?A valid external Instance reference no longer exists\.?/;
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

/** What is sent of a run as it goes on. @type {Event["type"][]} */
const OF_RUN = ["steps", "epoch", "predictions", "written"];

const store = new Store();
const focus = new Focus();
/** The end of an error's time in the place of the state. @type {ReturnType<typeof setTimeout> | undefined} */
let error_ends;
let is_prefetched = false;
/** The part that shows stages, once it was asked for. @type {import("./stages.js").Stages | null} */
let stages = null;

/** Of the engine's code, unpacked; 0 where the page was not built. */
const CODE_BYTES = Number(document.querySelector("link[rel=preload]")?.getAttribute("data-bytes") ?? 0);
const code = engine((n_bytes) => {
  const part = CODE_BYTES ? `, ${percent(Math.min(1, n_bytes / CODE_BYTES), 0)}` : n_bytes > 0 ? `, ${sizeOf(n_bytes)} so far` : "";
  if (!store.hello && !store.is_dead) say(byId("status", HTMLElement), `Loading the engine${part}…`);
});
const link = new Link("manyhands", code, (event) => {
  if (!store.replaying) return void hear(event);
  store.replaying.held.push(event);
  if (event.type === "failed") endReplay();
});
/** Predictions have a worker of their own: training never waits for them. */
const simulator = new Link("simulator", code, (event) => {
  if (event.type === "failed") say(byId("other-says", HTMLElement), `The simulator could not continue: ${firstLine(event.message)}.`);
});
const rig = new Rig(send);
const check = new Check((adapter) => rig.letters[adapter] ?? "one");
const curves = new Curves(check);
const pictures = new Pictures();
const writing = new Writing((temperature) => change({ temperature }));
const data = new DataChoice(link, { now: () => store.settings?.data ?? null, chosen: learn });
const draw = new Draw(link);
const one_step = new OneStep({
  step: () => link.send({ type: "step" }),
  pause: () => link.send({ type: "pause" }),
  place: (taken) => ({ step: taken, parts: rig.place(taken), is_alone: store.run.members.length === 1, is_text: isText(store.settings?.data) }),
  light(lit) {
    rig.light(lit?.part ?? null);
    // An error stays, and so does a report.
    if (store.is_dead || store.replaying || store.says !== "state") return;
    if (lit) status(lit.says, "state");
    else showState();
  },
});
const exports = new Exports(link, {
  settings: () => store.settings,
  metrics: () => {
    const { hello, settings, run: { members, known, epochs, steps, notices } } = store;
    return { manyhands: hello?.version, settings, adapters: members.map(({ info }) => info), members: Object.fromEntries(known), epochs, steps, notices };
  },
  picture: () => store.settings && {
    data: store.settings.data, split: store.settings.split, network: store.hello?.task.models.find(({ id }) => id === store.settings?.model)?.name ?? store.settings.model,
    step: store.run.step, loss: curves.loss_of_late, accuracy: pictures.accuracy, ...rig.batch, ms: rig.step_ms, samples_per_s: curves.samples_per_s,
    simulated: simulated.shown, steps: [...store.run.steps], replayed: store.replaying?.replay.name ?? null,
  },
});
const measurement = new Measurement(link, () => store.settings?.batch_size ?? 64);
const form = new RigForm(simulator, () => keepAddress());
const simulated = new SimulatedRig(simulator, {
  network: () => (store.hello && store.settings ? { data: store.settings.data, model: store.settings.model, outputs: store.hello.task.outputs } : null),
  own: () => ({ title: "Your own rig", rig: form.rig, says: `the speeds given at the end of this page, as are its batch of ${form.rig.batch_size} and its host of ${form.rig.host.copy_gb_s} GB/s. The other rigs have ${BATCHES.cnn6} and ${HOST_GB_S}` }),
});
const rules = new Rules({
  change,
  restart(changed) {
    if (!store.settings) return;
    Object.assign(store.settings, changed);
    keepAddress();
    start();
    if ("model" in changed) simulated.learns("as chosen");
  },
});
const tour = new Tour({
  now: () => ({
    step: store.run.step, ms: rig.step_ms, samples_per_s: curves.samples_per_s ?? 0, loss: curves.loss_of_late, rows: rig.rows, letters: rig.letters, check: check.last, has_batch_norm: rules.has_batch_norm,
  }),
  members: () => store.run.members,
  settings: () => ({ split: store.settings?.split ?? "learned", batch_norm: store.settings?.batch_norm ?? "whole_batch" }),
  most: () => store.hello?.most_adapters ?? 0,
  send,
  change(changed) {
    change(changed);
    if (store.settings) rules.show(store.settings);
  },
  step() {
    byId("one-step", HTMLElement).scrollIntoView();
    return one_step.press();
  },
  stages() {
    byId("stages", HTMLElement).scrollIntoView();
    return showStages();
  },
  tell: (text) => status(text, "report"),
  is_running: () => store.run.state === "running",
  run() {
    if (store.run.state === "paused" || store.run.state === "finished") link.send({ type: "resume" });
  },
});
const show_stages = byId("stages-show", HTMLButtonElement);
const run = byId("run", HTMLButtonElement);
const step = byId("step", HTMLButtonElement);
const reset = byId("reset", HTMLButtonElement);
const drawFacts = paced(showFacts, FACTS_MS);
setInterval(() => { if (store.run.state === "opening" && !store.is_dead) showState(); }, 1000);

run.addEventListener("click", () => {
  store.is_to_run = store.run.state !== "running";
  one_step.forget();
  if (store.run.state === "idle") start();
  else link.send({ type: store.is_to_run ? "resume" : "pause" });
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
// Where the bar of the split is out of sight, a small one takes its place below the buttons.
new IntersectionObserver((entries) => {
  document.body.dataset.rig = entries[entries.length - 1].isIntersecting ? "here" : "away";
}, { rootMargin: `-${byId("run", HTMLButtonElement).offsetHeight}px 0px 0px` }).observe(byId("batch", HTMLElement));
const replay_file = byId("replay-file", HTMLInputElement);
replay_file.addEventListener("change", () => {
  const file = replay_file.files?.[0];
  if (file) void play(file);
});

/** @param {Request} request */
function send(request) {
  if (request.type === "add") rig.expect();
  link.send(request);
}

/** Changes settings of the run as it goes on. @param {import("./rules.js").Changed} changed */
function change(changed) {
  if (!store.settings) return;
  Object.assign(store.settings, changed);
  keepAddress();
  link.send({ type: "change", ...changed });
  rules.tell(store.settings, store.run.members.length);
}

/** @param {Event} event */
function hear(event) {
  if (store.is_of_former && OF_RUN.includes(event.type)) return undefined;
  switch (event.type) {
    case "hello": return greet(event);
    case "failed": return fail(event.message);
    case "state": return follow(event);
    case "rig": return takeRig(event.members);
    case "steps": return takeSteps(event.steps);
    case "epoch": return takeEpoch(event.epoch);
    case "predictions": return takePredictions(event);
    case "written": return writing.take(event);
    case "notice": return tell(event.step, event.message);
    case "measuring": return measurement.progress(event);
    case "error": return takeError(event);
    default: return undefined;
  }
}

/** @param {Told<"hello">} said */
async function greet(said) {
  store.hello = said;
  data.hello = said;
  tellOfAdapters(said);
  say(byId("version", HTMLElement), said.version);
  const wanted = dataOf(store.address);
  if (wanted !== "digits") say(byId("status", HTMLElement), "Loading the data…");
  const known = await data.take(wanted);
  // Others may have been chosen meanwhile.
  if (!store.settings) begin(known ?? said);
}

/** The first run. @param {Known} known */
function begin(known) {
  if (!store.hello || store.is_dead) return;
  show(known, settingsFor(known));
  rig.offer(store.hello.adapters, store.hello.most_adapters);
  exports.enable();
  replay_file.disabled = false;
  form.enabled = true;
  show_stages.disabled = false;
  store.is_to_run = startsByItself() || location.hash.startsWith("#try-");
  start();
  simulated.start(known.task.data === "digits" ? "usual" : "here");
  tour.start();
}

/** Settings for some data: those of this visit's address, once, then the defaults. @param {Known} known */
function settingsFor({ task }) {
  const { settings: given, remarks } = parse(store.address, { .../** @type {Told<"hello">} */ (store.hello), task }, N_CORES);
  remarks.forEach((remark) => banner(remark, "address"));
  if (dataOf(store.address) === task.data) store.address = "";
  return given;
}

/** Shows what can be learned from some data, and the settings for it. @param {Known} known @param {Settings} given */
function show(known, given) {
  if (!store.hello) return;
  const { task, test_pixels, test_labels } = known;
  store.shown = known;
  // From now on its defaults are those of this task.
  store.hello = { ...store.hello, task };
  store.settings = given;
  rules.offer(task);
  rules.show(store.settings);
  showWords(task.data);
  curves.task = task;
  writing.show(store.settings);
  draw.enabled = task.data === "digits";
  pictures.show(task, test_pixels, test_labels);
}

/** Learns other data: a run from fresh weights. @param {Known} known */
function learn(known) {
  if (!store.settings) return begin(known);
  const { adapters, throttles, split, batch_norm, seed, epochs } = store.settings;
  show(known, { ...settingsFor(known), adapters, throttles, split, batch_norm, seed, epochs });
  store.is_of_former = true;
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
    stages ??= new Stages(simulator);
    const had_focus = document.activeElement === show_stages;
    show_stages.hidden = true;
    if (had_focus) byId("stages-plate", HTMLElement).querySelector("select")?.focus({ preventScroll: true });
    return await stages.simulate();
  } catch {
    say(says, NOT_LOADED);
    return NOT_LOADED;
  }
}

/** From fresh weights. The display stays until the engine has begun. */
function start() {
  if (store.settings) link.send({ type: "start", settings: { ...store.settings }, paused: !store.is_to_run });
}

function clear() {
  store.run.clear();
  rig.clear();
  check.clear();
  one_step.clear();
  curves.clear();
  pictures.forget();
  writing.clear();
  clearLog();
  drawFacts();
}

/** @param {string} message */
function fail(message) {
  if (store.is_dead) return;
  one_step.clear();
  store.is_dead = true;
  const text = `The engine could not continue: ${firstLine(message)}`;
  banner(`${text}. It needs a recent browser with WebAssembly; loading the page again may help.`, "failed");
  say(byId("status", HTMLElement), "The engine has stopped.");
  announce(text);
  measurement.enabled = false;
  // Measurements are kept, and can still be saved.
  for (const button of document.querySelectorAll("button:not(.word)")) if (button instanceof HTMLButtonElement) button.disabled = button.id !== "export-metrics" || store.hello === null;
  for (const list of document.querySelectorAll("select")) list.disabled = true;
  replay_file.disabled = true;
}

/** @param {Pick<Told<"state">, "state" | "step" | "epoch">} said */
function follow(said) {
  const before = store.run.state;
  [store.run.state, store.run.step, store.run.epoch] = [said.state, said.step, said.epoch];
  if (store.is_dead) return;
  // Steps of the run before may have been under way when it ended.
  if (said.state === "opening") {
    store.opened_ms = performance.now();
    store.is_of_former = false;
    clear();
  }
  const is_open = said.state === "paused" || said.state === "finished" || said.state === "running";
  if (is_open || said.state === "idle") store.is_to_run = said.state === "running";
  focus.enable(run, is_open || said.state === "idle");
  say(run, said.state === "running" ? "Pause" : said.step === 0 ? "Start" : "Continue");
  focus.enable(step, said.state === "paused");
  focus.enable(one_step.button, said.state === "paused" || said.state === "running");
  focus.enable(one_step.again, said.state === "paused" && one_step.has_step);
  focus.enable(reset, is_open);
  measurement.enabled = is_open;
  one_step.follow(said.state);
  focus.pass(run);
  // Members that are being opened can't be changed yet.
  for (const id of ["add", "lanes"]) focus.setInert(byId(id, HTMLElement), said.state === "opening");
  showState();
  document.body.dataset.state = said.state;
  if (before !== said.state) announce(STATES[said.state]);
  drawFacts();
}

/** @param {Member[]} now */
function takeRig(now) {
  for (const member of now) {
    const before = store.run.members.find(({ id }) => id === member.id);
    store.run.known.set(member.id, member.info);
    const is_news = before && before.presence !== member.presence && member.presence !== "returning";
    if (is_news && store.run.step > 0) {
      const at = now.indexOf(member);
      queueMicrotask(() => curves.mark(store.run.step, `${rig.letters[at]} ${member.presence === "lost" ? "lost" : "back"}`));
    }
  }
  store.run.members = now;
  rig.members = now;
  measurement.members = now;
  if (!store.settings) return;
  store.settings.adapters = now.map(({ info }) => info.index);
  store.settings.throttles = now.map(({ throttle }) => throttle);
  keepAddress();
  rules.tell(store.settings, now.length);
}

/** Asks for the parts that are used late, once training goes on: they are there if the connection is lost then. */
function prefetch() {
  for (const name of LATER) document.head.append(make("link", { rel: "modulepreload", href: new URL(name, import.meta.url).href }));
  is_prefetched = true;
}

/** @param {StepLog[]} now */
function takeSteps(now) {
  const last = now[now.length - 1];
  if (!last) return;
  if (last.step >= PREFETCHED_AT && !is_prefetched) prefetch();
  if (store.run.take(now)) curves.goBackTo(now[0].step);
  rig.take(now, one_step.is_asked ? "step" : "mean");
  one_step.take(last);
  curves.take(now);
  rig.samples_per_s = curves.samples_per_s;
  drawFacts();
  if (store.replaying) return;
  tour.learned();
  draw.learned();
}

/** @param {Told<"predictions">} predictions */
function takePredictions(predictions) {
  pictures.predictions = predictions;
  draw.learned();
  drawFacts();
}

/** @param {EpochLog} epoch */
function takeEpoch(epoch) {
  store.run.epochs.push(epoch);
  curves.takeEpoch(epoch);
  announce(epochSays(store.settings?.data ?? "digits", epoch));
  drawFacts();
}

/**
 * @param {number} at
 * @param {string} message
 */
function tell(at, message) {
  message = rig.named(message).replace(NOT_FOR_VISITORS, "the browser has closed it");
  store.run.note(at, message);
  log(at, message);
  announce(firstLine(message));
}

/** @param {Told<"error">} problem */
function takeError({ request, message }) {
  tell(store.run.step, message);
  status(firstLine(rig.named(message)), "error");
  if (request === "add") rig.giveUp();
  clearTimeout(error_ends);
  // If the run has ended with it, it stays.
  error_ends = setTimeout(() => { if (store.run.state !== "idle" && !store.is_dead) showState(); }, ERROR_MS);
  // What was pressed can be pressed again.
  if (request === "remove" || request === "unplug") rig.members = store.run.members;
}

/** Shows the state in words. */
function showState() {
  const seconds = Math.floor((performance.now() - store.opened_ms) / 1000);
  if (store.run.state === "opening" && seconds >= LONG_S) {
    return status(`Opening ${store.settings?.adapters.length === 1 ? "the adapter" : `${store.settings?.adapters.length} adapters`} and compiling shaders, for ${seconds} s so far…`, "state");
  }
  return status(store.run.state === "paused" && store.run.step === 0 ? "Ready: press Start." : STATES[store.run.state], "state");
}

/**
 * The line beside the buttons.
 * @param {string} text
 * @param {"state" | "report" | "error"} kind All but the state are shown on a phone, too.
 */
function status(text, kind) {
  const line = byId("status", HTMLElement);
  [store.says, line.dataset.kind] = [kind, kind];
  say(line, text);
}

function showFacts() {
  // Metrics have no predictions, but what came of them.
  const accuracy = pictures.accuracy ?? (store.replaying ? (store.run.epochs[store.run.epochs.length - 1]?.val_accuracy ?? null) : null);
  const good = goodness(store.settings?.data ?? "digits", { accuracy, loss: curves.loss_of_late });
  const speed = curves.samples_per_s;
  say(byId("fact-step", HTMLElement), whole(store.run.step));
  // Seen from another tab.
  const title = store.run.step > 0 ? `step ${whole(store.run.step)}${good === "–" ? "" : `, ${good}${isText(store.settings?.data) ? " bits" : ""}`} · manyhands` : TITLE;
  if (document.title !== title) document.title = title;
  say(byId("fact-epoch", HTMLElement), store.settings && store.settings.epochs > 0 ? `${store.run.epoch} of ${lastEpoch(store.settings.epochs)}` : String(store.run.epoch));
  say(byId("fact-accuracy", HTMLElement), good);
  say(byId("fact-speed", HTMLElement), speed === null ? "–" : whole(speed));
}

/** Continuing at the end adds as many epochs. @param {number} epochs */
function lastEpoch(epochs) {
  return epochs * Math.max(1, Math.ceil(store.run.epoch / epochs));
}

function keepAddress() {
  if (!store.settings || !store.hello) return;
  void exports.showLines();
  if (store.replaying) return;
  const query = [format(store.settings, store.hello, N_CORES), new URLSearchParams(form.query).toString().replaceAll("%2C", ",").replaceAll("%3B", ";")].filter(Boolean).join("&");
  history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
}

/** Plays the run of a file of metrics. The engine's waits meanwhile. @param {File} file */
async function play(file) {
  const says = byId("export-says", HTMLElement);
  try {
    say(says, "Loading…");
    const part = await import("./replay.js").catch(() => { throw new Error(NOT_LOADED); });
    const run = part.read(file.name, await file.text(), DATA);
    const known = await dataFor(run.settings.data);
    if (!known) throw new Error(`The data of ${file.name} can’t be had: see above, beside “Data”.`);
    say(says, "");
    if (store.replaying) return;
    if (!store.settings || store.is_dead || store.is_of_former || store.run.state === "opening" || store.run.state === "measuring") throw new Error("The engine is busy: choose the file again in a moment.");
    if (store.run.state === "running") link.send({ type: "pause" });
    const restore = setAside();
    link.is_muted = true;
    show(known, { ...run.settings });
    clear();
    const replay = new part.Replay(file.name, run, { hear, change: follows, end: endReplay });
    store.replaying = { replay, restore, held: [] };
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
  if (!known && store.settings && list.value === name) list.value = store.settings.data;
  return known;
}

/** Settings change in a run from a file. @param {import("./replay.js").Changed} changed */
function follows(changed) {
  if (!store.settings) return;
  Object.assign(store.settings, changed);
  rules.show(store.settings);
}

/** Keeps the run of the engine. Gives what brings it back. */
function setAside() {
  const { shown, settings, run } = store;
  const parts = [rig, one_step, check, curves, pictures, writing].map((part) => part.keep());
  parts.push(keepLog());
  store.run = run.replayed();
  return () => {
    store.run = run;
    if (shown && settings) show(shown, settings);
    byId("data", HTMLSelectElement).value = store.settings?.data ?? "digits";
    for (const bring of parts) bring();
    measurement.members = store.run.members;
    if (store.settings) rules.tell(store.settings, store.run.members.length);
    follow(store.run);
  };
}

/** Back to the engine's run. If it was training, it goes on. */
function endReplay() {
  if (!store.replaying) return;
  const { replay, restore, held } = store.replaying;
  replay.close();
  [store.replaying, link.is_muted] = [null, false];
  restore();
  const was_running = store.run.state === "running";
  for (const event of held) hear(event);
  draw.learned();
  if (store.is_dead) return;
  if (was_running && store.run.state !== "finished") link.send({ type: "resume" });
  announce("The replay has ended.");
  // The button that was pressed is gone.
  if (document.activeElement === document.body) run.focus({ preventScroll: true });
}
