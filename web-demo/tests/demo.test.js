// Does the demo do what it shows: does it learn what is chosen, and say what it is? The built page with the engine itself.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import path from "node:path";
import { FASHION } from "../datasets.js";
import { PATIENCE_MS, reach, stepsOf } from "./browser.js";
import { assertWhole, drawsAreRead, mean, metricsOf, open, pause, plain, saved, shownGaps, TEST_ROWS } from "./built.js";
import { manyhands, ROOT } from "./command.js";
import { BUILT } from "./serve.js";

/** @import { Page } from "playwright-core" */

const MESSAGES = readFileSync(new URL("../www/messages.d.ts", import.meta.url), "utf8");

/** Names of a type's properties in messages.d.ts. @param {string} type */
function described(type) {
  const [, ...declarations] = MESSAGES.split(`export type ${type} = {`);
  assert.equal(declarations.length, 1);
  return [...declarations[0].split("export type")[0].matchAll(/^ +(\w+)\??: /gm)].map(([, name]) => name).sort();
}

test("without an adapter: the page says so, and the CPU adapter learns to read digits", async () => {
  const { page, said, leave } = await open(plain);
  await page.locator("[data-kind=no_adapter]", { hasText: "runs on the CPU adapter" }).waitFor();
  assert.match((await page.locator(".lane .name").first().textContent()) ?? "", /^CPU/);
  await page.click("#run");
  await page.waitForFunction(
    () => parseFloat(document.getElementById("fact-accuracy")?.textContent ?? "") >= 97 && Number(document.getElementById("fact-epoch")?.textContent) > 1,
    undefined, { timeout: PATIENCE_MS },
  );
  await pause(page);

  const { steps, epochs, adapters } = await metricsOf(page);
  for (const [name, one] of Object.entries({ StepLog: steps[0], AdapterLog: steps[0].adapters[0], EpochLog: epochs[0], Info: adapters[0] })) {
    assert.deepEqual(Object.keys(one).sort(), described(name), `${name} is as messages.d.ts describes it`);
  }
  assert.deepEqual(steps.map(({ step }) => step), steps.map((_, at) => at + 1), "each step is there once");
  assert.ok(mean(steps.slice(-20).map(({ loss }) => loss)) < 0.2 * mean(steps.slice(0, 5).map(({ loss }) => loss)));
  const wrong = Number((await page.locator("#wrong-title").textContent())?.match(/\d+/)?.[0]);
  await page.locator("#fact-accuracy", { hasText: `${(100 * (1 - wrong / TEST_ROWS)).toFixed(1)} %` }).waitFor();

  await drawsAreRead(page);
  await modelIsTheSameNatively(page);
  assert.deepEqual(said, []);
  await leave();
});

/** @param {Page} page */
async function modelIsTheSameNatively(page) {
  const file = await saved(page, "#export-model");
  assert.equal(file.name, "digits.safetensors");
  const { accuracy } = JSON.parse(manyhands("evaluate", file.path, "--json", "--adapters", "cpu"));
  const wrong = Number((await page.locator("#wrong-title").textContent())?.match(/\d+/)?.[0]);
  // The page asks at the pause for the predictions of the weights that it then saves.
  assert.equal(Math.round((1 - accuracy) * TEST_ROWS), wrong);
}

/** What the command says of an exported model. @param {Page} page @param {string} name @param {string} data */
async function evaluated(page, name, data) {
  const file = await saved(page, "#export-model");
  assert.equal(file.name, name);
  return JSON.parse(manyhands("evaluate", file.path, "--data", data, "--json", "--adapters", "cpu"));
}

test("clothes are learned once they are chosen, and the command finds the same accuracy", async (context) => {
  if (!existsSync(path.join(BUILT, "data/fashion.bin"))) {
    assert.ok(process.env.MANYHANDS_ALLOW_SKIP, "the page was built without clothes\n  help: install `dataset-fashion-mnist` and build it again");
    return context.skip("the page was built without clothes");
  }
  const { page, said, leave } = await open(plain, "?adapters=cpu,cpu");
  await page.locator("#data").selectOption("fashion");
  await page.waitForFunction(() => location.search.includes("data=fashion"));
  await page.locator("#model").selectOption("small");
  await page.locator("#run:enabled", { hasText: "Start" }).click();
  await reach(page, 10);
  await page.locator(".unplug").nth(1).click();
  await page.locator("#log li", { hasText: "was lost" }).waitFor();
  await reach(page, 60);
  await pause(page);
  const { steps } = await metricsOf(page);
  assertWhole(steps);
  assert.equal(steps[0].batches, Math.ceil(6000 / 64));
  const [right, all] = ((await page.locator("#pictures-says").textContent()) ?? "").replaceAll(",", "").match(/\d+/g)?.map(Number) ?? [];
  assert.equal(all, 1000);
  assert.ok(right > 650, `${right} of ${all} after ${steps.length} steps`);
  await page.locator("#wrong li", { hasText: /^[\w -]+, read as [\w -]+$/ }).first().waitFor();
  // The command tests on all ten thousand, in 256 shades.
  const { accuracy } = await evaluated(page, "fashion.safetensors", FASHION);
  assert.ok(Math.abs(accuracy - right / all) < 0.04, `${accuracy} natively, ${right / all} in the page`);

  assert.ok((await shownGaps(page)).most < 1e-5, "as exact as digits");
  await page.click("#rigs [data-rig=two]");
  assert.equal(await page.locator("#other-model").inputValue(), "here");
  await page.locator("#other-says", { hasText: "against a clock" }).waitFor();
  assert.deepEqual(said, []);
  await leave();
});

