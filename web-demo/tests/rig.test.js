// Does the page show its rig as it is: what was added, removed, lost and slowed down, by one name everywhere? The engine is a
// stand-in here.

import assert from "node:assert/strict";
import { test } from "node:test";
import { open, train, trainAndPause } from "./stand-in.js";

test("the short last batch of an epoch does not make the bar flicker", async () => {
  const { page, leave } = await open("gpus");
  await page.evaluate(() => {
    /** @type {any} */ (window).labels = new Set();
    const bar = /** @type {Element} */ (document.getElementById("batch"));
    new MutationObserver(() => /** @type {any} */ (window).labels.add(bar.getAttribute("aria-label")?.split(".")[0])).observe(bar, { attributes: true });
  });
  await train(page, 50);
  assert.deepEqual(await page.evaluate(() => [.../** @type {any} */ (window).labels].filter((label) => label !== "No batch yet")), ["Batch of 64 rows"]);
  await leave();
});

test("the address holds how far adapters are slowed down, and slows them down again", async () => {
  const { page, said, leave } = await open("gpus");
  await train(page, 3);
  await page.locator(".lane input").nth(1).focus();
  for (let count = 0; count < 4; count += 1) await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => location.search.includes("throttles=1,4,1"));
  await page.reload();
  await page.locator("#run:enabled").waitFor();
  const slider = page.locator(".lane input").nth(1);
  await page.waitForFunction(() => document.querySelectorAll(".lane output")[1]?.textContent === "slowed 4 ×");
  assert.equal(await slider.inputValue(), "4");
  await slider.focus();
  await page.keyboard.press("Home");
  await page.waitForFunction(() => location.search === "");
  assert.deepEqual(said, []);
  await leave();
});

test("a second device on a GPU is called what it is", async () => {
  const { page, leave } = await open("gpus");
  await page.getByRole("button", { name: "+ another device on NVIDIA GeForce RTX 3060" }).click();
  await page.locator(".lane .kind", { hasText: "no second GPU" }).waitFor();
  assert.match((await page.locator("#scaling-honest").textContent()) ?? "", /they are not further GPUs/);
  assert.match(page.url(), /adapters=0,1,cpu,0$/);
  await leave();
});

test("a software adapter is announced by a banner, and used only when asked for", async () => {
  const { page, leave } = await open("software");
  await page.locator("[data-kind=software]", { hasText: "far slower than a GPU" }).waitFor();
  await page.locator(".lane .name").first().waitFor();
  assert.deepEqual([...new Set(await page.locator(".lane .name").allTextContents())], ["CPU"]);
  await leave();
});

test("a batch stays whole when an adapter is removed in a pause", async () => {
  const { page, said, leave } = await open("gpus");
  await trainAndPause(page);
  await page.locator(".remove").first().click();
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 2);
  // Longer than the bar takes to be drawn anew.
  await page.waitForTimeout(600);
  const label = (await page.locator("#batch").getAttribute("aria-label")) ?? "";
  const rows = [...label.matchAll(/: (\d+)/g)].map(([, number]) => Number(number));
  assert.equal(rows.length, 3, label);
  assert.equal(rows.reduce((sum, number) => sum + number, 0), 64, label);
  assert.deepEqual(said, []);
  await leave();
});

test("a double click removes one adapter, without an error", async () => {
  const { page, said, leave } = await open("gpus");
  await train(page, 3);
  await page.locator(".remove").nth(1).dblclick();
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 2);
  await page.waitForTimeout(300);
  assert.equal(await page.locator("#status").getAttribute("data-kind"), "state");
  assert.equal(await page.locator("#lanes .lane").count(), 2);
  assert.deepEqual(said, []);
  await leave();
});

test("messages name adapters by the letters of their lanes", async () => {
  const { page, said, leave } = await open("gpus");
  await train(page, 3);
  await page.locator(".remove").first().click();
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 2);
  await page.locator(".unplug").nth(1).click();
  // The engine counts it as adapter 2.
  await page.locator("#log li", { hasText: "adapter C `CPU` was lost" }).waitFor();
  assert.doesNotMatch((await page.locator("#log").textContent()) ?? "", /adapter \d/);
  assert.deepEqual(said, []);
  await leave();
});

