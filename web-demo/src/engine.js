// The engine's worker, the simulator's, and that of each CPU adapter: starts the engine's code, which the page has compiled for all of them, and
// carries the messages of `src/messages.rs`.

import init, * as engine from "./engine/manyhands_web_demo.js";

/** Names of workers: of one that serves a CPU adapter, and of the one that predicts. */
const [CPU, SIMULATOR] = ["cpu", "simulator"];

/** The engine's code: it comes before all else. @type {Promise<WebAssembly.Module>} */
const given = new Promise((resolve) => addEventListener("message", ({ data }) => { if (data.module) resolve(data.module); }));

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
  // A message before it waits there.
  void given.then((module) => worker.postMessage({ module }));
  return {
    /** @type {(words: Uint32Array, arrays: Float32Array[]) => void} */
    send: (words, arrays) => worker.postMessage({ words, arrays }, arrays.map(({ buffer }) => buffer)),
    end: () => worker.terminate(),
  };
}

function serveCpu() {
  const started = given.then(async (module) => {
    await init({ module_or_path: module });
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

/**
 * Answers requests of the page.
 * @param {() => void} begin Once the engine is there.
 * @param {(type: string, request: string, pixels: Float32Array, bytes: Uint8Array) => void} take
 */
async function serve(begin, take) {
  const failed = (/** @type {unknown} */ error) => postMessage({ type: "failed", message: String(error) });
  addEventListener("error", ({ message }) => failed(message));
  addEventListener("unhandledrejection", ({ reason }) => failed(reason));
  // Heard from now on: a page may ask before the engine is there.
  let start = () => {};
  const started = new Promise((resolve) => { start = () => resolve(undefined); });
  addEventListener("message", ({ data: { type, pixels, bytes, ...fields } }) => {
    if (type === undefined) return;
    const request = JSON.stringify({ [type]: Object.keys(fields).length > 0 ? fields : null });
    started.then(() => take(type, request, pixels ?? new Float32Array(), bytes ?? new Uint8Array())).catch(failed);
  });
  try {
    await init({ module_or_path: await given });
  } catch (error) {
    failed(error);
    return;
  }
  begin();
  start();
}

if (self.name === CPU) serveCpu();
else if (self.name === SIMULATOR) void serve(() => engine.start_simulator(post), engine.simulate);
else void serve(() => engine.start(post, openCpu), engine.request);
