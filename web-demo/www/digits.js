// The test digits, each as the network reads it now.

import { byId, colour, context2d, make, onScheme, paced, percent, say, sized } from "./dom.js";

/** @import { Hello, Predictions } from "./messages.js" */

const SIDE = 8;
const PIXELS = SIDE * SIDE;
const WHITE = 16;
const CLASSES = 10;
/** Narrowest tile that can be read, in CSS pixels. */
const NARROWEST = 16;
const MOST_LISTED = 24;

export class Digits {
  /** @type {Uint8Array} */
  #pixels = new Uint8Array();
  /** @type {Uint8Array} */
  #labels = new Uint8Array();
  /** @type {number[]} Rows in the order in which they are shown: by class. */
  #order = [];
  /** @type {Predictions | null} */
  #predictions = null;
  /** Tiles in a line, and the CSS pixels of one. */
  #columns = 1;
  #tile = NARROWEST;
  /** @type {number[]} The row in each place, -1 where there is none. */
  #places = [];
  /** The row that is pointed at, or -1. */
  #pointed = -1;
  #canvas = byId("digits", HTMLCanvasElement);
  #draw = paced(() => this.#redraw(), 100);

  constructor() {
    new ResizeObserver(() => this.#layOut()).observe(this.#canvas);
    onScheme(this.#draw);
    this.#canvas.addEventListener("pointermove", (event) => this.#pointAt(event));
    this.#canvas.addEventListener("pointerdown", (event) => this.#pointAt(event));
    this.#canvas.addEventListener("pointerleave", ({ pointerType }) => {
      // A finger leaves as soon as it is lifted, and only then can one read.
      if (pointerType === "mouse") this.#pointed = -1;
      this.#tell();
    });
  }

  /** @param {Hello} hello */
  set hello({ test_pixels, test_labels }) {
    [this.#pixels, this.#labels] = [test_pixels, test_labels];
    this.#order = [...test_labels.keys()].sort((a, b) => test_labels[a] - test_labels[b] || a - b);
    this.#layOut();
  }

  /** @param {Predictions} predictions */
  set predictions(predictions) {
    this.#predictions = predictions;
    this.#draw();
  }

  /** Part of the test digits that are read right; `null` before the first predictions. */
  get accuracy() {
    if (!this.#predictions || this.#labels.length === 0) return null;
    return 1 - this.#order.filter((row) => this.#isWrong(row)).length / this.#labels.length;
  }

  /** @param {number} row */
  #isWrong(row) {
    return this.#predictions !== null && this.#predictions.digits[row] !== this.#labels[row];
  }

  /** Each class begins a new line. */
  #layOut() {
    const width = this.#canvas.clientWidth;
    if (width === 0 || this.#labels.length === 0) return;
    const most = Math.max(...Array.from({ length: CLASSES }, (_, digit) => this.#labels.filter((label) => label === digit).length));
    const fitting = Math.max(1, Math.floor(width / NARROWEST));
    const lines = Math.ceil(most / fitting);
    this.#columns = Math.ceil(most / lines);
    this.#tile = width / this.#columns;
    this.#places = [];
    for (let digit = 0; digit < CLASSES; digit += 1) {
      const rows = this.#order.filter((row) => this.#labels[row] === digit);
      const empty = lines * this.#columns - rows.length;
      this.#places.push(...rows, ...Array(empty).fill(-1));
    }
    this.#canvas.style.height = `${Math.ceil((this.#places.length / this.#columns) * this.#tile)}px`;
    this.#draw();
  }

  #redraw() {
    const { context, width, height, ratio } = sized(this.#canvas);
    context.clearRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    const [ink, paper, wash] = ["ink", "paper", "wash"].map((name) => components(colour(name)));
    const tile = this.#tile * ratio;
    this.#places.forEach((row, place) => {
      if (row < 0) return;
      const left = Math.round((place % this.#columns) * tile);
      const top = Math.round(Math.floor(place / this.#columns) * tile);
      const side = Math.floor(tile) - Math.max(1, Math.round(ratio));
      const [front, back] = this.#isWrong(row) ? [paper, ink] : [ink, wash];
      context.drawImage(this.#picture(row, front, back), left, top, side, side);
    });
    this.#tell();
    this.#list();
  }

  /**
   * @param {number} row
   * @param {number[]} front
   * @param {number[]} back
   */
  #picture(row, front, back) {
    const picture = make("canvas", { width: SIDE, height: SIDE });
    const image = new ImageData(SIDE, SIDE);
    for (let pixel = 0; pixel < PIXELS; pixel += 1) {
      const part = this.#pixels[row * PIXELS + pixel] / WHITE;
      for (let channel = 0; channel < 3; channel += 1) {
        image.data[4 * pixel + channel] = back[channel] + part * (front[channel] - back[channel]);
      }
      image.data[4 * pixel + 3] = 255;
    }
    context2d(picture).putImageData(image, 0, 0);
    return picture;
  }

  /** @param {PointerEvent} event */
  #pointAt({ offsetX, offsetY }) {
    const column = Math.min(this.#columns - 1, Math.floor(offsetX / this.#tile));
    this.#pointed = this.#places[Math.floor(offsetY / this.#tile) * this.#columns + column] ?? -1;
    this.#tell();
  }

  /** @param {number} row */
  #reading(row) {
    const predictions = this.#predictions;
    const label = this.#labels[row];
    if (!predictions) return `A ${label}.`;
    const sure = percent(predictions.confidences[row], 0);
    return `A ${label}, read as ${predictions.digits[row]} with ${sure} certainty.`;
  }

  #tell() {
    const predictions = this.#predictions;
    if (!predictions) return;
    const wrong = this.#order.filter((row) => this.#isWrong(row)).length;
    const right = this.#labels.length - wrong;
    const text = `${right} of ${this.#labels.length} right after step ${predictions.step}.`;
    this.#canvas.setAttribute("aria-label", `Test digits, by class. ${text} Those read wrong are listed beside them.`);
    say(byId("digits-says", HTMLElement), this.#pointed < 0 ? `${text} Point at one to see its prediction.` : this.#reading(this.#pointed));
  }

  #list() {
    const predictions = this.#predictions;
    if (!predictions) return;
    const wrong = this.#order.filter((row) => this.#isWrong(row));
    wrong.sort((a, b) => predictions.confidences[b] - predictions.confidences[a]);
    const [ink, wash] = ["ink", "wash"].map((name) => components(colour(name)));
    const items = wrong.slice(0, MOST_LISTED).map((row) => {
      const text = `${this.#labels[row]}, read as ${predictions.digits[row]}`;
      return make("li", {}, this.#picture(row, ink, wash), make("span", { textContent: text }));
    });
    byId("wrong", HTMLElement).replaceChildren(...items);
    const rest = wrong.length - items.length;
    say(byId("wrong-title", HTMLElement), rest > 0 ? `Read wrong: ${wrong.length}, the surest first` : `Read wrong: ${wrong.length}`);
  }
}

/** Red, green and blue of `#rrggbb`. @param {string} hex */
function components(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
