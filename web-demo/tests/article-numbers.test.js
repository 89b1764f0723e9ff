// Are the article's numbers those of `manyhands simulate`: each in its words, and samples of the tables behind its figures?

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { BATCH, EVERY, PAIR, TRIO, WORKER, WORKS, lane, names, predicted, slowed, staged, worked } from "../record.js";
import { Table, slug } from "../www/article/table.js";

/** @import { Card } from "../www/article/table.js" */

const read = (/** @type {string} */ name) => readFileSync(new URL(`../www/${name}`, import.meta.url), "utf8");
const HTML = read("index.html");
const RECORDED = JSON.parse(read("article/cards.json"));
const table = new Table(RECORDED);

/** A card that is recorded. @param {string} name @returns {Card} */
function card(name) {
  const found = table.card(name);
  assert.ok(found, name);
  return found;
}

/** @param {number} value @param {number} other @param {number} part @param {string} of */
function assertNear(value, other, part, of) {
  assert.ok(Math.abs(value - other) <= part * other + 0.005, `${of}: ${value}, but the command says ${other}`);
}

test("each number of the prose is what the command predicts", () => {
  const [pair, beside, dense, six] = [predicted(PAIR), predicted(["RTX 3060", "RX 6600"]), worked(WORKS[0]), worked({ model: "cnn6", batch_size: 512, words: "" })];
  const hot = slowed(2);
  const two = staged(2);
  assert.deepEqual(JSON.parse(read("article/memory.json")).steps[1], two, "the network that fits on no card");
  const { runs } = JSON.parse(read("article/lost.json"));
  const dies = runs[TRIO.indexOf("GTX 1060")].steps;
  const bricks = JSON.parse(read("article/bricks.json"));
  const pieces = (/** @type {number} */ count) => bricks.steps.find((/** @type {any} */ step) => step.pieces === count).ms;
  assertNear(dies[0].ms, predicted(TRIO).strong[2].step_ms, 1e-4, "three cards");
  // What was learned with the third card stays in the estimate of the others.
  assertNear(dies[2].ms, predicted(TRIO.slice(0, 2)).strong[1].step_ms, 0.02, "the two that are left");
  const exact = (/** @type {number} */ ms) => `${ms.toFixed(1)} ms`;
  const about = (/** @type {number} */ ms) => `${ms.toFixed(0)} ms`;
  /** @type {Record<string, string>} */
  const claims = {
    alone: about(pair.alone[0].step_ms), even: about(pair.even?.step_ms ?? 0), fair: about(pair.strong[1].step_ms), learned: exact(pair.strong[1].step_ms),
    first: String(pair.strong[1].shares[0]), second: String(pair.strong[1].shares[1]),
    half_fast: exact(lane(PAIR[0], 256)), half_slow: exact(lane(PAIR[1], 256)),
    dense_one: exact(dense.alone), dense_two: exact(dense.together[0].ms), dense_factor: `${(dense.alone / dense.together[0].ms).toFixed(1)} ×`,
    six_one: exact(six.alone), six_two: exact(six.together[0].ms), beside: exact(beside.strong[1].step_ms),
    copy_gb: `${two.copy.toFixed(1)} GB`, has_gb: `${two.has} GB`, stage_gb: `${two.stages[0].toFixed(1)} GB`, stage_ms: `${((two.ms ?? 0) / 1000).toFixed(1)} s`,
    three: exact(dies[0].ms), dies_rows: String(dies[0].rows[2]), dies_now: exact(dies[1].ms), dies_after: exact(dies[2].ms),
    piece_one: about(pieces(1)), piece_eight: about(pieces(8)), piece_copies: about(bricks.copies),
    hot_before: exact(Math.max(...hot.before)), hot_after: exact(Math.max(...hot.after)), hot_first: String(hot.shares[0]), hot_second: String(hot.shares[1]),
  };
  const told = [...HTML.matchAll(/data-claim="(\w+)">([^<]*)</g)].map(([, name, text]) => ({ name, text }));
  for (const { name, text } of told) assert.equal(text, claims[name], name);
  assert.deepEqual([...new Set(told.map(({ name }) => name))].sort(), Object.keys(claims).sort(), "each claim is checked, and made");
  const left = HTML.replaceAll(/data-claim="\w+">[^<]*</g, "").replaceAll(/<(?:meta|svg)[^>]*>|<span class="number">[^<]*</g, "").match(/[\d.]+ (?:ms|GB)/g);
  assert.equal(left, null, "a number without a claim is checked by nobody");
});

