// Texts of the page: permanent banners, the list of events, and the region that is read aloud.

import { byId, make, say } from "./dom.js";

/** @import { Missing, Told } from "./messages.js" */

const MOST_LINES = 60;
/** Longest a screen reader is left to finish a sentence before the next. */
const SPEAK_MS = 4000;

/** @type {Record<Missing, string>} */
const MISSING = {
  no_webgpu:
    "This browser has no WebGPU, which current ones have on most systems, and so no GPU: everything measured here runs on the CPU adapter, the same engine in WebAssembly.",
  insecure_origin:
    "Browsers give WebGPU to secure pages only, and this one came over plain http: open it by https or from localhost. Until then it runs on the CPU adapter, the same engine in WebAssembly.",
  no_adapter:
    "This browser gives no GPU: there is none, its driver is blocked, or hardware acceleration is off. What is measured runs on the CPU adapter, the same engine in WebAssembly.",
};

/**
 * @param {string} text
 * @param {string} kind Told apart by tests.
 */
export function banner(text, kind) {
  const list = byId("banners", HTMLElement);
  if ([...list.children].some(({ textContent }) => textContent === text)) return;
  const line = make("p", { className: "banner", textContent: text });
  line.dataset.kind = kind;
  list.append(line);
}

/**
 * Notices about the adapters before a run.
 * @param {Told<"hello">} hello
 */
export function tellOfAdapters({ missing, adapters }) {
  if (missing) {
    banner(MISSING[missing], missing);
    return;
  }
  const gpus = adapters.filter((info) => info.kind !== "cpu");
  if (gpus.length > 0 && gpus.every((info) => info.kind === "software")) {
    banner(
      `The only WebGPU adapter here is software: ${gpus[0].name} computes on the processor, far slower than a GPU would, and slower than the CPU adapter. So training begins without it; add it below if you like, best with the small network.`,
      "software",
    );
  }
}

/**
 * A line in the list of what happened, the newest on top.
 * @param {number} step
 * @param {string} text
 */
export function log(step, text) {
  const list = byId("log", HTMLElement);
  list.querySelector(".quiet")?.remove();
  list.prepend(make("li", {}, make("span", { className: "number", textContent: `step ${step}` }), text));
  while (list.children.length > MOST_LINES) list.lastElementChild?.remove();
}

/** What brings back the list of what happened as it is now. */
export function keepLog() {
  const list = byId("log", HTMLElement);
  const kept = [...list.children];
  return () => list.replaceChildren(...kept);
}

/** Empties the list of what happened. */
export function clearLog() {
  byId("log", HTMLElement).replaceChildren(make("li", { className: "quiet", textContent: "Nothing yet." }));
}

let spoken_ms = -Infinity;
let next = "";
let is_waiting = false;

/**
 * Has a sentence read aloud by screen readers; of several at once only the last.
 * @param {string} text
 */
export function announce(text) {
  next = text;
  if (is_waiting) return;
  is_waiting = true;
  setTimeout(() => {
    is_waiting = false;
    spoken_ms = performance.now();
    say(byId("announce", HTMLElement), next);
  }, Math.max(0, spoken_ms + SPEAK_MS - performance.now()));
}

/** The first sentence of the crate's messages, without their help. @param {string} message */
export function firstLine(message) {
  return message.split("\n")[0] ?? message;
}
