// The run as one picture, of the size that previews of links have. Loaded when its button is first pressed: it is no part of page.js.

import { BITS, colour, context2d, make, percent, short, whole } from "./dom.js";
import { isText } from "./settings.js";
import { COLOURS, letterOf } from "./split.js";

/** @import { Data, StepLog } from "./messages.js" */
/** @import { Part } from "./split.js" */

/**
 * What the picture shows.
 * @typedef {object} Shown
 * @property {Data} data
 * @property {string} network In words: `three convolutions`.
 * @property {number} step
 * @property {number} loss Of late, as the page shows it: of a text in bits. NaN before the first step.
 * @property {number | null} accuracy On test pictures.
 * @property {Part[]} parts Of the last full batch.
 * @property {number} rows Of that batch; 0 before the first.
 * @property {"learned" | "even"} split
 * @property {number} ms Of a step.
 * @property {number | null} samples_per_s
 * @property {{ title: string, network: string, speed_up: number } | null} simulated
 * @property {StepLog[]} steps
 * @property {string | null} replayed The file that the run is from; `null` if it was measured here.
 */

/** @typedef {{ size?: number, weight?: number, ink?: string, face?: "sans" | "mono", align?: CanvasTextAlign, width?: number }} Look `ink` is a name of page.css. */
/** @typedef {{ left: number, top: number, right: number, bottom: number }} Box */
/** @typedef {{ step: number, loss: number }} Point */

const SIZE = { width: 1200, height: 630 };
const [LEFT, RIGHT] = [48, 1152];
/** Two columns: the adapters, and the loss. */
const [LEFT_END, RIGHT_START] = [530, 586];
const ICON = { top: 38, side: 46 };
const BAR = { top: 150, height: 56 };
/** A line for each adapter: room for nine, and not far apart where there are few. */
const LINES = { top: 258, height: 243, tallest: 40, most: 8 };
const SWATCH = 22;
const PLOT = { left: RIGHT_START + 52, top: 262, right: RIGHT, bottom: 468 };
/** Points of the curve, about one each two pixels: of more steps the means are drawn. */
const MOST_POINTS = 256;
/** Ticks of an axis, at most. */
const TICKS = 5;
/** Of losses from here on only the size is told. */
const HUGE = 10_000;
const FOOT = 522;
/** Width that an address may have beside the name. */
const ADDRESS = 700;

const LEARNS = { digits: "Digits", fashion: "Clothes", text: "Writing", own: "Writing" };

/** @param {Shown} shown @returns {Promise<Blob>} A PNG. */
export async function pictureOf(shown) {
  const canvas = make("canvas", SIZE);
  const context = context2d(canvas);
  context.fillStyle = colour("paper");
  context.fillRect(0, 0, SIZE.width, SIZE.height);
  drawHead(context, shown);
  drawBar(context, shown);
  drawLines(context, shown);
  drawLoss(context, shown);
  drawFoot(context, shown);
  return new Promise((resolve, refuse) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : refuse(new Error("the browser writes no PNG"))), "image/png");
  });
}

/**
 * Writes a line of text, cut where its width ends, and gives the width that it has.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y Of its base line.
 * @param {Look} [look]
 */
function write(context, text, x, y, { size = 18, weight = 400, ink = "ink", face = "sans", align = "left", width = Infinity } = {}) {
  context.font = `${weight} ${size}px ${colour(face)}`;
  context.textAlign = align;
  context.fillStyle = colour(ink);
  const line = cut(context, text, width);
  context.fillText(line, x, y);
  return context.measureText(line).width;
}

/**
 * As much of a text as there is room for.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  // Not by units of UTF-16, which would cut some signs in two.
  const signs = Array.from(text);
  while (signs.length > 0 && context.measureText(`${signs.join("")}…`).width > width) signs.pop();
  return `${signs.join("").trimEnd()}…`;
}

/** @param {CanvasRenderingContext2D} context @param {Shown} shown */
function drawHead(context, shown) {
  const icon = document.querySelector(".wordmark img");
  const has_icon = icon instanceof HTMLImageElement && icon.complete && icon.naturalWidth > 0;
  if (has_icon) context.drawImage(icon, LEFT, ICON.top, ICON.side, ICON.side);
  write(context, "manyhands", has_icon ? LEFT + ICON.side + 14 : LEFT, 74, { size: 36, weight: 600 });
  // Who is shown the picture finds the page by it.
  write(context, `${location.host}${location.pathname}`, RIGHT, 74, { size: 24, ink: "soft", align: "right", width: ADDRESS });
  // What is learned may be long: the numbers are not what is cut.
  const numbers = numbersOf(shown);
  const taken = write(context, numbers, RIGHT, 126, { size: 26, weight: 600, align: "right" });
  write(context, `${LEARNS[shown.data]}, by ${shown.network}`, LEFT, 126, { size: 26, width: RIGHT - LEFT - taken - 32 });
}

