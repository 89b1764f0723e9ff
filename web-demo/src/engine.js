// The engine's worker, and the worker of each CPU adapter: loads the wasm and carries the messages of `src/messages.rs`.

import init, * as engine from "./engine/manyhands_web_demo.js";

/** Name of a worker that serves a CPU adapter. */
const CPU = "cpu";

/** @type {WebAssembly.Module | undefined} Compiled once for all workers. */
let module;

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
  worker.postMessage({ module });
  return {
    /** @type {(words: Uint32Array, arrays: Float32Array[]) => void} */
    send: (words, arrays) => worker.postMessage({ words, arrays }, arrays.map(({ buffer }) => buffer)),
    end: () => worker.terminate(),
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
  addEventListener("message", ({ data: { words, arrays } }) => {
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
  addEventListener("message", ({ data: { type, pixels, bytes, ...fields } }) => {
    if (type === undefined) return;
    const request = JSON.stringify({ [type]: Object.keys(fields).length > 0 ? fields : null });
    started.then(() => engine.request(type, request, pixels ?? new Float32Array(), bytes ?? new Uint8Array())).catch(failed);
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
}

if (self.name === CPU) {
  serveCpu();
} else {
  serve();
}
