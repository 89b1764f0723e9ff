// Is one step shown as it was, and its parts lit in their order? The engine is a stand-in here.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { short } from "../www/dom.js";
import { faults, open, openAt, train, trainAndPause } from "./stand-in.js";

/** @import { Page } from "playwright-core" */
/** @import { StepLog } from "../www/messages.js" */

const MOVING = /** @type {const} */ ({ reducedMotion: "no-preference" });
const PLAYED = "#one-step-picture.played";

/** A page whose training, which began by itself, is paused. @param {string} variant */
async function paused(variant) {
  const opened = await open(variant, MOVING);
  await opened.page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 5);
  await opened.page.click("#run");
  await opened.page.waitForFunction(() => document.body.dataset.state === "paused");
  return opened;
}

/** The last step, from the metrics. @param {Page} page @returns {Promise<StepLog>} */
async function lastStep(page) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export-metrics")]);
  return JSON.parse(await readFile(await download.path(), "utf8")).steps.at(-1);
}

/** The number of the step that is shown. @param {Page} page */
async function shown(page) {
  const says = page.locator("#one-step-says", { hasText: /^Step \d+ took/ });
  return Number((await says.textContent())?.match(/\d+/));
}

/** Waits until the page counts a step. @param {Page} page @param {number} step */
function counted(page, step) {
  return page.locator("#fact-step", { hasText: new RegExp(`^${step}$`) }).waitFor();
}

const acts = (/** @type {Page} */ page) => page.locator("#one-step-acts span").allTextContents();

test("Step lights the four acts in their order, in the picture, in the lanes and in words, and ends with all lit", async () => {
  const { page, said, leave } = await open("gpus", MOVING);
  // Time stands still but where the test lets it pass, whatever the machine does meanwhile.
  await page.clock.install();
  await page.reload();
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 5);
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused");
  const { step: before } = await lastStep(page);
  await page.clock.pauseAt(new Date(Date.now() + 3_600_000));
  await page.click("#step");
  while ((await page.locator(PLAYED).count()) === 0) await page.clock.runFor(20);
  assert.match(await page.locator("#lanes .time").first().evaluate((bars) => getComputedStyle(bars).maskImage), /^linear-gradient/);
  const seen = [];
  while ((await page.locator(PLAYED).count()) === 1) {
    seen.push(await page.evaluate(() => ({
      act: [...document.querySelectorAll("#one-step-acts .lit b")].map((act) => act.textContent?.trim()).join(),
      status: document.getElementById("status")?.textContent, part: parseFloat(document.getElementById("rig")?.style.getPropertyValue("--played") ?? ""),
    })));
    await page.clock.runFor(100);
  }
  const titles = ["1 Cut the batch", "2 Compute", "3 Add the gradients", "4 Update the weights"];
  assert.deepEqual([...new Set(seen.map(({ act }) => act))], titles);
  assert.deepEqual([...new Set(seen.map(({ status }) => status))], titles.map((title, at) => `Step ${before + 1}, slowly: ${at + 1} of 4, ${title.slice(2).toLowerCase()}.`));
  const parts = seen.map(({ part }) => part);
  assert.deepEqual(parts, parts.toSorted((a, b) => a - b), "the lanes are lit from left to right");
  assert.ok(parts.length > 35 && parts[0] < 2 && parts[parts.length - 1] > 97, `${parts.length} looks from ${parts[0]} to ${parts[parts.length - 1]} %`);
  assert.equal(await page.locator("#rig.played").count(), 0);
  assert.equal(await page.locator("#status").textContent(), "Paused.");
  assert.equal(await shown(page), before + 1);
  assert.deepEqual(said, []);
  await leave();
});

test("a step that is played has no faults for those who don’t see it, and can be played again", async () => {
  const { page, said, leave } = await paused("gpus");
  assert.ok(await page.locator("#step-again").isEnabled(), "the last of many is a step, too");
  await page.click("#step");
  await page.locator(PLAYED).waitFor();
  assert.deepEqual(await faults(page), []);
  const step = await shown(page);
  await page.click("#step-again");
  await page.locator("#one-step-says", { hasText: "Here it takes 4 s." }).waitFor();
  assert.equal(await shown(page), step);
  assert.equal((await lastStep(page)).step, step, "nothing was computed");
  assert.deepEqual(said, []);
  await leave();
});

