// Does the lab say what its pictures leave out, and what they show to those who don't see them? The engine is a stand-in here.

import assert from "node:assert/strict";
import { test } from "node:test";
import { faults, open, trainAndPause } from "./stand-in.js";

/** @import { Page } from "playwright-core" */

const text = async (/** @type {Page} */ page, /** @type {string} */ selector) => (await page.locator(selector).first().textContent()) ?? "";

test("stages are told by memory first, a flat curve is explained, and charts say their numbers", async () => {
  const { page, said, leave } = await open("gpus");
  await page.locator("#stages-show:enabled").click();
  await page.locator("#stages .memory", { hasText: "A copy takes" }).waitFor();
  const [memory, bricks] = await Promise.all([".memory", ".bricks"].map((part) => page.locator(`#stages ${part}`).boundingBox()));
  assert.ok(memory && bricks && memory.y < bricks.y, "memory is the reason, and comes before the bricks");
  // The stand-in's speed goes with the root of the number of cards.
  await page.locator("#stages .remark", { hasText: "With 6, 7, and 8 cards the dashed curve is nearly flat. That is not a bad cut" }).waitFor();
  const label = (await page.locator("#stages .chart").first().getAttribute("aria-label")) ?? "";
  assert.match(label, /copies: [\d,]+ with 1, .*[\d,]+ with 8\. stages: .*, 5,657 with 8\. The table has all numbers$/);
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(said, []);
  await leave();
});

test("a simulated rig says whether it trains the network beside it", async () => {
  const { page, leave } = await open("gpus");
  await page.locator("#other-network", { hasText: "Another network:" }).waitFor();
  await page.locator("#other-model").selectOption("here");
  await page.locator("#other-network", { hasText: "The same network:" }).waitFor();
  await page.click("#rigs [data-rig=own]");
  await page.locator("#other-says", { hasText: "its batch of 256 and its host of 10 GB/s. The other rigs have 512 and 20" }).waitFor();
  await leave();
});

test("a described rig is in the address, which brings it back, and a broken one is said", async () => {
  const { page, said, leave } = await open("gpus");
  await page.locator("#predict:enabled").waitFor();
  assert.doesNotMatch(page.url(), /rig=/, "the usual one needs no address");
  await page.locator("#rig-form [name=batch_size]").fill("384");
  await page.locator("#rig-add").selectOption({ label: "GeForce RTX 4070" });
  await page.locator(".spec").nth(3).locator("[name=gflops]").fill("7000");
  await page.locator(".spec button").first().click();
  assert.match(page.url(), /\?rig=cnn6,384,10;Radeon\+RX\+6600,2200,150,6,5,2;Radeon\+680M,850,35,12,8,3;GeForce\+RTX\+4070,7000,330,20,16,2$/);
  const values = () => page.locator("#rig-form [name]").evaluateAll((all) => all.map((field) => /** @type {HTMLInputElement} */ (field).value));
  const before = await values();
  await page.reload();
  await page.locator("#predict:enabled").waitFor();
  assert.deepEqual(await values(), before);
  const usual = page.url().split("?")[0];
  for (const broken of ["cnn6,384", "nothing,384,10;a,1,1,1,1,1", "cnn6,384,10;a,1,-1,1,1,1", "cnn6,0,10;a,1,1,1,1,1"]) {
    await page.goto(`${usual}?rig=${broken}`);
    await page.locator("#predict-says", { hasText: "makes no sense" }).waitFor();
    assert.equal((await values())[1], "256", broken);
  }
  assert.deepEqual(said, []);
  await leave();
});

test("the picture of a step has its acts at their true lengths, too", async () => {
  const { page, leave } = await open("gpus");
  await trainAndPause(page);
  await page.click("#step");
  const bar = page.locator("#one-step .scale-bar");
  await bar.waitFor();
  const parts = ((await bar.getAttribute("aria-label")) ?? "").match(/[\d.]+(?= %)/g)?.map(Number) ?? [];
  assert.equal(parts.length, 4);
  assert.ok(Math.abs(parts.reduce((sum, part) => sum + part, 0) - 100) < 0.3, `${parts}`);
  const widths = await bar.locator("i").evaluateAll((all) => all.map((part) => part.getBoundingClientRect().width));
  const all = widths.reduce((sum, wide) => sum + wide, 0);
  widths.forEach((wide, at) => assert.ok(Math.abs((100 * wide) / all - parts[at]) < 1, `${widths} for ${parts} %`));
  assert.deepEqual(await faults(page), []);
  await leave();
});

test("a card whose picture could not be loaded does not point at one, and no address of a script is shown", async () => {
  const { page, leave } = await open("gpus", {}, { "/step-picture.js": null, "/stages.js": null, "/words.js": null });
  await page.locator("#run:enabled").waitFor();
  await page.locator("[data-card=step] button:not(.undo)").click();
  await page.locator("[data-card=step] .remark", { hasText: "could not be loaded" }).waitFor();
  assert.doesNotMatch(await text(page, "[data-card=step] .remark"), /shown below/);
  await page.click("#stages-show");
  await page.locator("#stages-says", { hasText: "could not be loaded" }).waitFor();
  assert.doesNotMatch(await page.locator("body").innerText(), /Failed to fetch|dynamically imported/);
  await leave();
});

test("while the engine loads, the part that has come is told, and before the first step no chart has empty axes", async () => {
  const { page, leave } = await open("gpus");
  await page.addInitScript(() => {
    const seen = /** @type {string[]} */ ([]);
    Object.assign(window, { seen });
    new MutationObserver(() => seen.push(document.getElementById("status")?.textContent ?? "")).observe(document, { childList: true, characterData: true, subtree: true });
  });
  await page.reload();
  await page.locator("#run:enabled").waitFor();
  const seen = await page.evaluate(() => /** @type {any} */ (window).seen);
  assert.ok(seen.some((/** @type {string} */ status) => /^Loading the engine, \d+ kB so far…$/.test(status)), `${[...new Set(seen)]}`);
  assert.equal(await page.locator(".u-wrap").count(), 0);
  await leave();
});
