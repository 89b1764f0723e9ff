// The page's end of the line to a worker of the engine: to that which trains, or to the simulator.

import { fetched } from "./fetched.js";

/** @import { Event, Request, Told } from "./messages.js" */

/**
 * Requests that are answered once, and the events that answer them.
 * @typedef {{ load: Told<"loaded">, classify: Told<"classified">, measure: Told<"measured">, simulate: Told<"simulated">, stages: Told<"staged">, export: Told<"exported"> }} Answers
 */

/** @type {Record<string, keyof Answers>} */
const ANSWERS = { loaded: "load", classified: "classify", measured: "measure", simulated: "simulate", staged: "stages", exported: "export" };

const GONE = "the engine is gone";
const MUTED = "a replay is shown: end it first";

/** An address beside this script: pages in other folders share it. @param {string} name */
const beside = (name) => new URL(name, import.meta.url);

/**
 * The engine's code, compiled once for all workers: `lab/index.html` asks for it before any script does.
 * @param {(n_bytes: number) => void} tell Gets the bytes that have come, unpacked.
 */
export async function engine(tell) {
  const bytes = await fetched("engine/manyhands_web_demo_bg.wasm", tell).catch((error) => { throw new Error(`the engine can’t be loaded: ${error.message}`); });
  return WebAssembly.compile(bytes);
}

export class Link {
  /** @type {Worker} */
  #worker;
  /** @type {Map<string, { answer: (event: any) => void, refuse: (error: Error) => void }[]>} */
  #awaited = new Map();
  /** Whether the engine has failed: nobody answers any more. */
  #is_gone = false;
  /** Whether nothing is sent: a run from a file is shown. */
  is_muted = false;

  /**
   * Starts the worker.
   * @param {"manyhands" | "simulator"} name
   * @param {Promise<WebAssembly.Module>} code
   * @param {(event: Event) => void} hear Gets each event that answers no `ask`.
   */
  constructor(name, code, hear) {
    this.#worker = new Worker(beside("engine.js"), { type: "module", name });
    this.#worker.addEventListener("message", ({ data }) => this.#take(data, hear));
    const failed = (/** @type {string} */ message) => this.#take({ type: "failed", message }, hear);
    this.#worker.addEventListener("error", (event) => {
      event.preventDefault();
      failed(event.message || "its worker did not load");
    });
    code.then((module) => this.#worker.postMessage({ module }), (error) => failed(String(error)));
  }

  /** @param {Request} request */
  send(request) {
    if (!this.is_muted) this.#worker.postMessage(request);
  }

  /**
   * Sends a request and waits for its answer.
   * @template {keyof Answers} K
   * @param {Request & { type: K }} request
   * @returns {Promise<Answers[K]>}
   */
  ask(request) {
    if (this.#is_gone) return Promise.reject(new Error(GONE));
    if (this.is_muted) return Promise.reject(new Error(MUTED));
    return new Promise((answer, refuse) => {
      const waiting = this.#awaited.get(request.type) ?? [];
      waiting.push({ answer, refuse });
      this.#awaited.set(request.type, waiting);
      this.send(request);
    });
  }

  /**
   * @param {Event} event
   * @param {(event: Event) => void} hear
   */
  #take(event, hear) {
    if (event.type === "failed") {
      this.#is_gone = true;
      for (const { refuse } of [...this.#awaited.values()].flat()) refuse(new Error(GONE));
      this.#awaited.clear();
    }
    const name = event.type === "error" ? event.request : ANSWERS[event.type];
    const waiting = name ? this.#awaited.get(name)?.shift() : undefined;
    if (!waiting) hear(event);
    else if (event.type === "error") waiting.refuse(new Error(event.message));
    else waiting.answer(event);
  }
}
