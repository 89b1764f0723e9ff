// Is what is said of waits true of them? Needs nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Remark } from "../www/remark.js";

/** @import { AdapterLog, Member, StepLog } from "../www/messages.js" */

const LETTERS = ["A", "B", "C"];
const STEP_MS = 100;

/**
 * What is said after a step, and what at once before anything is steady.
 * @param {{ exchange_ms: number, wait_ms: number }[]} waits Of each adapter, in a step of 100 ms.
 * @param {number} [lost] So many of the last ones are lost.
 */
function said(waits, lost = 0) {
  const remark = new Remark();
  const members = waits.map((_, id) => ({ id, presence: id < waits.length - lost ? "active" : "lost", is_excluded: false, throttle: 1 }));
  remark.members = /** @type {Member[]} */ (/** @type {unknown} */ (members));
  const adapters = waits.map((wait, id) => ({ member: id, adapter: id, rows: 8, ...wait }));
  remark.take(/** @type {StepLog} */ ({ ms: STEP_MS, reduce_ms: 1, update_ms: 1, adapters: /** @type {AdapterLog[]} */ (adapters) }));
  return remark.text((id) => LETTERS[id], 0);
}

test("what the others wait longer than the slowest is for it, and the rest at exchanges is everyone’s", () => {
  assert.equal(said([{ exchange_ms: 0, wait_ms: 51 }, { exchange_ms: 0, wait_ms: 0 }]), "The others wait for B up to 51 % of a step.");
  assert.equal(said([{ exchange_ms: 52, wait_ms: 3 }, { exchange_ms: 47, wait_ms: 0 }]), "At batch-norm all wait for one another: 47 % of a step. Statistics of each adapter’s own rows, a rule below, spare the wait; then the result depends on the split.");
  assert.equal(said([{ exchange_ms: 60, wait_ms: 3 }, { exchange_ms: 4, wait_ms: 0 }]), "The others wait for B up to 59 % of a step.", "at exchanges, too");
});

test("nobody waits for the only active adapter", () => {
  assert.equal(said([{ exchange_ms: 0, wait_ms: 0 }, { exchange_ms: 0, wait_ms: 40 }], 1), "");
});