/** @param {Shown} shown */
function numbersOf({ data, step, loss, accuracy }) {
  const of_loss = Number.isNaN(loss) ? "" : isText(data) ? `${number(loss, 2)} bits a character in training` : `loss ${number(loss, 3)}`;
  return [`step ${whole(step)}`, of_loss, accuracy === null ? "" : `test accuracy ${percent(accuracy)}`].filter(Boolean).join(" · ");
}

/** @param {number} value @param {number} digits */
function number(value, digits) {
  return value >= HUGE ? value.toExponential(0) : value.toFixed(digits);
}

/**
 * The batch, cut by adapter.
 * @param {CanvasRenderingContext2D} context
 * @param {Shown} shown
 */
function drawBar(context, { parts, rows }) {
  const { top, height } = BAR;
  context.fillStyle = colour("wash");
  context.fillRect(LEFT, top, RIGHT - LEFT, height);
  if (rows === 0) write(context, "No batch yet", (LEFT + RIGHT) / 2, top + 35, { ink: "soft", size: 20, align: "center" });
  let before = 0;
  for (const { slot, rows: own } of parts) {
    if (rows === 0 || own === 0) continue;
    const [from, to] = [before, before + own].map((row) => Math.round(LEFT + (row / rows) * (RIGHT - LEFT)));
    before += own;
    // A line of paper between two parts.
    const width = Math.max(1, to - from - (before < rows ? 2 : 0));
    context.fillStyle = paint(slot);
    context.fillRect(from, top, width, height);
    context.font = `600 22px ${colour("mono")}`;
    const text = [`${letterOf(slot)} ${own}`, letterOf(slot)].find((it) => context.measureText(it).width <= width - 10);
    if (text) write(context, text, from + width / 2, top + 36, { size: 22, weight: 600, face: "mono", align: "center", ink: inkOn(slot) });
  }
}

/** @param {number} slot */
function paint(slot) {
  return colour(`a${slot % COLOURS}`);
}

/** The name of the colour of text on it. @param {number} slot */
function inkOn(slot) {
  return `on${slot % COLOURS}`;
}

/** @param {CanvasRenderingContext2D} context @param {Shown} shown */
function drawLines(context, { parts, rows, split }) {
  const title = rows > 0 ? `Rows of a batch of ${rows}, ${split === "learned" ? "by learned split" : "split evenly"}` : "Adapters";
  write(context, title, LEFT, 242, { ink: "soft", width: LEFT_END - LEFT });
  const listed = parts.slice(0, LINES.most);
  const n_more = parts.length - listed.length;
  const height = Math.min(LINES.tallest, Math.floor(LINES.height / (listed.length + Math.sign(n_more))));
  listed.forEach(({ slot, name, rows: own }, at) => {
    const middle = LINES.top + (at + 0.5) * height;
    context.fillStyle = paint(slot);
    context.fillRect(LEFT, middle - SWATCH / 2, SWATCH, SWATCH);
    write(context, letterOf(slot), LEFT + SWATCH / 2, middle + 6, { size: 16, weight: 600, align: "center", ink: inkOn(slot) });
    const taken = write(context, own > 0 ? String(own) : "–", LEFT_END, middle + 7, { size: 20, weight: 600, face: "mono", align: "right" });
    const from = LEFT + SWATCH + 12;
    write(context, name, from, middle + 7, { size: 20, width: LEFT_END - taken - 16 - from });
  });
  if (n_more > 0) write(context, `and ${n_more} more`, LEFT + SWATCH + 12, LINES.top + (listed.length + 0.5) * height + 7, { ink: "soft", size: 20 });
}

/** @param {CanvasRenderingContext2D} context @param {Shown} shown */
function drawLoss(context, { data, steps }) {
  write(context, isText(data) ? "Loss over the steps, bits a character" : "Loss over the steps", RIGHT_START, 242, { ink: "soft" });
  const unit = isText(data) ? BITS : 1;
  const points = thinned(steps.map(({ step, loss }) => ({ step, loss: loss * unit })).filter(({ loss }) => Number.isFinite(loss)));
  const [first, last] = [points[0], points[points.length - 1]];
  if (!first || !last) return void write(context, "No step yet", (PLOT.left + PLOT.right) / 2, (PLOT.top + PLOT.bottom) / 2, { ink: "soft", size: 20, align: "center" });
  const high = Math.max(...points.map(({ loss }) => loss)) * 1.08 || 1;
  // A run begins at step 0, but metrics keep the newest steps alone.
  const low = first.step < last.step / 10 ? 0 : first.step - 1;
  const x = (/** @type {number} */ step) => PLOT.left + ((step - low) / (last.step - low)) * (PLOT.right - PLOT.left);
  const y = (/** @type {number} */ loss) => PLOT.bottom - (loss / high) * (PLOT.bottom - PLOT.top);
  drawAxes(context, { x, y, low, last: last.step, high });
  context.strokeStyle = colour("ink");
  context.lineWidth = 2.5;
  context.lineJoin = "round";
  context.beginPath();
  for (const { step, loss } of points) context.lineTo(x(step), y(loss));
  context.stroke();
  // A single step is no line.
  context.fillStyle = colour("ink");
  context.beginPath();
  context.arc(x(last.step), y(last.loss), 4, 0, 2 * Math.PI);
  context.fill();
}

