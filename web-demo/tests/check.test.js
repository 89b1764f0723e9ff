// Are gaps between a split step and one adapter alone counted and said as they are? Needs nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Check, plain } from "../www/check.js";

/** @import { StepLog } from "../www/messages.js" */

/** @param {number} step @param {number} loss @param {number} [alone] */
function log(step, loss, alone) {
  return /** @type {StepLog} */ ({ step, loss, alone: alone === undefined ? null : { adapter: 0, loss: alone, gradient_norm: 1 } });
}

test("the last gap is told, beside the largest of those that were compared", () => {
  const check = new Check((adapter) => "AB"[adapter]);
  assert.match(check.says, /^Now and then .* two adapters to compare\.$/);
  check.take(log(1, 2));
  assert.match(check.says, /^Now and then/);
  check.take(log(2, 2, 2.0000005));
  check.take(log(9, 1, 1.00000006));
  check.take(log(10, 1));
  assert.deepEqual([check.last?.step, plain(check.last?.gap ?? 1)], [9, "0.00000006"]);
  assert.equal(check.says, "Step 9, computed again by A alone: gap 0.00000006 (rounding). Largest of 2: 0.0000005.");
  check.take(log(11, 1, 1.0123));
  assert.match(check.says, /gap 0\.01 \(each adapter’s own batch-norm statistics\)\. Largest of 3: 0\.01\.$/);
  const bring = check.keep();
  assert.match(check.says, /^Now and then/, "a run from a file has its own");
  bring();
  assert.equal(check.last?.step, 11);
});

test("metrics of before are not compared", () => {
  const check = new Check(() => "A");
  check.take(/** @type {StepLog} */ (/** @type {unknown} */ ({ step: 1, loss: 2 })));
  assert.equal(check.last, null);
});

test("a gap is read as a number, not as a power of ten", () => {
  assert.deepEqual([0, 2.4e-7, 0.0123, 0.5, 2, 9.7e-4].map(plain), ["0", "0.0000002", "0.01", "0.5", "2", "0.001"]);
});
