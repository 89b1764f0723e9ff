// Does what is done to simulated cards reach the simulator, and is its answer shown beside it? The engine is a stand-in here.

import assert from "node:assert/strict";
import { test } from "node:test";
import { faults, open } from "./stand-in.js";

/** @import { Page } from "playwright-core" */

/** Rows of each card's lane, in order; without the host's. @param {Page} page */
const rows = (page) => page.locator("#other-lanes .thin-lane .number").allTextContents().then((texts) => texts.slice(0, -1));

test("a simulated card is slowed down, loses its plug and gets it back, by the simulator’s own numbers", async () => {
  const { page, said, leave } = await open("gpus");
  await page.click("#rigs [data-rig=old]");
  await page.locator("#other-hand summary").click();
  await page.waitForFunction(() => document.querySelectorAll("#other-lanes .thin-lane").length === 3);
  assert.deepEqual(await page.locator("#other-card option").allTextContents(), ["A: GeForce RTX 4070", "B: GeForce GTX 1060"]);
  assert.deepEqual(await rows(page), ["256", "256"]);
  await page.locator("#other-slow").fill("4");
  await page.locator("#other-slow-is", { hasText: "slowed 4 ×" }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll("#other-lanes .number")[1].textContent === "128");
  await page.locator("#other-split").selectOption("even");
  await page.waitForFunction(() => document.querySelectorAll("#other-lanes .number")[1].textContent === "256");
  await page.locator("#other-decides", { hasText: "In equal parts all 2 cards take part" }).waitFor();
  await page.click("#other-plug");
  await page.locator("#other-plug", { hasText: "Plug it in" }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll("#other-lanes .number")[1].textContent === "–");
  // What is asked for later has no plug pulled on the way: the card is not there from the start.
  await page.locator("#other-split").selectOption("learned");
  await page.locator("#other-lanes .thin-lane.away").waitFor();
  assert.deepEqual(await rows(page), ["512", "–"]);
  await page.locator("#other-card").selectOption("0");
  assert.ok(await page.locator("#other-plug").isDisabled(), "one card is left");
  await page.locator("#other-card").selectOption("1");
  await page.click("#other-plug");
  await page.waitForFunction(() => document.querySelectorAll("#other-lanes .number")[1].textContent === "128");
  assert.deepEqual(await faults(page), []);
  // Another rig comes as it is.
  await page.click("#rigs [data-rig=two]");
  await page.locator("#other-slow-is", { hasText: "at full speed" }).waitFor();
  assert.deepEqual(said, []);
  await leave();
});

test("cards that slow a step down are left out as manyhands does it, or shown with all others", async () => {
  const { page, said, leave } = await open("gpus");
  await page.locator("#other-says", { hasText: "manyhands would use all 8." }).waitFor();
  await page.locator("#other-model").selectOption("mlp");
  const decides = page.locator("#other-decides", { hasText: "manyhands would use 1 of 8" });
  await decides.waitFor();
  assert.match((await decides.textContent()) ?? "", /without B, C, D, E, F, G, and H [\d.]+ ms\. With all, the largest part of it is computing on GeForce/);
  assert.equal(await page.locator("#other-speed-up").textContent(), "1.00 ×");
  assert.deepEqual((await rows(page)).slice(1), Array(7).fill("–"));
  await page.locator("#other-hand summary").click();
  await page.locator("#other-uses").selectOption("all");
  await page.waitForFunction(() => document.getElementById("other-speed-up")?.textContent !== "1.00 ×");
  assert.deepEqual(await rows(page), Array(8).fill("64"));
  assert.deepEqual(said, []);
  await leave();
});

test("of what is asked for while a simulation runs only the last is simulated", async () => {
  const { page, leave } = await open("gpus");
  await page.locator("#other-says", { hasText: "manyhands would use all 8." }).waitFor();
  await page.evaluate(() => {
    const slider = /** @type {HTMLInputElement} */ (document.getElementById("other-slow"));
    const post = Worker.prototype.postMessage;
    let n_asked = 0;
    Worker.prototype.postMessage = function (/** @type {any} */ message) {
      n_asked += message.type === "simulate" ? 1 : 0;
      document.body.dataset.asked = String(n_asked);
      return post.call(this, message);
    };
    for (const value of ["1", "2", "3", "4", "5", "6"]) {
      slider.value = value;
      slider.dispatchEvent(new Event("input"));
    }
  });
  await page.locator("#other-slow-is", { hasText: "slowed 8 ×" }).waitFor({ state: "attached" });
  await page.waitForFunction(() => document.querySelectorAll("#other-lanes .number")[7].textContent === "32");
  assert.equal(await page.evaluate(() => document.body.dataset.asked), "2");
  await leave();
});
