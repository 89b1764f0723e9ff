// Does the demo do what it shows? The built page with the engine itself, in Chromium.
//
// MANYHANDS_WEB_DEMO names the folder that `cargo xtask web build` filled, if it is another than by default.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { after, before, test } from "node:test";
import path from "node:path";
import { FASHION } from "../datasets.js";
import { BATCHES, HOST_GB_S, RIGS } from "../www/cards.js";
import { EXAMPLES } from "../www/examples.js";
import { Pace } from "../www/pace.js";
import { launch, reach, stepsOf, visit } from "./browser.js";
import { ROOT, manyhands } from "./command.js";
import { BUILT, LATER, WASM, serve } from "./serve.js";

/** @import { Browser, Page } from "playwright-core" */
/** @import { EpochLog, Info, RigConfig, Simulated, Staged, StepLog } from "../www/messages.js" */

const MESSAGES = readFileSync(new URL("../www/messages.js", import.meta.url), "utf8");
/** SwiftShader on a busy machine takes its time. */
const PATIENCE_MS = 120_000;
const TEST_ROWS = 360;

/** @typedef {{ adapters: Info[], epochs: EpochLog[], steps: StepLog[], notices: { step: number, message: string }[] }} Metrics */

/** @type {Browser} */
let webgpu;
/** @type {Browser} */
let plain;
/** @type {import("./serve.js").Served} */
let server;
/** @type {import("./serve.js").Served[]} */
const servers = [];

before(async () => {
  assert.ok(existsSync(path.join(BUILT, "index.html")), `${BUILT} holds no demo\n  help: cargo xtask web build`);
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
async function open(browser, query = "", host = "localhost") {
  const visited = await visit(browser, `http://${host}:${server.port}/${query}`);
  visited.page.setDefaultTimeout(PATIENCE_MS);
  await visited.page.locator("#run:enabled").waitFor();
  return visited;
}

/** @param {Page} page */
async function pause(page) {
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused", undefined, { timeout: PATIENCE_MS });
}

/**
 * What a button saves.
 * @param {Page} page
 * @param {string} button
 */
async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(button)]);
  return { name: download.suggestedFilename(), path: await download.path() };
}

/** @param {Page} page @returns {Promise<Metrics>} */
async function metricsOf(page) {
  const file = await saved(page, "#export-metrics");
  return JSON.parse(readFileSync(file.path, "utf8"));
}

/** Names of a type's properties in messages.js. @param {string} type */
function described(type) {
  const comments = MESSAGES.split("/**").filter((text) => text.includes(`@typedef {object} ${type}\n`));
  assert.equal(comments.length, 1);
  return [...comments[0].split("*/")[0].matchAll(/@property \{[^}]*\} (\w+)/g)].map(([, name]) => name).sort();
}

/** @param {number[]} values */
function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
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
    assert.deepEqual(Object.keys(one).sort(), described(name), `${name} is as messages.js describes it`);
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
async function drawsAreRead(page) {
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

/** @param {Page} page */
async function modelIsTheSameNatively(page) {
  const file = await saved(page, "#export-model");
  assert.equal(file.name, "digits.safetensors");
  const { accuracy } = JSON.parse(manyhands("evaluate", file.path, "--json", "--adapters", "cpu"));
  const wrong = Number((await page.locator("#wrong-title").textContent())?.match(/\d+/)?.[0]);
  // The page asks at the pause for the predictions of the weights that it then saves.
  assert.equal(Math.round((1 - accuracy) * TEST_ROWS), wrong);
}

/**
 * Each step is there once, and its shares are its rows.
 * @param {StepLog[]} steps
 */
function assertWhole(steps) {
  assert.deepEqual(steps.map(({ step }) => step), steps.map((_, index) => index + 1), "no step is lost or doubled");
  for (const { step, rows, adapters } of steps) assert.equal(adapters.reduce((sum, share) => sum + share.rows, 0), rows, `step ${step}`);
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

  await page.click("#rigs [data-rig=here]");
  await page.locator("#other-says", { hasText: "that was measured here" }).waitFor();
  assert.deepEqual(said, []);
  await leave();
});

