// Is what the page predicts what the command predicts? The built page with the engine itself.

import assert from "node:assert/strict";
import { test } from "node:test";
import { BATCHES, HOST_GB_S, RIGS } from "../www/cards.js";
import { short } from "../www/dom.js";
import { PATIENCE_MS, reach, stepsOf, visit } from "./browser.js";
import { keep, open, plain, server, shownGaps } from "./built.js";
import { manyhands, predicted, printed, printedOf } from "./command.js";

/** @import { Told } from "../www/messages.js" */

test("scaling is measured here, and predicted as the native command predicts it", async () => {
  const { page, said, leave } = await open(plain, "?adapters=cpu,cpu&model=small&batch_size=32");
  // Beside the speed of all, so that it stands beside that of a simulated rig: in the first screen, and not under the last figure.
  await page.locator("#fact-gain", { hasText: /^measure$/ }).click();
  await page.locator("#measured tbody tr").nth(3).waitFor();
  await page.locator("#fact-gain", { hasText: /^\d+\.\d\d$/ }).waitFor();
  const gain = Number(await page.locator("#fact-gain").textContent());
  assert.equal(await page.locator("#measured figure").count(), 2);
  const numbers = (/** @type {string[]} */ texts) => texts.map((text) => text.replaceAll(",", "").split("–").map(Number));
  const speeds = await page.locator("#measured td:nth-child(4)").evaluateAll((cells) => cells.map((cell) => cell.firstChild?.textContent ?? ""));
  const spread = numbers(await page.locator("#measured td:nth-child(4) small").allTextContents());
  assert.equal(spread.length, 4, "two numbers of adapters, two ways");
  numbers(speeds).forEach(([speed], at) => assert.ok(spread[at][0] <= speed && speed <= spread[at][1], `${speed} and ${spread[at]}`));
  const [one, both] = numbers(speeds).map(([speed]) => speed);
  assert.ok(gain > 0.3 && gain < 1.05 * (both / one), `${gain} times the faster one alone, ${both / one} times the first`);
  assert.match((await page.locator("#scaling-honest").textContent()) ?? "", /share its cores/);

  await page.click("#predict");
  await page.locator("#predicted tbody tr").nth(5).waitFor();
  const shown = await page.locator("#predicted tr.has-limit td:nth-child(3)").allTextContents();
  const table = manyhands("simulate", "examples/rigs/mixed.toml");
  const native = [...table.matchAll(/^\s*[123]\s+\d+\s+([\d.]+)\s/gm)].map(([, ms]) => Number(ms));
  assert.equal(native.length, 6, table);
  shown.forEach((ms, index) => assert.ok(Math.abs(Number(ms) - native[index]) <= 0.51, `${shown} and ${native} ms`));
  // The command reads the rig as it is copied.
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.click("#copy-rig");
  await page.locator("#predict-says", { hasText: "On the clipboard" }).waitFor();
  const copied = printedOf(await page.evaluate(() => navigator.clipboard.readText()));
  const again = [...copied.matchAll(/^\s*[123]\s+\d+\s+([\d.]+)\s/gm)].map(([, ms]) => Number(ms));
  assert.deepEqual(again, native, copied);
  assert.deepEqual(said, []);
  await leave();
});

test("stages are those that the command predicts for the same rig and placement", async () => {
  const { page, said, leave } = await visit(plain, "about:blank");
  await keep(page, "staged");
  await page.goto(`http://localhost:${server.port}/lab/`);
  page.setDefaultTimeout(PATIENCE_MS);
  await page.locator("#stages-show:enabled").click();
  await page.locator("#stages tbody tr").nth(15).waitFor();
  /** @type {Told<"staged">[]} */
  const answers = await page.evaluate(() => /** @type {any} */ (window).kept);
  for (const [at, preset] of /** @type {const} */ (["digits_cnn", "vgg"]).entries()) {
    const { report, pipelines } = answers[at];
    const { placement, staged } = pipelines[pipelines.length - 1];
    const adapters = RIGS[0].adapters.slice(0, pipelines.length + 1);
    const native = predicted({ preset, batch_size: BATCHES[preset], host: { copy_gb_s: HOST_GB_S }, adapters }, { placement, micro_batches: staged.micro_batches });
    assert.deepEqual(staged, native.staged, "the page's stages are the command's, to the last digit");
    assert.deepEqual(report.strong.slice(0, adapters.length), native.strong);
    const line = await page.locator("#stages .pair table").nth(at).locator("tbody tr").nth(adapters.length - 1).locator("td").allTextContents();
    const [copies, stages] = [native.strong[adapters.length - 1].rows_per_s, native.staged.rows_per_s].map((speed) => Math.round(speed).toLocaleString("en-US"));
    assert.deepEqual(line.slice(0, 3), [String(adapters.length), copies, stages]);
  }
  assert.deepEqual(said, []);
  await leave();
});

