// Cut the batch: two cards by name, a border that is dragged, and the step, which is as long as the longer lane.

import { make, say } from "../dom.js";
import { Lanes, asked, button, chooser, glide, keep, missing, ms, times, tools } from "./parts.js";
import { NO_CARD, Table, cards, slug } from "./table.js";

/** @import { Card } from "./table.js" */

/** Examples by which keys move the border. */
const KEYS = { ArrowLeft: -4, ArrowDown: -4, ArrowRight: 4, ArrowUp: 4, PageDown: -32, PageUp: 32 };
/** Milliseconds in which one step of learning is shown. */
const LEARNING_MS = 700;
const LETTERS = ["A", "B"];

export class Split extends HTMLElement {
  #table = Table.empty;
  /** @type {[Card, Card]} */
  #pair = [NO_CARD, NO_CARD];
  /** Examples of the first card. */
  #first = 256;
  /** Milliseconds of the shortest step that the visitor found. */
  #shortest = Infinity;
  #lanes = new Lanes(["a", "b"]);
  #playing = new AbortController();

  async connectedCallback() {
    try {
      this.#table = await cards();
    } catch {
      return missing(this);
    }
    const query = asked();
    const names = (query.get("cards") ?? "").split(",");
    const card = (/** @type {number} */ at) => this.#table.card(names[at] ?? "") ?? this.#table.card(this.dataset.cards?.split(",")[at] ?? "") ?? this.#table.cards[at];
    this.#pair = [card(0), card(1)];
    const first = Number(query.get("first"));
    if (query.has("first") && Number.isInteger(first) && first >= 0 && first <= this.#table.batch) this.#first = first;
    this.#build();
    this.#show();
  }

  disconnectedCallback() {
    this.#playing.abort();
  }

  #build() {
    this.#head = make("p", { className: "sentence" }, this.#chooser(0), " and ", this.#chooser(1), ` share ${this.#table.batch} pictures.`);
    const bar = make("div", { className: "batch" }, this.#parts[0], this.#border, this.#parts[1]);
    this.#border.tabIndex = 0;
    for (const [name, value] of Object.entries({ role: "slider", "aria-label": "Border between the cards’ examples", "aria-valuemin": "0", "aria-valuemax": String(this.#table.batch) })) {
      this.#border.setAttribute(name, value);
    }
    this.#border.addEventListener("keydown", (event) => this.#key(event));
    bar.addEventListener("pointerdown", (event) => this.#drag(event, bar));
    const row = make("div", { className: "actions" }, button("Half each", () => this.#play([this.#first, this.#table.batch / 2])),
      button("Let manyhands find it", () => this.#play(this.#table.learned(this.#pair, this.#first)), "primary"));
    this.#story.setAttribute("role", "status");
    this.replaceChildren(this.#head, bar, this.#lanes.element, this.#result, row, this.#story,
      tools("split", "Two cards share a batch", 580, () => this.#state()));
    this.classList.add("alive");
  }

  #head = make("p");
  #parts = [make("span", { className: "part a" }), make("span", { className: "part b" })];
  #border = make("span", { className: "border" });
  #result = make("p", { className: "result" });
  #story = make("p", { className: "story" });

  /** @param {number} at */
  #chooser(at) {
    const look = { ariaLabel: at === 0 ? "First card" : "Second card", className: LETTERS[at].toLowerCase() };
    return chooser(this.#table.cards, this.#pair[at], look, (name) => {
      this.#playing.abort();
      this.#pair[at] = this.#table.card(name) ?? this.#pair[at];
      this.#shortest = Infinity;
      say(this.#story, "");
      this.#show();
      keep(this.#state());
    });
  }

  /** @returns {Record<string, string>} */
  #state() {
    return { cards: this.#pair.map(({ name }) => slug(name)).join(","), first: String(this.#first) };
  }

  /** @param {number} first */
  #move(first) {
    this.#first = Math.round(Math.min(Math.max(first, 0), this.#table.batch));
    this.#show();
  }

  /** The visitor has put the border somewhere. */
  #placed() {
    const { ms: found } = this.#table.step(this.#pair, this.#first);
    const is_shorter = found < this.#shortest - 0.05;
    if (is_shorter) this.#shortest = found;
    say(this.#story, is_shorter ? `Your shortest step so far: ${ms(found)} ms.` : `Your shortest step so far is ${ms(this.#shortest)} ms.`);
    keep(this.#state());
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const ends = { Home: 0, End: this.#table.batch };
    const by = KEYS[/** @type {keyof typeof KEYS} */ (event.key)];
    const end = ends[/** @type {keyof typeof ends} */ (event.key)];
    if (by === undefined && end === undefined) return;
    event.preventDefault();
    this.#playing.abort();
    this.#move(end ?? this.#first + by);
    this.#placed();
  }

  /**
   * @param {PointerEvent} event
   * @param {HTMLElement} bar
   */
  #drag(event, bar) {
    if (event.button !== 0) return;
    event.preventDefault();
    this.#playing.abort();
    this.#border.focus({ preventScroll: true });
    bar.setPointerCapture(event.pointerId);
    const end = new AbortController();
    const to = (/** @type {PointerEvent} */ { clientX }) => {
      const { left, width } = bar.getBoundingClientRect();
      this.#move(Math.round((((clientX - left) / width) * this.#table.batch) / 4) * 4);
    };
    to(event);
    bar.addEventListener("pointermove", to, { signal: end.signal });
    for (const name of ["pointerup", "pointercancel"]) {
      bar.addEventListener(name, () => {
        end.abort();
        this.#placed();
      }, { signal: end.signal });
    }
  }

  /** Shows splits after each other. @param {number[]} splits */
  async #play(splits) {
    this.#playing.abort();
    const { signal } = (this.#playing = new AbortController());
    for (const [at, first] of splits.slice(1).entries()) {
      await glide(this.#first, first, LEARNING_MS, (value) => this.#move(value), signal);
      if (signal.aborted) return;
      const { ms: now } = this.#table.step(this.#pair, first);
      const told = splits.length > 2 ? `After step ${at + 1} each card gets as many examples as suit the speed it has shown: ${ms(now)} ms. ` : "";
      say(this.#story, told + (at + 2 === splits.length && splits.length > 2 ? this.#found(now) : ""));
    }
    keep(this.#state());
  }

  /** @param {number} now */
  #found(now) {
    if (this.#shortest === Infinity) return "Both lanes end together: no split is shorter.";
    const yours = this.#shortest;
    return yours < now + 0.15 ? `Yours was as good: ${ms(yours)} ms.` : `Your shortest was ${ms(yours)} ms.`;
  }

  #show() {
    const { batch } = this.#table;
    const [a, b] = this.#pair;
    const { ms: step, lanes } = this.#table.step(this.#pair, this.#first);
    const shares = [this.#first, batch - this.#first];
    const names = a === b ? [`${a.name} A`, `${b.name} B`] : [a.name, b.name];
    const slowest = lanes[0] >= lanes[1] ? 0 : 1;
    const alone = Math.min(a.alone, b.alone);
    // Half each fits, with some room; what is beyond is cut.
    const scale = 1.15 * Math.max(alone, this.#table.step(this.#pair, batch / 2).ms);
    const is_even = Math.abs(lanes[0] - lanes[1]) < 0.02 * step;
    shares.forEach((rows, at) => {
      this.#parts[at].style.flexGrow = String(rows);
      say(this.#parts[at], rows > 40 ? String(rows) : "");
      const waits = step - lanes[at];
      const says = rows === 0 ? "no examples" : waits > 0.02 * step ? `waits ${ms(waits)} ms` : "";
      this.#lanes.show(at, { name: names[at], says: rows === 0 ? says : `${rows} examples${says ? `, ${says}` : ""}`, ms: lanes[at], wait_ms: waits, scale, is_slowest: at === slowest && !is_even });
    });
    this.#border.setAttribute("aria-valuenow", String(this.#first));
    this.#border.setAttribute("aria-valuetext", `${shares[0]} examples for the ${names[0]}, ${shares[1]} for the ${names[1]}: a step takes ${ms(step)} ms`);
    this.#lanes.label(shares.map((rows, at) => `${names[at]}: ${rows} examples, ${ms(lanes[at])} ms`).join("; "));
    const fastest = a.alone <= b.alone ? names[0] : names[1];
    this.#result.replaceChildren("A simulated step takes ", make("b", { className: "number", textContent: `${ms(step)} ms` }), ": ",
      make("span", { className: "number", textContent: times(alone / step) }), ` × as fast as the ${fastest} alone (${ms(alone)} ms).`);
  }
}
