// A rig that is not here: its lanes, split, step time and samples a second, in the simulator's virtual time; and what visitors do to its cards.

import { BATCHES, HOST_GB_S, RIGS } from "./cards.js";
import { byId, make, percent, say, short, whole } from "./dom.js";
import { place } from "./lane.js";
import { firstLine } from "./notices.js";
import { drawBatch, letterOf, paintOf, swatchOf } from "./split.js";

/** @import { Link } from "./link.js" */
/** @import { PageNetwork, RigConfig, SimulatedStep, Told } from "./messages.js" */

/** Between two steps that are shown. They took far less, or more. */
const PACE_MS = 150;
const PHASES = /** @type {const} */ (["upload", "compute", "exchange", "readback", "wait"]);
/** The step, counted from 0, in which a plug is pulled. */
const LOST_AT = 10;
/** Factors of the slider that slows a card down. */
const FACTORS = [1, 1.5, 2, 3, 4, 6, 8, 12, 16];
/** From how much longer on a step in equal parts is spoken of. */
const EVEN_SLOWER = 1.02;
/** `A, B and C`. */
const LIST = new Intl.ListFormat("en");

/** A rig to simulate, and what is said of it. @typedef {{ title: string, rig: RigConfig, says: string }} Described */
/** What a visitor has done to a card. @typedef {{ factor: number, memory_gb: string, is_lost: boolean }} Doing */

export class SimulatedRig {
  #link;
  #model = byId("other-model", HTMLSelectElement);
  #split = byId("other-split", HTMLSelectElement);
  #uses = byId("other-uses", HTMLSelectElement);
  #says = byId("other-says", HTMLElement);
  #hand;
  #buttons;
  /** @type {() => Described} */
  #own;
  /** @type {() => PageNetwork | null} The network that learns here. */
  #network;
  #chosen = RIGS[0].id;
  /** Whether an answer is awaited, and whether something else was asked for meanwhile. */
  #is_asking = false;
  #is_outdated = false;
  #timer = 0;
  /** What is shown, if something is: its network is empty where the rig brings its own. @type {{ title: string, network: string, speed_up: number } | null} */
  shown = null;

