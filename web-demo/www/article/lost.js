// A card that dies in the middle of a step: the others compute its examples again, and the next steps are split over them.

import { make, say } from "../dom.js";
import { Lanes, asked, button, keep, missing, ms, tools, whole } from "./parts.js";
import { lost, slug } from "./table.js";

/** @import { Lost } from "./table.js" */

/** Before the plug is pulled, the step in which it is, and the steps after. */
const WHEN = /** @type {const} */ (["before", "now", "after"]);
const NEXT = ["Pull its plug", "The step after", "Plug it in again"];
const HUES = ["a", "b", "plain"];

export class Dying extends HTMLElement {
  /** @type {string[]} */
  #cards = [];
  /** @type {Lost[]} */
  #runs = [];
  /** The card of the plug. */
  #card = 0;
  /** Index into `WHEN`. */
  #at = 0;
  #lanes = new Lanes(HUES);
  #result = make("p", { className: "result", role: "status" });
  #next = button("", () => this.#go((this.#at + 1) % WHEN.length), "primary");

  async connectedCallback() {
    try {
      ({ cards: this.#cards, runs: this.#runs } = await lost());
    } catch {
      return missing(this);
    }
    const plug = asked().get("plug");
    this.#card = this.#cards.findIndex((name) => slug(name) === plug);
    if (this.#card < 0) this.#card = this.#cards.length - 1;
    this.#at = Math.max(0, WHEN.findIndex((when) => when === asked().get("when")));
    const choice = make("select", { ariaLabel: "The card that dies" }, ...this.#cards.map((name, at) => make("option", { value: String(at), textContent: name, selected: at === this.#card })));
    choice.addEventListener("change", () => {
      this.#card = Number(choice.value);
      this.#go(0);
    });
    this.replaceChildren(make("p", { className: "sentence" }, "In the middle of a step somebody pulls the plug of the ", choice), this.#lanes.element, this.#result,
      make("div", { className: "actions" }, this.#next), tools("lost", "When a card dies", 520, () => this.#state()));
    this.classList.add("alive");
    this.#show();
  }

  /** @returns {Record<string, string>} */
  #state() {
    return { plug: slug(this.#cards[this.#card]), when: WHEN[this.#at] };
  }

  /** @param {number} at */
  #go(at) {
    this.#at = at;
    this.#show();
    keep(this.#state());
  }

  #show() {
    const { lost_ms, steps } = this.#runs[this.#card];
    const [before, now] = steps;
    const step = steps[this.#at];
    const scale = 1.05 * Math.max(...steps.map(({ ms }) => ms));
    const is_now = this.#at === 1;
    const words = this.#cards.map((name, at) => {
      const again = is_now ? Math.max(0, now.rows[at] - before.rows[at]) : 0;
      const rows = step.rows[at] - again;
      const is_lost = at === this.#card && this.#at > 0;
      const lane = is_lost ? (is_now ? lost_ms : 0) : step.lanes[at];
      const rest_ms = again > 0 ? lane - before.lanes[at] : 0;
      const says = is_lost ? (is_now ? `dies in the middle of its ${before.rows[at]} examples` : "no plug") : `${rows} examples${again > 0 ? `, and ${again} of the ${this.#cards[this.#card]} again` : ""}`;
      this.#lanes.lanes[at].rest.className = again > 0 ? `bar again ${HUES[this.#card]}` : "bar rest";
      this.#lanes.show(at, { name, says, ms: lane, rest_ms, wait_ms: is_lost ? 0 : Math.max(...step.lanes) - lane, scale, is_slowest: is_lost && is_now });
      return `${name}: ${says}, ${lane > 0 ? `${ms(lane)} ms` : "no work"}`;
    });
    this.#lanes.label(words.join("; "));
    say(this.#next, NEXT[this.#at]);
    this.#result.replaceChildren(...this.#sentence());
  }

  #sentence() {
    const { steps } = this.#runs[this.#card];
    const [before, now] = steps;
    const step = steps[this.#at];
    const all = whole(step.rows.reduce((sum, rows) => sum + rows, 0));
    const number = make("b", { className: "number", textContent: `${ms(step.ms)} ms` });
    if (this.#at === 0) return ["A simulated step takes ", number, ` for ${all} examples.`];
    if (this.#at === 2) return ["The next simulated steps take ", number, ` for ${all} examples: the split has moved.`];
    const helpers = this.#cards.filter((_, at) => now.rows[at] > before.rows[at]).map((name) => `the ${name}`);
    return ["This simulated step takes ", number, ` instead of ${ms(before.ms)}: ${helpers.join(" and ")} computed the lost ${before.rows[this.#card]} examples again. All ${all} are in it.`];
  }
}

customElements.define("mh-lost", Dying);
