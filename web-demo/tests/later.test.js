// Is what the page loads later there when it is asked for, and missed when it can't be loaded? The engine is a stand-in here.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { withStandIn } from "./serve.js";
import { faults, open, train } from "./stand-in.js";

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
  await page.locator("[data-card=stages] button").click();
  await page.locator("[data-card=stages] .remark", { hasText: "On 8 simulated cards" }).waitFor();
  assert.ok(loaded.includes("/stages.js"));
  assert.match(page.url(), /#try-stages$/);
  const fact = async (/** @type {string} */ name) => page.locator("#stages .facts div", { hasText: name }).locator("dd").textContent();
  // 8 micro-batches, 8 stages: of 15 units of 1 ms and 15 of 3 ms, a stage works 8 of each, and the last one 8 of 3 ms.
  const [length, busy] = [15 + 3 * 15, 7 * 8 * 4 + 8 * 3];
  // The first brick of the last stage is its way back; the pass begins with the first of all.
  assert.equal(await fact("bubble"), `${(100 * (1 - busy / (8 * length))).toFixed(0)} %`);
  assert.equal(await fact("samples/s in stages"), Math.round(2000 * Math.sqrt(8)).toLocaleString("en-US"));
  assert.equal(await page.locator("#stages .bricks canvas").count(), 9);
  assert.equal(await page.locator("#stages .bricks canvas").first().getAttribute("aria-label"), `Stage 1 on GeForce RTX 3060 #1, layers \`block0\`: idle for ${(100 * (1 - 32 / length)).toFixed(0)} % of a pass`);
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

test("stages that can't be loaded are said, and the rest of the page goes on", async () => {
  const { page, leave } = await open("gpus", {}, { "/stages.js": null });
  await page.locator("#stages-show:enabled").click();
  await page.locator("#stages-says", { hasText: "could not be loaded" }).waitFor();
  await train(page, 3);
  await leave();
});

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
  assert.deepEqual(said, []);
  await leave();
});

test("no picture is offered before there is an engine", async () => {
  const { page, leave } = await open("silent");
  await page.locator("#export-metrics:disabled").waitFor();
  assert.ok(await page.locator("#export-card").isDisabled());
  await leave();
});

test("a picture that can't be drawn is said, and the rest of the page goes on", async () => {
  const { page, leave } = await open("gpus", {}, { "/card.js": null });
  await page.locator("#export-card:enabled").click();
  await page.locator("#export-says", { hasText: "could not be made" }).waitFor();
  await train(page, 3);
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