test("a first visitor sees, without a click: training on, loss falling, eight simulated cards, and the check", async () => {
  const { page, said, leave } = await visit(plain, "about:blank", { reducedMotion: "no-preference", viewport: { width: 1280, height: 720 } });
  await keep(page, "simulated");
  await page.goto(`http://localhost:${server.port}/lab/`);
  page.setDefaultTimeout(PATIENCE_MS);
  await page.locator("#other-lanes .thin-lane").nth(8).waitFor();
  await reach(page, 30);
  assert.match((await page.locator("#other-speed-up").textContent()) ?? "", /^[\d.]+ ×$/);
  assert.ok((await shownGaps(page)).most < 1e-5);
  const loss = parseFloat((await page.locator("#loss-is").textContent()) ?? "");
  assert.ok(loss < 1.5, `loss ${loss}, and 2.3 at first`);

  const native = predicted({ preset: "cnn6", batch_size: BATCHES.cnn6, host: { copy_gb_s: HOST_GB_S }, adapters: RIGS[0].adapters });
  /** @type {Told<"simulated">} */
  const { report, steps } = await page.evaluate(() => /** @type {any} */ (window).kept.at(-1));
  assert.deepEqual(report, native, "the page's simulation is the command's, to the last digit");
  const [together, alone] = [native.strong[7], native.strong[0]];
  assert.equal(await page.locator("#other-speed-up").textContent(), `${(together.rows_per_s / alone.rows_per_s).toFixed(2)} ×`);
  assert.deepEqual(steps[steps.length - 1].adapters.map(({ rows }) => rows), together.shares);
  assert.deepEqual(said, []);
  await leave();
});

test("training goes on while stages are simulated, which takes a while", async () => {
  const { page, said, leave } = await open(plain, "?adapters=cpu,cpu&model=small&batch_size=32");
  await page.click("#run");
  await reach(page, 20);
  await page.click("#stages-show");
  await page.locator("#stages-says", { hasText: "Simulating…" }).waitFor();
  const [before, begin] = [await stepsOf(page), Date.now()];
  await page.locator("#stages tbody tr").nth(15).waitFor();
  const [steps, ms] = [(await stepsOf(page)) - before, Date.now() - begin];
  // In the worker that trains there would be none.
  assert.ok(steps > 5, `${steps} steps in ${ms} ms of simulating`);
  assert.deepEqual(said, []);
  await leave();
});

test("cards that manyhands leaves out, slowed ones and equal parts have the command’s numbers", async () => {
  const { page, said, leave } = await open(plain);
  await page.locator("#other-model").selectOption("mlp");
  await page.locator("#other-decides", { hasText: "manyhands would use 1 of 8" }).waitFor();
  const text = async () => (await page.locator("#other-decides").textContent()) ?? "";
  const rig = { preset: /** @type {const} */ ("mlp"), batch_size: BATCHES.mlp, host: { copy_gb_s: HOST_GB_S }, adapters: RIGS[0].adapters };
  const [, all_ms, best_ms] = printed(rig).match(/^Left out: GeForce RTX 3060 #2, .* With all adapters a step takes ([\d.]+) ms, without ([\d.]+) ms\.$/m) ?? [];
  assert.ok(all_ms, printed(rig));
  assert.ok((await text()).includes(`with all, a step takes ${short(Number(all_ms))} ms, without B, C, D, E, F, G, and H ${short(Number(best_ms))} ms.`), await text());
  assert.equal(await page.locator("#other-speed-up").textContent(), "1.00 ×");

  await page.locator("#other-model").selectOption("cnn6");
  await page.click("#rigs [data-rig=old]");
  await page.locator("#other-hand summary").click();
  await page.locator("#other-slow").fill("4");
  await page.locator("#other-split").selectOption("even");
  const old = RIGS.find(({ id }) => id === "old")?.adapters ?? [];
  const slowed = { ...rig, preset: /** @type {const} */ ("cnn6"), batch_size: BATCHES.cnn6, adapters: [old[0], { ...old[1], slowdowns: [{ from_ms: 0, to_ms: 1e15, factor: 4 }] }] };
  const native = predicted(slowed).even;
  await page.locator("#other-decides", { hasText: "In equal parts all 2 cards take part" }).waitFor();
  await page.locator("#other-ms", { hasText: new RegExp(`^${short(native.step_ms).replace(".", "\\.")}$`) }).waitFor();
  assert.deepEqual(said, []);
  await leave();
});
