// Does the built article train while one reads it, and is its check a small number?

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PIECES, TRIO, bricked, lost, predicted } from "../record.js";
import { visit } from "./browser.js";
import { plain, server } from "./built.js";

/** Milliseconds of reading. */
const READING_MS = 30_000;
/** Differences of the loss beyond roundings. */
const ROUNDINGS = 1e-4;

test("within half a minute of scrolling a network trains, and one processor alone confirms a step", async () => {
  const { page, said, leave } = await visit(plain, `http://localhost:${server.port}/`, { reducedMotion: "no-preference" });
  const requests = await page.evaluate(() => performance.getEntriesByType("resource").map(({ name }) => name));
  assert.ok(!requests.some((name) => name.endsWith(".wasm")), "no engine before it is needed");
  const begun = Date.now();
  await page.locator("#cut").scrollIntoViewIfNeeded();
  await page.locator("#same").scrollIntoViewIfNeeded();
  await page.locator("mh-ghost canvas").scrollIntoViewIfNeeded();
  const gap = () => page.evaluate(() => Number(document.querySelectorAll("mh-ghost .check .number")[1]?.textContent));
  await page.waitForFunction(() => Number(document.querySelectorAll("mh-ghost .check .number")[1]?.textContent) >= 0, undefined, { timeout: READING_MS });
  console.log(`the check was there after ${Date.now() - begun} ms`);
  assert.ok((await gap()) < ROUNDINGS, `${await gap()}`);
  // The one thing that differs is seen at once.
  await page.getByLabel(/Batch normalization/).check();
  await page.waitForFunction((least) => Number(document.querySelectorAll("mh-ghost .check .number")[1]?.textContent) > least, 10 * ROUNDINGS, { timeout: READING_MS });
  await page.getByRole("button", { name: "Start again" }).click();
  await page.getByRole("button", { name: "Pull the plug" }).click();
  await page.locator("mh-ghost .gone").waitFor();
  const steps = () => page.evaluate(() => Number(document.querySelector("mh-ghost .check .number")?.textContent));
  const pulled = await steps();
  await page.waitForFunction((least) => Number(document.querySelector("mh-ghost .check .number")?.textContent) > least + 3, pulled, { timeout: READING_MS });
  assert.deepEqual(said, []);
  await leave();
});

test("cards and networks that no table holds are simulated, with the command's numbers", async () => {
  const { page, said, leave } = await visit(plain, `http://localhost:${server.port}/?mine=rtx-3060,rx-6600,rtx-3060&net=mlp`);
  const answered = () => page.waitForFunction(() => / ms a step/.test(document.querySelector("mh-cards .answer-line")?.textContent ?? ""), undefined, { timeout: READING_MS });
  const lanes = async () => (await page.locator("mh-cards .lane-ms").allInnerTexts()).map((text) => Number(text.replace(" ms", "")));
  await answered();
  const cards = ["RTX 3060", "RX 6600", "RTX 3060"];
  const dense = predicted(cards, { model: "mlp", batch_size: 256 });
  assert.deepEqual([...new Set((await lanes()).slice(0, 3))].sort(), [...new Set(dense.alone.map(({ step_ms }) => Number(step_ms.toFixed(1))))].sort());
  assert.match(await page.locator("mh-cards .answer-line").innerText(), /leaves RX 6600 and RTX 3060 #2 out/);
  await page.getByLabel("Network", { exact: true }).selectOption("cnn6");
  const six = predicted(cards);
  await page.waitForFunction((ms) => document.querySelector("mh-cards .answer-line")?.textContent?.includes(ms), `: ${six.strong[2].step_ms.toFixed(1)} ms a step`, { timeout: READING_MS });
  assert.equal((await lanes())[3], Number(six.even?.step_ms.toFixed(1)));
  assert.deepEqual(said, []);
  await leave();
});

test("frames of the built figures stay small", async () => {
  for (const figure of ["split", "costs", "slow", "lost", "stages", "bricks", "cards"]) {
    const { page, said, leave } = await visit(plain, `http://localhost:${server.port}/embed/${figure}.html`);
    await page.locator(".alive").waitFor();
    const bytes = await page.evaluate(() => performance.getEntriesByType("resource").reduce((sum, entry) => sum + /** @type {PerformanceResourceTiming} */ (entry).decodedBodySize, 0));
    assert.ok(bytes < 60_000, `${figure}: ${bytes} bytes`);
    assert.deepEqual(said, []);
    await leave();
  }
});

test("recorded single steps are those of the built simulator", async () => {
  const read = (/** @type {string} */ name) => JSON.parse(readFileSync(new URL(`../www/article/${name}.json`, import.meta.url), "utf8"));
  assert.deepEqual(read("lost"), { cards: TRIO, runs: [await lost(0), await lost(1), await lost(2)] });
  const { copies, steps } = read("bricks");
  assert.deepEqual(await bricked(PIECES[2]), { copies, step: steps[2] });
});