test("the network of the text writes words, stays on its reference through a pulled plug, and the command reads it", async () => {
  const { page, said, leave } = await open(plain, "?data=text&adapters=cpu,cpu,cpu&split=even");
  await page.locator("#written li").first().waitFor();
  await page.click("#run");
  await reach(page, 10);
  await page.locator(".unplug").nth(2).click();
  await page.locator("#log li", { hasText: "was lost" }).waitFor();
  await reach(page, 20);
  assert.ok((await shownDifference(page)) < 1e-4, "as exact as digits");
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

test("two devices and the CPU adapter share each batch", async () => {
  const { page, said, leave } = await open(webgpu, "?adapters=software,software,cpu&split=even&batch_size=48&model=small");
  await page.locator("[data-kind=software]").waitFor();
  await page.locator(".lane .kind", { hasText: "another device on that of A" }).waitFor();
  await page.click("#run");
  await reach(page, 30);
  await pause(page);
  const { steps, adapters } = await metricsOf(page);
  assert.deepEqual(adapters.map(({ kind }) => kind), ["software", "software", "cpu"]);
  for (const { step, rows, adapters: shares } of steps) {
    assert.equal(shares.reduce((sum, share) => sum + share.rows, 0), rows, `step ${step}`);
    assert.deepEqual(shares.map((share) => share.adapter), [0, 1, 2], `step ${step}`);
    assert.ok(Math.max(...shares.map((share) => share.rows)) - Math.min(...shares.map((share) => share.rows)) <= 1, `step ${step}`);
  }
  assert.ok(mean(steps.slice(-5).map(({ loss }) => loss)) < 0.8 * mean(steps.slice(0, 5).map(({ loss }) => loss)), "the loss falls");
  assert.match((await page.locator("#batch").getAttribute("aria-label")) ?? "", /^Batch of \d+ rows\. A .*: \d+, B .*: \d+, C CPU.*: \d+$/);
  assert.deepEqual(said, []);
  await leave();
});

test("disconnecting an adapter in mid-step costs no step, and the loss is that of an undisturbed run", async () => {
  // With statistics of the whole batch nothing but rounding depends on who computes which rows.
  const query = "?adapters=software,software,cpu&split=even&batch_size=48&model=small&batch_norm=whole_batch&seed=3";
  const { page, said, leave } = await open(webgpu, query);
  await page.click("#run");
  await reach(page, 5);
  await page.locator(".unplug").nth(1).click();
  await page.locator("#log li", { hasText: "was lost" }).waitFor();
  const at = await stepsOf(page);
  await reach(page, at + 6);
  await pause(page);
  const disturbed = await metricsOf(page);
  assert.deepEqual(disturbed.steps.map(({ step }) => step), disturbed.steps.map((_, index) => index + 1), "no step is lost or doubled");
  for (const { rows, adapters } of disturbed.steps) {
    assert.equal(adapters.reduce((sum, share) => sum + share.rows, 0), rows);
  }
  assert.ok(disturbed.steps.some(({ adapters }) => !adapters.some(({ adapter }) => adapter === 1)), "the others did without it");

  await page.click("#reset");
  await page.waitForFunction(() => document.getElementById("fact-step")?.textContent === "0");
  await page.locator("#run:enabled").click();
  await reach(page, disturbed.steps.length);
  await pause(page);
  const peaceful = await metricsOf(page);
  disturbed.steps.forEach(({ step, loss }, index) => {
    const other = peaceful.steps[index].loss;
    assert.ok(Math.abs(loss - other) < 0.02 * Math.max(loss, 0.1), `step ${step}: loss ${loss}, without the loss of a device ${other}`);
  });
  assert.deepEqual(said, []);
  await leave();
});

/** A run on one software adapter, some steps on. */
async function trainsAlone() {
  const visited = await open(webgpu, "?adapters=software&model=small&batch_size=32");
  await visited.page.click("#run");
  await reach(visited.page, 4);
  return visited;
}

test("the only adapter is disconnected while training is paused: the CPU continues from the last copy of its weights", async () => {
  const { page, said, leave } = await trainsAlone();
  await pause(page);
  await page.locator(".unplug").click();
  await page.locator("#log li", { hasText: "continuing on the CPU adapter" }).waitFor();
  await page.locator(".lane .name", { hasText: "CPU" }).waitFor();
  assert.match(page.url(), /[?&]adapters=cpu(&|$)/);
  await page.click("#run");
  await reach(page, 6);
  await pause(page);
  const { steps, adapters } = await metricsOf(page);
  assert.deepEqual(steps.map(({ step }) => step), steps.map((_, index) => index + 1), "no step is lost or doubled");
  assert.deepEqual(adapters.map(({ kind }) => kind), ["cpu"]);
  assert.deepEqual(said, []);
  await leave();
});

test("the only adapter is disconnected in mid-step: steps are repeated, and each is kept once", async () => {
  const { page, said, leave } = await trainsAlone();
  await page.locator(".unplug").click();
  await page.locator(".lane .name", { hasText: "CPU" }).waitFor();
  await reach(page, (await stepsOf(page)) + 60);
  await pause(page);
  const { steps, epochs } = await metricsOf(page);
  assert.deepEqual(steps.map(({ step }) => step), steps.map((_, index) => index + 1), "no step is lost or doubled");
  assert.deepEqual(epochs.map(({ epoch }) => epoch), epochs.map((_, index) => index + 1));
  // A fast adapter may have ended an epoch before the click. Then the CPU goes on from the copy of the epoch's end.
  const first = steps.findIndex(({ adapters }) => adapters.some(({ name }) => name.startsWith("CPU")));
  const ends = epochs.map(({ step }) => step);
  assert.ok([0, ...ends].includes(first), `the CPU goes on after step ${first}, but a copy is made at steps 0, ${ends}`);
  assert.ok(steps.slice(first).every(({ adapters }) => adapters.every(({ name }) => name.startsWith("CPU"))), "all later steps are the CPU's");
  assert.equal(await page.locator("#status").getAttribute("data-kind"), "state");
  assert.deepEqual(said, []);
  await leave();
});

/**
 * The demo with something else in the place of some files.
 * @param {Record<string, string | Promise<Buffer>>} replaced
 * @param {string} query
 */
async function changed(replaced, query) {
  const other = await serve([["/", BUILT]], replaced);
  servers.push(other);
  const visited = await visit(webgpu, `http://localhost:${other.port}/${query}`);
  visited.page.setDefaultTimeout(PATIENCE_MS);
  return visited;
}

/** Whether the page was built by `cargo xtask web build --quick`, with its larger engine. */
const isQuick = () => statSync(path.join(BUILT, WASM)).size > 1_500_000;

test("the engine’s first file trains while its second is on its way, and the simulator waits for it", async (t) => {
  if (isQuick()) return t.skip("a quick build calls other functions than those of the list");
  /** @type {(bytes: Buffer) => void} */
  let arrive = () => {};
  /** @type {Promise<Buffer>} */
  const late = new Promise((resolve) => { arrive = resolve; });
  const other = await serve([["/", BUILT]], { [LATER]: late });
  servers.push(other);
  const { page, said, leave } = await visit(plain, `http://localhost:${other.port}/`);
  page.setDefaultTimeout(PATIENCE_MS);
  await page.locator("#run:enabled").click();
  await reach(page, 20);
  assert.equal(await page.locator("#other-says").textContent(), "Simulating…");
  // What is measured waits, too; what is about training does not, as long as nothing before it waits.
  await page.locator("[name=split][value=even]").click();
  await page.locator("#lanes input").first().press("End");
  await pause(page);
  await page.click("#measure");
  arrive(readFileSync(path.join(BUILT, LATER)));
  await page.waitForFunction(() => document.querySelectorAll("#other-lanes .thin-lane").length === 9);
  await page.locator("#measure", { hasText: "Cancel" }).click();
  await page.locator("#measure-says", { hasText: "was cancelled" }).waitFor();
  await drawsAreRead(page);
  assert.deepEqual(said, []);
  await leave();
});

test("without the engine’s second file, or with that of another build, training goes on, and who needs it says so", async (t) => {
  if (isQuick()) return t.skip("a quick build calls other functions than those of the list");
  // Imports a table `later-00000000` from `first`.
  const other_build = Buffer.from([...Buffer.from("\0asm\x01\0\0\0\x02\x1a\x01\x05first\x0elater-00000000\x01\x70\0\0", "latin1")]);
  for (const [file, why] of /** @type {const} */ ([[null, "404"], [Promise.resolve(other_build), "it is of another build"]])) {
    const other = await serve([["/", BUILT]], { [LATER]: file });
    servers.push(other);
    const { page, leave } = await visit(plain, `http://localhost:${other.port}/`);
    page.setDefaultTimeout(PATIENCE_MS);
    await page.locator("#run:enabled").click();
    await page.locator("#other-says", { hasText: `a part of the engine can't be loaded: ${why}` }).waitFor();
    await page.locator("#lanes .unplug").first().click();
    await reach(page, 10);
    await leave();
  }
});

test("an adapter that gives no device is said, and the CPU trains", async () => {
  const engine = readFileSync(path.join(BUILT, "engine.js"), "utf8");
  const refuse = "GPUAdapter.prototype.requestDevice = () => Promise.reject(new Error('no device today'));";
  const { page, leave } = await changed({ "/engine.js": `${engine}\n${refuse}` }, "?adapters=software,cpu&model=small");
  await page.locator("#log li", { hasText: "no device today" }).first().waitFor();
  await page.locator("#status[data-kind=error]", { hasText: "SwiftShader" }).waitFor();
  assert.deepEqual(await page.locator(".lane .name").allTextContents().then((names) => names.map((name) => name.slice(0, 3))), ["CPU"]);
  await page.click("#run");
  await reach(page, 3);
  await leave();
});

test("a digit that is drawn before the engine is there is read once it is", async () => {
  const name = "/engine/manyhands_web_demo_bg.wasm";
  let load = () => {};
  const loaded = new Promise((resolve) => { load = () => resolve(readFileSync(path.join(BUILT, name))); });
  const { page, said, leave } = await changed({ [name]: loaded }, "?adapters=cpu&model=small");
  await page.locator("#pad").press("3");
  await page.locator("#status", { hasText: "Loading the engine" }).waitFor();
  load();
  await page.waitForFunction(() => document.getElementById("verdict")?.textContent !== "–", undefined, { timeout: PATIENCE_MS });
  assert.deepEqual(said, []);
  await leave();
});

test("on an insecure origin the page says why there is no WebGPU, and trains", async () => {
  const { page, said, leave } = await open(webgpu, "", "insecure.test");
  await page.locator("[data-kind=insecure_origin]", { hasText: "secure pages only" }).waitFor();
  await page.click("#run");
  await reach(page, 3);
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

test("adapters come and go, slow down, and get fewer rows than there are adapters", async () => {
  const { page, said, leave } = await open(plain, "?adapters=cpu&model=small");
  await page.click("#run");
  await reach(page, 3);
  await page.getByRole("button", { name: "+ another worker on the CPU" }).click();
  await page.locator(".lane .name").nth(1).waitFor();
  await page.locator(".lane input").nth(1).fill("6");
  const rows = (/** @type {number} */ lane) => page.locator("#lanes .lane-numbers").nth(lane).textContent();
  await page.waitForFunction(() => {
    const [fast, slow] = [...document.querySelectorAll("#lanes .lane-numbers")].map((element) => parseInt(element.textContent ?? "", 10) || 0);
    return fast > 2 * slow;
  }, undefined, { timeout: PATIENCE_MS });
  assert.match((await rows(0)) ?? "", /^\d+ rows · busy/);

  await page.locator("#batch-size").fill("0");
  await page.locator("#batch-size-says", { hasText: "Fewer rows than adapters" }).waitFor();
  const at = await stepsOf(page);
  await reach(page, at + 20);
  await page.locator(".remove").nth(1).click();
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 1);
  await pause(page);
  const { steps } = await metricsOf(page);
  assert.ok(steps.some((step) => step.rows === 1 && step.adapters.length === 1));
  assert.ok(steps.every(({ loss, is_applied }) => Number.isFinite(loss) && is_applied));
  assert.deepEqual(said, []);
  await leave();
});

/**
 * Has a page note when steps were sent: a message is sent right after the last of its steps.
 * @param {Page} page
 */
async function noteSteps(page) {
  await page.addInitScript(() => {
    const sent = /** @type {{ ms: number, clock_ms: number }[]} */ (/** @type {any} */ (window).sent = []);
    const RealWorker = Worker;
    window.Worker = class extends RealWorker {
      /** @param {string | URL} address @param {WorkerOptions} [options] */
      constructor(address, options) {
        super(address, options);
        this.addEventListener("message", ({ data }) => {
          if (data.type !== "steps") return;
          const clock_ms = data.steps.reduce((/** @type {number} */ sum, /** @type {StepLog} */ step) => sum + step.clock_ms, 0);
          sent.push({ ms: data.sent_ms, clock_ms });
        });
      }
    };
  });
}

test("a request for an adapter that has left does nothing, and no rig is larger than it may be", async () => {
  const { page, said, leave } = await open(plain);
  const heard = await page.evaluate(async () => {
    const worker = new Worker("engine.js", { type: "module" });
    /** @type {any[]} */
    const events = [];
    worker.onmessage = ({ data }) => events.push(data);
    worker.postMessage({ wasm: await (await fetch("engine/manyhands_web_demo_bg.wasm")).arrayBuffer() });
    /** @param {(event: any) => boolean} is_it */
    const wait = async (is_it) => {
      while (!events.some(is_it)) await new Promise((done) => { setTimeout(done, 50); });
      return events.filter(is_it).pop();
    };
    const { most_adapters } = await wait(({ type }) => type === "hello");
    const settings = { model: "small", adapters: [0, 0], throttles: [1, 2], batch_size: 16, split: "even", batch_norm: "whole_batch", learning_rate: 0.002, seed: 0, epochs: 0, varied_from: 0 };
    worker.postMessage({ type: "start", paused: true, settings: { ...settings, adapters: new Array(most_adapters + 1).fill(0) } });
    const { message } = await wait(({ type }) => type === "error");
    events.length = 0;
    worker.postMessage({ type: "start", paused: true, settings });
    await wait(({ type, state }) => type === "state" && state === "paused");
    const { members } = await wait(({ type }) => type === "rig");
    for (const type of ["remove", "remove", "throttle", "unplug"]) worker.postMessage({ type, member: members[0].id, ...(type === "throttle" && { factor: 2 }) });
    worker.postMessage({ type: "export" });
    await wait(({ type }) => type === "exported");
    const errors = events.filter(({ type }) => type === "error").map((error) => error.message);
    worker.postMessage({ type: "throttle", member: 99, factor: 2 });
    const { message: unknown } = await wait(({ type, request }) => type === "error" && request === "throttle");
    const left = members.length - (await wait(({ type }) => type === "rig")).members.length;
    worker.terminate();
    return { most_adapters, message, errors, unknown, left };
  });
  assert.deepEqual([heard.most_adapters, heard.errors, heard.left], [16, [], 1]);
  assert.match(heard.message, /has 16 at most, but 17 were asked for/);
  assert.match(heard.unknown, /member 99 is not in the rig/);
  assert.deepEqual(said, []);
  await leave();
});

/** What the clock of a page rounds to. */
const TICK_MS = 0.1;

test("the phases fill each step, and the shown throughput is that of the clock", async () => {
  // A busy page hears of some steps late: the engine writes the time on its messages.
  const stamp = "const send = postMessage; globalThis.postMessage = (message, ...rest) => send({ ...message, sent_ms: performance.now() }, ...rest);";
  const stamped = await serve([["/", BUILT]], { "/engine.js": `${readFileSync(path.join(BUILT, "engine.js"), "utf8")}\n${stamp}` });
  servers.push(stamped);
  const { page, said, leave } = await visit(plain, "about:blank");
  page.setDefaultTimeout(PATIENCE_MS);
  await noteSteps(page);
  await page.goto(`http://localhost:${stamped.port}/?adapters=cpu,cpu&split=even&model=small&batch_size=96`);
  await page.locator("#run:enabled").click();
  await reach(page, 5);
  await page.waitForTimeout(6000);
  await pause(page);
  const { steps } = await metricsOf(page);
  for (const { step, ms, data_ms, reduce_ms, update_ms, adapters } of steps) {
    for (const { upload_ms, compute_ms, readback_ms, wait_ms, message_ms } of adapters) {
      const sum = data_ms + upload_ms + compute_ms + readback_ms + wait_ms + message_ms + reduce_ms + update_ms;
      assert.ok(Math.abs(sum - ms) <= Math.max(0.02 * ms, 2 * TICK_MS), `step ${step}: the phases are ${sum} of ${ms} ms`);
    }
  }
  assert.ok(steps.slice(1).every(({ ms, clock_ms }) => clock_ms >= 0.99 * ms), "no step is shorter by the clock");

  const sent = await page.evaluate(() => /** @type {{ ms: number, clock_ms: number }[]} */ (/** @type {any} */ (window).sent));
  const ratios = sent.flatMap(({ ms }, end) => {
    const begin = sent.findIndex((earlier) => ms - earlier.ms < 4000) - 1;
    if (begin < 0) return [];
    const told_ms = sent.slice(begin + 1, end + 1).reduce((sum, { clock_ms }) => sum + clock_ms, 0);
    return [told_ms / (ms - sent[begin].ms)];
  }).sort((a, b) => a - b);
  const middle = ratios[Math.floor(ratios.length / 2)];
  assert.ok(Math.abs(middle - 1) <= 0.03, `the steps take ${middle} of the time by the clock`);

  const pace = new Pace();
  steps.forEach(({ rows, clock_ms }) => pace.add(rows, clock_ms));
  await page.locator("#fact-speed", { hasText: new RegExp(`^${Math.round(pace.samples_per_s).toLocaleString("en-US")}$`) }).waitFor();
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

test("scaling is measured here, and predicted as the native command predicts it", async () => {
  const { page, said, leave } = await open(plain, "?adapters=cpu,cpu&model=small&batch_size=32");
  await page.click("#measure");
  await page.locator("#measured tbody tr").nth(3).waitFor();
  assert.equal(await page.locator("#measured figure").count(), 2);
  const numbers = (/** @type {string[]} */ texts) => texts.map((text) => text.replaceAll(",", "").split("–").map(Number));
  const speeds = await page.locator("#measured td:nth-child(4)").evaluateAll((cells) => cells.map((cell) => cell.firstChild?.textContent ?? ""));
  const spread = numbers(await page.locator("#measured td:nth-child(4) small").allTextContents());
  assert.equal(spread.length, 4, "two numbers of adapters, two ways");
  numbers(speeds).forEach(([speed], at) => assert.ok(spread[at][0] <= speed && speed <= spread[at][1], `${speed} and ${spread[at]}`));
  assert.match((await page.locator("#scaling-honest").textContent()) ?? "", /share its cores/);

  await page.click("#predict");
  await page.locator("#predicted tbody tr").nth(5).waitFor();
  const shown = await page.locator("#predicted tr.has-limit td:nth-child(3)").allTextContents();
  const table = manyhands("simulate", "examples/rigs/mixed.toml");
  const native = [...table.matchAll(/^\s*[123]\s+\d+\s+([\d.]+)\s/gm)].map(([, ms]) => Number(ms));
  assert.equal(native.length, 6, table);
  shown.forEach((ms, index) => assert.ok(Math.abs(Number(ms) - native[index]) <= 0.51, `${shown} and ${native} ms`));
  assert.deepEqual(said, []);
  await leave();
});

/** The largest difference from the reference that the page shows. @param {Page} page */
async function shownDifference(page) {
  const text = (await page.locator("#reference-says").textContent()) ?? "";
  const [, number] = text.match(/Largest difference: ([\d.e+-]+\d)/) ?? [];
  assert.ok(number, text);
  return Number(number);
}

test("a first visitor sees, without a click: training on, loss falling, eight simulated cards, and the reference", async () => {
  const { page, said, leave } = await visit(plain, "about:blank", { reducedMotion: "no-preference", viewport: { width: 1280, height: 720 } });
  await keep(page, "simulated");
  await page.goto(`http://localhost:${server.port}/`);
  page.setDefaultTimeout(PATIENCE_MS);
  await page.locator("#other-lanes .thin-lane").nth(8).waitFor();
  await reach(page, 30);
  assert.match((await page.locator("#other-speed-up").textContent()) ?? "", /^[\d.]+ ×$/);
  assert.ok((await shownDifference(page)) < 1e-4);
  const loss = parseFloat((await page.locator("#loss-is").textContent()) ?? "");
  assert.ok(loss < 1.5, `loss ${loss}, and 2.3 at first`);

  const native = nativeReport({ preset: "cnn6", batch_size: BATCHES.cnn6, host: { copy_gb_s: HOST_GB_S }, adapters: RIGS[0].adapters });
  /** @type {Simulated} */
  const { report, steps } = await page.evaluate(() => /** @type {any} */ (window).kept.at(-1));
  assert.deepEqual(report, native, "the page's simulation is the command's, to the last digit");
  const [together, alone] = [native.strong[7], native.strong[0]];
  assert.equal(await page.locator("#other-speed-up").textContent(), `${(together.rows_per_s / alone.rows_per_s).toFixed(2)} ×`);
  assert.deepEqual(steps[steps.length - 1].adapters.map(({ rows }) => rows), together.shares);
  assert.deepEqual(said, []);
  await leave();
});

test("stages are those that the command predicts for the same rig and placement", async () => {
  const { page, said, leave } = await visit(plain, "about:blank");
  await keep(page, "staged");
  await page.goto(`http://localhost:${server.port}/`);
  page.setDefaultTimeout(PATIENCE_MS);
  await page.locator("#stages-show:enabled").click();
  await page.locator("#stages tbody tr").nth(15).waitFor();
  /** @type {Staged[]} */
  const answers = await page.evaluate(() => /** @type {any} */ (window).kept);
  for (const [at, preset] of /** @type {const} */ (["digits_cnn", "vgg"]).entries()) {
    const { report, pipelines } = answers[at];
    const { placement, staged } = pipelines[pipelines.length - 1];
    const adapters = RIGS[0].adapters.slice(0, pipelines.length + 1);
    const native = nativeReport({ preset, batch_size: BATCHES[preset], host: { copy_gb_s: HOST_GB_S }, adapters }, { placement, micro_batches: staged.micro_batches });
    assert.deepEqual(staged, native.staged, "the page's stages are the command's, to the last digit");
    assert.deepEqual(report.strong.slice(0, adapters.length), native.strong);
    const line = await page.locator("#stages .pair table").nth(at).locator("tbody tr").nth(adapters.length - 1).locator("td").allTextContents();
    const [copies, stages] = [native.strong[adapters.length - 1].rows_per_s, native.staged.rows_per_s].map((speed) => Math.round(speed).toLocaleString("en-US"));
    assert.deepEqual(line.slice(0, 3), [String(adapters.length), copies, stages]);
  }
  assert.deepEqual(said, []);
  await leave();
});

/**
 * Keeps the engine's own answers of a type, before they are made short for people, in `window.kept`.
 * @param {Page} page
 * @param {string} type
 */
function keep(page, type) {
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

/**
 * What the command predicts.
 * @param {RigConfig} rig
 * @param {{ placement: { layers: string[], adapters: number[] }[], micro_batches: number }} [stages]
 */
function nativeReport({ preset, batch_size, host, adapters }, stages) {
  const folder = mkdtempSync(path.join(tmpdir(), "manyhands-rig-"));
  const file = path.join(folder, "rig.toml");
  const tables = adapters.map((spec) => `[[adapters]]\n${Object.entries(spec).map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join("\n")}`);
  const placed = stages?.placement.map(({ layers, adapters: on }) => `{ layers = ${JSON.stringify(layers)}, adapters = ${JSON.stringify(on)} }`);
  const placement = placed ? `placement = [${placed.join(", ")}]\nmicro_batches = ${stages?.micro_batches}\n` : "";
  writeFileSync(file, `batch_size = ${batch_size}\npreset = "${preset}"\n${placement}[host]\ncopy_gb_s = ${host.copy_gb_s}\n${tables.join("\n")}\n`);
  const report = JSON.parse(manyhands("simulate", file, "--json"));
  rmSync(folder, { recursive: true });
  return report;
}

test("the loss stays on the reference through throttles and pulled plugs, and leaves it with statistics of eight shards", async () => {
  const { page, said, leave } = await open(plain, "?adapters=cpu,cpu,cpu,cpu&split=even");
  // Six times slower, so that all of this happens in few steps: roundings grow from step to step.
  await page.locator(".lane input").nth(0).fill("5");
  await page.locator(".lane input").nth(1).fill("2");
  await page.click("#run");
  await reach(page, 2);
  for (const plug of [3, 2, 1]) {
    await page.locator(".unplug").nth(plug).click();
    await page.waitForFunction((least) => document.querySelectorAll(".lane.away").length >= least, 4 - plug, { timeout: PATIENCE_MS });
    await reach(page, (await stepsOf(page)) + 2);
  }
  await pause(page);
  assert.ok((await stepsOf(page)) < 60, `${await stepsOf(page)} steps`);
  const exact = await shownDifference(page);
  assert.ok(exact < 1e-4, `differs by ${exact}`);
  await page.goto(`http://localhost:${server.port}/?adapters=${Array(8).fill("cpu").join(",")}&batch_norm=per_shard`);
  await page.locator("#run:enabled").click();
  await reach(page, 8);
  await pause(page);
  const shards = await shownDifference(page);
  assert.ok(shards > 1e-2, `differs by ${shards}`);
  assert.deepEqual(said, []);
  await leave();
});