test("still bars are as long as the command's lanes", () => {
  const bars = [...HTML.matchAll(/<span>([^<]+)<\/span><svg role="img" aria-label="(\d+) examples, ([\d.]+) ms"><rect class="\w" width="([\d.]+)%".*?<span class="number">([\d.]+) ms/g)];
  assert.equal(bars.length, 7);
  for (const [, name, rows, ms, width, number] of bars) {
    const wanted = Number(rows) === BATCH ? predicted([name]).alone[0].step_ms : lane(name, Number(rows));
    assert.equal(ms, wanted.toFixed(1), `${name}, ${rows} examples`);
    assert.equal(number, ms);
    assert.ok(Math.abs(Number(width) / Number(ms) - 100 / 32) < 0.05, `${name}: ${width} % for ${ms} ms`);
  }
});

test("the figures' tables hold each card of the command, with its times", () => {
  assert.deepEqual(RECORDED.cards.map((/** @type {Card} */ { name }) => name), names());
  assert.equal(new Set(RECORDED.cards.map((/** @type {Card} */ { name }) => slug(name))).size, RECORDED.cards.length, "an address names one card");
  for (const [name, rows] of /** @type {const} */ ([["GTX 1060", 16], ["RX 6600", 208], ["RTX 5090", 512], ["M2", 96], ["UHD 770", 32]])) {
    const { lanes, alone } = card(name);
    assert.equal(lanes.length, BATCH / EVERY);
    assertNear(lanes[rows / EVERY - 1], lane(name, rows), 0.001, `${name}, ${rows} examples`);
    assertNear(alone, predicted([name]).alone[0].step_ms, 0.001, name);
  }
  const { works } = JSON.parse(read("article/works.json"));
  assert.deepEqual(works.map((/** @type {any} */ { model, batch_size }) => [model, batch_size]), WORKS.map(({ model, batch_size }) => [model, batch_size]));
  assert.deepEqual(works[0], worked(WORKS[0]));
  assert.deepEqual(JSON.parse(read("article/slowed.json")).steps[2], slowed(2));
  assert.equal(JSON.parse(read("article/works.json")).card, WORKER);
});

// Lanes are recorded for each card by itself; between two recorded numbers of examples the figure draws a line.
for (const pair of [["RTX 4070", "GTX 1060"], ["RTX 3060", "RX 6600"], ["RX 7900 XTX", "A750"], ["RTX 4090", "680M"], ["M1 Max", "RTX 2060"]]) {
  test(`${pair.join(" and ")} have the step and the split that the command predicts for both`, () => {
    const seen = predicted(pair);
    const two = /** @type {[Card, Card]} */ (pair.map(card));
    const first = table.best(two);
    const alone = Math.min(...seen.alone.map(({ step_ms }) => step_ms));
    const of_first = seen.adapters[0] === two[0].full ? seen.strong[1].shares[0] : seen.strong[1].shares[1];
    // A card that makes steps longer is left out.
    const shortest = Math.min(seen.strong[1].step_ms, alone);
    assertNear(table.step(two, first).ms, shortest, 0.02, "the step");
    if (shortest < alone) assert.ok(Math.abs(first - of_first) <= 16, `${first} examples, but the command gives ${of_first}`);
    else assert.ok([0, BATCH].includes(first), `${first} examples, but a card is left out`);
    assertNear(table.step(two, BATCH / 2).ms, seen.even?.step_ms ?? 0, 0.01, "in halves");
    const learned = table.learned(two, BATCH / 2);
    assertNear(table.step(two, learned[learned.length - 1]).ms, shortest, 0.03, "after learning");
    assert.ok(learned.length <= 8, `${learned}`);
  });
}
