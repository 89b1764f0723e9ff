// A card that gets slower in the middle of training: the step before the split follows, and after.

import { make, say } from "../dom.js";
import { Lanes, asked, button, handle, keep, missing, ms, times, tools } from "./parts.js";
import { slowed } from "./table.js";

/** @import { Slowed } from "./table.js" */

/** Times as slow that the card is before the reader moves the handle. */
const HOT = "2";

export class Slow extends HTMLElement {
  /** @type {string[]} */
  #cards = [];
  /** @type {Slowed[]} */
  #steps = [];
  #at = 0;
  /** Whether the split has followed the last change. */
  #has_followed = true;
  #lanes = new Lanes(["a", "b"]);
  #result = make("p", { className: "result" });
  #is = make("output", { className: "handle-is" });
  #factor = make("input");
  #follow = button("The next steps", () => this.#settle(), "primary");

  async connectedCallback() {
    try {
      ({ cards: this.#cards, steps: this.#steps } = await slowed());
    } catch {
      return missing(this);
    }
    const at = (/** @type {string | null} */ factor) => this.#steps.findIndex(({ slower }) => String(slower) === factor);
    this.#at = [at(asked().get("slower")), at(HOT)].find((found) => found >= 0) ?? 0;
    this.#has_followed = this.#at === 0;
    this.#factor = handle(this.#steps.length, this.#at, (place) => {
      this.#at = place;
      this.#has_followed = place === 0;
      this.#show();
    }, () => keep(this.#state()));
    this.#result.setAttribute("role", "status");
    this.replaceChildren(make("label", { className: "handle" }, `The ${this.#cards[0]} gets hot and runs `, this.#factor, this.#is), this.#lanes.element, this.#result,
      make("div", { className: "actions" }, this.#follow), tools("slow", "When a card gets slower", 480, () => this.#state()));
    this.classList.add("alive");
    this.#show();
  }

  /** @returns {Record<string, string>} */
  #state() {
    return { slower: String(this.#steps[this.#at].slower) };
  }

  #settle() {
    this.#has_followed = true;
    this.#factor.focus();
    this.#show();
  }

  #show() {
    const { slower, old, before, shares, after } = this.#steps[this.#at];
    const rows = this.#has_followed ? shares : old;
    const lanes = this.#has_followed ? after : before;
    const step = Math.max(...lanes);
    const scale = 1.05 * Math.max(...this.#steps[Math.max(this.#at, 2)].before);
    lanes.forEach((lane, at) => {
      const waits = step - lane > 0.03 * step ? `, waits ${ms(step - lane)} ms` : "";
      this.#lanes.show(at, { name: this.#cards[at], says: `${rows[at]} examples${waits}`, ms: lane, wait_ms: step - lane, scale, is_slowest: lane === step && step - Math.min(...lanes) > 0.03 * step });
    });
    this.#lanes.label(lanes.map((lane, at) => `${this.#cards[at]}: ${rows[at]} examples, ${ms(lane)} ms`).join("; "));
    const words = slower === 1 ? "at its own speed" : `${slower} times slower`;
    say(this.#is, words);
    this.#factor.setAttribute("aria-valuetext", words);
    this.#follow.hidden = this.#has_followed;
    const number = make("b", { className: "number", textContent: `${ms(step)} ms` });
    const moved = shares[1] - old[1];
    const says = this.#has_followed
      ? slower === 1 ? [": both end together."] : [`: ${moved} examples have moved to the ${this.#cards[1]}. With the old split it would be ${times(Math.max(...before) / step)} times as long.`]
      : [`: the ${this.#cards[1]} waits, since the split still suits the old speed.`];
    this.#result.replaceChildren("A simulated step takes ", number, ...says);
  }
}
