// A stand-in for the engine's worker: made-up numbers in true messages, to see the page with adapters and mishaps that
// the test machine does not have. Never shipped; tests of training run on the engine itself.
//
// The server of the tests puts `globalThis.VARIANT = "…";` in front of it.

/** @import { Data, Event, Info, Member, Request, Settings, StepLog, Task } from "../www/messages.js" */

/** @type {string} */
const variant = /** @type {any} */ (globalThis).VARIANT ?? "gpus";

/** @type {Record<string, Info[]>} */
const RIGS = {
  gpus: [
    gpu(0, "NVIDIA GeForce RTX 3060", "discrete_gpu", ["high-performance"]),
    gpu(1, "Intel UHD Graphics 770", "integrated_gpu", ["low-power"]),
    cpu(2),
  ],
  software: [gpu(0, "SwiftShader Device (Subzero)", "software", ["high-performance", "low-power", "fallback"]), cpu(1)],
  none: [cpu(0)],
};
[RIGS.uneven, RIGS["slow to open"], RIGS.late] = [RIGS.gpus, RIGS.gpus, RIGS.gpus];
/** Part by which a step's times vary, up and down. */
const JITTER = variant === "uneven" ? 0.6 : 0.05;
/** Milliseconds for which adapters are opened, and for which scaling is measured. */
const [OPENING_MS, MEASURING_MS] = [variant === "unhurried" ? 500 : variant === "slow to open" ? 4000 : 0, 300];
/** Milliseconds for which a run goes on after another was asked for. */
const LATE_MS = 1500;
/** Milliseconds until an adapter that was asked for is there. */
const ADDING_MS = 100;
const MOST_ADAPTERS = 16;
/** Milliseconds of an adapter at exchanges of batch-norm statistics. */
const EXCHANGE_MS = 1.5;
/** Test pictures of each kind of data. */
const TEST_ROWS = { digits: 360, fashion: 500, text: 0, own: 0 };
const TRAIN_ROWS = 1437;
/** Milliseconds of a row on each kind. */
const SPEEDS = { discrete_gpu: 0.12, integrated_gpu: 0.45, virtual_gpu: 0.3, cpu: 0.35, software: 2 };

const infos = RIGS[variant] ?? RIGS.none;
let starts = 0;
/** @type {Settings | null} */
let settings = null;
/** @type {Member[]} */
let members = [];
let [next_id, next_position, step, epoch, is_running] = [1, 0, 0, 0, false];
/** The measurement that runs, or 0. */
let measuring = 0;
const PACE_MS = 40;
/** @type {Map<number, number>} Learned parts. */
const parts = new Map();
/** A line of text every so many steps. */
const WRITTEN_EVERY = 10;
/** A step that one adapter computes, too, every so many steps. */
const COMPARED_EVERY = 4;
const SENTENCE = "It is the duty of the people to save the Union, and of Congress to. ";
/** @type {Record<Data, Task>} */
const TASKS = {
  digits: {
    ...of("digits", 8, 16), classes: Array.from("0123456789"),
    models: [{ id: "cnn", name: "three convolutions", parameters: 33658, has_batch_norm: true }, { id: "small", name: "one convolution", parameters: 3146, has_batch_norm: true }, { id: "wide", name: "three wide convolutions", parameters: 410058, has_batch_norm: true }],
  },
  fashion: {
    ...of("fashion", 28, 15), classes: ["T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"],
    models: [{ id: "cnn", name: "three convolutions", parameters: 148858, has_batch_norm: true }, { id: "small", name: "one convolution", parameters: 15778, has_batch_norm: true }],
  },
  text: textOf("text"),
  own: textOf("own"),
};
/** The data of the run. @type {Data} */
let data = "digits";
const isText = () => data === "text" || data === "own";

/** @param {Data} name @returns {Task} */
function textOf(name) {
  const models = [["gru", "a GRU of 128 units", 74000], ["gpt", "a small GPT of two blocks", 113000]].map(([id, says, parameters]) => ({ id: String(id), name: String(says), parameters: Number(parameters), has_batch_norm: false }));
  return { ...of(name, 0, 0), classes: [], models, frequencies_loss: 2.98 };
}

