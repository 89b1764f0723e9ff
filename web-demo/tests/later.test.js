// Is what the page loads later there when it is asked for, and missed when it can't be loaded? The engine is a stand-in here.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { withStandIn } from "./serve.js";
import { faults, open, train, trainAndPause } from "./stand-in.js";

/** @import { Page } from "playwright-core" */

/** Saves the run as a picture. @param {Page} page */
async function picture(page) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export-card")]);
  assert.equal(download.suggestedFilename(), "manyhands.png");
  return readFile(await download.path());
}

/**
 * What is drawn on a picture: its colours, those of its margins and the gap between its columns, and the paper of the page.
 * @param {Page} page
 * @param {Buffer} png
 */
function drawn(page, png) {
  return page.evaluate(async (bytes) => {
    const image = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: "image/png" }));
    const context = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height }).getContext("2d", { willReadFrequently: true });
    context?.drawImage(image, 0, 0);
    const colours = (/** @type {[number, number, number, number]} */ ...box) => {
      const data = context?.getImageData(...box).data ?? new Uint8ClampedArray();
      return [...new Set(Array.from({ length: data.length / 4 }, (_, at) => `#${[0, 1, 2].map((part) => data[4 * at + part].toString(16).padStart(2, "0")).join("")}`))];
    };
    const { width, height } = image;
    const empty = [colours(0, 0, 40, height), colours(width - 40, 0, 40, height), colours(0, 0, width, 30), colours(0, height - 24, width, 24), colours(534, 220, 48, 295)];
    return { all: colours(0, 0, width, height), bar: colours(50, 152, width - 100, 50), empty: [...new Set(empty.flat())], paper: getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() };
  }, [...png]);
}

test("stages are loaded when they are asked for, and shown as bricks with their bubble, beside copies", async () => {
  const { page, said, leave } = await open("gpus");
  /** @type {string[]} */
  const loaded = [];
  page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
  await page.reload();
  await page.locator("#stages-show:enabled").waitFor();
  assert.ok(!loaded.includes("/stages.js"), "it is no part of the start");
  await page.locator("[data-card=stages] button:not(.undo)").click();
  await page.locator("[data-card=stages] .remark", { hasText: "On 8 simulated cards" }).waitFor();
  assert.ok(loaded.includes("/stages.js"));
  assert.equal(new URL(page.url()).hash, "");
  const fact = async (/** @type {string} */ name) => page.locator("#stages .facts div", { hasText: name }).locator("dd").textContent();
  // 8 micro-batches, 8 stages: of 15 units of 1 ms and 15 of 3 ms, a stage works 8 of each, and the last one 8 of 3 ms.
  const [length, busy] = [15 + 3 * 15, 7 * 8 * 4 + 8 * 3];
  // The first brick of the last stage is its way back; the pass begins with the first of all.
  assert.equal(await fact("bubble"), `${(100 * (1 - busy / (8 * length))).toFixed(0)} %`);
  assert.equal(await fact("samples/s in stages"), Math.round(2000 * Math.sqrt(8)).toLocaleString("en-US"));
  assert.equal(await page.locator("#stages .bricks canvas").count(), 9);
  assert.equal(await page.locator("#stages .bricks canvas").first().getAttribute("aria-label"), `Stage 1 on GeForce RTX 3060 #1, layers \`block0\`: idle for ${(100 * (1 - 32 / length)).toFixed(0)} % of a pass`);
  assert.equal(await page.locator("#stages .bricks .number").first().textContent(), `1.0 MB · idle ${(100 * (1 - 32 / length)).toFixed(0)} %`);
  await page.locator("#stages .memory", { hasText: "A copy takes 4.85 GB on each card, a stage 1.0 MB to 1.0 MB" }).waitFor();
  const inked = await page.locator("#stages .bricks canvas").evaluateAll((all) => all.map((canvas) => {
    const { width, height } = /** @type {HTMLCanvasElement} */ (canvas);
    const pixels = /** @type {HTMLCanvasElement} */ (canvas).getContext("2d")?.getImageData(0, height / 2, width, 1).data ?? [];
    return pixels.filter((value, at) => at % 4 === 3 && value > 0).length / width;
  }));
  assert.ok(Math.abs(inked[0] - 32 / (length + 1)) < 0.05, `${inked[0]} of a lane is bricks`);
  assert.match((await page.locator("#stages-title").textContent()) ?? "", /simulated$/);

  await page.locator("#stages input[type=range]").focus();
  await page.keyboard.press("ArrowLeft");
  await page.locator("#stages output", { hasText: /^4$/ }).waitFor();
  await page.waitForFunction((before) => [...document.querySelectorAll("#stages .facts dd")][2].textContent !== before, `${(100 * (1 - busy / (8 * length))).toFixed(0)} %`);
  await page.locator("#stages select").nth(1).selectOption("two");
  await page.locator("#stages-says", { hasText: "On 2 simulated cards" }).waitFor();
  assert.equal(await page.locator("#stages .bricks canvas").count(), 3);
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(said, []);
  await leave();
});

