// A network that fits on no card: its memory as copies, and as stages, each with some of the layers.

import { make, say } from "../dom.js";
import { asked, handle, keep, missing, tools } from "./parts.js";
import { memory } from "./table.js";

/** @import { Memory } from "./table.js" */

const WORDS = ["", "One", "Two", "Three", "Four"];
/** Room for a card's edge and what lies beyond it, as a part of the most that a copy takes. */
const ROOM = 1.08;

export class Stages extends HTMLElement {
  #card = "";
  /** @type {Memory[]} */
  #steps = [];
  #at = 0;
  #is = make("output", { className: "handle-is" });
  #handle = make("input");
  #cards = make("div", { className: "lanes", role: "img" });
  #result = make("p", { className: "result", role: "status" });

  async connectedCallback() {
    try {
      ({ card: this.#card, steps: this.#steps } = await memory());
    } catch {
      return missing(this);
    }
    const count = Number(asked().get("stages"));
    this.#at = Math.max(0, this.#steps.findIndex((step) => step.count === count));
    this.#handle = handle(this.#steps.length, this.#at, (at) => {
      this.#at = at;
      this.#show();
    }, () => keep(this.#state()));
    this.replaceChildren(make("label", { className: "handle" }, "Number of cards ", this.#handle, this.#is), this.#cards, this.#result,
      tools("stages", "When it does not fit on one card", 480, () => this.#state()));
    this.classList.add("alive");
    this.#show();
  }

  /** @returns {Record<string, string>} */
  #state() {
    return { stages: String(this.#steps[this.#at].count) };
  }

  #show() {
    const { count, copy, has, stages, ms } = this.#steps[this.#at];
    const needed = count === 1 ? [copy] : stages;
    const room = ROOM * copy;
    const cards = needed.map((gb, at) => {
      const [within, beyond, edge] = ["bar a", "bar beyond-edge", "edge"].map((className) => make("span", { className }));
      within.style.width = `${(100 * Math.min(gb, has)) / room}%`;
      beyond.style.width = `${(100 * Math.max(0, gb - has)) / room}%`;
      edge.style.left = `${(100 * has) / room}%`;
      const layers = count === 1 ? "all layers" : `layers, part ${at + 1} of ${count}`;
      return make("div", { className: gb > has ? "lane slowest-number" : "lane" }, make("span", { className: "lane-name", textContent: `${this.#card}${count > 1 ? ` ${at + 1}` : ""}` }), make("span", { className: "lane-says", textContent: layers }),
        make("div", { className: "track simulated memory" }, within, beyond, edge), make("span", { className: "lane-ms number", textContent: `${gb.toFixed(1)} GB` }));
    });
    this.#cards.replaceChildren(...cards);
    this.#cards.ariaLabel = `${needed.map((gb) => `${gb.toFixed(1)} GB`).join(", ")}; each card has ${has} GB`;
    const words = `${WORDS[count]} ${this.#card}${count > 1 ? "s, the layers in stages" : ", with the whole network"}`;
    say(this.#is, words);
    this.#handle.setAttribute("aria-valuetext", words);
    const number = make("b", { className: "number", textContent: `${needed[0].toFixed(1)} GB` });
    this.#result.replaceChildren(...(count === 1 || ms === null
      ? ["The network takes ", number, `, the card has ${has}. It can’t train at all.`]
      : ["Each card takes ", number, ` of its ${has}. A simulated step takes ${(ms / 1000).toFixed(1)} s.`]));
  }
}
