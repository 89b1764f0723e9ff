// Stages at work on the pieces of a batch: the bricks of each lane, and how long it is idle.

import { colour, sized } from "./dom.js";

/** @import { Brick, Pipelined } from "./messages.js" */

/** @typedef {{ idle: number, of_each: number[], ms: number }} Bubble Idle parts of the pass, from its first brick to its last. */

/** How much of an adapter's colour each kind of work has. */
const STRENGTH = { forward: 0.5, back: 1, transfer: 0.22 };
/** Narrowest brick that has room for its number, in pixels of the page. */
const ROOM = 15;

/** @param {Pick<Pipelined, "adapters" | "bricks">} pipeline @returns {Bubble} */
export function bubbleOf({ adapters, bricks }) {
  const work = bricks.filter(({ adapter }) => adapter !== null);
  const ms = Math.max(...work.map((brick) => brick.start_ms + brick.ms)) - Math.min(...work.map(({ start_ms }) => start_ms));
  const busy = (/** @type {number} */ slot) => work.filter(({ adapter }) => adapter === slot).reduce((sum, brick) => sum + brick.ms, 0);
  const of_each = adapters.map((_, slot) => Math.max(0, 1 - busy(slot) / ms));
  return { idle: of_each.reduce((sum, part) => sum + part, 0) / of_each.length, of_each, ms };
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Brick[]} bricks
 * @param {number} ms Of the step: the width.
 * @param {number | null} stage `null` is the host.
 */
export function drawBricks(canvas, bricks, ms, stage) {
  const { context, width, height, ratio } = sized(canvas);
  context.clearRect(0, 0, width, height);
  const [paint, ink] = stage === null ? [colour("host"), ""] : [colour(`a${stage}`), colour(`on${stage}`)];
  context.font = `${10 * ratio}px ${colour("mono")}`;
  [context.textAlign, context.textBaseline] = ["center", "middle"];
  for (const { start_ms, ms: long, what, is_forward, piece } of bricks) {
    const [x, wide] = [(start_ms / ms) * width, (long / ms) * width];
    const kind = what !== "compute" && stage !== null ? "transfer" : is_forward ? "forward" : "back";
    context.globalAlpha = STRENGTH[kind];
    context.fillStyle = paint;
    // A hair of paper between bricks.
    context.fillRect(x, 0, Math.max(ratio / 2, wide - ratio / 2), height);
    context.globalAlpha = 1;
    if (kind === "transfer" || piece === null || wide < ROOM * ratio) continue;
    context.fillStyle = kind === "back" ? ink : colour("ink");
    context.fillText(String(piece + 1), x + wide / 2, height / 2 + ratio / 2);
  }
}