/** @param {Data} name @param {number} side @param {number} white @returns {Task} */
function of(name, side, white) {
  return { data: name, models: [], classes: [], side, white, outputs: 10, frequencies_loss: null };
}

/** Labels and pixels of test pictures. @param {Task} task */
function testRows({ data: name, side, white }) {
  const test_labels = Uint8Array.from({ length: TEST_ROWS[name] }, (_, row) => row % 10);
  const test_pixels = Uint8Array.from({ length: test_labels.length * side * side }, (_, at) => {
    const [row, x, y] = [Math.floor(at / side / side), at % side, Math.floor(at / side) % side];
    const ring = Math.abs((8 / side) * Math.hypot(x - side / 2 + 0.5, y - side / 2 + 0.5) - 1.2 - (test_labels[row] % 5) * 0.4);
    return Math.max(0, Math.round(white * (1 - 0.56 * ring)));
  });
  return { test_pixels, test_labels };
}

/**
 * @param {number} index
 * @param {string} name
 * @param {Info["kind"]} kind
 * @param {string[]} requested_as
 * @returns {Info}
 */
function gpu(index, name, kind, requested_as) {
  return { ...cpu(index), name, kind, backend: "webgpu", requested_as };
}

/** @param {number} index @returns {Info} */
function cpu(index) {
  return { index, name: "CPU", kind: "cpu", backend: "host", driver: "", vendor: 0, device: 0, bus_id: "", requested_as: [] };
}

/** @param {Event} event */
function post(event) {
  postMessage(event);
}

/** @param {import("../www/messages.js").State} now */
function state(now) {
  is_running = now === "running";
  post({ type: "state", state: now, step, epoch });
}

function rig() {
  post({ type: "rig", members: members.map((member) => ({ ...member })) });
}

/** @param {number} index */
function add(index) {
  const info = infos[index];
  const twin = members.find((member) => member.info.index === index);
  members.push({ id: next_id, position: next_position, info, presence: "active", again_ms: null, is_excluded: false, throttle: 1, shares_device_with: twin?.id ?? null });
  next_id += 1;
  next_position += 1;
}

function train() {
  if (!settings) return;
  const active = members.filter((member) => member.presence === "active");
  const speed = (/** @type {Member} */ member) => 1 / (SPEEDS[member.info.kind] * member.throttle);
  const sum = active.reduce((total, member) => total + speed(member), 0);
  const batches = Math.ceil(TRAIN_ROWS / settings.batch_size);
  const batch = (step % batches) + 1;
  const rows_of_all = Math.min(settings.batch_size, TRAIN_ROWS - (batch - 1) * settings.batch_size);
  const exchange_ms = settings.batch_norm === "whole_batch" && active.length > 1 && !isText() ? EXCHANGE_MS : 0;
  let rest = rows_of_all;
  const adapters = active.map((member, at) => {
    const wanted = settings?.split === "even" ? 1 / active.length : speed(member) / sum;
    const old = parts.get(member.id) ?? 1 / active.length;
    parts.set(member.id, settings?.split === "even" ? wanted : old + 0.15 * (wanted - old));
    const rows = at === active.length - 1 ? rest : Math.min(rest, Math.round(rows_of_all * (parts.get(member.id) ?? 0)));
    rest -= rows;
    const compute_ms = rows / speed(member) * (1 + JITTER * (2 * Math.random() - 1));
    return { adapter: members.indexOf(member), member: member.id, name: member.info.name, rows, ms: compute_ms + 1.4, upload_ms: 0.4, compute_ms, exchange_ms, readback_ms: 1, wait_ms: 0, message_ms: 0.2 };
  }).filter(({ rows }) => rows > 0);
  const longest = Math.max(...adapters.map(({ ms }) => ms));
  for (const adapter of adapters) adapter.wait_ms = longest - adapter.ms;
  const ms = longest + exchange_ms + 0.2 + 0.1 + 0.3 + 1.1;
  step += 1;
  epoch = Math.ceil(step / batches);
  const loss = 2.3 * Math.exp(-step / 45) + 0.05 + 0.1 * Math.random();
  /** @type {StepLog} */
  const log = {
    step, epoch, batch, batches, rows: rows_of_all, loss, accuracy: Math.max(0.1, 1 - loss / 2.6),
    learning_rate: settings.learning_rate, gradient_norm: 1, is_applied: true, ms, data_ms: 0.1, reduce_ms: 0.3, update_ms: 1.1,
    samples_per_s: (rows_of_all / ms) * 1000, clock_ms: PACE_MS, adapters,
    // Now and then.
    alone: active.length > 1 && step % COMPARED_EVERY === 0 ? { adapter: members.indexOf(active[0]), loss: loss + (settings.batch_norm === "per_shard" ? 0.012 : 2e-7), gradient_norm: 1 } : null,
  };
  post({ type: "steps", steps: [log] });
  if (isText() && step % WRITTEN_EVERY === 0) write();
  if (step % batches === 0) endEpoch(loss);
}

