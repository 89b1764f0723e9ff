// The bar that shows one batch, cut by adapter; and the letter and colours of an adapter, by its slot.

import { make, say } from "./dom.js";

/** Colours of page.css for adapters: as many as a rig has. */
export const COLOURS = 16;
/** Narrowest parts of the bar that have room for a letter, and for the rows after it. */
const ROOM = { letter: 0.035, rows: 0.09 };

/** @param {number} slot */
export function letterOf(slot) {
  return String.fromCharCode(65 + (slot % 26));
}

/** @param {number} slot */
export function paintOf(slot) {
  return `var(--a${slot % COLOURS})`;
}

/** The colour of text on it. @param {number} slot */
export function inkOf(slot) {
  return `var(--on${slot % COLOURS})`;
}

/** A square with an adapter's letter and colours. @param {number} slot */
export function swatchOf(slot) {
  const swatch = make("span", { className: "swatch", textContent: letterOf(slot) });
  [swatch.style.background, swatch.style.color] = [paintOf(slot), inkOf(slot)];
  return swatch;
}

/**
 * An adapter's part of a batch.
 * @typedef {{ slot: number, name: string, rows: number }} Part
 */

/**
 * Draws a batch, cut by adapter.
 * @param {HTMLElement} bar
 * @param {Part[]} parts
 * @param {number} rows Of the whole batch; 0 before the first.
 */
export function drawBatch(bar, parts, rows) {
  while (bar.children.length < parts.length) bar.append(make("span"));
  while (bar.children.length > parts.length) bar.lastElementChild?.remove();
  parts.forEach((part, at) => {
    const width = rows > 0 ? part.rows / rows : 0;
    const letter = letterOf(part.slot);
    const segment = /** @type {HTMLElement} */ (bar.children[at]);
    segment.style.width = `${100 * width}%`;
    segment.style.paddingInline = width < ROOM.rows ? "0" : "";
    segment.style.borderRightWidth = width === 0 ? "0" : "";
    segment.style.background = paintOf(part.slot);
    segment.style.color = inkOf(part.slot);
    say(segment, width < ROOM.letter ? "" : width < ROOM.rows ? letter : `${letter} ${part.rows}`);
  });
  bar.classList.toggle("none", rows === 0);
  const texts = parts.map((part) => `${letterOf(part.slot)} ${part.name}: ${part.rows}`);
  bar.setAttribute("aria-label", rows > 0 ? `Batch of ${rows} rows. ${texts.join(", ")}` : "No batch yet");
}