test("the network of the text writes words, is that of one adapter alone through a pulled plug, and the command reads it", async () => {
  const { page, said, leave } = await open(plain, "?data=text&adapters=cpu,cpu,cpu&split=even");
  await page.locator("#written li").first().waitFor();
  await page.click("#run");
  await reach(page, 10);
  await page.locator(".unplug").nth(2).click();
  await page.locator("#log li", { hasText: "was lost" }).waitFor();
  await reach(page, 20);
  assert.ok((await shownGaps(page)).most < 1e-5, "as exact as digits");
  // Less than 2.4 nats are far below the 3.02 of the frequencies of characters.
  await page.waitForFunction(() => parseFloat(document.getElementById("fact-accuracy")?.textContent ?? "") < 3.45, undefined, { timeout: PATIENCE_MS });
  await page.locator("#temperature").fill("0.3");
  const step = await stepsOf(page);
  await page.waitForFunction((at) => parseInt(document.querySelector("#written .number")?.textContent?.replace(/\D/g, "") ?? "") > at + 8, step, { timeout: PATIENCE_MS });
  await pause(page);
  const { steps } = await metricsOf(page);
  assertWhole(steps);
  const lines = await page.locator("#written q").allTextContents();
  assert.ok(lines.every((line) => line.length === 60), JSON.stringify(lines));
  assert.match(lines.slice(0, 2).join(" "), / (the|of|and|to|in|that) /, "words, at a low temperature");
  assert.doesNotMatch(lines[lines.length - 1], / (the|of|and) /, "noise at first");
  const { loss } = await evaluated(page, "text.safetensors", path.join(ROOT, "web-demo/data/lincoln.txt"));
  const late = mean(steps.slice(-20).map((log) => log.loss));
  assert.ok(Math.abs(loss - late) < 0.15, `${loss} natively over the whole text, ${late} of late`);
  assert.deepEqual(said, []);
  await leave();
});

test("from the epoch that is asked for, training pictures are varied, with drawings among them, which is said", async () => {
  const { page, said, leave } = await open(plain, "?adapters=cpu&model=small&batch_size=512&varied_from=2");
  await page.click("#run");
  await page.locator("#log li", { hasText: "drawings are among them" }).waitFor();
  await reach(page, 9);
  await pause(page);
  const { steps } = await metricsOf(page);
  // 1,437 rows, and 136 drawn ones more.
  assert.deepEqual(steps.slice(0, 7).map(({ batches, rows }) => [batches, rows]), [[3, 512], [3, 512], [3, 413], [4, 512], [4, 512], [4, 512], [4, 37]]);
  assert.deepEqual(said, []);
  await leave();
});

test("the address restores a run's settings, and follows what is changed", async () => {
  const { page, said, leave } = await open(plain, "?adapters=cpu,cpu&model=small&batch_size=50&split=even&batch_norm=whole_batch&seed=7&epochs=2");
  assert.equal(await page.locator(".lane .name").count(), 2);
  assert.equal(await page.locator("#batch-size-is").textContent(), "50");
  assert.ok(await page.locator("[name=split][value=even]").isChecked());
  assert.ok(await page.locator("[name=batch_norm][value=whole_batch]").isChecked());
  assert.equal(await page.locator("#model").inputValue(), "small");
  assert.equal(await page.locator("#seed").inputValue(), "7");
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "finished", undefined, { timeout: PATIENCE_MS });
  const first = await metricsOf(page);
  assert.equal(first.epochs.length, 2);
  assert.equal(first.steps[0].rows, 50);

  await page.locator("[name=split][value=learned]").check();
  assert.doesNotMatch(page.url(), /split/);
  await page.locator("[name=split][value=even]").check();
  await page.reload();
  await page.locator("#run:enabled").click();
  await page.waitForFunction(() => document.body.dataset.state === "finished", undefined, { timeout: PATIENCE_MS });
  const second = await metricsOf(page);
  assert.deepEqual(second.steps.map(({ loss }) => loss), first.steps.map(({ loss }) => loss), "the same address gives the same run");
  assert.deepEqual(said, []);
  await leave();
});
