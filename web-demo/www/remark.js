// One sentence on the split, which stays long enough to be read.

import { percent } from "./dom.js";

/** @import { Member, StepLog } from "./messages.js" */

/** Part of a step spent waiting from which a sentence tells of it, and the part below which it no longer does. */
const MUCH_WAITING = { from: 0.2, until: 0.12 };
/** A sentence is shown once it has been true for that long. */
const STEADY_MS = 2000;
/** Steps over which waits are averaged, about. */
const LOOK_BACK = 16;

/**
 * A member's part in the last steps.
 * @typedef {{ wait: number, exchange: number, is_idle: boolean }} Seen Mean parts of a step.
 */

export class Remark {
  /** @type {Map<number, Seen>} By the members' ids. */
  #seen = new Map();
  /** @type {Member[]} */
  #members = [];
  /** @type {StepLog | null} */
  #last = null;
  #is_waiting = false;
  #is_exchanging = false;
  /** The sentence that is shown, the one that is true now, and since when. */
  #shown = "";
  #candidate = "";
  #since_ms = -Infinity;

  /** @param {Member[]} members */
  set members(members) {
    const throttleOf = new Map(this.#members.map(({ id, throttle }) => [id, throttle]));
    // Waits at another speed tell nothing of those now.
    if (members.some(({ id, throttle }) => (throttleOf.get(id) ?? throttle) !== throttle)) this.#seen.clear();
    this.#members = members;
    // Nobody waits for the only one that is left.
    if (members.filter(({ presence }) => presence === "active").length < 2) [this.#shown, this.#candidate] = ["", ""];
    for (const id of this.#seen.keys()) if (!members.some((member) => member.id === id)) this.#seen.delete(id);
  }

  /** Forgets the steps. */
  clear() {
    this.#seen.clear();
    [this.#last, this.#is_waiting, this.#is_exchanging, this.#shown, this.#candidate] = [null, false, false, "", ""];
  }

  /** Takes in a step of a full batch. @param {StepLog} step */
  take(step) {
    this.#last = step;
    for (const { id, presence } of this.#members) {
      if (presence !== "active") {
        this.#seen.delete(id);
        continue;
      }
      const part = step.adapters.find(({ member }) => member === id);
      const old = this.#seen.get(id);
      const [wait, exchange] = [(part?.wait_ms ?? 0) / step.ms, (part?.exchange_ms ?? 0) / step.ms];
      const mean = (/** @type {number | undefined} */ before, /** @type {number} */ now) => (before !== undefined && part ? before + (now - before) / LOOK_BACK : now);
      this.#seen.set(id, { wait: mean(old?.wait, wait), exchange: mean(old?.exchange, exchange), is_idle: !part });
    }
  }

  /**
   * The sentence to show now.
   * @param {(id: number) => string} nameOf Letter of a member.
   * @param {number} now_ms
   */
  text(nameOf, now_ms) {
    const now = this.#now(nameOf);
    // Numbers alone may change at once.
    if (kindOf(now) !== kindOf(this.#candidate)) this.#since_ms = now_ms;
    this.#candidate = now;
    if (now_ms - this.#since_ms >= STEADY_MS || this.#shown === "" || kindOf(now) === kindOf(this.#shown)) this.#shown = now;
    return this.#shown;
  }

  /** Whether what is shown is what is true. */
  get is_settled() {
    return this.#shown === this.#candidate;
  }

  /** @param {(id: number) => string} nameOf */
  #now(nameOf) {
    if (!this.#last) return "";
    if (this.#members.length === 1) {
      const is_on_device = this.#last.reduce_ms + this.#last.update_ms === 0;
      const where = is_on_device ? "the update runs on it, and nothing is exchanged. Add" : "add";
      return `One adapter: ${where} another to see a batch being split.`;
    }
    const active = this.#members.filter(({ presence, is_excluded }) => presence === "active" && !is_excluded);
    const idle = active.filter(({ id }) => this.#seen.get(id)?.is_idle);
    if (idle.length > 0) {
      const who = idle.map(({ id }) => nameOf(id)).join(", ");
      return `${who} ${idle.length === 1 ? "gets" : "get"} nothing: with ${who} each step would take longer, or the batch is too small.`;
    }
    const waits = active.flatMap(({ id }) => {
      const seen = this.#seen.get(id);
      return seen ? [{ id, ...seen }] : [];
    });
    if (waits.length < 2) return "";
    // The slowest is waited for at each exchange, too, and waits least itself.
    const of = (/** @type {Seen} */ { wait, exchange }) => wait + exchange;
    const slowest = waits.reduce((a, b) => (of(b) < of(a) ? b : a));
    const longest = Math.max(...waits.map(of)) - of(slowest);
    this.#is_waiting = longest >= (this.#is_waiting ? MUCH_WAITING.until : MUCH_WAITING.from);
    if (this.#is_waiting) return `The others wait for ${nameOf(slowest.id)} up to ${percent(longest, 0)} of a step.`;
    const least = slowest.exchange;
    this.#is_exchanging = least >= (this.#is_exchanging ? MUCH_WAITING.until : MUCH_WAITING.from);
    return this.#is_exchanging ? `At batch-norm all wait for one another: ${percent(least, 0)} of a step. Statistics of each adapter’s own rows, a rule below, spare the wait; then the result depends on the split.` : "";
  }
}

/** A sentence without its percentage. @param {string} text */
function kindOf(text) {
  return text.replace(/[\d.]+ %/, "");
}
