// The losses of one adapter with the same seed, beside which those of this run are shown. Recorded by the engine itself.

import { EPOCHS, REFERENCES } from "./reference-losses.js";

/** @import { Settings } from "./messages.js" */

/** On what a run's losses depend. The split, the adapters, and what happens to them are not among it: that is the claim. */
const NAMES = /** @type {const} */ ({ model: "network", batch_size: "batch size", learning_rate: "learning rate", seed: "seed" });

/**
 * The first setting that is another than a reference's.
 * @param {typeof REFERENCES[number]} reference
 * @param {Partial<Settings>} settings
 */
function otherOf({ settings: known }, settings) {
  return /** @type {(keyof typeof NAMES)[]} */ (Object.keys(NAMES)).find((name) => name in settings && settings[name] !== known[name]);
}

export class Reference {
  /** That of the data, if there is one. @type {typeof REFERENCES[number] | undefined} */
  #recorded;
  /** The first setting that is another, in words. @type {string} */
  #other = "";
  /** Steps up to this one are trained with the settings of the reference. */
  #last = 0;
  #now = 0;
  #most = 0;
  #step = 0;

  /** A run begins. @param {Settings} settings */
  begin(settings) {
    this.#recorded = REFERENCES.find(({ settings: { data } }) => data === settings.data);
    const other = this.#recorded && otherOf(this.#recorded, settings);
    const is_varied = settings.data === "digits" && settings.varied_from > 0 && settings.varied_from <= EPOCHS;
    this.#other = !this.#recorded ? "kind of data" : other ? NAMES[other] : is_varied ? "choice of varied epochs" : "";
    this.#last = this.#recorded && !this.#other ? this.#recorded.losses.length : 0;
    [this.#now, this.#most, this.#step] = [0, 0, 0];
  }

  /** What brings back all that it knows now. */
  keep() {
    const kept = /** @type {const} */ ([this.#recorded, this.#other, this.#last, this.#now, this.#most, this.#step]);
    return () => { [this.#recorded, this.#other, this.#last, this.#now, this.#most, this.#step] = kept; };
  }

  /**
   * Settings change in a run.
   * @param {Partial<Settings>} changed
   * @param {number} step The last with the settings before.
   */
  change(changed, step) {
    const other = this.#recorded && otherOf(this.#recorded, changed);
    if (!other || this.#last <= step) return;
    this.#other = NAMES[other];
    this.#last = step;
  }

  /** The reference's loss of a step, or `null`. @param {number} step */
  at(step) {
    return step <= this.#last ? (this.#recorded?.losses[step - 1] ?? null) : null;
  }

  /**
   * Compares a step.
   * @param {number} step
   * @param {number} loss
   */
  take(step, loss) {
    const reference = this.at(step);
    if (reference === null) return;
    this.#step = step;
    this.#now = Math.abs(loss - reference);
    this.#most = Math.max(this.#most, this.#now);
  }

  /** Largest difference so far; `null` where nothing was compared. */
  get most() {
    return this.#step === 0 ? null : this.#most;
  }

  /** What the differences are, in words. */
  get says() {
    if (this.#step === 0) {
      return this.#other ? `No reference was recorded for this ${this.#other}.` : "The wide line is the same seed on one adapter.";
    }
    const end = this.#step < this.#last ? "" : this.#other
      ? ` It ends at step ${this.#last}, where the ${this.#other} was changed.`
      : this.#step === this.#last ? ` It was recorded up to step ${this.#last}.` : "";
    return `The wide line is the same seed on one adapter. Largest difference: ${scientific(this.#most)}; at step ${this.#step}: ${scientific(this.#now)}.${end}`;
  }
}

/** `0.0000084` for people: `8.4e-6`. @param {number} value */
function scientific(value) {
  return value === 0 ? "0" : value >= 0.01 ? value.toFixed(3) : value.toExponential(1);
}
