// One step by itself: the button that asks for one, and its picture, which is loaded when it is first in sight or asked for.

import { byId, paced, say } from "./dom.js";
import { announce } from "./notices.js";

/** @import { State, StepLog } from "./messages.js" */
/** @import { Lit, Placed, StepPicture } from "./step-picture.js" */

/** While training goes on, the picture shows a newer step that often: it is read, not watched. */
const REFRESH_MS = 1000;

/**
 * What the section works with.
 * @typedef {object} Tools
 * @property {() => void} step Asks the engine for one step. It is paused.
 * @property {() => void} pause Asks it to pause.
 * @property {(step: StepLog) => Placed[]} place The parts of a step, with the letters and colours of their adapters.
 * @property {(lit: Lit | null) => void} light Lights what has been played of the step in the rest of the page, or all of it.
 */

export class OneStep {
  #button = byId("step-slowly", HTMLButtonElement);
  #tools;
  /** @type {StepPicture | null} */
  #picture = null;
  #is_in_sight = false;
  /** The last step. @type {StepLog | null} */
  #last = null;
  /** @type {Placed[]} */
  #parts = [];
  #is_paused = false;
  /** What was asked for: one step, or one once training has paused. @type {"nothing" | "a step" | "a pause"} */
  #asked = "nothing";
  #refresh = paced(() => void this.#show(), REFRESH_MS);

  /** @param {Tools} tools */
  constructor(tools) {
    this.#tools = tools;
    this.#button.addEventListener("click", () => this.#press());
    new IntersectionObserver((entries) => {
      this.#is_in_sight = entries[entries.length - 1].isIntersecting;
      this.#refresh();
    }).observe(byId("one-step", HTMLElement));
  }

  /** Asks for a step, which will be shown slowly. */
  ask() {
    this.#asked = "a step";
    this.#tools.step();
  }

  #press() {
    if (this.#is_paused) return this.ask();
    this.#asked = "a pause";
    this.#tools.pause();
  }

  /** @param {State["state"]} state */
  follow(state) {
    this.#is_paused = state === "paused";
    if (this.#asked === "a pause" && this.#is_paused) this.ask();
    else if (!this.#is_paused && this.#asked === "a step") this.#asked = "nothing";
    if (!this.#is_paused) this.#picture?.end();
  }

  /** The button, which the page enables. */
  get button() {
    return this.#button;
  }

  /** Whether the next step was asked for by itself. */
  get is_asked() {
    return this.#asked === "a step";
  }

  /** @param {StepLog} step The last one, which the rig has taken. */
  take(step) {
    this.#last = step;
    this.#parts = this.#tools.place(step);
    if (!this.is_asked) return this.#refresh();
    this.#asked = "nothing";
    void this.#play();
  }

  /** Forgets the step, as after a reset. */
  clear() {
    [this.#last, this.#parts] = [null, []];
    this.#picture?.end();
    this.#refresh();
  }

  /** Takes the step off the page. Gives what brings it back. */
  keep() {
    const [last, parts] = [this.#last, this.#parts];
    this.#asked = "nothing";
    this.clear();
    return () => {
      [this.#last, this.#parts] = [last, parts];
      this.#refresh();
    };
  }

  async #show() {
    if (!this.#is_in_sight) return;
    const picture = await this.#load();
    if (!picture || picture.is_playing) return;
    picture.show(this.#last, this.#parts);
  }

  async #play() {
    const picture = await this.#load();
    if (!picture || !this.#last || !this.#is_paused) return;
    const { step } = this.#last;
    picture.play(this.#last, this.#parts);
    announce(`Step ${step} is shown slowly.`);
  }

  async #load() {
    const says = byId("one-step-says", HTMLElement);
    try {
      const { StepPicture } = await import("./step-picture.js");
      this.#picture ??= new StepPicture(this.#tools.light);
      return this.#picture;
    } catch (error) {
      say(says, `The picture could not be loaded: ${/** @type {Error} */ (error).message}. Try again.`);
      return null;
    }
  }
}
