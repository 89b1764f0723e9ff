// Is the throughput that the page shows rows over time, whatever single steps take? Needs nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Pace } from "../www/pace.js";

/**
 * The pace after many steps of these, over and over.
 * @param {[number, number][]} steps Rows, and milliseconds by the clock.
 */
function paceOf(steps) {
  const pace = new Pace();
  for (let at = 0; at < 2000; at += 1) pace.add(...steps[at % steps.length]);
  return pace.samples_per_s;
}

test("steps that are alike give rows over time", () => {
  assert.ok(Math.abs(paceOf([[64, 40]]) - 1600) < 1e-6);
});

test("a slow step counts by its time", () => {
  // 128 rows in 100 ms. The mean of both speeds would be 3,555 samples/s.
  const pace = paceOf([[64, 10], [64, 90]]);
  assert.ok(Math.abs(pace - 1280) < 0.03 * 1280, `${pace}`);
});

test("it is not a number before the first step", () => {
  assert.ok(Number.isNaN(new Pace().samples_per_s));
});