/** @type {[what: string, act: (page: Page) => Promise<unknown>, state: string][]} */
const ENDS = [
  ["a reset", (page) => page.click("#reset"), "Ready: press Start."],
  ["other data", (page) => page.locator("#seed").evaluate((input) => { /** @type {HTMLInputElement} */ (input).value = "7"; input.dispatchEvent(new Event("change")); }), "Ready: press Start."],
];
for (const [what, act, state] of ENDS) {
  test(`${what} ends the play, and no step is computed later`, async () => {
    const { page, said, leave } = await paused("gpus");
    await page.click("#step");
    await page.locator(PLAYED).waitFor();
    await act(page);
    await page.locator("#status", { hasText: state }).waitFor();
    await page.locator("#one-step-says", { hasText: /^Pauses training/ }).waitFor();
    assert.equal(await page.locator(PLAYED).count(), 0);
    assert.equal(await page.locator("#rig.played").count(), 0);
    assert.ok(await page.locator("#step-again").isDisabled());
    // Asked for while training went on, then thought better of it.
    await train(page, 3);
    await page.evaluate(() => { for (const id of ["step-slowly", "reset"]) document.getElementById(id)?.click(); });
    await page.locator("#status", { hasText: "Ready: press Start." }).waitFor();
    await page.waitForTimeout(500);
    assert.equal(await page.locator("#fact-step").textContent(), "0");
    assert.deepEqual(said, []);
    await leave();
  });
}

test("what was asked for is forgotten where the run ends before it pauses, and the focus goes on", async () => {
  const { page, leave } = await open("gpus", MOVING);
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 5);
  await page.locator("summary", { hasText: "Seed" }).click();
  await page.locator("#epochs").fill("1");
  await page.locator("#epochs").press("Tab");
  await page.locator("#step-slowly:enabled").focus();
  await page.waitForFunction(() => document.body.dataset.state === "finished");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "run");
  await leave();
});

test("an error while a step is played stays for its time, and an engine that ends stays ended", async () => {
  const { page, leave } = await paused("dies");
  await page.click("#step");
  await page.locator(PLAYED).waitFor();
  // The stand-in ends when a drawing comes.
  await page.locator("#pad").press("3");
  await page.locator("#status", { hasText: "The engine has stopped." }).waitFor();
  assert.equal(await page.locator(PLAYED).count(), 0);
  await page.waitForTimeout(300);
  assert.equal(await page.locator("#status").textContent(), "The engine has stopped.");
  await leave();
});

test("the picture and its words are those of the step, and so are the lanes above", async () => {
  const { page, leave } = await paused("uneven");
  await page.click("#step");
  await page.locator(PLAYED).waitFor();
  const step = await lastStep(page);
  const letters = ["A", "B", "C"];
  const [cut, compute, add, update] = await acts(page);
  const all = (/** @type {(part: StepLog["adapters"][number], letter: string) => string} */ tell) => new Intl.ListFormat("en").format(step.adapters.map((part, at) => tell(part, letters[at])));
  assert.equal(cut, `The host cuts a batch of ${step.rows} rows: ${all(({ rows }, letter) => `${letter} gets ${rows}`)}.`);
  assert.ok(compute.includes(all(({ ms }, letter) => `${letter} is busy for ${short(ms)} ms`)), compute);
  assert.ok(compute.endsWith("At each batch-norm they wait for one another’s statistics, 1.50 ms in all."), compute);
  assert.match(add, /adds the gradients in 0\.30 ms, always in the order A, B, C\./);
  assert.ok(update.includes("in 1.10 ms") && update.endsWith(`The loss of the batch was ${step.loss.toFixed(3)}.`), update);
  // Phases fill the second act, and keep their proportions.
  const bars = await page.locator("#one-step-picture .course").evaluate((course) => [...course.querySelectorAll("i")]
    .filter(({ className }) => ["upload", "compute", "exchange", "readback", "wait", "message"].includes(className))
    .map(({ className, style }) => ({ row: Number(style.getPropertyValue("--row")), phase: className, left: parseFloat(style.left), width: parseFloat(style.width) })));
  const span_ms = step.ms - step.data_ms - step.reduce_ms - step.update_ms;
  step.adapters.forEach((part, row) => {
    const own = bars.filter((bar) => bar.row === row);
    assert.deepEqual(own.map(({ phase }) => phase), ["upload", "compute", "exchange", "readback", "wait", "message"]);
    own.forEach(({ phase, left, width }, at) => {
      const ms = part[/** @type {"upload_ms"} */ (`${phase}_ms`)];
      assert.ok(Math.abs(width - (52 * ms) / span_ms) < 0.02, `${letters[row]}, ${phase}: ${width} % for ${ms} of ${span_ms} ms`);
      assert.ok(Math.abs(left - (at === 0 ? 14 : own[at - 1].left + own[at - 1].width)) < 0.03);
    });
  });
  // The lanes show this step, no mean.
  const busy = await page.locator("#lanes .lane-numbers").first().textContent();
  const [first] = step.adapters;
  assert.equal(busy, `${first.rows} rows · busy ${short(first.ms)} · waits ${short(first.exchange_ms + first.wait_ms)} ms`);
  assert.match((await page.locator("#step-ms").textContent()) ?? "", new RegExp(`^step ${short(step.ms)} ms(, every|$)`));
  await leave();
});