test("the focus stays in the page: with the stages when their button goes, on the pad when it is cleared", async () => {
  const { page, leave } = await open("gpus");
  const focused = () => page.evaluate(() => document.activeElement?.id || document.activeElement?.closest("section")?.id || "");
  await page.locator("#stages-show:enabled").press("Enter");
  await page.locator("#stages select").first().waitFor();
  assert.equal(await focused(), "stages");
  await page.locator("#pad").press("3");
  await page.locator("#clear").press("Enter");
  assert.equal(await focused(), "pad");
  await leave();
});

/** @type {[what: string, file: string, button: string, line: string, text: string][]} */
const MISSING = [["stages", "/stages.js", "#stages-show", "#stages-says", "could not be loaded"], ["a picture", "/card.js", "#export-card", "#export-says", "could not be made"]];
for (const [what, file, button, line, text] of MISSING) {
  test(`without ${file} what is missing of ${what} is said, and the rest of the page goes on`, async () => {
    const { page, leave } = await open("gpus", {}, { [file]: null });
    await page.locator(`${button}:enabled`).click();
    await page.locator(line, { hasText: text }).waitFor();
    await train(page, 3);
    await leave();
  });
}

test("twelve words are explained where they stand: pointed at, by keyboard and by touch", async () => {
  const { page, said, leave } = await open("gpus");
  /** @type {string[]} */
  const loaded = [];
  page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
  await page.locator("summary", { hasText: "Seed" }).click();
  // A thirteenth belongs to the text.
  const words = page.locator(".word:visible");
  const names = await words.evaluateAll((all) => all.map((word) => /** @type {HTMLElement} */ (word).dataset.word));
  assert.equal(new Set(names).size, 12);
  assert.ok(!loaded.includes("/words.js"));
  for (let at = 0; at < names.length; at += 1) {
    await words.nth(at).focus();
    await page.locator("#word-says:visible").waitFor();
    assert.equal(await words.nth(at).getAttribute("aria-describedby"), "word-says");
    assert.match((await page.locator("#word-says").textContent()) ?? "", /^[A-Z].{20,}\.$/, `${names[at]} has no explanation`);
    const box = await page.locator("#word-says").boundingBox();
    assert.ok(box && box.x >= 0 && box.x + box.width <= 1280, `${names[at]}: ${JSON.stringify(box)}`);
  }
  assert.deepEqual(await faults(page), []);
  await page.keyboard.press("Escape");
  await page.locator("#word-says").waitFor({ state: "hidden" });
  await page.locator("h1").focus();
  await page.locator("[data-word=host]").hover();
  await page.locator("#word-says", { hasText: "keeps the weights" }).waitFor();
  await page.locator("[data-word=loss]").hover();
  await page.locator("#word-says", { hasText: "How wrong" }).waitFor();
  await page.mouse.move(0, 0);
  await page.locator("#word-says").waitFor({ state: "hidden" });
  await page.locator("[data-word=epoch]").click();
  await page.locator("#word-says", { hasText: "1,437" }).waitFor();
  assert.deepEqual(said, []);
  await leave();
});