/** @param {number} loss */
function endEpoch(loss) {
  const accuracy = 1 - 0.85 * Math.exp(-step / 60) - 0.015;
  post({
    type: "epoch",
    epoch: { epoch, step, loss, accuracy: 1 - loss / 2.6, val_loss: loss + 0.03, val_accuracy: accuracy, learning_rate: 0.002, seconds: 1, samples_per_s: 2000 },
  });
  predict();
  if (settings && settings.epochs > 0 && epoch >= settings.epochs) state("finished");
}

function predict() {
  if (isText()) return write();
  const wrong = step === 0 ? 0.9 : 0.85 * Math.exp(-step / 60) + 0.015;
  const classes = testRows(TASKS[data]).test_labels.map((label, row) => (((row * 7919) % 1000) / 1000 < wrong ? (label + 1 + (row % 8)) % 10 : label));
  post({ type: "predictions", step, classes, confidences: Float32Array.from(classes, (_, row) => 0.5 + ((row * 31) % 50) / 100) });
}

function write() {
  const right = 1 - Math.exp(-step / 60);
  const noise = "etaoin ,qxz.vkw";
  const text = Array.from(SENTENCE, (letter, at) => (((at * 7919) % 100) / 100 < right ? letter : noise[(at * 31 + step) % noise.length])).join("");
  post({ type: "written", step, text });
}

/**
 * @param {string[]} names
 * @param {number} batch_size
 * @param {string} limit
 * @returns {import("../www/messages.js").Prediction}
 */
function report(names, batch_size, limit) {
  const point = (/** @type {number} */ n, /** @type {number} */ batch, /** @type {number} */ efficiency) => {
    const rows_per_s = 2600 * (1 + 0.6 * (n - 1)) * efficiency;
    return {
      n_adapters: n, batch_size: batch, shares: Array.from({ length: n }, () => Math.round(batch / n)), step_ms: (batch / rows_per_s) * 1000,
      rows_per_s, efficiency, limit,
    };
  };
  const counts = names.map((_, at) => at + 1);
  return {
    batch_size, adapters: names, alone: names.map((name) => ({ name, is_modelled: false, needed_bytes: 4.85e9, has_bytes: null, step_ms: 20, rows_per_s: 2600 })), even: null, notes: [],
    // Two are faster than twice one where measurements spread widely.
    strong: counts.map((n) => point(n, batch_size, (variant === "uneven" && n === 2 ? 1.2 : 1) / (1 + 0.13 * (n - 1)))),
    // More than 100 %, as predictions have it where a fast adapter gets more rows than it has alone.
    weak: counts.map((n) => point(n, batch_size * n, (limit && n > 1 ? 1.07 : 1) / (1 + 0.05 * (n - 1)))),
  };
}

/**
 * @param {string[]} names
 * @param {number} batch_size
 * @returns {import("../www/messages.js").SimulatedStep[]}
 */
function simulatedSteps(names, batch_size) {
  const rows = Math.round(batch_size / names.length);
  const adapters = names.map((name, adapter) => ({
    adapter, member: 0, name, rows, ms: 8, upload_ms: 1, compute_ms: 6, exchange_ms: 0, readback_ms: 1, wait_ms: adapter === 0 ? 0 : 0.5, message_ms: 0,
  }));
  return Array.from({ length: 30 }, (_, at) => ({ rows: rows * names.length, ms: 10, reduce_ms: 0.5, update_ms: 1, is_counted: at >= 20, adapters }));
}

