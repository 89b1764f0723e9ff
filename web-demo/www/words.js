// The words that a visitor may not know, explained where they stand. Loaded when one is first pointed at.

import { make, say } from "./dom.js";

/** @type {Record<string, string>} */
export const WORDS = {
  adapter: "A device that computes: a graphics card (GPU), or a worker on the processor (CPU). WebGPU has the word.",
  host: "The part of the program that leads: it keeps the weights, cuts each batch, adds the gradients of all adapters, and updates the weights once for all.",
  batch: "The rows of one training step over all adapters together: the global batch. PyTorch’s batch size is often that of one process.",
  gradient: "For each weight, how much the loss grows when the weight grows a little. A step moves each weight the other way.",
  weights: "The numbers of the network that training changes. At the start of a step all adapters have the same ones.",
  loss: "How wrong the network is on a batch, as one number: 2.3 where it guesses among ten classes, near 0 where it is sure and right. Of a text it is told in bits a character.",
  step: "One round of training: the adapters compute the gradients of one batch, and the host updates the weights once.",
  epoch: "One pass over all training rows: 1,437 digits, 6,000 pictures of clothes, or nine tenths of the text.",
  "batch-norm": "A layer that brings its inputs to mean 0 and variance 1. Mean and variance are those of the rows that it is given: of the whole batch, or of one adapter’s part.",
  "learning rate": "How far a step moves the weights. Too small learns slowly, too large not at all.",
  seed: "The number from which the first weights, the order of the rows and all other random choices follow: the same seed repeats a run.",
  temperature: "What the scores of the characters are divided by before one is drawn: at 1 each comes as often as the network expects it, below 1 the likely ones come more often.",
  efficiency: "Rows a second of all adapters together, as a part of what each does alone, added up. At 100 % nothing is lost by sharing.",
};

const GAP = 6;
const EDGE = 8;
const box = make("div", { id: "word-says", role: "tooltip", className: "word-says", hidden: true });
/** The word that is explained. @type {HTMLElement | null} */
let shown = null;

/**
 * Explains a word, until it is left.
 * @param {HTMLElement} word
 */
export function explain(word) {
  if (!box.isConnected) {
    document.body.append(box);
    // It stays while it is pointed at, and goes by Escape.
    box.addEventListener("pointerleave", close);
    addEventListener("keydown", ({ key }) => { if (key === "Escape") close(); });
  }
  if (shown !== word) close();
  shown = word;
  say(box, WORDS[word.dataset.word ?? ""] ?? "");
  word.setAttribute("aria-describedby", box.id);
  box.hidden = false;
  const [at, size] = [word.getBoundingClientRect(), box.getBoundingClientRect()];
  const left = Math.max(EDGE, Math.min(at.left, document.documentElement.clientWidth - size.width - EDGE));
  const is_below = at.bottom + GAP + size.height <= innerHeight;
  const top = is_below ? at.bottom + GAP : at.top - GAP - size.height;
  box.style.left = `${left + scrollX}px`;
  box.style.top = `${Math.max(0, top + scrollY)}px`;
  word.addEventListener("blur", close, { once: true });
  word.addEventListener("pointerleave", leave);
}

/** Left for the explanation itself, it stays. @param {PointerEvent} event */
function leave({ relatedTarget }) {
  if (document.activeElement !== shown && !(relatedTarget instanceof Node && box.contains(relatedTarget))) close();
}

function close() {
  shown?.removeEventListener("pointerleave", leave);
  shown?.removeAttribute("aria-describedby");
  shown = null;
  box.hidden = true;
}
