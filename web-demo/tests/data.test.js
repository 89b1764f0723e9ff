// Are other data loaded when they are chosen, and not before? Does all of the page go with them? The engine is a stand-in here.

import assert from "node:assert/strict";
import { test } from "node:test";
import { faults, open, train } from "./stand-in.js";

/** @import { Page } from "playwright-core" */

/** In the place of the files, which the stand-in does not read. */
const FILES = { "/data/fashion.bin": "clothes".repeat(100), "/data/lincoln.txt": "text".repeat(100) };

/**
 * Opens the page with files to load.
 * @param {string} [query]
 * @param {import("playwright-core").BrowserContextOptions} [options]
 */
async function opened(query = "", options = {}) {
  const visited = await open("gpus", options, FILES);
  /** @type {string[]} */
  const loaded = [];
  visited.page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
  if (query) await visited.page.goto(`${visited.page.url().split("?")[0]}${query}`);
  await visited.page.locator("#data:enabled").waitFor();
  return { ...visited, loaded };
}

/** @param {Page} page @param {string} data */
async function choose(page, data) {
  await page.locator("#data").selectOption(data);
  await page.waitForFunction((name) => location.search.includes(`data=${name}`), data);
}

test("nothing of other data is loaded before they are chosen", async () => {
  const { page, said, loaded, leave } = await opened();
  await train(page, 5);
  assert.deepEqual(loaded.filter((name) => name.startsWith("/data/")), []);
  await choose(page, "fashion");
  assert.deepEqual(loaded.filter((name) => name.startsWith("/data/")), ["/data/fashion.bin"]);
  await page.locator("#data").selectOption("digits");
  await page.waitForFunction(() => !location.search.includes("data="));
  await choose(page, "fashion");
  assert.equal(loaded.filter((name) => name.startsWith("/data/")).length, 1, "they are kept");
  assert.deepEqual(said, []);
  await leave();
});

test("clothes: their networks, pictures with names, mistakes by name, and no drawing", async () => {
  const { page, said, leave } = await opened();
  await choose(page, "fashion");
  await page.locator("#run", { hasText: "Start" }).waitFor();
  assert.deepEqual(await page.locator("#model option").evaluateAll((all) => all.map((option) => /** @type {HTMLOptionElement} */ (option).value)), ["cnn", "small"]);
  assert.equal(await page.locator("#other-model").inputValue(), "here", "cards are simulated with the network of the run");
  await train(page, 8);
  await page.click("#run");
  await page.locator("#pictures-says", { hasText: /^\d+ of 500 right after step \d+\. \d+ of them are shown\./ }).waitFor();
  assert.equal(await page.locator("#reading-title").textContent(), "What it takes them for");
  assert.match((await page.locator("#wrong li").first().textContent()) ?? "", /^[\w -]+, read as [\w -]+$/);
  const picture = await page.locator("#wrong canvas").first().evaluate((canvas) => /** @type {HTMLCanvasElement} */ (canvas).width);
  assert.equal(picture, 28);
  await page.locator("#pictures").hover({ position: { x: 10, y: 10 } });
  await page.locator("#pictures-says", { hasText: /^T-shirt, read as [\w -]+ with \d+ % certainty\.$/ }).waitFor();
  assert.ok(await page.locator("#drawing").isHidden());
  await page.locator("#draw-not", { hasText: "does not read digits" }).waitFor();
  assert.match((await page.locator("#reference-says").textContent()) ?? "", /No reference was recorded for this kind of data\./);
  assert.equal(await page.locator("#command").textContent(), "manyhands evaluate fashion.safetensors --data fashion-mnist/");
  await page.locator("[data-card=plug] button").click();
  await page.locator("[data-card=plug] .remark", { hasText: "There is no reference for these settings." }).waitFor();
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(said, []);
  await leave();
});

