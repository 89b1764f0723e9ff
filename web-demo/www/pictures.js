// The test pictures, each as the network reads it now.

import { byId, colour, context2d, make, onScheme, paced, percent, say, sized, whole } from "./dom.js";

/** @import { Task, Told } from "./messages.js" */

/** Narrowest tile that can be read, in CSS pixels: two for each of a digit, one for each of larger pictures. */
const NARROWEST = 16;
/** Most pictures of which all are shown. */
const FEW = 400;
const MOST_LISTED = 24;

export class Pictures {
  /** @type {Uint8Array} */
  #pixels = new Uint8Array();
  /** @type {Uint8Array} */
  #labels = new Uint8Array();
  /** @type {Task | null} */
  #task = null;
  /** @type {number[]} Rows in the order in which they are shown: by class. */
  #order = [];
  /** @type {Told<"predictions"> | null} */
  #predictions = null;
  /** Tiles in a line, and the CSS pixels of one. */
  #columns = 1;
  #tile = NARROWEST;
  /** @type {number[]} The row in each place, -1 where there is none. */
  #places = [];
  /** The row that is pointed at, or -1. */
  #pointed = -1;
  #canvas = byId("pictures", HTMLCanvasElement);
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

  /**
   * Shows other pictures.
   * @param {Task} task
   * @param {Uint8Array} pixels
   * @param {Uint8Array} labels
   */
  show(task, pixels, labels) {
    [this.#task, this.#pixels, this.#labels] = [task, pixels, labels];
    this.#order = [...labels.keys()].sort((a, b) => labels[a] - labels[b] || a - b);
    this.#places = [];
    this.forget();
    this.#layOut();
  }

  /** Forgets the predictions: those of another network come. */
  forget() {
    [this.#predictions, this.#pointed] = [null, -1];
    byId("wrong", HTMLElement).replaceChildren();
    say(byId("wrong-title", HTMLElement), "Read wrong");
    say(byId("pictures-says", HTMLElement), "Not read yet.");
    this.#canvas.setAttribute("aria-label", "Test pictures, by class. Not read yet.");
    this.#draw();
  }

  /** What brings back the predictions of now, for the same pictures. */
  keep() {
    const kept = this.#predictions;
    return () => { if (kept) this.predictions = kept; };
  }

  /** @param {Told<"predictions">} predictions */
  set predictions(predictions) {
    if (predictions.classes.length !== this.#labels.length) return;
    this.#predictions = predictions;
    this.#draw();
  }

  /** Part of the test pictures that are read right; `null` before the first predictions. */
  get accuracy() {
    if (!this.#predictions || this.#labels.length === 0) return null;
    return 1 - this.#order.filter((row) => this.#isWrong(row)).length / this.#labels.length;
  }

  /** @param {number} row */
  #isWrong(row) {
    return this.#predictions !== null && this.#predictions.classes[row] !== this.#labels[row];
  }

  /** Each class begins a new line. Of many pictures each class has one line. */
  #layOut() {
    const width = this.#canvas.clientWidth;
    const task = this.#task;
    if (width === 0 || !task || this.#labels.length === 0) return;
    const classes = task.classes.map((_, label) => this.#order.filter((row) => this.#labels[row] === label));
    const most = Math.max(...classes.map((rows) => rows.length));
    const fitting = Math.max(1, Math.floor(width / Math.max(NARROWEST, task.side)));
    const lines = this.#labels.length > FEW ? 1 : Math.ceil(most / fitting);
    this.#columns = Math.min(fitting, Math.ceil(most / lines));
    this.#tile = width / this.#columns;
    this.#places = classes.flatMap((rows) => {
      const shown = rows.slice(0, lines * this.#columns);
      return [...shown, ...Array(lines * this.#columns - shown.length).fill(-1)];
    });
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
    const { side, white } = this.#task ?? { side: 1, white: 1 };
    const picture = make("canvas", { width: side, height: side });
    const image = new ImageData(side, side);
    for (let pixel = 0; pixel < side * side; pixel += 1) {
      const part = this.#pixels[row * side * side + pixel] / white;
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
    const label = this.#named(this.#labels[row]);
    if (!predictions) return `${label}.`;
    return `${label}, read as ${this.#task?.classes[predictions.classes[row]]} with ${percent(predictions.confidences[row], 0)} certainty.`;
  }

  /** The beginning of a sentence. @param {number} label */
  #named(label) {
    const name = this.#task?.classes[label] ?? "";
    return `${/\d/.test(name) ? "A " : ""}${name[0].toUpperCase()}${name.slice(1)}`;
  }

  #tell() {
    const predictions = this.#predictions;
    const says = byId("pictures-says", HTMLElement);
    if (!predictions) return this.#pointed < 0 ? undefined : say(says, this.#reading(this.#pointed));
    const wrong = this.#order.filter((row) => this.#isWrong(row)).length;
    const [all, shown] = [this.#labels.length, this.#places.filter((row) => row >= 0).length];
    const text = `${whole(all - wrong)} of ${whole(all)} right after step ${whole(predictions.step)}.${shown < all ? ` ${shown} of them are shown.` : ""}`;
    this.#canvas.setAttribute("aria-label", `Test pictures, by class. ${text} Those read wrong are listed beside them.`);
    say(says, this.#pointed < 0 ? `${text} Point at one to see its prediction.` : this.#reading(this.#pointed));
  }

  #list() {
    const predictions = this.#predictions;
    if (!predictions) return;
    const wrong = this.#order.filter((row) => this.#isWrong(row));
    wrong.sort((a, b) => predictions.confidences[b] - predictions.confidences[a]);
    const [ink, wash] = ["ink", "wash"].map((name) => components(colour(name)));
    const items = wrong.slice(0, MOST_LISTED).map((row) => {
      const text = `${this.#task?.classes[this.#labels[row]]}, read as ${this.#task?.classes[predictions.classes[row]]}`;
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
