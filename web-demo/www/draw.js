// A pad to draw a digit on, and what the network makes of it while it learns.

import { byId, colour, context2d, make, onScheme, percent, say } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { raster } from "./raster.js";

/** @import { Link } from "./link.js" */
/** @import { Spot } from "./raster.js" */

const CLASSES = 10;
const SIDE = 8;
/** The pen on the pad, as a part of its width. */
const PEN = 0.07;
/** Shortest time between two requests while training runs. */
const PACE_MS = 250;

export class Draw {
  /** @type {Spot[][]} From 0 to 1 of the pad. */
  #strokes = [];
  /** @type {Float32Array | null} */
  #pixels = null;
  #is_asking = false;
  #is_stale = false;
  /** Is a question to be asked in a moment? */
  #is_due = false;
  #asked_ms = 0;
  #id = 0;
  #pad = byId("pad", HTMLCanvasElement);
  #link;
  #bars = Array.from({ length: CLASSES }, (_, digit) => {
    const [bar, part] = [make("i"), make("span", { textContent: "" })];
    const item = make("li", {}, make("span", { textContent: String(digit) }), bar, part);
    return { item, bar, part };
  });

  /** @param {Link} link */
  constructor(link) {
    this.#link = link;
    byId("bars", HTMLElement).append(...this.#bars.map(({ item }) => item));
    this.#pad.addEventListener("pointerdown", (event) => this.#begin(event));
    this.#pad.addEventListener("pointermove", (event) => this.#go(event));
    this.#pad.addEventListener("keydown", ({ key, ctrlKey, metaKey, altKey }) => {
      if (!(ctrlKey || metaKey || altKey) && /^[0-9]$/.test(key)) this.show(EXAMPLES[Number(key)]);
    });
    byId("clear", HTMLButtonElement).addEventListener("click", () => {
      // The button is disabled then, and would lose it.
      this.#pad.focus({ preventScroll: true });
      this.show([]);
    });
    onScheme(() => this.#redraw());
    this.#redraw();
  }

  /** Whether the network reads digits. @param {boolean} is_possible */
  set enabled(is_possible) {
    if (!is_possible) this.show([]);
    byId("drawing", HTMLElement).hidden = !is_possible;
    byId("draw-note", HTMLElement).hidden = !is_possible;
    byId("draw-not", HTMLElement).hidden = is_possible;
  }

  /**
   * Puts strokes on the pad, in place of what is there.
   * @param {Spot[][]} strokes
   */
  show(strokes) {
    this.#strokes = strokes.map((stroke) => [...stroke]);
    this.#redraw();
    this.#ask();
  }

  /** The weights are new: the answer may be another. */
  learned() {
    if (!this.#pixels || this.#is_due) return;
    this.#is_due = true;
    setTimeout(() => {
      this.#is_due = false;
      this.#ask();
    }, Math.max(0, this.#asked_ms + PACE_MS - performance.now()));
  }

  /** @param {PointerEvent} event */
  #begin(event) {
    if (event.button !== 0) return;
    this.#pad.setPointerCapture(event.pointerId);
    this.#strokes.push([this.#spot(event)]);
    this.#redraw();
    this.#ask();
  }

  /** @param {PointerEvent} event */
  #go(event) {
    if (!this.#pad.hasPointerCapture(event.pointerId)) return;
    const stroke = this.#strokes[this.#strokes.length - 1];
    const events = event.getCoalescedEvents?.() ?? [];
    stroke?.push(...(events.length > 0 ? events : [event]).map((it) => this.#spot(it)));
    this.#redraw();
    this.#ask();
  }

  /** @param {PointerEvent} event @returns {Spot} */
  #spot({ clientX, clientY }) {
    const box = this.#pad.getBoundingClientRect();
    return { x: (clientX - box.left) / box.width, y: (clientY - box.top) / box.height };
  }

  #redraw() {
    const context = context2d(this.#pad);
    const { width, height } = this.#pad;
    context.clearRect(0, 0, width, height);
    context.strokeStyle = colour("ink");
    context.lineWidth = PEN * width;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of this.#strokes) {
      context.beginPath();
      stroke.forEach(({ x, y }, at) => {
        if (at === 0) context.moveTo(x * width, y * height);
        context.lineTo(x * width, y * height);
      });
      context.stroke();
    }
    byId("clear", HTMLButtonElement).disabled = this.#strokes.length === 0;
    this.#pixels = raster(this.#strokes);
    this.#drawSeen();
  }

  #drawSeen() {
    const canvas = byId("seen", HTMLCanvasElement);
    const context = context2d(canvas);
    context.clearRect(0, 0, SIDE, SIDE);
    context.fillStyle = colour("ink");
    this.#pixels?.forEach((part, pixel) => {
      context.globalAlpha = part;
      context.fillRect(pixel % SIDE, Math.floor(pixel / SIDE), 1, 1);
    });
    context.globalAlpha = 1;
    canvas.setAttribute("aria-label", this.#pixels ? "Your digit at 8 × 8 pixels" : "What the network sees: nothing");
  }

  /** One question at a time: the next goes out when this one is answered. */
  #ask() {
    const pixels = this.#pixels;
    if (!pixels) {
      this.#answer(null);
      return;
    }
    if (this.#is_asking) {
      this.#is_stale = true;
      return;
    }
    [this.#is_asking, this.#is_stale, this.#asked_ms] = [true, false, performance.now()];
    this.#id += 1;
    this.#link.ask({ type: "classify", id: this.#id, pixels }).then(
      ({ probabilities }) => this.#answered(probabilities),
      () => this.#answered(null),
    );
  }

  /** @param {Float32Array | null} probabilities */
  #answered(probabilities) {
    this.#is_asking = false;
    this.#answer(this.#pixels ? probabilities : null);
    if (this.#is_stale) this.#ask();
  }

  /** @param {Float32Array | null} probabilities */
  #answer(probabilities) {
    const best = probabilities ? probabilities.indexOf(Math.max(...probabilities)) : -1;
    this.#bars.forEach(({ item, bar, part }, digit) => {
      const probability = probabilities?.[digit] ?? 0;
      bar.style.transform = `scaleX(${probability.toFixed(3)})`;
      item.classList.toggle("best", digit === best);
      say(part, probabilities ? percent(probability, 0) : "");
    });
    const verdict = byId("verdict", HTMLElement);
    const digit = best < 0 ? "–" : String(best);
    if (verdict.firstChild?.textContent !== digit) verdict.replaceChildren(digit);
  }
}