test("“Step slowly” pauses training first; a press during the play shows the next step; Continue ends it", async () => {
  const { page, said, leave } = await open("gpus", MOVING);
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 5);
  await page.locator("#step-slowly").press("Enter");
  await page.locator(PLAYED).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), "step-slowly");
  const first = await shown(page);
  await counted(page, first);
  assert.match((await page.locator("#one-step-says").textContent()) ?? "", /took .* ms\. Here it takes 4 s\.$/);
  assert.equal(await page.locator("#run").textContent(), "Continue");
  await page.locator("#step-slowly").press("Enter");
  await page.locator("#one-step-says", { hasText: `Step ${first + 1} took` }).waitFor();
  assert.ok(await page.locator(PLAYED).isVisible());
  await page.click("#run");
  await page.waitForFunction((selector) => !document.querySelector(selector), PLAYED);
  await page.waitForFunction((least) => Number(document.getElementById("fact-step")?.textContent) > least, first + 3);
  assert.equal(await page.locator("#rig.played").count(), 0);
  assert.equal(await page.locator("#status").textContent(), "Training.");
  assert.deepEqual(said, []);
  await leave();
});

test("where less motion is asked for, the step is shown and not played", async () => {
  const { page, leave } = await open("gpus");
  await trainAndPause(page);
  await page.click("#step");
  const step = await shown(page);
  await counted(page, step);
  assert.equal(await page.locator(PLAYED).count(), 0);
  assert.match((await page.locator("#one-step-picture").getAttribute("aria-label")) ?? "", new RegExp(`^Step ${step} of .* ms\\. A: upload .* Host: data`));
  await leave();
});

test("the picture is loaded when it is first in sight, shows newer steps as training goes on, and is empty after a reset", async () => {
  const { page, leave } = await open("gpus", { viewport: { width: 1280, height: 720 } });
  /** @type {string[]} */
  const loaded = [];
  page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
  await train(page, 5);
  assert.ok(!loaded.includes("/step-picture.js"), "it is no part of the start");
  await page.locator("#one-step").scrollIntoViewIfNeeded();
  const says = page.locator("#one-step-says", { hasText: /^Step \d+ took/ });
  await says.waitFor();
  const first = await says.textContent();
  await page.waitForFunction((before) => document.getElementById("one-step-says")?.textContent !== before, first);
  assert.deepEqual(await faults(page), []);
  await page.click("#reset");
  await page.locator("#one-step-says", { hasText: /^Pauses training/ }).waitFor();
  assert.equal(await page.locator("#one-step-picture *").count(), 0);
  assert.ok(await page.locator("#one-step-acts").isHidden());
  await leave();
});

test("without its file it is said that the picture is missing, and steps are computed", async () => {
  const { page, leave } = await open("gpus", {}, { "/step-picture.js": null });
  await trainAndPause(page);
  const { step: before } = await lastStep(page);
  await page.click("#step");
  await page.locator("#one-step-says", { hasText: "could not be loaded" }).waitFor();
  await counted(page, before + 1);
  await leave();
});

test("a card of the tour, by its address, pauses training and shows a step", async () => {
  const { page, said, leave } = await open("gpus", MOVING);
  await openAt(page, "#try-step");
  await page.locator(PLAYED).waitFor();
  await page.locator("[data-card=step] .remark", { hasText: "Training is paused." }).waitFor();
  const box = await page.locator("#one-step-picture").boundingBox();
  assert.ok(box && box.y > 0 && box.y < 720, `at ${box?.y}`);
  assert.equal(await page.evaluate(() => document.body.dataset.state), "paused");
  assert.deepEqual(said, []);
  await leave();
});

test("one adapter, and one of many", async () => {
  const { page, leave } = await open("none");
  await page.locator(".remove").last().click();
  await trainAndPause(page);
  await page.locator("#one-step").scrollIntoViewIfNeeded();
  await page.click("#step");
  await page.locator("#one-step-acts span", { hasText: "A gets all" }).waitFor();
  assert.match((await acts(page))[2], /^There is one adapter, so there is nothing to add\.$/);
  assert.doesNotMatch((await acts(page))[1], /gradients|batch-norm/);
  assert.equal(await page.locator(".course .gradients, .course .down").count(), 0);
  await page.locator("[data-card=more] button:not(.undo)").click();
  await page.locator("#lanes .lane").nth(7).waitFor();
  await page.waitForFunction(() => document.querySelectorAll(".one-step-who .swatch").length === 8);
  assert.match((await acts(page))[0], /^The host cuts a batch of \d+ rows over 8 adapters: each gets \d+( to \d+)?\.$/);
  assert.match((await acts(page))[1], /: each is busy for [\d.]+ to [\d.]+ ms\./);
  assert.match((await acts(page))[2], /always in the same order/);
  assert.deepEqual(await faults(page), []);
  await leave();
});
