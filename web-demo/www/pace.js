// Samples each second by the clock.

/** Time over which the mean looks back, about. */
const LOOK_BACK_MS = 3000;

/** Rows of the last seconds over their time. A mean of each step's own speed would be higher. */
export class Pace {
  #rows = 0;
  #ms = 0;

  /**
   * Takes in a step.
   * @param {number} rows
   * @param {number} ms From the end of the step before.
   */
  add(rows, ms) {
    const keep = Math.exp(-ms / LOOK_BACK_MS);
    this.#rows = this.#rows * keep + rows;
    this.#ms = this.#ms * keep + ms;
  }

  /** NaN before the first step. */
  get samples_per_s() {
    return (1000 * this.#rows) / this.#ms;
  }
}