  /**
   * @param {Link} link To the simulator.
   * @param {{ own: () => Described, network: () => PageNetwork | null }} others
   */
  constructor(link, { own, network }) {
    this.#link = link;
    [this.#own, this.#network] = [own, network];
    const choices = [...RIGS.map(({ id, name }) => ({ id, name })), { id: "own", name: "Your own" }];
    this.#buttons = choices.map(({ id, name }) => {
      const button = make("button", { className: "small", textContent: name, disabled: true });
      button.dataset.rig = id;
      button.addEventListener("click", () => this.choose(id));
      return button;
    });
    byId("rigs", HTMLElement).append(...this.#buttons);
    this.#hand = new Hand(() => void this.#simulate());
    for (const list of [this.#model, this.#split, this.#uses]) {
      list.disabled = true;
      list.addEventListener("change", () => void this.#simulate());
    }
  }

  /**
   * Begins with the first rig.
   * @param {"usual" | "here"} network For rigs of cards: that of the list, or the one that learns here.
   */
  start(network) {
    if (network === "here") this.#model.value = network;
    for (const control of [...this.#buttons, this.#model, this.#split, this.#uses]) control.disabled = false;
    this.choose(this.#chosen);
  }

  /**
   * Another network learns here.
   * @param {"shown" | "as chosen"} whether It is shown at once, or only if it was chosen.
   */
  learns(whether) {
    if (whether === "shown") this.#model.value = "here";
    if (this.#model.value === "here" && this.#chosen !== "own") void this.#simulate();
  }

  /** Takes a rig as it comes. @param {string} id */
  choose(id) {
    this.#chosen = id;
    for (const button of this.#buttons) button.setAttribute("aria-pressed", String(button.dataset.rig === id));
    // The own rig brings its network.
    this.#model.hidden = id === "own";
    this.#hand.take(this.#described().rig.adapters.map(({ name }) => name ?? ""));
    void this.#simulate();
  }

  /** @returns {Described} */
  #described() {
    if (this.#chosen === "own") return this.#own();
    const { title, adapters } = RIGS.find((rig) => rig.id === this.#chosen) ?? RIGS[0];
    const preset = /** @type {keyof typeof BATCHES} */ (this.#model.value);
    const here = preset === "here" ? this.#network() : null;
    return { title, rig: { preset, ...(here ? { here } : {}), batch_size: BATCHES[preset], host: { copy_gb_s: HOST_GB_S }, adapters }, says: "guessed speeds" };
  }

  /** Asks for the rig as it is now. While an answer is awaited, nothing else is asked for than what holds at its end. */
  async #simulate() {
    this.#is_outdated = this.#is_asking;
    if (this.#is_asking) return;
    this.#is_asking = true;
    say(this.#says, "Simulating…");
    do {
      this.#is_outdated = false;
      try {
        const described = this.#described();
        const { adapters, slots, lost } = this.#hand.applied(described.rig.adapters);
        const split = /** @type {"learned" | "even"} */ (this.#split.value);
        const events = lost === null ? [] : [{ step: LOST_AT, adapter: lost, what: /** @type {const} */ ("lost") }];
        const answer = await this.#link.ask({ type: "simulate", rig: { ...described.rig, adapters, split, events } });
        if (!this.#is_outdated) this.#show(described, answer, slots);
      } catch (error) {
        say(this.#says, firstLine(/** @type {Error} */ (error).message));
      }
    } while (this.#is_outdated);
    this.#is_asking = false;
  }

  /**
   * @param {Described} described
   * @param {Told<"simulated">} answer
   * @param {number[]} slots Of the adapters that were asked for.
   */
  #show({ title, says, rig }, { report, best, order, steps, best_steps }, slots) {
    say(byId("other-name", HTMLElement), title);
    say(byId("other-network", HTMLElement), rig.preset === "here" ? "The same network:" : "Another network:");
    const [all, alone] = [report.strong[report.strong.length - 1], report.strong[0]];
    if (!all || !alone) {
      this.shown = null;
      return say(this.#says, report.notes.join(" "));
    }
    // In equal parts nobody is left out.
    const decides = this.#uses.value === "best" && this.#split.value === "learned";
    const together = decides ? report.strong[best - 1] : all;
    const speed_up = together.rows_per_s / alone.rows_per_s;
    this.shown = { title, network: this.#model.hidden ? "" : this.#model.selectedOptions[0].text, speed_up };
    say(byId("other-speed-up", HTMLElement), `${speed_up.toFixed(2)} ×`);
    say(byId("other-efficiency", HTMLElement), percent(Math.min(1, together.efficiency), 0));
    say(byId("other-ms", HTMLElement), short(together.step_ms));
    say(byId("other-speed", HTMLElement), whole(together.rows_per_s));
    const decision = this.#decision(report, best, order.map((position) => slots[position]));
    // What is as one expects stands among the small print.
    const is_expected = best === report.strong.length && this.#split.value === "learned";
    say(byId("other-decides", HTMLElement), is_expected ? "" : decision);
    const why = together.limit ? ` Largest part of a step: ${together.limit}.` : "";
    const notes = report.notes.map((note) => ` ${note}`).join("");
    say(this.#says, `${is_expected && decision ? `${decision} ` : ""}No card is running: manyhands’ own scheduler against a clock, with ${says}.${why}${notes}`);
    const names = rig.adapters.map(({ name }) => name ?? "");
    this.#play(names, decides && best_steps.length > 0 ? best_steps : steps, slots);
  }

  /**
   * Which cards manyhands would use, and why not the others.
   * @param {Told<"simulated">["report"]} report
   * @param {number} best
   * @param {number[]} slots Of the report's adapters.
   */
  #decision({ strong, even }, best, slots) {
    const n = strong.length;
    if (n === 1) return "";
    if (this.#split.value === "even") return `In equal parts all ${n} cards take part, as in most programs.`;
    const equal = even && even.step_ms > EVEN_SLOWER * strong[n - 1].step_ms ? ` In equal parts, as most programs split, a step takes ${short(even.step_ms)} ms.` : "";
    const [with_all, without] = [strong[n - 1], strong[best - 1]];
    if (best === n) return `manyhands would use all ${n}.${equal}`;
    const out = LIST.format(slots.slice(best).map(letterOf).sort());
    return `manyhands would use ${best} of ${n}: with all, a step takes ${short(with_all.step_ms)} ms, without ${out} ${short(without.step_ms)} ms. With all, the largest part of it is ${with_all.limit}.${equal}`;
  }

  /**
   * Shows the steps one after the other: the split is learned in the first.
   * @param {string[]} names
   * @param {SimulatedStep[]} steps
   * @param {number[]} slots
   */
  #play(names, steps, slots) {
    clearInterval(this.#timer);
    const lanes = [...names.map((name, slot) => new ThinLane(name, slot, slots.indexOf(slot))), new ThinHost()];
    byId("other-lanes", HTMLElement).replaceChildren(...lanes.map(({ element }) => element));
    // Steps in which the split is learned, or that are repeated, may be longer: their lanes are cut off.
    const longest = Math.max(...steps.filter((step) => step.is_counted).map(({ ms }) => ms));
    const show = (/** @type {SimulatedStep} */ step) => {
      const rows = (/** @type {number} */ slot) => step.adapters.find(({ adapter }) => slots[adapter] === slot)?.rows ?? 0;
      drawBatch(byId("other-batch", HTMLElement), names.map((name, slot) => ({ slot, name, rows: rows(slot) })), step.rows);
      for (const lane of lanes) lane.draw(step, longest);
    };
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return show(steps[steps.length - 1]);
    let at = 0;
    const next = () => {
      show(steps[at]);
      at += 1;
      if (at === steps.length) clearInterval(this.#timer);
    };
    this.#timer = window.setInterval(next, PACE_MS);
    next();
  }
}

/** The controls that act on a card of the rig. */
class Hand {
  #card = byId("other-card", HTMLSelectElement);
  #slow = byId("other-slow", HTMLInputElement);
  #slow_is = byId("other-slow-is", HTMLOutputElement);
  #memory = byId("other-memory", HTMLSelectElement);
  #plug = byId("other-plug", HTMLButtonElement);
  /** By slot. @type {Doing[]} */
  #doings = [];
  /** The card whose plug was just pulled: it is there until a step has lost it. @type {number | null} */
  #pulled = null;

  /** @param {() => void} changed */
  constructor(changed) {
    this.#slow.max = String(FACTORS.length - 1);
    this.#card.addEventListener("change", () => this.#show());
    this.#slow.addEventListener("input", () => {
      this.#doing.factor = FACTORS[Number(this.#slow.value)];
      this.#show();
      changed();
    });
    this.#memory.addEventListener("change", () => {
      this.#doing.memory_gb = this.#memory.value;
      changed();
    });
    this.#plug.addEventListener("click", () => {
      const doing = this.#doing;
      doing.is_lost = !doing.is_lost;
      this.#pulled = doing.is_lost ? this.#slot : null;
      this.#show();
      changed();
    });
  }

  get #slot() {
    return Number(this.#card.value);
  }

  get #doing() {
    return this.#doings[this.#slot];
  }

  /** Cards as they come. @param {string[]} names */
  take(names) {
    this.#doings = names.map(() => ({ factor: 1, memory_gb: "", is_lost: false }));
    this.#pulled = null;
    this.#card.replaceChildren(...names.map((name, slot) => make("option", { value: String(slot), textContent: `${letterOf(slot)}: ${name}` })));
    this.#card.value = String(names.length - 1);
    this.#show();
  }

  #show() {
    const { factor, memory_gb, is_lost } = this.#doing;
    for (const control of [this.#card, this.#slow, this.#memory]) control.disabled = false;
    this.#slow.value = String(FACTORS.indexOf(factor));
    say(this.#slow_is, factor === 1 ? "at full speed" : `slowed ${factor} ×`);
    this.#slow.setAttribute("aria-valuetext", factor === 1 ? "at full speed" : `slowed ${factor} times`);
    this.#memory.value = memory_gb;
    say(this.#plug, is_lost ? "Plug it in" : "Pull the plug");
    // One is always left.
    this.#plug.disabled = !is_lost && this.#doings.filter((doing) => !doing.is_lost).length === 1;
  }

  /**
   * The rig with what was done to it: its adapters that are there, their slots, and the position of the one that is lost on the way.
   * @param {RigConfig["adapters"]} adapters
   * @returns {{ adapters: RigConfig["adapters"], slots: number[], lost: number | null }}
   */
  applied(adapters) {
    // A rig of one's own may have changed meanwhile.
    if (adapters.length !== this.#doings.length) this.take(adapters.map(({ name }) => name ?? ""));
    const pulled = this.#pulled;
    this.#pulled = null;
    const slots = adapters.map((_, slot) => slot).filter((slot) => !this.#doings[slot].is_lost || slot === pulled);
    const with_doings = slots.map((slot) => {
      const { factor, memory_gb } = this.#doings[slot];
      const slowdowns = factor === 1 ? {} : { slowdowns: [{ from_ms: 0, to_ms: Number.MAX_SAFE_INTEGER, factor }] };
      return { ...adapters[slot], ...slowdowns, ...(memory_gb ? { memory_gb: Number(memory_gb) } : {}) };
    });
    return { adapters: with_doings, slots, lost: pulled === null ? null : slots.indexOf(pulled) };
  }
}

/** A card in one line. */
class ThinLane {
  #bars = PHASES.map((phase) => make("i", { className: phase }));
  #time = make("div", { className: "time" }, ...this.#bars);
  #rows = make("span", { className: "number" });

  /**
   * @param {string} name
   * @param {number} slot Its letter and colour.
   * @param {number} position By which steps name it; -1: it is not in the rig now.
   */
  constructor(name, slot, position) {
    this.position = position;
    this.element = make("div", { className: "thin-lane", title: name }, swatchOf(slot), make("span", { className: "name", textContent: name }), this.#time, this.#rows);
    this.element.style.setProperty("--lane", paintOf(slot));
    this.element.classList.toggle("away", position < 0);
    this.#time.setAttribute("role", "img");
  }

  /**
   * @param {SimulatedStep} step
   * @param {number} longest Milliseconds of the longest step: the width of the lane.
   */
  draw(step, longest) {
    const log = step.adapters.find(({ adapter }) => adapter === this.position);
    const times = PHASES.map((phase) => log?.[`${phase}_ms`] ?? 0);
    let from = 0;
    this.#bars.forEach((bar, at) => {
      const wide = (100 * times[at]) / longest;
      place(bar, from, wide);
      from += wide;
    });
    say(this.#rows, log ? String(log.rows) : "–");
    const texts = PHASES.map((phase, at) => `${phase} ${short(times[at])} ms`);
    this.#time.setAttribute("aria-label", log ? `${log.rows} examples. ${texts.join(", ")}` : this.position < 0 ? "its plug is pulled" : "no examples in this step");
  }
}

/** The host in one line: its sums and its update end a step. */
class ThinHost {
  #bars = [make("i", { className: "reduce" }), make("i", { className: "update" })];
  #time = make("div", { className: "time" }, ...this.#bars);
  #ms = make("span", { className: "number" });
  element = make("div", { className: "thin-lane" }, make("span", { className: "swatch host-swatch" }), make("span", { className: "name", textContent: "host" }), this.#time, this.#ms);

  constructor() {
    this.#time.setAttribute("role", "img");
  }

  /**
   * @param {SimulatedStep} step
   * @param {number} longest
   */
  draw({ ms, reduce_ms, update_ms }, longest) {
    const scale = 100 / longest;
    place(this.#bars[0], (ms - reduce_ms - update_ms) * scale, reduce_ms * scale);
    place(this.#bars[1], (ms - update_ms) * scale, update_ms * scale);
    say(this.#ms, "");
    this.#time.setAttribute("aria-label", `sums ${short(reduce_ms)} ms, update ${short(update_ms)} ms`);
  }
}