/**
 * Stages that all take 1 ms forward and 3 ms back for a piece, one piece after the other: forward through all, then back.
 * @param {string[]} adapters
 * @param {number} micro_batches
 * @returns {import("../www/messages.js").Pipelined}
 */
function pipelined(adapters, micro_batches) {
  const last = adapters.length - 1;
  const [there, back] = [micro_batches + last, 3];
  const bricks = adapters.flatMap((_, adapter) => Array.from({ length: micro_batches }, (_, piece) => [
    ...(adapter === last ? [] : [{ adapter, piece, is_forward: true, what: /** @type {"compute"} */ ("compute"), start_ms: piece + adapter, ms: 1 }]),
    { adapter, piece, is_forward: false, what: /** @type {"compute"} */ ("compute"), start_ms: there + back * (piece + last - adapter), ms: back },
  ]).flat());
  const ms = there + back * (micro_batches + last) + 1;
  const host = { adapter: null, piece: null, is_forward: false, what: /** @type {"update"} */ ("update"), start_ms: ms - 1, ms: 1 };
  const stages = adapters.map((name, stage) => ({ layers: `\`block${stage}\``, adapters: [name], bytes: 1e6, rows: [64], busy_ms: [4 * micro_batches] }));
  const placement = adapters.map((_, stage) => ({ layers: [`block${stage}`], adapters: [stage] }));
  return { adapters, placement, staged: { micro_batches, step_ms: ms, rows_per_s: 2000 * adapters.length ** 0.5, stages }, ms, bricks: [...bricks, host] };
}

/**
 * Told as asked for, so that tests see what was asked: a slowed adapter gets half of the rows of the others, a lost one none from its step on.
 * Dense networks go faster without all adapters but the first.
 * @param {import("../www/messages.js").RigConfig} rig
 */
function simulate({ adapters, batch_size, preset, split, events = [] }) {
  const names = adapters.map(({ name }) => name ?? "");
  const best = preset === "mlp" ? 1 : names.length;
  const lost = (/** @type {number} */ at, /** @type {number} */ step) => events.some(({ step: from, adapter }) => adapter === at && step >= from);
  const weight = (/** @type {number} */ at) => (split !== "even" && adapters[at].slowdowns ? 0.5 : 1);
  const steps = simulatedSteps(names, batch_size).map((step, at) => ({ ...step, adapters: step.adapters.filter(({ adapter }) => !lost(adapter, at)).map((part) => ({ ...part, rows: Math.round(part.rows * weight(part.adapter)) })) }));
  const left = names.filter((_, at) => !lost(at, Infinity));
  post({
    type: "simulated", report: report(left, batch_size, "computing on GeForce RTX 3060 (78 %)"), order: left.map((name) => names.indexOf(name)),
    best: Math.min(best, left.length), steps, best_steps: best < names.length ? steps.map((step) => ({ ...step, adapters: step.adapters.slice(0, best) })) : [],
  });
}

/** @param {number} id */
function unplug(id) {
  const member = members.find((it) => it.id === id);
  if (!member) return;
  if (members.length === 1) {
    // The only one: from the last copy of its weights.
    step = 0;
    post({ type: "notice", level: "warn", step, message: "every adapter was lost: continuing on the CPU adapter" });
    return;
  }
  [member.presence, member.again_ms] = ["lost", 4000];
  rig();
  post({ type: "notice", level: "warn", step, message: `adapter ${member.position} \`${member.info.name}\` was lost (device destroyed); its rows go to the others` });
  setTimeout(() => {
    [member.presence, member.again_ms] = ["active", null];
    rig();
    post({ type: "notice", level: "warn", step, message: `adapter ${member.position} \`${member.info.name}\` is back` });
  }, 4000);
}

