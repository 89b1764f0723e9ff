// Visits to the built page with the engine itself, in Chromium, and what tests do there.
//
// MANYHANDS_WEB_DEMO names the folder that `cargo xtask web build` filled, if it is another than by default.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { after, before } from "node:test";
import path from "node:path";
import { EXAMPLES } from "../www/examples.js";
import { PATIENCE_MS, launch, visit } from "./browser.js";
import { BUILT, serve } from "./serve.js";

/** @import { Browser, Page } from "playwright-core" */
/** @import { EpochLog, Info, StepLog } from "../www/messages.js" */

export const TEST_ROWS = 360;

/** @typedef {{ adapters: Info[], epochs: EpochLog[], steps: StepLog[], notices: { step: number, message: string }[] }} Metrics */

/** @type {Browser} */
export let webgpu;
/** @type {Browser} */
export let plain;
/** @type {import("./serve.js").Served} */
export let server;
/** @type {import("./serve.js").Served[]} */
const servers = [];

before(async () => {
  assert.ok(existsSync(path.join(BUILT, "lab/index.html")), `${BUILT} holds no demo\n  help: cargo xtask web build`);
  server = await serve([["/", BUILT]]);
  servers.push(server);
  [webgpu, plain] = [await launch("webgpu"), await launch("no adapter")];
});
after(async () => {
  await Promise.all([webgpu?.close(), plain?.close()]);
  servers.forEach((other) => other.close());
});

/**
 * Opens the demo, ready to start.
 * @param {Browser} browser
 * @param {string} [query]
 * @param {string} [host]
 */
export async function open(browser, query = "", host = "localhost") {
  const visited = await visit(browser, `http://${host}:${server.port}/lab/${query}`);
  visited.page.setDefaultTimeout(PATIENCE_MS);
  await visited.page.locator("#run:enabled").waitFor();
  return visited;
}

/** @param {number[]} values */
export function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** @param {Page} page */
export async function pause(page) {
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused", undefined, { timeout: PATIENCE_MS });
}

/**
 * What a button saves.
 * @param {Page} page
 * @param {string} button
 */
export async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(button)]);
  return { name: download.suggestedFilename(), path: await download.path() };
}

/** @param {Page} page @returns {Promise<Metrics>} */
export async function metricsOf(page) {
  const file = await saved(page, "#export-metrics");
  return JSON.parse(readFileSync(file.path, "utf8"));
}

/** @param {Page} page */
export async function drawsAreRead(page) {
  await page.locator("#pad").scrollIntoViewIfNeeded();
  const box = await page.locator("#pad").boundingBox();
  assert.ok(box);
  for (const stroke of EXAMPLES[3]) {
    const [first, ...rest] = stroke.map(({ x, y }) => [box.x + x * box.width, box.y + y * box.height]);
    await page.mouse.move(first[0], first[1]);
    await page.mouse.down();
    for (const [x, y] of rest) await page.mouse.move(x, y, { steps: 3 });
    await page.mouse.up();
  }
  await page.waitForFunction(() => document.getElementById("verdict")?.textContent === "3");

  let right = 0;
  for (let digit = 0; digit < 10; digit += 1) {
    await page.click("#clear");
    await page.waitForFunction(() => document.getElementById("verdict")?.textContent === "–");
    await page.locator("#pad").press(String(digit));
    await page.waitForFunction(() => document.getElementById("verdict")?.textContent !== "–");
    if ((await page.locator("#verdict").textContent()) === String(digit)) right += 1;
  }
  assert.ok(right >= 8, `${right} of 10 examples are read right`);
}

/**
 * Each step is there once, and its shares are its rows.
 * @param {StepLog[]} steps
 */
export function assertWhole(steps) {
  assert.deepEqual(steps.map(({ step }) => step), steps.map((_, index) => index + 1), "no step is lost or doubled");
  for (const { step, rows, adapters } of steps) assert.equal(adapters.reduce((sum, share) => sum + share.rows, 0), rows, `step ${step}`);
}

/**
 * Serves the demo with something else in the place of some files; `null`: they are not there.
 * @param {Record<string, string | null | Promise<Buffer>>} replaced
 */
export async function serveWith(replaced) {
  const other = await serve([["/", BUILT]], replaced);
  servers.push(other);
  return other;
}

/**
 * Opens that demo.
 * @param {Browser} browser
 * @param {Record<string, string | null | Promise<Buffer>>} replaced
 * @param {string} [query]
 */
export async function openWith(browser, replaced, query = "") {
  const { port } = await serveWith(replaced);
  const visited = await visit(browser, `http://localhost:${port}/lab/${query}`);
  visited.page.setDefaultTimeout(PATIENCE_MS);
  return visited;
}

/** The gaps between the split steps and those of one adapter that the page shows: of the last one compared, and the largest. @param {Page} page */
export async function shownGaps(page) {
  const text = (await page.locator("#check-says").textContent()) ?? "";
  const [, last, count, most] = text.match(/gap ([\d.]+) .*Largest of (\d+): ([\d.]+)\.$/) ?? [];
  assert.ok(most, text);
  return { last: Number(last), count: Number(count), most: Number(most) };
}

/**
 * Keeps the engine's own answers of a type, before they are made short for people, in `window.kept`.
 * @param {Page} page
 * @param {string} type
 */
export function keep(page, type) {
  return page.addInitScript((wanted) => {
    /** @type {any} */ (window).kept = [];
    const listen = Worker.prototype.addEventListener;
    Worker.prototype.addEventListener = function (/** @type {any} */ ...args) {
      const hear = (/** @type {any} */ { data }) => { if (data.type === wanted) /** @type {any} */ (window).kept.push(data); };
      if (args[0] === "message") listen.call(this, "message", /** @type {any} */ (hear));
      return listen.apply(this, /** @type {any} */ (args));
    };
  }, type);
}