test("the run as a program: shown when it is asked for, and with the settings that are changed", async () => {
  const { page, said, leave } = await open("gpus");
  /** @type {string[]} */
  const loaded = [];
  page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
  await train(page, 2);
  assert.ok(!loaded.includes("/lines.js"));
  await page.locator("#lines summary").press("Enter");
  await page.locator("#lines-python", { hasText: "make_parallel(model, batch_statistics=\"batch\", seed=0)" }).waitFor();
  await page.locator("#lines-rust", { hasText: ".synchronized())" }).waitFor();
  await page.locator("#lines-keras", { hasText: "DataParallel()" }).waitFor();
  await page.locator("[name=split][value=even]").click();
  await page.locator("[name=batch_norm][value=per_shard]").click();
  await page.locator("#lines-python", { hasText: "make_parallel(model, split=\"even\", seed=0)" }).waitFor();
  await page.locator("#lines-rust", { hasText: "Trainer::new(model, compile)?.split(SplitMode::Even);" }).waitFor();
  assert.equal(await page.locator("#lines-rust", { hasText: "synchronized" }).count(), 0);
  const remarks = () => Promise.all(["python", "rust"].map(async (name) => ((await page.locator(`#lines-${name}`).textContent()) ?? "").match(/^ *(#|\/\/) The page .+$/m)?.[0]));
  const without = "The page trains without end, and varies the digits from epoch 11 on; this program does not.";
  assert.deepEqual(await remarks(), [`# ${without}`, `    // ${without}`]);
  await page.locator("summary", { hasText: "Seed" }).click();
  await page.locator("#epochs").fill("5");
  await page.locator("#epochs").press("Enter");
  await page.locator("#lines-rust", { hasText: "Fit::new(5)" }).waitFor();
  assert.deepEqual(await remarks(), [undefined, undefined]);
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(said, []);
  await leave();
});

test("a run is saved as a picture for previews of links, in the colours of the page", async () => {
  for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
    const { page, said, leave } = await open("gpus", { colorScheme });
    /** @type {string[]} */
    const loaded = [];
    page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
    await page.reload();
    await page.locator("#export-card:enabled").waitFor();
    await train(page, 20);
    assert.ok(!loaded.includes("/card.js"), "it is no part of the start");
    const png = await picture(page);
    assert.ok(loaded.includes("/card.js"));
    assert.equal(png.subarray(0, 8).toString("latin1"), "\x89PNG\r\n\x1a\n");
    assert.deepEqual([png.readUInt32BE(16), png.readUInt32BE(20)], [1200, 630]);
    const { all, bar, empty, paper } = await drawn(page, png);
    assert.ok(all.length > 20, `${all.length} colours`);
    const adapters = await page.evaluate(() => ["a0", "a1", "a2"].map((name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()));
    for (const colour of adapters) assert.ok(bar.includes(colour), `${colour} is not in the bar`);
    assert.deepEqual(empty, [paper]);
    assert.equal(await page.locator("#export-says").textContent(), "Saved as manyhands.png.");
    assert.deepEqual(said, []);
    await leave();
  }
});

test("a picture keeps to its columns before the first step, with sixteen adapters of long names, and of a text", async () => {
  const engine = withStandIn("gpus")["/engine.js"].replaceAll("NVIDIA GeForce RTX 3060", "An adapter with a name that goes on and on 🖐 ".repeat(4)).replaceAll("a GRU of 128 units", "a network with a name that goes on ".repeat(4));
  const { page, said, leave } = await open("gpus", {}, { "/engine.js": engine, "/data/lincoln.txt": "It is the duty of the people." });
  await page.locator("#export-card:enabled").waitFor();
  const keeps = async () => {
    const { empty, paper, all } = await drawn(page, await picture(page));
    assert.deepEqual(empty, [paper]);
    assert.ok(all.length > 20, `${all.length} colours`);
  };
  await keeps();
  const adds = page.locator("#add button");
  for (let at = 3; at < 16; at += 1) await adds.nth(at % 3).press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 16);
  await train(page, 5);
  await keeps();
  await page.selectOption("#data", "text");
  await page.locator("#fact-accuracy-name", { hasText: "bits" }).waitFor();
  await page.waitForFunction(() => Number(document.getElementById("fact-accuracy")?.textContent) > 0);
  await keeps();
  const texts = await textsOf(page);
  assert.match(texts.join("\n"), /· [\d.]+ bits a character in training$/m);
  assert.ok(texts.includes(`${new URL(page.url()).host}/lab/`), "who gets the picture finds the page");
  assert.deepEqual(said, []);
  await leave();
});

test("no picture is offered before there is an engine", async () => {
  const { page, leave } = await open("silent");
  await page.locator("#export-metrics:disabled").waitFor();
  assert.ok(await page.locator("#export-card").isDisabled());
  await leave();
});

test("parts that did not load are said", async () => {
  const { page, leave } = await open("gpus", {}, { "/page.js": null });
  await page.locator("#status", { hasText: "did not load" }).waitFor();
  await leave();
});

test("without the chart library all else works", async () => {
  const { page, leave } = await open("gpus", {}, { "/vendor/uPlot.esm.js": null });
  await train(page, 3);
  await page.locator("#loss-chart", { hasText: "did not load" }).waitFor();
  await leave();
});

/** Trains, loses an adapter, and gives the metrics as they were saved. @param {Page} page */
async function metricsOf(page) {
  await train(page, 30);
  await page.locator(".unplug").nth(1).click();
  await page.waitForFunction(() => document.querySelectorAll("#log .number").length > 0);
  const step = Number(await page.locator("#fact-step").textContent());
  await page.waitForFunction((before) => Number(document.getElementById("fact-step")?.textContent) > before + 5, step);
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export-metrics")]);
  return readFileSync(await download.path(), "utf8");
}

/** Chooses a file to replay. @param {Page} page @param {string} text @param {string} [name] */
function choose(page, text, name = "run.json") {
  return page.locator("#replay-file").setInputFiles({ name, mimeType: "application/json", buffer: Buffer.from(text) });
}

/** What the page sends to the engine from now on. @param {Page} page @returns {Promise<() => Promise<string[]>>} */
async function sentBy(page) {
  await page.evaluate(() => {
    /** @type {string[]} */
    const sent = [];
    Object.assign(globalThis, { sent });
    const post = Worker.prototype.postMessage;
    // @ts-ignore
    Worker.prototype.postMessage = function (request, ...rest) {
      sent.push(request.type);
      Object.assign(globalThis, { engine: this });
      // @ts-ignore
      return post.call(this, request, ...rest);
    };
  });
  return () => page.evaluate(() => /** @type {any} */ (globalThis).sent);
}

/** What is written on the picture of the run. @param {Page} page @returns {Promise<string[]>} */
async function textsOf(page) {
  await page.evaluate(() => {
    /** @type {string[]} */
    const texts = [];
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      texts.push(text);
      return write.call(this, text, ...rest);
    };
    Object.assign(globalThis, { texts });
  });
  await picture(page);
  return page.evaluate(() => /** @type {any} */ (globalThis).texts);
}

/** What is seen of the run. @param {Page} page */
function shownBy(page) {
  return page.evaluate(() => ({
    facts: ["fact-step", "fact-epoch", "fact-accuracy", "fact-speed", "log", "check-says", "wrong-title", "run"].map((id) => document.getElementById(id)?.textContent),
    lanes: [...document.querySelectorAll("#lanes .lane")].map((lane) => lane.textContent), headings: [...document.querySelectorAll("h2")].map((title) => title.textContent),
    banners: [...document.querySelectorAll(".banner")].filter((line) => line.checkVisibility()).map((line) => line.textContent),
    address: location.href, state: document.body.dataset.state, batch: document.getElementById("batch")?.ariaLabel,
  }));
}

test("a saved run is played on the page: nothing is computed, and the engine's run is there again behind it", async () => {
  const first = await open("gpus");
  const text = await metricsOf(first.page);
  const { steps, notices, epochs } = JSON.parse(text);
  const last = steps[steps.length - 1];
  const epoch = epochs[epochs.length - 1];
  await first.leave();

  const { page, said, leave } = await open("gpus");
  /** @type {string[]} */
  const loaded = [];
  page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
  await train(page, 5);
  assert.ok(!loaded.includes("/replay.js"));
  // By keyboard it follows the button before it.
  await page.locator("#copy-link").focus();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "replay-file");
  const sent = await sentBy(page);
  await page.locator("#replay-file").setInputFiles({ name: "run.json", mimeType: "application/json", buffer: Buffer.from(text) });
  await page.locator("[data-kind=replay]", { hasText: "Replay of run.json: nothing is computed here." }).waitFor();
  assert.ok(loaded.includes("/replay.js"));
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "End the replay");
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 8);
  assert.match((await page.locator("#status").textContent()) ?? "", /^Replay, as fast as it was/);
  assert.equal(await page.locator("#rig-title").textContent(), "In run.json replayed");
  assert.deepEqual(await page.locator("h2 .tag:not(.simulated)").allTextContents(), Array(3).fill("replayed"));
  assert.equal(await page.locator("#lanes :is(.slow, .lane-buttons):visible").count(), 0);
  assert.deepEqual(await faults(page), []);
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Enter");
  await page.locator("#status", { hasText: "paused" }).waitFor();
  // The facts follow by 200 ms.
  await page.waitForTimeout(500);
  const at = await page.locator("#fact-step").textContent();
  await page.waitForTimeout(500);
  assert.equal(await page.locator("#fact-step").textContent(), at);
  await page.keyboard.press("Enter");
  await page.locator("#status", { hasText: `step ${last.step} was the last` }).waitFor();
  await page.locator("#fact-step", { hasText: new RegExp(`^${last.step}$`) }).waitFor();
  await page.locator("#fact-accuracy", { hasText: `${(100 * epoch.val_accuracy).toFixed(1)} %` }).waitFor();
  assert.deepEqual(await page.locator("#lanes .name").allTextContents(), last.adapters.map((/** @type {{ name: string }} */ { name }) => name));
  assert.equal(await page.locator("#log li").first().textContent(), `step ${notices[notices.length - 1].step}${notices[notices.length - 1].message}`);
  await page.locator("#loss-is", { hasText: /\d/ }).waitFor();
  const texts = await textsOf(page);
  assert.ok(texts.includes("replayed") && texts.some((line) => line.endsWith("ms a step, from run.json")) && !texts.includes("measured"), texts.join("\n"));
  for (const id of ["run", "step", "reset", "measure", "export-metrics", "replay-file"]) assert.ok(await page.locator(`#${id}`).isDisabled(), id);
  await page.evaluate(() => { location.hash = "#try-even"; });
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(await sent(), ["pause"]);
  assert.equal(new URL(page.url()).search, "");

  await page.locator("[data-kind=replay] button", { hasText: "End" }).click();
  assert.equal(await page.locator("[data-kind=replay]").count(), 0);
  // It was training when the file was chosen.
  await page.waitForFunction(() => document.body.dataset.state === "running");
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 10);
  assert.equal(await page.evaluate(() => document.activeElement?.id), "run");
  assert.equal(await page.locator("#lanes .lane").count(), 3);
  assert.deepEqual((await sent()).slice(0, 2), ["pause", "resume"]);
  assert.deepEqual(said, []);
  await leave();
});