/** @param {Request} request */
function take(request) {
  switch (request.type) {
    case "load":
      if (request.bytes.length === 0) return post({ type: "error", request: "load", message: "the pictures need to be those of the page\n  help: load the page again" });
      return post({ type: "loaded", task: TASKS[request.data], ...testRows(TASKS[request.data]) });
    case "start":
      if (variant === "late" && starts === 1) {
        starts += 1;
        endEpoch(1);
        return void setTimeout(take, LATE_MS, request);
      }
      settings = request.settings;
      data = settings.data;
      [members, next_position] = [[], 0];
      settings.adapters.forEach(add);
      settings.throttles.forEach((factor, at) => { members[at].throttle = factor; });
      starts += 1;
      if (variant === "refused" && starts === 1) {
        state("opening");
        state("idle");
        return post({ type: "error", request: "start", message: "adapter 0 `CPU` gives no device\n  help: try again" });
      }
      return begin(request.paused);
    case "reset":
      members.forEach((member, at) => { member.position = at; });
      next_position = members.length;
      return begin(true);
    case "pause": predict(); return state("paused");
    case "resume":
      if (settings && epoch >= settings.epochs && step > 0) settings.epochs *= 2;
      return state("running");
    case "step": train(); predict(); return state("paused");
    case "add":
      // Later than a visitor clicks.
      return void setTimeout(() => {
        if (members.length >= MOST_ADAPTERS) return post({ type: "error", request: "add", message: "the rig is full\n  help: remove one" });
        add(request.index);
        rig();
      }, ADDING_MS);
    case "remove": members = members.filter(({ id }) => id !== request.member); return rig();
    case "throttle":
      members = members.map((member) => (member.id === request.member ? { ...member, throttle: request.factor } : member));
      return rig();
    case "unplug": return unplug(request.member);
    case "change":
      if (settings) Object.assign(settings, request);
      if (variant === "refused" && request.learning_rate === 1) {
        state("paused");
        post({ type: "error", request: null, message: "step 4: a value is not finite\n  help: lower the learning rate" });
      }
      return undefined;
    case "classify": {
      if (variant === "dies") {
        // The worker's own listener tells of it, and so does the error event.
        post({ type: "failed", message: "RuntimeError: unreachable" });
        throw new Error("RuntimeError: unreachable");
      }
      const probabilities = new Float32Array(10).fill(0.02);
      probabilities[3] = 0.82;
      return post({ type: "classified", id: request.id, step, probabilities });
    }
    case "measure":
      if (variant === "dies") return undefined;
      measuring = Number(setTimeout(() => {
        measuring = 0;
        const measured = report(members.map(({ info }) => info.name), request.batch_size, "");
        const spread = (/** @type {import("../www/messages.js").Point[]} */ points) =>
          points.map(({ rows_per_s }) => /** @type {[number, number]} */ ([(1 - JITTER) * rows_per_s, (1 + JITTER) * rows_per_s]));
        post({ type: "measured", report: measured, spread: { strong: spread(measured.strong), weak: spread(measured.weak) }, rounds: 3 });
      }, MEASURING_MS));
      return undefined;
    case "cancel":
      if (measuring === 0) return undefined;
      clearTimeout(measuring);
      measuring = 0;
      return post({ type: "error", request: "measure", message: "the measurement was cancelled\n  help: measure again when there is time" });
    case "simulate": return simulate(request.rig);
    case "stages": {
      const names = request.rig.adapters.map(({ name }) => name ?? "");
      const copies = report(names, request.rig.batch_size, "computing");
      return post({ type: "staged", report: copies, pipelines: names.slice(1).map((_, at) => pipelined(names.slice(0, at + 2), request.micro_batches)) });
    }
    case "export": return post({ type: "exported", name: `${data}.safetensors`, bytes: new Uint8Array(64) });
    default: return undefined;
  }
}

/** @param {boolean} paused */
function begin(paused) {
  [step, epoch] = [0, 0];
  parts.clear();
  state("opening");
  if (OPENING_MS === 0) return opened(paused);
  setTimeout(() => opened(paused), OPENING_MS);
}

/** @param {boolean} paused */
function opened(paused) {
  rig();
  predict();
  state(paused ? "paused" : "running");
}

if (self.name === "simulator") {
  addEventListener("message", ({ data }) => take(data));
} else if (variant === "silent") {
  // It waits for its code.
} else if (variant === "failed") {
  post({ type: "failed", message: "engine_bg.wasm could not be read: CompileError" });
} else {
  addEventListener("message", ({ data }) => take(data));
  setInterval(() => { if (is_running) train(); }, PACE_MS);
  post({
    type: "hello", version: "0.1.0", adapters: infos, missing: variant === "none" ? "no_adapter" : null,
    most_adapters: MOST_ADAPTERS, task: TASKS.digits, ...testRows(TASKS.digits),
  });
}

export {};
