// Your own cards by name: the answer as a sentence, and the commands that repeat it for other networks.

import { make, say } from "../dom.js";
import { Lanes, asked, button, chooser, copies, keep, missing, ms, times, tools } from "./parts.js";
import { HOST_GB_S, Table, cards, slug } from "./table.js";

/** @import { Told } from "../messages.js" */
/** @import { Card } from "./table.js" */

/** Networks with the examples of a step. Only the first is recorded, for two cards. */
const NETWORKS = /** @type {const} */ ([
  { preset: "cnn6", batch: 512, words: "six convolutions, 512 small pictures" },
  { preset: "vgg", batch: 64, words: "VGG, 64 photographs" },
  { preset: "mlp", batch: 256, words: "dense layers, 256 examples" },
]);
const MOST_CARDS = 4;
/** Factor of a card alone beyond which its bar is cut. */
const CUT = 4;

/**
 * An answer: milliseconds of each card alone, `null` where no copy fits; examples of each in the shortest step; its milliseconds, and those
 * of equal parts.
 * @typedef {{ alone: (number | null)[], rows: number[], step: number, even: number | null }} Answer
 */

export class Rig extends HTMLElement {
  #table = Table.empty;
  /** @type {Card[]} */
  #mine = [];
  /** @type {typeof NETWORKS[number]} */
  #network = NETWORKS[0];
  /** Counts questions: answers to former ones are not shown. */
  #asked = 0;
  #sentence = make("p", { className: "sentence" });
  #answer = make("p", { className: "answer-line", role: "status" });
  #bars = make("div");
  #command = make("code");
  #file = make("code");