test("behind a replay the page is as it was", async () => {
  const { page, said, leave } = await open("gpus");
  const text = await metricsOf(page);
  await page.locator("#lanes .lane").first().locator(".remove").click();
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 2);
  await page.waitForFunction(() => (document.getElementById("log")?.textContent ?? "").includes("is back"));
  await page.waitForTimeout(500);
  await page.evaluate(() => document.getElementById("banners")?.append(Object.assign(document.createElement("p"), { className: "banner", textContent: "Of this browser." })));
  const before = await shownBy(page);
  const sent = await sentBy(page);
  // A step's rate that differs is followed.
  const metrics = JSON.parse(text);
  metrics.steps.forEach((/** @type {any} */ step, /** @type {number} */ at) => { step.clock_ms = 5000; step.learning_rate = at < 5 ? 0.5 : 0.002; });
  metrics.steps[1].loss = null;
  await choose(page, JSON.stringify(metrics));
  await page.locator("#status", { hasText: /^Replay, \d+\.\d times as fast as it was/ }).waitFor();
  assert.equal(await page.locator("#lanes .lane").count(), 3);
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) >= 3);
  await page.locator("#check-says", { hasText: "gap 0.0000002 (rounding)" }).waitFor();
  assert.equal(await page.locator("#lanes").getAttribute("tabindex"), "0", "what can be scrolled can be reached");
  assert.deepEqual((await shownBy(page)).banners, ["Replay of run.json: nothing is computed here. Pause End the replay"]);
  await page.locator("[data-kind=replay] button", { hasText: "End" }).press("Enter");
  await page.waitForTimeout(500);
  assert.deepEqual(await shownBy(page), before);
  assert.deepEqual(await sent(), []);
  await page.click("#step");
  await page.locator("#fact-step", { hasText: new RegExp(`^${Number(before.facts[0]) + 1}$`) }).waitFor();
  await train(page, Number(before.facts[0]) + 3);
  assert.deepEqual(said, []);
  await leave();
});

