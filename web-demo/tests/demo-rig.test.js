// Do adapters share each batch, come and go, and cost no step when they are lost? The built page with the engine itself.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import path from "node:path";
import { short } from "../www/dom.js";
import { Pace } from "../www/pace.js";
import { PATIENCE_MS, reach, stepsOf, visit } from "./browser.js";
import { mean, metricsOf, open, pause, plain, server, serveWith, shownGaps, webgpu } from "./built.js";
import { BUILT } from "./serve.js";

/** @import { Page } from "playwright-core" */
/** @import { StepLog } from "../www/messages.js" */

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
  // The lost one leaves the address by the next message.
  await page.waitForFunction(() => /[?&]adapters=cpu(&|$)/.test(location.search));
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
    const worker = new Worker("../engine.js", { type: "module" });
    /** @type {any[]} */
    const events = [];
    worker.onmessage = ({ data }) => events.push(data);
    worker.postMessage({ module: await WebAssembly.compile(await (await fetch("../engine/manyhands_web_demo_bg.wasm")).arrayBuffer()) });
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
  const stamped = await serveWith({ "/engine.js": `${readFileSync(path.join(BUILT, "engine.js"), "utf8")}\n${stamp}` });
  const { page, said, leave } = await visit(plain, "about:blank");
  page.setDefaultTimeout(PATIENCE_MS);
  await noteSteps(page);
  await page.goto(`http://localhost:${stamped.port}/lab/?adapters=cpu,cpu&split=even&model=small&batch_size=96`);
  await page.locator("#run:enabled").click();
  await reach(page, 5);
  await page.waitForTimeout(6000);
  await pause(page);
  const { steps } = await metricsOf(page);
  for (const { step, ms, data_ms, reduce_ms, update_ms, adapters } of steps) {
    for (const { upload_ms, compute_ms, exchange_ms, readback_ms, wait_ms, message_ms } of adapters) {
      const sum = data_ms + upload_ms + compute_ms + exchange_ms + readback_ms + wait_ms + message_ms + reduce_ms + update_ms;
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

/** Data with the settings of their run; text has no batch normalization. @type {[data: string, query: string, skip?: boolean][]} */
const COMPARED = [["digits", "&model=small"], ["fashion", "&data=fashion&model=small", !process.env.MANYHANDS_SLOW], ["text", "&data=text", !process.env.MANYHANDS_SLOW], ["a text's GPT", "&data=text&model=gpt", !process.env.MANYHANDS_SLOW]];
for (const [data, query, skip] of COMPARED) test(`${data}: one adapter alone finds the loss of each compared step through throttles and pulled plugs, and another with statistics of each shard`, { skip }, async () => {
  const { page, said, leave } = await open(plain, `?adapters=cpu,cpu,cpu,cpu,cpu&split=even${query}`);
  const is_text = query.includes("data=text");
  const patience = is_text ? 5 * PATIENCE_MS : PATIENCE_MS;
  await page.locator(".lane input").nth(0).fill("5");
  await page.locator(".lane input").nth(1).fill("2");
  await page.click("#run");
  await reach(page, 2);
  for (const plug of [4, 3, 2]) {
    await page.locator(".unplug").nth(plug).click();
    // Those before may have come back meanwhile.
    await page.waitForFunction((at) => document.querySelectorAll(".lane")[at].classList.contains("away"), plug, { timeout: PATIENCE_MS });
    await reach(page, (await stepsOf(page)) + 2);
  }
  await page.locator(".lane input").nth(0).fill("0");
  await page.locator(".lane input").nth(1).fill("0");
  // Behind any length of training: a run compared with a run would have drifted apart long before.
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent?.replaceAll(",", "")) >= 1000, undefined, { timeout: patience });
  const exact = await shownGaps(page);
  assert.ok(exact.most < 1e-5 && exact.count > 20, JSON.stringify(exact));
  await pause(page);
  if (is_text) {
    assert.deepEqual(said, []);
    return leave();
  }
  const from = await stepsOf(page);
  await page.locator("[name=batch_norm][value=per_shard]").check();
  await page.click("#step");
  await reach(page, from + 1);
  const { steps } = await metricsOf(page);
  // The loss is small by now, and the gap is a part of it.
  const gaps = steps.filter(({ step }) => step > from).map(({ loss, alone }) => (alone ? Math.abs(alone.loss - loss) / loss : 0));
  assert.ok(Math.max(0, ...gaps) > 1e-3, `from step ${from} on: ${gaps}`);
  await page.goto(`http://localhost:${server.port}/lab/?adapters=${Array(8).fill("cpu").join(",")}&batch_norm=per_shard&data=${data}`);
  await page.locator("#run:enabled").click();
  await reach(page, 8);
  await pause(page);
  const shards = await shownGaps(page);
  // The page shows one digit: what is 0.01 there may be less.
  assert.ok(shards.most > 1e-3, JSON.stringify(shards));
  assert.deepEqual(said, []);
  await leave();
});

test("a step by itself is shown as it was measured: its rows, its times and its loss", async () => {
  const { page, said, leave } = await open(plain, "?adapters=cpu,cpu&model=small&batch_size=64");
  await page.click("#run");
  await reach(page, 5);
  await pause(page);
  await page.click("#step");
  await page.locator("#one-step-acts span", { hasText: "The loss of the batch was" }).waitFor();
  const { steps } = await metricsOf(page);
  const step = steps[steps.length - 1];
  const time = (/** @type {number} */ ms) => (ms > 0 ? `${short(ms)} ms` : "less time than the clock tells");
  const [a, b] = step.adapters;
  const [cut, compute, add, update] = await page.locator("#one-step-acts span").allTextContents();
  assert.equal(cut, `The host cuts a batch of ${step.rows} rows: A gets ${a.rows} and B gets ${b.rows}.`);
  assert.ok(compute.includes(`A is busy for ${short(a.ms)} ms and B is busy for ${short(b.ms)} ms. At each batch-norm they wait`), compute);
  assert.ok(add.includes(`in ${time(step.reduce_ms)}, always`), add);
  assert.ok(update.includes(`in ${time(step.update_ms)}, and`) && update.endsWith(`was ${step.loss.toFixed(3)}.`), update);
  await page.locator("#one-step-says", { hasText: `Step ${step.step} took ${short(step.ms)} ms.` }).waitFor();
  assert.deepEqual(said, []);
  await leave();
});