/**
 * Ticks with their numbers, and hairlines across.
 * @param {CanvasRenderingContext2D} context
 * @param {{ x: (step: number) => number, y: (loss: number) => number, low: number, last: number, high: number }} axes
 */
function drawAxes(context, { x, y, low, last, high }) {
  const apart = distance(high);
  const digits = Math.max(0, -Math.floor(Math.log10(apart)));
  context.fillStyle = colour("line");
  for (const loss of ticks(0, high, apart)) context.fillRect(PLOT.left, Math.round(y(loss)), PLOT.right - PLOT.left, 1);
  for (const loss of ticks(0, high, apart)) write(context, number(loss, digits), PLOT.left - 10, y(loss) + 6, { size: 16, ink: "soft", face: "mono", align: "right" });
  for (const step of ticks(low, last, Math.max(1, distance(last - low)))) {
    // The last number ends where the axis does.
    const is_last = x(step) > PLOT.right - 30;
    write(context, whole(step), is_last ? PLOT.right : x(step), PLOT.bottom + 24, { size: 16, ink: "soft", face: "mono", align: is_last ? "right" : "center" });
  }
}

/** A round distance of ticks over a span. @param {number} span */
function distance(span) {
  const unit = 10 ** Math.floor(Math.log10(span / TICKS));
  return [1, 2, 5, 10].map((times) => times * unit).find((it) => span / it <= TICKS) ?? span;
}

/** @param {number} low @param {number} high @param {number} apart */
function ticks(low, high, apart) {
  const first = Math.ceil(low / apart);
  return Array.from({ length: Math.floor(high / apart) - first + 1 }, (_, at) => (first + at) * apart);
}

/** Means of neighbours, where there are many. @param {Point[]} points @returns {Point[]} */
function thinned(points) {
  const stride = Math.ceil(points.length / MOST_POINTS);
  return Array.from({ length: Math.ceil(points.length / (stride || 1)) }, (_, at) => {
    const near = points.slice(at * stride, (at + 1) * stride);
    return { step: near[near.length - 1].step, loss: near.reduce((sum, { loss }) => sum + loss, 0) / near.length };
  });
}

/** Measured numbers, and simulated ones. @param {CanvasRenderingContext2D} context @param {Shown} shown */
function drawFoot(context, { rows, ms, samples_per_s, simulated, replayed }) {
  context.fillStyle = colour("line");
  context.fillRect(LEFT, FOOT, RIGHT - LEFT, 1);
  const where = replayed === null ? "in a browser on this machine" : `from ${replayed}`;
  const [text, says] = rows > 0 && samples_per_s !== null ? [`${whole(samples_per_s)} samples/s`, `${short(ms)} ms a step, ${where}`] : ["no step yet", where];
  drawFact(context, { left: LEFT, right: LEFT_END, tag: replayed === null ? "measured" : "replayed", text, says });
  if (!simulated) return;
  const { title, network, speed_up } = simulated;
  drawFact(context, { left: RIGHT_START, right: RIGHT, tag: "simulated", text: `${speed_up.toFixed(2)} × one alone`, says: network ? `${title}: ${network}` : title });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{ left: number, right: number, tag: "measured" | "replayed" | "simulated", text: string, says: string }} fact
 */
function drawFact(context, { left, right, tag, text, says }) {
  const is_simulated = tag === "simulated";
  context.font = `600 16px ${colour("sans")}`;
  const width = context.measureText(tag).width + 22;
  context.beginPath();
  context.roundRect(left + 0.5, FOOT + 16.5, width, 26, 13);
  context.lineWidth = 1;
  [context.strokeStyle, context.fillStyle] = [colour("edge"), colour("warn")];
  if (is_simulated) context.fill();
  else context.stroke();
  write(context, tag, left + 0.5 + width / 2, FOOT + 35, { size: 16, weight: 600, align: "center", ink: is_simulated ? "warn-ink" : "soft" });
  write(context, text, left + width + 14, FOOT + 38, { size: 24, weight: 600, width: right - left - width - 14 });
  write(context, says, left, FOOT + 72, { ink: "soft", width: right - left });
}
