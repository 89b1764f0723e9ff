// Does the built article train while one reads it, and is its check a small number?

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PIECES, TRIO, bricked, lost, predicted } from "../record.js";
import { sends, visit } from "./browser.js";
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

test("a small GPT learns a text, the page's or one's own, to the same check and through a plug", async () => {
  const { page, said, leave } = await visit(plain, `http://localhost:${server.port}/`, { reducedMotion: "no-preference" });
  const figure = page.locator("mh-ghost");
  await page.locator("#same").scrollIntoViewIfNeeded();
  await figure.locator("canvas").scrollIntoViewIfNeeded();
  const numbers = () => page.evaluate(() => [...document.querySelectorAll("mh-ghost .check .number")].map(({ textContent }) => Number(textContent?.replaceAll(",", ""))));
  const until = (/** @type {number} */ steps) => page.waitForFunction((least) => Number(document.querySelector("mh-ghost .check .number")?.textContent?.replaceAll(",", "")) > least, steps, { timeout: 6 * READING_MS });
  await until(1);
  await figure.getByLabel("What it learns").selectOption("to write, from Lincoln’s messages");
  await page.waitForFunction(() => document.querySelector("mh-ghost [role=status]")?.textContent?.startsWith("A small GPT learns to write, letter by letter, from messages of Lincoln, here and now"), undefined, { timeout: READING_MS });
  assert.ok(await figure.getByLabel(/Batch normalization/).isHidden(), "it has none");
  await until(20);
  await page.getByRole("button", { name: "Pull the plug" }).press("Enter");
  await figure.locator(".gone").waitFor();
  assert.notEqual(await page.evaluate(() => document.activeElement?.tagName), "BODY", "the focus stays, also where no second plug can be pulled");
  await until(30);
  await figure.locator(".writes q").waitFor({ timeout: READING_MS });
  const [, gap, most] = await numbers();
  assert.ok(gap <= most && most < ROUNDINGS, `${most}`);
  const sent = sends(page);
  await figure.locator("input[type=file]").setInputFiles({ name: "rhyme.txt", mimeType: "text/plain", buffer: Buffer.from("Mary had a little lamb, its fleece was white as snow. ".repeat(60)) });
  await page.waitForFunction(() => document.querySelector("mh-ghost [role=status]")?.textContent?.includes("from rhyme.txt, here and now"), undefined, { timeout: READING_MS });
  await until(20);
  await page.waitForFunction(() => Number(document.querySelectorAll("mh-ghost .check .number")[2]?.textContent) >= 0, undefined, { timeout: READING_MS });
  assert.ok((await numbers())[2] < ROUNDINGS);
  await figure.locator("input[type=file]").setInputFiles({ name: "short.txt", mimeType: "text/plain", buffer: Buffer.from("too short") });
  await page.waitForFunction(() => /needs 410 characters at least, but has 9/.test(document.querySelector("mh-ghost [role=status]")?.textContent ?? ""), undefined, { timeout: READING_MS });
  assert.deepEqual(sent, [], "a request that could hold a part of the text");
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
