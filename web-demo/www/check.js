// The check of the claim that the split changes nothing: now and then a step is computed again by one adapter alone, from the same weights.

/** @import { StepLog } from "./messages.js" */

/** Gaps below this are those of roundings: sums over other shards round otherwise. */
export const ROUNDING = 1e-5;

export class Check {
  #letter;
  /** Steps that were compared. */
  #count = 0;
  /** The last of them. @type {{ step: number, gap: number, adapter: number } | null} */
  #last = null;
  #most = 0;

  /** @param {(adapter: number) => string} letter That of a member, by its position. */
  constructor(letter) {
    this.#letter = letter;
  }

  clear() {
    [this.#count, this.#last, this.#most] = [0, null, 0];
  }

  /** Forgets the steps. Gives what brings them back. */
  keep() {
    const kept = /** @type {const} */ ([this.#count, this.#last, this.#most]);
    this.clear();
    return () => { [this.#count, this.#last, this.#most] = kept; };
  }

  /** @param {StepLog} log */
  take({ step, loss, alone }) {
    // Metrics that were saved before steps were compared have none.
    if (!alone) return;
    const gap = Math.abs(loss - alone.loss);
    this.#count += 1;
    this.#last = { step, gap, adapter: alone.adapter };
    this.#most = Math.max(this.#most, gap);
  }

  /** The last step that was compared, and its gap; `null` before the first. */
  get last() {
    return this.#last;
  }

  /** The gaps, in words. */
  get says() {
    if (!this.#last) return "Now and then a step is computed again by one adapter alone, from the same weights. It takes two adapters to compare.";
    const { step, gap, adapter } = this.#last;
    const why = gap === 0 ? "" : gap < ROUNDING ? " (rounding)" : " (each adapter’s own batch-norm statistics)";
    return `Step ${step}, computed again by ${this.#letter(adapter)} alone: gap ${plain(gap)}${why}. Largest of ${this.#count}: ${plain(this.#most)}.`;
  }
}

/** `2.4e-7` for people: `0.0000002`. @param {number} gap */
export function plain(gap) {
  if (gap === 0) return "0";
  const shown = Number(gap.toPrecision(1));
  return shown.toFixed(Math.min(12, Math.max(0, -Math.floor(Math.log10(shown)))));
}