test("text: lines as it learns, bits beside those of frequencies alone, and no batch-norm", async () => {
  const { page, said, leave } = await opened("?data=text");
  assert.deepEqual(await Promise.all(["#data", "#other-model"].map((list) => page.locator(list).inputValue())), ["text", "here"]);
  await train(page, 41);
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused");
  const lines = await page.locator("#written li").allTextContents();
  assert.ok(lines.length >= 5 && /^step \d+.{60}/.test(lines[0]), lines[0]);
  assert.ok((await page.locator("#writes").textContent())?.endsWith(lines[0].replace(/^step \d+/, "")), "the newest stands in the first screen");
  await page.locator("#reference-says", { hasText: `Dotted: ${(2.98 / Math.LN2).toFixed(2)} bits` }).waitFor();
  assert.equal(await page.locator("#loss-unit").textContent(), ", bits a character");
  assert.equal(await page.locator("#fact-accuracy-name").textContent(), "bits/character");
  const bits = Number(await page.locator("#fact-accuracy").textContent());
  const loss = parseFloat((await page.locator("#loss-is").textContent()) ?? "");
  assert.ok(bits > 0 && Math.abs(bits - loss) < 0.01, `${bits} and ${loss}`);
  assert.match(await page.title(), /, [\d.]+ bits · manyhands$/);
  assert.ok(await page.locator("#reading").isHidden() && (await page.locator("#drawing").isHidden()));
  assert.ok(await page.locator("[name=batch_norm]").first().isDisabled());
  await page.locator("#batch-norm-says", { hasText: "has no such layer" }).waitFor();
  await page.locator("[data-card=shards] button").click();
  await page.locator("[data-card=shards] .remark", { hasText: "no batch-norm" }).waitFor();

  await page.locator("#temperature").focus();
  await page.keyboard.press("ArrowRight");
  await page.locator("#temperature-is", { hasText: /^0\.7$/ }).waitFor();
  await page.waitForFunction(() => location.search.includes("temperature=0.7"));
  await page.locator("[data-word=temperature]").focus();
  await page.locator("#word-says", { hasText: "divided by" }).waitFor();
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(said, []);

  await page.locator("#data").selectOption("digits");
  await page.locator("#reading").waitFor();
  assert.ok(await page.locator("#writing").isHidden() && (await page.locator("#writes").isHidden()));
  assert.ok(await page.locator("[name=batch_norm]").first().isEnabled());
  assert.equal(await page.locator("#loss-unit").textContent(), "");
  await leave();
});

test("data that can't be loaded are said, with a button to try again, and the run goes on", async () => {
  const { page, leave } = await opened();
  await page.route("**/data/fashion.bin", (route) => route.abort(), { times: 1 });
  await train(page, 3);
  await page.locator("#data").selectOption("fashion");
  await page.locator("#data-says", { hasText: "can’t be loaded: the connection failed. Training goes on with the digits." }).waitFor();
  assert.equal(await page.evaluate(() => document.body.dataset.state), "running");
  assert.ok(!page.url().includes("data="));
  await page.route("**/data/fashion.bin", (route) => route.fulfill({ status: 200, body: "" }), { times: 1 });
  await page.click("#data-again");
  await page.locator("#data-says", { hasText: "the pictures need to be those of the page. Training" }).waitFor();
  await page.route("**/data/fashion.bin", (route) => route.fulfill({ status: 503, body: "" }), { times: 1 });
  await page.click("#data-again");
  await page.locator("#data-says", { hasText: "the server answers 503" }).waitFor();
  assert.deepEqual(await faults(page), []);
  await page.locator("#data-again").press("Enter");
  await page.waitForFunction(() => location.search.includes("data=fashion"));
  assert.equal(await page.evaluate(() => document.activeElement?.id), "data", "the focus is not lost with the button");
  assert.ok(await page.locator("#data-again").isHidden());
  assert.equal(await page.locator("#data-says").textContent(), "");
  await leave();
});

test("an address whose data are not there trains the digits, and says why", async () => {
  const { page, leave } = await open("gpus", {}, { "/data/lincoln.txt": null });
  await page.goto(`${page.url()}?data=text&seed=3`);
  await page.locator("#data-says", { hasText: "the server answers 404" }).waitFor();
  await train(page, 3);
  await page.locator("#reading").waitFor();
  assert.match(page.url(), /\?seed=3$/);
  await page.goto(`${page.url().split("?")[0]}?data=birds`);
  await page.locator("[data-kind=address]", { hasText: "data=birds, but it needs one of digits, fashion, text" }).waitFor();
  await leave();
});

test("a choice while another is loaded takes its place", async () => {
  const { page, said, leave } = await opened();
  /** @type {() => void} */
  let send = () => {};
  const sent = new Promise((resolve) => { send = () => resolve(undefined); });
  await page.route("**/data/fashion.bin", async (route) => { await sent; await route.fulfill({ status: 200, body: "late" }); });
  await page.locator("#data").selectOption("fashion");
  await page.locator("#data-says", { hasText: "Loading" }).waitFor();
  await choose(page, "text");
  send();
  await train(page, 12);
  await page.locator("#writing").waitFor();
  assert.match(page.url(), /data=text/);
  assert.equal(await page.locator("#data-says").textContent(), "");
  assert.deepEqual(said, []);
  await leave();
});

for (const data of ["fashion", "text"]) {
  test(`nothing is wider than a phone with ${data}, light and dark`, async () => {
    for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
      const { page, said, leave } = await opened(`?data=${data}`, { viewport: { width: 390, height: 844 }, colorScheme });
      await train(page, 25);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
      assert.deepEqual(await faults(page), []);
      assert.deepEqual(said, []);
      await leave();
    }
  });
}