test("a run on other data is played with their words, and those of the page come back", async () => {
  const files = { "/data/lincoln.txt": "text".repeat(100) };
  const first = await open("gpus", {}, files);
  await first.page.locator("#data:enabled").selectOption("text");
  await first.page.waitForFunction(() => location.search.includes("data=text"));
  const text = await metricsOf(first.page);
  await first.leave();

  const { page, said, leave } = await open("gpus", {}, files);
  await trainAndPause(page);
  await page.locator("#pictures-says", { hasText: "right after step" }).waitFor();
  await page.waitForTimeout(500);
  const before = await shownBy(page);
  await choose(page, text);
  await page.locator("#fact-accuracy-name", { hasText: "bits/character in training" }).waitFor();
  assert.equal(await page.locator("#loss-unit").textContent(), ", bits a character");
  assert.equal(await page.locator("#data").inputValue(), "text");
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 8);
  assert.deepEqual(await faults(page), []);
  await page.locator("[data-kind=replay] button", { hasText: "End" }).click();
  await page.locator("#pictures-says", { hasText: "right after step" }).waitFor();
  await page.waitForTimeout(500);
  assert.deepEqual(await shownBy(page), before);
  assert.equal(await page.locator("#data").inputValue(), "digits");
  assert.equal(await page.locator("#loss-unit").textContent(), "");
  await train(page, Number(before.facts[0]) + 2);
  assert.deepEqual(said, []);
  await leave();

  const without = await open("gpus", {}, { "/data/lincoln.txt": null });
  await train(without.page, 3);
  await choose(without.page, text);
  await without.page.locator("#export-says", { hasText: "The data of run.json can’t be had" }).waitFor();
  assert.equal(await without.page.locator("#data").inputValue(), "digits");
  assert.equal(await without.page.locator("[data-kind=replay]").count(), 0);
  await without.leave();
});

