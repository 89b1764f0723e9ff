// One step by itself: the buttons that ask for one and play it, and its picture, which is loaded when it is first in sight or asked for.

import { NOT_LOADED, byId, paced, say, whole } from "./dom.js";
import { announce } from "./notices.js";

/** @import { State, StepLog } from "./messages.js" */
/** @import { Lit, Shown, StepPicture } from "./step-picture.js" */

/** While training goes on, the picture shows a newer step that often: it is read, not watched. */
const REFRESH_MS = 1000;

/**
 * What the section works with.
 * @typedef {object} Tools
 * @property {() => void} step Asks the engine for one step. It is paused.
 * @property {() => void} pause Asks it to pause.
 * @property {(step: StepLog) => Shown} place A step with what the picture needs beside it.
 * @property {(lit: Lit | null) => void} light Lights what has been played of the step in the rest of the page, or all of it.
 */

export class OneStep {
  /** Has a step computed. The page enables both buttons. */
  button = byId("step-slowly", HTMLButtonElement);
  /** Plays the last one again. */
  again = byId("step-again", HTMLButtonElement);
  #says = byId("one-step-says", HTMLElement);
  #hint = this.#says.textContent ?? "";
  #tools;
  /** @type {StepPicture | null} */
  #picture = null;
  /** Whether the picture could not be loaded: then only a press tries again. */
  #is_missing = false;
  #is_in_sight = false;
  /** The last step. @type {Shown | null} */
  #last = null;
  #is_paused = false;
  /** Steps that were asked for and have not come yet. */
  #n_asked = 0;
  /** Whether one is to be asked for once training has paused. */
  #waits = false;
  #refresh = paced(() => void this.#show(), REFRESH_MS);

  /** @param {Tools} tools */
  constructor(tools) {
    this.#tools = tools;
    this.button.addEventListener("click", () => void this.press());
    this.again.addEventListener("click", () => { if (this.#last) void this.#play(this.#last); });
    new IntersectionObserver((entries) => {
      this.#is_in_sight = entries[entries.length - 1].isIntersecting;
      this.#refresh();
    }).observe(byId("one-step", HTMLElement));
  }

  /** Asks for a step, which will be played. Training is paused. */
  ask() {
    this.#is_missing = false;
    this.#n_asked += 1;
    this.#tools.step();
  }

  /** Pauses training, if it goes on, and asks for a step. Gives what came of it in words. */
  async press() {
    if (this.#is_paused) this.ask();
    else {
      this.#waits = true;
      this.#tools.pause();
    }
    return (await this.#load()) ? "Training is paused. The step is shown below, and its four acts are told there." : `Training is paused, and one step is computed. ${NOT_LOADED}`;
  }

  /** Asks for nothing any more: something else was asked for. */
  forget() {
    [this.#n_asked, this.#waits] = [0, false];
  }

  /** @param {State} state */
  follow(state) {
    this.#is_paused = state === "paused";
    const waited = this.#waits;
    if (state !== "running") this.#waits = false;
    if (waited && this.#is_paused) return this.ask();
    if (this.#is_paused) return undefined;
    this.#n_asked = 0;
    return this.#picture?.end();
  }

  /** Whether there is a step to be played again. */
  get has_step() {
    return this.#last !== null;
  }

  /** Whether the next step was asked for by itself. */
  get is_asked() {
    return this.#n_asked > 0;
  }

  /** @param {StepLog} step The last one, which the rig has taken. */
  take(step) {
    this.#last = this.#tools.place(step);
    if (!this.is_asked) return this.#refresh();
    this.#n_asked -= 1;
    return void this.#play(this.#last);
  }

  /** Forgets the step, as after a reset. */
  clear() {
    this.forget();
    this.#last = null;
    this.#picture?.end();
    this.#picture?.show(null);
  }

  /** Takes the step off the page. Gives what brings it back. */
  keep() {
    const last = this.#last;
    this.clear();
    return () => {
      this.#last = last;
      this.#refresh();
    };
  }

  async #show() {
    if (!this.#is_in_sight || this.#is_missing) return;
    const picture = await this.#load();
    if (picture && !picture.is_playing) picture.show(this.#last);
  }

  /** @param {Shown} shown */
  async #play(shown) {
    const picture = await this.#load();
    // Others may have come while the picture was loaded.
    if (!picture || this.#last !== shown || !this.#is_paused) return this.#refresh();
    picture.play(shown);
    announce(`Step ${whole(shown.step.step)} is shown${picture.is_playing ? " slowly" : ""}.`);
  }

  async #load() {
    try {
      const { StepPicture } = await import("./step-picture.js");
      this.#picture ??= new StepPicture(this.#hint, (lit) => {
        this.#tools.light(lit);
        if (!lit) this.#refresh();
      });
      return this.#picture;
    } catch {
      this.#is_missing = true;
      say(this.#says, `The picture of a step is not there. ${NOT_LOADED}`);
      return null;
    }
  }
}
