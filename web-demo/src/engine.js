// The engine's worker, and the worker of each CPU adapter: loads the wasm and carries the messages of `www/messages.js`.
//
// The wasm is in two files. The first holds what training calls from its start on. The second, with the rest, comes behind it; the first
// calls `loadLater` where it needs the second.

import init, * as engine from "./engine/manyhands_web_demo.js";

/** Name of a worker that serves a CPU adapter. */
const CPU = "cpu";

/** Relative to the page's folder, in which this file lies. */
const LATER = new URL("engine/manyhands_web_demo_later.wasm", import.meta.url);
/** Requests that can wait for the second file. Others are about training, and call it at once if they need it. */
const PATIENT = new Set(["simulate", "stages", "measure", "export"]);

/** @type {WebAssembly.Module | undefined} Compiled once for all workers. */
let module;
/** @type {WebAssembly.Module | undefined} Of the second file, once it is there. */
let later;
/** @type {Promise<void> | undefined} Ends when the second file is there. */
let coming;
/** @type {Set<Worker>} Of CPU adapters. */
const cpus = new Set();

/** Loads the second file, if that was not done. */
function bringLater() {
  const load = async () => {
    const response = await fetch(LATER);
    if (!response.ok) throw new Error(`a part of the engine can't be loaded: ${response.status} ${response.statusText}`);
    later = await WebAssembly.compile(await response.arrayBuffer());
    cpus.forEach((worker) => worker.postMessage({ later }));
  };
  coming ??= load();
  // It may be tried again.
  coming.catch(() => { coming = undefined; });
  return coming;
}

Object.assign(globalThis, {
  /**
   * Joins the second file to the first, whose exports it imports: at once, since a function waits for it.
   * @param {WebAssembly.Exports} first
   */
  loadLater(first) {
    if (!later) {
      const request = new XMLHttpRequest();
      request.open("GET", LATER, false);
      request.responseType = "arraybuffer";
      request.send();
      if (request.status !== 200) throw new Error(`a part of the engine can't be loaded: ${request.status} ${request.statusText}`);
      later = new WebAssembly.Module(request.response);
    }
    new WebAssembly.Instance(later, { first });
  },
});

/**
 * @param {string} text An `Event`, but for its arrays.
 * @param {Record<string, Uint8Array | Float32Array>} arrays
 */
function post(text, arrays) {
  postMessage(Object.assign(JSON.parse(text), arrays), { transfer: Object.values(arrays).map(({ buffer }) => buffer) });
}

/**
 * @param {(words: Uint32Array, arrays: Float32Array[]) => void} heard
 * @param {() => void} ended
 */
function openCpu(heard, ended) {
  const worker = new Worker(import.meta.url, { type: "module", name: CPU });
  worker.onmessage = ({ data: { words, arrays } }) => heard(words, arrays);
  worker.onerror = ended;
  worker.postMessage({ module, later });
  cpus.add(worker);
  return {
    /** @type {(words: Uint32Array, arrays: Float32Array[]) => void} */
    send: (words, arrays) => worker.postMessage({ words, arrays }, arrays.map(({ buffer }) => buffer)),
    end: () => {
      cpus.delete(worker);
      worker.terminate();
    },
  };
}

/** Serves a CPU adapter, after a first message with the compiled module. */
function serveCpu() {
  const ready = new Promise((resolve) => addEventListener("message", ({ data }) => resolve(data.module), { once: true }));
  const started = ready.then(async (compiled) => {
    await init({ module_or_path: compiled });
    engine.serve_cpu((/** @type {Uint32Array} */ words, /** @type {Float32Array[]} */ arrays) => {
      postMessage({ words, arrays }, { transfer: arrays.map(({ buffer }) => buffer) });
    });
  });
  // An error event, which a rejection is not, tells the engine that this adapter is lost.
  started.catch((error) => setTimeout(() => { throw error; }));
  addEventListener("message", async ({ data: { words, arrays, ...given } }) => {
    later ??= given.later;
    if (words === undefined) return;
    await started;
    engine.deliver(words, arrays);
  });
}

async function serve() {
  const failed = (/** @type {unknown} */ error) => postMessage({ type: "failed", message: String(error) });
  addEventListener("error", ({ message }) => failed(message));
  addEventListener("unhandledrejection", ({ reason }) => failed(reason));
  // Heard from now on: a page may ask before the engine is there.
  let start = () => {};
  /** @type {Promise<ArrayBuffer>} */
  const given = new Promise((resolve) => addEventListener("message", ({ data: { wasm } }) => { if (wasm) resolve(wasm); }));
  const started = new Promise((resolve) => { start = () => resolve(undefined); });
  addEventListener("message", async ({ data: { type, pixels, bytes, ...fields } }) => {
    if (type === undefined) return;
    await started;
    if (PATIENT.has(type)) {
      try {
        await bringLater();
      } catch (error) {
        postMessage({ type: "error", request: type, message: /** @type {Error} */ (error).message });
        return;
      }
    }
    const request = { [type]: Object.keys(fields).length > 0 ? fields : null };
    engine.request(JSON.stringify(request), pixels ?? new Float32Array(), bytes ?? new Uint8Array());
  });
  try {
    module = await WebAssembly.compile(await given);
    await init({ module_or_path: module });
  } catch (error) {
    failed(error);
    return;
  }
  engine.start(post, openCpu);
  start();
  // If it fails, who needs it says so.
  bringLater().catch(() => {});
}

if (self.name === CPU) {
  serveCpu();
} else {
  serve();
}
