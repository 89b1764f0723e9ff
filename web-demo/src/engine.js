// The engine's worker, and the worker of each CPU adapter: loads the wasm and carries the messages of `www/messages.js`.
//
// The wasm is in two files. The first holds what training calls from its start on. The second, with the rest, comes behind it. A function
// of the first that calls one of the second before it is there waits in `linkLater`; requests that would do so wait in `fetchLater`.

import init, * as engine from "./engine/manyhands_web_demo.js";

/** Name of a worker that serves a CPU adapter. */
const CPU = "cpu";

/** Relative to the page's folder, in which this file lies. */
const LATER = new URL("engine/manyhands_web_demo_later.wasm", import.meta.url);
/** Requests for which the first file is enough (`bench/later.js` makes each of them). */
const AT_ONCE = new Set(["start", "pause", "resume", "step", "reset", "change", "throttle", "unplug", "remove", "add"]);
/** Requests that later ones may pass while they wait: they change nothing. */
const APART = new Set(["simulate", "stages"]);

/** @type {WebAssembly.Module | undefined} Compiled once for all workers. */
let module;
/** @type {WebAssembly.Module | undefined} Of the second file, once it is there. */
let later;
/** @type {Promise<void> | undefined} Ends when the second file is there. */
let coming;
/** @type {Set<Worker>} Of CPU adapters. */
const cpus = new Set();

/** @param {unknown} why */
function missing(why) {
  return new Error(`a part of the engine can't be loaded: ${why instanceof Error ? why.message : why}\n  help: try again, or load the page again`);
}

/** @param {{ status: number, statusText: string }} answer HTTP/2 has no text. */
function refused({ status, statusText }) {
  return missing(`${status} ${statusText}`.trimEnd());
}

/**
 * The second file, if it belongs to the first one: another build's has another name for the table.
 * @param {WebAssembly.Module} file
 * @param {string[]} exported What the first file exports.
 */
function fitting(file, exported) {
  const names = new Set(exported);
  if (!WebAssembly.Module.imports(file).every(({ name }) => names.has(name))) throw missing("it is of another build");
  return file;
}

/** Waits for the second file, and asks for it if no one has. It may be asked for again if it did not come. */
function fetchLater() {
  const load = async () => {
    if (!later) {
      const response = await fetch(LATER).catch((error) => { throw missing(error); });
      if (!response.ok) throw refused(response);
      const file = await WebAssembly.compile(await response.arrayBuffer());
      later ??= fitting(file, WebAssembly.Module.exports(/** @type {WebAssembly.Module} */ (module)).map(({ name }) => name));
    }
    cpus.forEach((worker) => worker.postMessage({ later }));
  };
  coming ??= load().catch((error) => {
    coming = undefined;
    // A function that could not wait may have brought it meanwhile.
    if (!later) throw error;
  });
  return coming;
}

Object.assign(globalThis, {
  /**
   * Links the second file to the first, whose exports it imports. A function of the first waits meanwhile, and with it the worker.
   * @param {WebAssembly.Exports} first
   */
  linkLater(first) {
    if (!later) {
      const request = new XMLHttpRequest();
      request.open("GET", LATER, false);
      request.responseType = "arraybuffer";
      try {
        request.send();
      } catch (error) {
        throw missing(error);
      }
      if (request.status !== 200) throw refused(request);
      later = fitting(new WebAssembly.Module(request.response), Object.keys(first));
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
  const fail = (/** @type {unknown} */ error) => setTimeout(() => { throw error; });
  started.catch(fail);
  addEventListener("message", ({ data: { words, arrays, ...given } }) => {
    later ??= given.later;
    if (words !== undefined) started.then(() => engine.deliver(words, arrays)).catch(fail);
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
  let queue = started;
  addEventListener("message", ({ data: { type, pixels, bytes, ...fields } }) => {
    if (type === undefined) return;
    const deliver = async () => {
      try {
        if (!AT_ONCE.has(type)) await fetchLater();
      } catch (error) {
        postMessage({ type: "error", request: type, message: /** @type {Error} */ (error).message });
        return;
      }
      const request = { [type]: Object.keys(fields).length > 0 ? fields : null };
      engine.request(JSON.stringify(request), pixels ?? new Float32Array(), bytes ?? new Uint8Array());
    };
    if (APART.has(type)) queue.then(deliver).catch(failed);
    else queue = queue.then(deliver).catch(failed);
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
  // If it does not come, the request that needs it says so.
  fetchLater().catch(() => {});
}

if (self.name === CPU) {
  serveCpu();
} else {
  serve();
}
