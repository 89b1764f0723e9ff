// Stages at work on the pieces of a batch, as bricks: more pieces, and the cards wait less.

import { bubbleOf, drawBricks } from "../brick-lane.js";
import { make, onScheme, percent, say } from "../dom.js";
import { asked, handle, keep, missing, ms, tools } from "./parts.js";
import { bricks } from "./table.js";

/** @import { Bricked } from "./table.js" */
/** @import { Brick } from "../messages.js" */

const KINDS = /** @type {const} */ (["forward", "back", "transfer"]);

export class Bricks extends HTMLElement {
  #card = "";
  #copies = 0;
  #stages = 0;
  /** @type {(Omit<Bricked, "bricks"> & { bricks: Brick[] })[]} */
  #steps = [];
  #at = 0;
  #is = make("output", { className: "handle-is" });
  #handle = make("input");
  #lanes = make("div", { className: "lanes", role: "img" });
  /** @type {HTMLCanvasElement[]} */
  #canvases = [];
  /** @type {HTMLElement[]} */
  #idle = [];
  #result = make("p", { className: "result", role: "status" });

  async connectedCallback() {
    try {
      const recorded = await bricks();
      [this.#card, this.#copies, this.#stages] = [recorded.card, recorded.copies, recorded.stages];
      this.#steps = recorded.steps.map((step) => ({ ...step, bricks: step.bricks.map(brickOf) }));
    } catch {
      return missing(this);
    }
    this.#at = Math.max(0, this.#steps.findIndex(({ pieces }) => String(pieces) === asked().get("pieces")));
    this.#handle = handle(this.#steps.length, this.#at, (at) => {
      this.#at = at;
      this.#show();
    }, () => keep(this.#state()));
    this.#lanes.append(...Array.from({ length: this.#stages }, (_, at) => this.#lane(at)));
    const key = make("p", { className: "key bricks-key" }, ...KINDS.map((kind) => make("span", {}, make("i", { className: `brick-${kind}` }), ` ${kind}`)), make("span", { textContent: "numbers: pieces" }));
    this.replaceChildren(make("label", { className: "handle" }, "Pieces of a batch ", this.#handle, this.#is), this.#lanes, key, this.#result,
      tools("bricks", "Stages at work", 560, () => this.#state()));
    this.classList.add("alive");
    onScheme(() => this.#draw());
    new ResizeObserver(() => this.#draw()).observe(this.#lanes);
    this.#show();
  }

  /** @param {number} at */
  #lane(at) {
    this.#canvases[at] = make("canvas", { className: "track simulated bricks" });
    this.#idle[at] = make("span", { className: "lane-ms number" });
    return make("div", { className: "lane" }, make("span", { className: "lane-name", textContent: `${this.#card} ${at + 1}` }), this.#canvases[at], this.#idle[at]);
  }

  /** @returns {Record<string, string>} */
  #state() {
    return { pieces: String(this.#steps[this.#at].pieces) };
  }

  /** What `bubbleOf` reads. @param {Brick[]} bricks */
  #bubble(bricks) {
    return bubbleOf({ adapters: Array(this.#stages).fill(this.#card), bricks });
  }

  #show() {
    const { pieces, ms: step, bricks } = this.#steps[this.#at];
    const { idle, of_each } = this.#bubble(bricks);
    const parts = of_each.map((part) => `${percent(part, 0)} idle`);
    parts.forEach((text, at) => say(this.#idle[at], text));
    this.#lanes.ariaLabel = parts.map((text, at) => `${this.#card} ${at + 1}: ${text}`).join("; ");
    const words = pieces === 1 ? "the whole batch in one piece: one card works at a time" : `${pieces} pieces`;
    say(this.#is, words);
    this.#handle.setAttribute("aria-valuetext", words);
    const number = make("b", { className: "number", textContent: `${ms(step)} ms` });
    this.#result.replaceChildren("A simulated step takes ", number, `, and the cards are idle for ${percent(idle, 0)} of it. As ${this.#stages} copies it would take ${ms(this.#copies)} ms.`);
    this.#draw();
  }

  #draw() {
    const { bricks } = this.#steps[this.#at];
    // One scale for all: a step gets shorter to the eye, too. The cards are alike, and so are their colours.
    const scale = Math.max(...this.#steps.map(({ ms }) => ms));
    this.#canvases.forEach((canvas, at) => drawBricks(canvas, bricks.filter(({ adapter }) => adapter === at), scale, 0));
  }
}

/** @param {number[]} recorded @returns {Brick} */
function brickOf([adapter, piece, kind, start_ms, ms]) {
  return { adapter, piece, is_forward: KINDS[kind] === "forward", what: KINDS[kind] === "transfer" ? "upload" : "compute", start_ms, ms };
}

customElements.define("mh-bricks", Bricks);
