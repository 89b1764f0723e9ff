// A rig that is not here: its lanes, split, step time and samples a second, in the simulator's virtual time.

import { BATCHES, HOST_GB_S, RIGS } from "./cards.js";
import { byId, make, percent, say, short, whole } from "./dom.js";
import { place } from "./lane.js";
import { drawBatch, paintOf, swatchOf } from "./split.js";

/** @import { Link } from "./link.js" */
/** @import { RigConfig, SimulatedStep, Told } from "./messages.js" */

/** Between two steps that are shown. They took far less, or more. */
const PACE_MS = 150;
const PHASES = /** @type {const} */ (["upload", "compute", "exchange", "readback", "wait"]);

/** Rigs that others describe. @typedef {{ title: string, rig: RigConfig, says: string }} Described */

export class SimulatedRig {
  #link;
  #model = byId("other-model", HTMLSelectElement);
  #buttons;
  /** @type {() => Described | string} What is measured here as a rig, or why it can't be one yet. */
  #here;
  /** @type {() => Described | string} */
  #own;
  #chosen = RIGS[0].id;
  /** Counts what was asked: an older answer is dropped. */
  #asked = 0;
  #timer = 0;
  /** What is shown, if something is: its network is empty where the rig brings its own. @type {{ title: string, network: string, speed_up: number } | null} */
  shown = null;

  /**
   * @param {Link} link
   * @param {{ here: () => Described | string, own: () => Described | string }} others
   */
  constructor(link, { here, own }) {
    this.#link = link;
    [this.#here, this.#own] = [here, own];
    const choices = [...RIGS.map(({ id, name }) => ({ id, name })), { id: "here", name: "This machine" }, { id: "own", name: "Your own" }];
    this.#buttons = choices.map(({ id, name }) => {
      const button = make("button", { className: "small", textContent: name, disabled: true });
      button.dataset.rig = id;
      button.addEventListener("click", () => void this.choose(id));
      return button;
    });
    byId("rigs", HTMLElement).append(...this.#buttons);
    this.#model.disabled = true;
    this.#model.addEventListener("change", () => void this.choose(this.#chosen));
  }

  /**
   * Begins with the first rig.
   * @param {"usual" | "here"} network For rigs of cards: that of the list, or the one that learns here.
   */
  start(network) {
    if (network === "here") this.#model.value = network;
    for (const button of this.#buttons) button.disabled = false;
    this.#model.disabled = false;
    void this.choose(this.#chosen);
  }

  /**
   * Another network learns here.
   * @param {"shown" | "as chosen"} whether It is shown at once, or only if it was chosen.
   */
  learns(whether) {
    if (whether === "shown") this.#model.value = "here";
    if (this.#chosen === "here") {
      // What was measured here are speeds of the network before.
      this.#asked += 1;
      this.shown = null;
      return say(byId("other-says", HTMLElement), "Another network learns here: press “This machine” again after some steps.");
    }
    if (this.#model.value === "here" && this.#chosen !== "own") void this.choose(this.#chosen);
  }

  /** @param {string} id */
  async choose(id) {
    this.#chosen = id;
    for (const button of this.#buttons) button.setAttribute("aria-pressed", String(button.dataset.rig === id));
    const described = this.#described(id);
    // Others bring their network.
    this.#model.hidden = id === "here" || id === "own";
    this.#asked += 1;
    const asked = this.#asked;
    if (typeof described === "string") return say(byId("other-says", HTMLElement), described);
    say(byId("other-says", HTMLElement), "Simulating…");
    try {
      const answer = await this.#link.ask({ type: "simulate", rig: described.rig });
      if (asked === this.#asked) this.#show(described, answer);
    } catch (error) {
      if (asked === this.#asked) say(byId("other-says", HTMLElement), /** @type {Error} */ (error).message);
    }
  }

  /** @param {string} id @returns {Described | string} */
  #described(id) {
    if (id === "here") return this.#here();
    if (id === "own") return this.#own();
    const { title, adapters } = RIGS.find((rig) => rig.id === id) ?? RIGS[0];
    const preset = /** @type {keyof typeof BATCHES} */ (this.#model.value);
    return { title, rig: { preset, batch_size: BATCHES[preset], host: { copy_gb_s: HOST_GB_S }, adapters }, says: "The cards’ speeds are guesses." };
  }

  /**
   * @param {Described} described
   * @param {Told<"simulated">} answer
   */
  #show({ title, says }, { report, steps }) {
    say(byId("other-name", HTMLElement), title);
    const [together, alone] = [report.strong[report.strong.length - 1], report.strong[0]];
    if (!together || !alone) return;
    const speed_up = together.rows_per_s / alone.rows_per_s;
    this.shown = { title, network: this.#model.hidden ? "" : this.#model.selectedOptions[0].text, speed_up };
    say(byId("other-speed-up", HTMLElement), `${speed_up.toFixed(2)} ×`);
    say(byId("other-efficiency", HTMLElement), percent(Math.min(1, together.efficiency), 0));
    say(byId("other-ms", HTMLElement), short(together.step_ms));
    say(byId("other-speed", HTMLElement), whole(together.rows_per_s));
    const why = together.limit ? ` Largest part of a step: ${together.limit}.` : "";
    say(byId("other-says", HTMLElement), `No card computes: the scheduler’s own code runs in virtual time. ${says}${why}`);
    this.#play(report.adapters, steps);
  }

  /**
   * Shows the steps one after the other: the split is learned in the first.
   * @param {string[]} names
   * @param {SimulatedStep[]} steps
   */
  #play(names, steps) {
    clearInterval(this.#timer);
    const lanes = [...names.map((name, slot) => new ThinLane(name, slot)), new ThinHost()];
    byId("other-lanes", HTMLElement).replaceChildren(...lanes.map(({ element }) => element));
    // Steps in which the split is learned may be longer: their lanes are cut off.
    const longest = Math.max(...steps.filter((step) => step.is_counted).map(({ ms }) => ms));
    const show = (/** @type {SimulatedStep} */ step) => {
      const rows = (/** @type {number} */ slot) => step.adapters.find(({ adapter }) => adapter === slot)?.rows ?? 0;
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

/** A card in one line. */
class ThinLane {
  #bars = PHASES.map((phase) => make("i", { className: phase }));
  #time = make("div", { className: "time" }, ...this.#bars);
  #rows = make("span", { className: "number" });

  /**
   * @param {string} name
   * @param {number} slot
   */
  constructor(name, slot) {
    this.name = name;
    this.slot = slot;
    this.element = make("div", { className: "thin-lane", title: name }, swatchOf(slot), make("span", { className: "name", textContent: name }), this.#time, this.#rows);
    this.element.style.setProperty("--lane", paintOf(slot));
    this.#time.setAttribute("role", "img");
  }

  /**
   * @param {SimulatedStep} step
   * @param {number} longest Milliseconds of the longest step: the width of the lane.
   */
  draw(step, longest) {
    const log = step.adapters.find(({ adapter }) => adapter === this.slot);
    const times = PHASES.map((phase) => log?.[`${phase}_ms`] ?? 0);
    let from = 0;
    this.#bars.forEach((bar, at) => {
      const wide = (100 * times[at]) / longest;
      place(bar, from, wide);
      from += wide;
    });
    say(this.#rows, log ? String(log.rows) : "–");
    const texts = PHASES.map((phase, at) => `${phase} ${short(times[at])} ms`);
    this.#time.setAttribute("aria-label", log ? `${log.rows} rows. ${texts.join(", ")}` : "no rows in this step");
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