test("no more adapters can be added than a rig has, however fast, and the page says why", async () => {
  const { page, said, leave } = await open("gpus");
  await train(page, 3);
  await page.locator("#add button").last().evaluate((button) => {
    for (let count = 0; count < 30; count += 1) /** @type {HTMLElement} */ (button).click();
  });
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 16);
  await page.waitForTimeout(300);
  assert.equal(await page.locator("#lanes .lane").count(), 16);
  assert.equal(await page.locator("#add-says").textContent(), "A rig here has 16 adapters at most: remove one to add another.");
  const add = page.locator("#add button").last();
  assert.deepEqual([await add.getAttribute("aria-disabled"), await add.getAttribute("aria-describedby")], ["true", "add-says"]);
  assert.equal(await page.locator("#status").getAttribute("data-kind"), "state", "the engine had nothing to refuse");
  await page.locator(".remove").first().click();
  await page.locator("#add-says", { hasText: /^$/ }).waitFor({ state: "attached" });
  await add.click();
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 16);
  assert.deepEqual(said, []);
  await leave();
});

test("the focus stays on the button that pulled the plug", async () => {
  const { page, said, leave } = await open("gpus");
  await train(page, 3);
  const plug = page.locator(".unplug").nth(1);
  await plug.focus();
  await page.keyboard.press("Enter");
  await page.locator(".kind", { hasText: "lost" }).waitFor();
  assert.ok(await plug.evaluate((button) => document.activeElement === button));
  assert.equal(await plug.getAttribute("aria-disabled"), "true");
  assert.deepEqual(said, []);
  await leave();
});

test("a bar reaches its width before it is drawn anew", async () => {
  const { page, leave } = await open("gpus", { reducedMotion: "no-preference" });
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 3);
  const slowest_s = await page.evaluate(() => Math.max(...[...document.querySelectorAll(".time i, .batch span")]
    .flatMap((bar) => getComputedStyle(bar).transitionDuration.split(", ").map(parseFloat))));
  // The rig is drawn each 0.1 s: a longer transition would never end.
  assert.ok(slowest_s <= 0.1, `${slowest_s} s`);
  await leave();
});

test("a remark on the split stays long enough to be read, and blames no adapter that had no step yet", async () => {
  // Waits of this rig vary from step to step.
  const { page, leave } = await open("uneven", { reducedMotion: "no-preference" });
  await page.evaluate(() => {
    const remark = /** @type {HTMLElement} */ (document.getElementById("rig-says"));
    const remarks = /** @type {{ kind: string, ms: number }[]} */ (/** @type {any} */ (window).remarks = []);
    new MutationObserver(() => {
      const kind = (remark.textContent ?? "").replace(/[\d.]+ %/, "");
      if (remarks[remarks.length - 1]?.kind !== kind) remarks.push({ kind, ms: performance.now() });
    }).observe(remark, { childList: true, characterData: true, subtree: true });
  });
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 180);
  const remarks = await page.evaluate(() => /** @type {{ kind: string, ms: number }[]} */ (/** @type {any} */ (window).remarks));
  assert.ok(remarks.some(({ kind }) => kind.startsWith("The others wait")), JSON.stringify(remarks));
  remarks.slice(1).forEach(({ ms }, at) => {
    assert.ok(remarks[at].kind === "" || ms - remarks[at].ms > 1900, JSON.stringify(remarks));
  });
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused");
  await page.getByRole("button", { name: "+ another worker on the CPU" }).click();
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 4);
  // Longer than the rig takes to be drawn anew.
  await page.waitForTimeout(600);
  assert.doesNotMatch((await page.locator("#rig-says").textContent()) ?? "", /gets nothing/);
  await leave();
});

test("an adapter that is lost in a pause shows no numbers of its last step", async () => {
  const { page, leave } = await open("gpus");
  await trainAndPause(page);
  await page.locator(".unplug").nth(1).click();
  await page.locator(".kind", { hasText: "lost" }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane-numbers")[1]?.textContent === "");
  await leave();
});