  async connectedCallback() {
    try {
      this.#table = await cards();
    } catch {
      return missing(this);
    }
    const named = (/** @type {string | null | undefined} */ list) => (list ?? "").split(",").flatMap((name) => this.#table.card(name) ?? []).slice(0, MOST_CARDS);
    const [given, usual] = [named(asked().get("mine")), named(this.dataset.cards)];
    this.#mine = given.length > 1 ? given : usual;
    this.#network = NETWORKS.find(({ preset }) => preset === asked().get("net")) ?? NETWORKS[0];
    const pre = (/** @type {HTMLElement} */ code, /** @type {string} */ label) => make("pre", { tabIndex: 0, ariaLabel: label, role: "group" }, code);
    const link = copies("Copy link", () => {
      keep(this.#state());
      return location.href;
    });
    const more = make("details", {}, make("summary", { textContent: "For another network, or other numbers" }),
      make("p", { textContent: "The command predicts any network, and any number of cards:" }), pre(this.#command, "Command"),
      make("p", { textContent: "A file holds what you know better, such as a slot with four lanes. Save it as rig.toml and run manyhands simulate rig.toml:" }), pre(this.#file, "rig.toml"));
    this.replaceChildren(this.#sentence, this.#answer, this.#bars, make("div", { className: "actions" }, link), more, tools("cards", "Would a second card help?", 690, () => this.#state()));
    this.classList.add("alive");
    this.#ask();
    this.#choose();
  }

  /** The sentence of choices. */
  #choose() {
    const change = (/** @type {Card[]} */ mine) => {
      this.#mine = mine;
      this.#choose();
      this.#changed();
    };
    const parts = this.#mine.flatMap((_, at) => [at === 0 ? "My cards: " : at === this.#mine.length - 1 ? " and " : ", ", this.#chooser(at)]);
    const buttons = [this.#mine.length < MOST_CARDS ? button("+ card", () => change([...this.#mine, this.#mine[this.#mine.length - 1]]), "quiet") : "", this.#mine.length > 2 ? button("− card", () => change(this.#mine.slice(0, -1)), "quiet") : ""];
    const network = make("select", { ariaLabel: "Network", className: "wide" }, ...NETWORKS.map(({ preset, words }) => make("option", { value: preset, textContent: words, selected: preset === this.#network.preset })));
    network.addEventListener("change", () => {
      this.#network = NETWORKS.find(({ preset }) => preset === network.value) ?? NETWORKS[0];
      this.#changed();
    });
    this.#sentence.replaceChildren(...parts, " ", ...buttons, " I train ", network);
  }

  /** @param {number} at */
  #chooser(at) {
    return chooser(this.#table.cards, this.#mine[at], { ariaLabel: `Card ${at + 1}` }, (name) => {
      this.#mine[at] = this.#table.card(name) ?? this.#mine[at];
      this.#changed();
    });
  }

  /** @returns {Record<string, string>} */
  #state() {
    return { mine: this.#mine.map(({ name }) => slug(name)).join(","), net: this.#network.preset };
  }

  #changed() {
    keep(this.#state());
    this.#ask();
  }

  async #ask() {
    const question = (this.#asked += 1);
    const [names, { preset, batch }] = [this.#mine.map(({ name }) => name), this.#network];
    say(this.#command, `manyhands simulate --cards "${names.join(", ")}" --model ${preset} --batch-size ${batch}`);
    say(this.#file, `batch_size = ${batch}\npreset = "${preset}"\nhost = { copy_gb_s = ${HOST_GB_S.toFixed(1)} }\nadapters = [\n${names.map((name) => `    { card = "${name}" },\n`).join("")}]\n`);
    if (preset === this.#table.model && batch === this.#table.batch && names.length === 2) return this.#show(this.#recorded());
    say(this.#answer, "Simulating…");
    try {
      const { simulated } = await import("./ask.js");
      const told = await simulated(names, preset, batch);
      if (question === this.#asked) this.#show(answerOf(told, names.length));
    } catch {
      if (question === this.#asked) say(this.#answer, "The simulator did not load. Check the connection, and try again.");
    }
  }

  /** @returns {Answer} */
  #recorded() {
    const pair = /** @type {[Card, Card]} */ (this.#mine);
    const first = this.#table.best(pair);
    return { alone: pair.map(({ alone }) => alone), rows: [first, this.#table.batch - first], step: this.#table.step(pair, first).ms, even: this.#table.step(pair, this.#table.batch / 2).ms };
  }

  /** @param {Answer} answer */
  #show({ alone, rows, step, even }) {
    // Like cards are numbered, as the command does it.
    const like = this.#mine.map(({ name }, at) => this.#mine.slice(0, at + 1).filter((other) => other.name === name).length);
    const names = this.#mine.map(({ name }, at) => (like[at] > 1 ? `${name} #${like[at]}` : name));
    const known = alone.filter((time) => time !== null);
    if (known.length === 0) return this.#nothing();
    const shortest = Math.min(...known);
    const fastest = names[alone.indexOf(shortest)];
    const left_out = names.filter((_, at) => rows[at] === 0);
    const gain = shortest / step;
    const number = make("b", { className: "number", textContent: `${times(gain)} ×` });
    const used = left_out.length === 0 ? (names.length === 2 ? "both" : `all ${names.length}`) : names.filter((name) => !left_out.includes(name)).join(" and ");
    const out = left_out.length > 0 ? ` manyhands leaves ${left_out.join(" and ")} out.` : "";
    const verdict = gain > 1.005
      ? [`With ${used}, training is `, number, ` as fast as on the ${fastest} alone: ${ms(step)} ms a step instead of ${ms(shortest)}.${out}`]
      : ["Train on the ", make("b", { textContent: fastest }), ` alone: ${ms(shortest)} ms a step. With more cards no split is shorter.${out}`];
    this.#answer.replaceChildren(...verdict);
    const scale = 1.05 * Math.min(CUT * shortest, Math.max(...known, even ?? 0));
    const bars = new Lanes([...names.map(() => "plain"), "plain", "a"]);
    alone.forEach((time, at) => bars.show(at, { name: `${names[at]} alone`, says: time === null ? "a copy of the network does not fit" : "", ms: time ?? 0, scale }));
    const all = names.length;
    bars.show(all, { name: "In equal parts", says: even === null ? "" : "as most programs split", ms: even ?? 0, scale, is_slowest: even !== null && even > shortest });
    bars.show(all + 1, { name: "As manyhands splits", says: `${rows.map((count) => (count === 0 ? "no" : count)).join(" + ")} examples`, ms: step, scale });
    bars.label(`${names.map((name, at) => `${name} alone: ${ms(alone[at] ?? 0)} ms`).join("; ")}; in equal parts: ${ms(even ?? 0)} ms; as manyhands splits: ${ms(step)} ms`);
    this.#bars.replaceChildren(bars.element);
  }

  #nothing() {
    say(this.#answer, "A copy of this network fits on none of these cards. Place its layers in stages.");
    this.#bars.replaceChildren();
  }
}

/**
 * The simulator's prediction, by the cards' places in the sentence.
 * @param {Told<"simulated">} told
 * @param {number} count
 * @returns {Answer}
 */
function answerOf({ report, order, best }, count) {
  const [rows, alone] = [Array(count).fill(0), /** @type {(number | null)[]} */ (Array(count).fill(null))];
  const shortest = report.strong[best - 1];
  order.forEach((place, at) => {
    alone[place] = report.alone[at].step_ms;
    rows[place] = shortest?.shares[at] ?? 0;
  });
  return { alone, rows, step: shortest?.step_ms ?? 0, even: report.even?.step_ms ?? null };
}