test("a file that is no metrics is refused, with what it lacks, and changes nothing", async () => {
  const { page, said, leave } = await open("gpus");
  const text = await metricsOf(page);
  await page.waitForFunction(() => (document.getElementById("log")?.textContent ?? "").includes("is back"));
  await page.waitForTimeout(500);
  const before = await shownBy(page);
  const sent = await sentBy(page);
  const changed = (/** @type {(metrics: any) => void} */ change) => {
    const metrics = JSON.parse(text);
    change(metrics);
    return JSON.stringify(metrics);
  };
  for (const [file, expected] of [
    ["a picture", /^run\.json needs to be JSON, but is not: .+\n {2}help: choose a file that the button “Metrics \(\.json\)” of this page saved$/s],
    ["[1, 2]", /^run\.json needs an object, but has a list\n {2}help: /],
    ["{}", /^run\.json needs `settings`, an object, but has none\n {2}help: /],
    [changed((metrics) => { delete metrics.steps[2].clock_ms; }), /^run\.json, entry 3 of `steps`, needs `clock_ms`, a number from 0 up, but has none\n/],
    [changed((metrics) => { metrics.steps[2].adapters[0].rows = "8"; }), /^run\.json, entry 3 of `steps`, an entry of its `adapters`, needs `rows`, a whole number from 0 up, but has "8"\n/],
    [changed((metrics) => { metrics.steps[2].adapters[0].member = 99; }), /needs `member`, an id of `members`, but has 99\n/],
    [changed((metrics) => { metrics.steps.reverse(); }), /^run\.json, entry 2 of `steps`, needs `step`, a number above \d+, that of the entry before, but has \d+\n/],
    [changed((metrics) => { metrics.steps = []; }), /^run\.json needs `steps`, one or more, but has none\n {2}help: train some steps/],
    [changed((metrics) => { metrics.settings.data = "cats"; }), /needs `data`, one of digits, fashion, text, own, but has "cats"\n/],
  ]) {
    await choose(page, String(file));
    await page.waitForFunction((source) => new RegExp(source, "s").test(document.getElementById("export-says")?.textContent ?? ""), /** @type {RegExp} */ (expected).source);
  }
  assert.deepEqual(await shownBy(page), before);
  assert.deepEqual(await sent(), []);
  assert.equal(await page.locator("[data-kind=replay]").count(), 0);
  assert.deepEqual(said, []);
  await leave();
});

