// What a second card costs: a step on one card and on several like it, for networks with little work and with much.

import { make, say } from "../dom.js";
import { Lanes, asked, handle, keep, missing, ms, times, tools, whole } from "./parts.js";
import { works } from "./table.js";

/** @import { Work } from "./table.js" */

const WORDS = { 2: "Two", 4: "Four", 8: "Eight" };
const SVG = "http://www.w3.org/2000/svg";
/** Size of the curve, at most as wide, and its ends in speed: a ninth, and nine times one card. */
const CURVE = { width: 640, height: 150, least: 1 / 9, most: 9 };

export class Costs extends HTMLElement {
  /** @type {Work[]} */
  #works = [];
  #card = "";
  #at = 0;
  #count = 2;
  #lanes = new Lanes(["a", "a"]);
  #result = make("p", { className: "result" });
  #is = make("output", { className: "handle-is" });
  #curve = document.createElementNS(SVG, "svg");

  async connectedCallback() {
    try {
      ({ card: this.#card, works: this.#works } = await works());
    } catch {
      return missing(this);
    }
    const query = asked();
    const [at, count] = [Number(query.get("work") ?? 0), Number(query.get("count") ?? 2)];
    if (Number.isInteger(at) && at in this.#works) this.#at = at;
    if (this.#works[0].together.some((other) => other.count === count)) this.#count = count;
    this.#build();
    this.#show();
  }

  #build() {
    const work = handle(this.#works.length, this.#at, (at) => {
      this.#at = at;
      this.#show();
    }, () => keep(this.#state()));
    this.#work = work;
    const count = make("select", { ariaLabel: "Number of cards" });
    count.append(...this.#works[0].together.map(({ count: n }) => make("option", { value: String(n), textContent: WORDS[/** @type {keyof typeof WORDS} */ (n)], selected: n === this.#count })));
    count.addEventListener("change", () => {
      this.#count = Number(count.value);
      this.#show();
      keep(this.#state());
    });
    const key = make("p", { className: "key" }, make("span", { className: "swatch a" }), " computing ", make("span", { className: "swatch rest" }), " exchange: sending, adding, updating");
    this.#curve.setAttribute("class", "curve");
    this.#curve.setAttribute("role", "img");
    this.replaceChildren(make("p", { className: "sentence" }, count, ` ${this.#card}s instead of one`),
      make("label", { className: "handle" }, "Work in a step ", work, this.#is), this.#lanes.element, key, this.#result, this.#curve,
      tools("costs", "What a second card costs", 690, () => this.#state()));
    this.classList.add("alive");
    // Its text has the same size on all screens.
    new ResizeObserver(() => this.#draw()).observe(this);
  }

  #work = make("input");

  /** @returns {Record<string, string>} */
  #state() {
    return { work: String(this.#at), count: String(this.#count) };
  }

  #of(/** @type {Work} */ work) {
    const found = work.together.find(({ count }) => count === this.#count);
    if (!found) throw new Error(`no prediction for ${this.#count} cards`);
    return { ...found, factor: work.alone / found.ms };
  }

  #show() {
    const work = this.#works[this.#at];
    const { ms: together, part_ms, factor } = this.#of(work);
    const scale = 1.05 * Math.max(work.alone, together);
    const rest_ms = Math.max(0, together - part_ms);
    const many = `${WORDS[/** @type {keyof typeof WORDS} */ (this.#count)]} cards`;
    this.#lanes.show(0, { name: "One card", says: `${whole(work.batch_size)} examples`, ms: work.alone, scale });
    this.#lanes.show(1, { name: many, says: `${ms(rest_ms)} ms of exchange`, ms: together, rest_ms, scale, is_slowest: factor < 1 });
    this.#lanes.label(`One card: ${ms(work.alone)} ms a step. ${many}: ${ms(together)} ms, of which ${ms(rest_ms)} ms are exchange.`);
    say(this.#is, work.words);
    this.#work.setAttribute("aria-valuetext", work.words);
    const number = make("b", { className: "number", textContent: `${times(factor)} ×` });
    const ends = factor < 1 ? [` as fast. Exchange costs more than the other ${this.#count === 2 ? "card brings" : "cards bring"}: manyhands leaves ${this.#count === 2 ? "it" : "them"} out, and trains as fast as one card.`] : [` as fast as one card.`];
    this.#result.replaceChildren(`${many}: `, number, ...ends);
    this.#draw();
  }

  /** The speed for all works, with the one that is shown. */
  #draw() {
    const { height, least, most } = CURVE;
    const width = Math.max(200, Math.min(CURVE.width, this.#curve.clientWidth));
    this.#curve.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const x = (/** @type {number} */ at) => 56 + (at * (width - 76)) / (this.#works.length - 1);
    const y = (/** @type {number} */ factor) => height - 10 - ((Math.log(factor) - Math.log(least)) / (Math.log(most) - Math.log(least))) * (height - 20);
    const factors = this.#works.map((work) => this.#of(work).factor);
    const part = (/** @type {string} */ name, /** @type {Record<string, string | number>} */ values, text = "") => {
      const element = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(values)) element.setAttribute(key, String(value));
      element.textContent = text;
      return element;
    };
    const lines = [0.25, 1, 4].flatMap((factor) => [
      part("line", { x1: 56, x2: width - 20, y1: y(factor), y2: y(factor), class: factor === 1 ? "even" : "hair" }),
      part("text", { x: 50, y: y(factor) + 4, class: "tick" }, `${factor} ×`),
    ]);
    const path = factors.map((factor, at) => `${at === 0 ? "M" : "L"}${x(at).toFixed(1)} ${y(factor).toFixed(1)}`).join("");
    const dots = factors.map((factor, at) => part("circle", { cx: x(at), cy: y(factor), r: at === this.#at ? 7 : 3.5, class: factor < 1 ? "under" : "over" }));
    this.#curve.replaceChildren(...lines, part("path", { d: path, class: "line" }), ...dots);
    this.#curve.setAttribute("aria-label", `Speed beside one card, from little work to much: ${factors.map((factor) => times(factor)).join(", ")}`);
  }
}