test("a replay that can't be loaded is said, and the rest of the page goes on", async () => {
  const { page, leave } = await open("gpus", {}, { "/replay.js": null });
  const text = await metricsOf(page);
  await choose(page, text);
  await page.locator("#export-says", { hasText: "could not be loaded" }).waitFor();
  await train(page, 3);
  await leave();
});

test("what the engine says during a replay waits until it has ended; that it has failed ends it", async () => {
  const { page, leave } = await open("gpus");
  const metrics = JSON.parse(await metricsOf(page));
  for (const step of metrics.steps) step.clock_ms = 5000;
  metrics.notices = [];
  await page.click("#run");
  const sent = await sentBy(page);
  await choose(page, JSON.stringify(metrics));
  await page.locator("[data-kind=replay]").waitFor();
  await page.waitForTimeout(4500);
  assert.equal(await page.locator("#log .number").count(), 0, "the adapter came back meanwhile");
  await page.locator("[data-kind=replay] button", { hasText: "End" }).click();
  await page.locator("#log li", { hasText: "is back" }).waitFor();
  await page.waitForFunction(() => document.body.dataset.state === "running");

  await choose(page, JSON.stringify(metrics));
  await page.locator("[data-kind=replay]").waitFor();
  await page.evaluate(() => /** @type {any} */ (globalThis).engine.dispatchEvent(new ErrorEvent("error", { message: "out of memory", cancelable: true })));
  await page.locator("[data-kind=failed]", { hasText: "out of memory" }).waitFor();
  assert.equal(await page.locator("[data-kind=replay]").count(), 0);
  await page.locator("#log li", { hasText: "is back" }).waitFor();
  assert.ok(await page.locator("#replay-file").isDisabled());
  assert.ok(await page.locator("#export-metrics").isEnabled());
  assert.deepEqual(await sent(), ["pause", "resume", "pause"]);
  await leave();
});
