// Is the page what it should be on machines that the test machine is not: with graphics cards, without an engine,
// without scripts? The engine is a stand-in here.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, visit } from "./browser.js";
import { WRITTEN, serve } from "./serve.js";

/** @import { Browser, Page } from "playwright-core" */
/** @import { Served } from "./serve.js" */

const WASM = "/engine/manyhands_web_demo_bg.wasm";
const MOCK = readFileSync(new URL("mock-engine.js", import.meta.url), "utf8");
const AXE = readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

/** @type {Browser} */
let browser;
/** @type {Served[]} */
const servers = [];

before(async () => { browser = await launch("no adapter"); });
after(async () => {
  await browser.close();
  servers.forEach((server) => server.close());
});

/**
 * Opens the page with a stand-in of a kind.
 * @param {string} variant
 * @param {import("playwright-core").BrowserContextOptions} [options]
 * @param {Record<string, string | null>} [replaced]
 */
async function open(variant, options = {}, replaced = {}) {
  const server = await serve(WRITTEN, { [WASM]: "", "/engine.js": `globalThis.VARIANT = "${variant}";\n${MOCK}`, ...replaced });
  servers.push(server);
  return visit(browser, `http://localhost:${server.port}/`, options);
}

/**
 * Starts training, and waits until it is past a step.
 * @param {Page} page
 * @param {number} step
 */
async function train(page, step) {
  await page.click("#run");
  await page.waitForFunction((least) => Number(document.getElementById("fact-step")?.textContent) > least, step);
}

/** Everything on the page in use: training, an adapter lost, a digit drawn, both reports. @param {Page} page */
async function useAll(page) {
  await train(page, 30);
  await page.locator(".unplug").nth(1).click();
  await page.locator("#pad").press("3");
  await page.click("#measure");
  await page.click("#predict");
  await page.locator("summary").click();
  await page.locator("#predicted table").first().waitFor();
  await page.click("#stages-show");
  await page.locator("#stages table tbody tr").nth(15).waitFor();
  await page.locator("#log .number").first().waitFor();
}

/** What axe finds of weight. @param {Page} page */
async function faults(page) {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const { violations } = await /** @type {any} */ (window).axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
    return violations
      .filter((/** @type {any} */ it) => it.impact === "serious" || it.impact === "critical")
      .flatMap((/** @type {any} */ it) => it.nodes.map((/** @type {any} */ node) => `${it.id}: ${node.html} ${node.failureSummary}`));
  });
}

test("training starts by itself, but not where the system asks for less motion or less data", async () => {
  const { page, said, leave } = await open("gpus", { reducedMotion: "no-preference" });
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 3);
  assert.equal(await page.locator("#run").textContent(), "Pause");
  assert.deepEqual(said, []);
  await leave();

  const calm = await open("gpus");
  await calm.page.locator("#run:enabled", { hasText: "Start" }).waitFor();
  await calm.leave();

  const saving = await visit(browser, "about:blank", { reducedMotion: "no-preference" });
  await saving.page.addInitScript(() => Object.defineProperty(Navigator.prototype, "connection", { get: () => ({ saveData: true }) }));
  const server = await serve(WRITTEN, { [WASM]: "", "/engine.js": MOCK });
  servers.push(server);
  await saving.page.goto(`http://localhost:${server.port}/`);
  await saving.page.locator("#run:enabled", { hasText: "Start" }).waitFor();
  await saving.leave();
});

test("the engine's code is asked for once, and before any script runs", async () => {
  const { page, said, leave } = await open("gpus");
  await page.locator("#run:enabled").waitFor();
  /** @type {string[]} */
  const asked = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.reload();
  await page.locator("#run:enabled").waitFor();
  assert.equal(asked.filter((name) => name === WASM).length, 1, asked.join(" "));
  assert.ok(asked.indexOf(WASM) < asked.indexOf("/link.js"), asked.join(" "));
  assert.deepEqual(said, []);
  await leave();
});

test("an engine whose code is not there is said", async () => {
  const { page, leave } = await open("silent", {}, { [WASM]: null });
  await page.locator("[data-kind=failed]", { hasText: "the engine can't be loaded: 404" }).waitFor();
  await leave();
});

test("training has no end unless one is asked for", async () => {
  const { page, leave } = await open("gpus");
  await page.locator("summary").click();
  assert.equal(await page.locator("#epochs").inputValue(), "0");
  await page.locator("#batch-size").fill("17");
  await train(page, 3);
  assert.match((await page.locator("#fact-epoch").textContent()) ?? "", /^\d+$/);
  await page.locator("#epochs").fill("1");
  await page.locator("#epochs").press("Tab");
  await page.waitForFunction(() => document.body.dataset.state === "finished");
  assert.match(page.url(), /epochs=1/);
  await leave();
});

test("the first screen holds cause and effect: the rig, a simulated one, the curves and the rules", async () => {
  const { page, said, leave } = await open("none", { viewport: { width: 1280, height: 720 }, reducedMotion: "no-preference" });
  await page.locator("#other-lanes .thin-lane").nth(8).waitFor();
  assert.ok((await page.locator(".masthead").evaluate((element) => element.getBoundingClientRect().bottom)) <= 100);
  const wholly = ["#batch", "#lanes", "#host-lane", "#other-facts", "#other-lanes", "#loss-chart", "#reference-says", "#speed-chart", "#batch-size", "[name=split] >> nth=0", "#model"];
  for (const part of wholly) {
    const box = await page.locator(part).boundingBox();
    assert.ok(box && box.y > 0 && box.y + box.height <= 720, `${part} ends at ${box && box.y + box.height}`);
  }
  assert.match((await page.locator("#other-title").textContent()) ?? "", /simulated$/);
  assert.deepEqual(said, []);
  await leave();
});

test("on a phone a small split stays in sight", async () => {
  const { page, leave } = await open("gpus", { viewport: { width: 390, height: 844 } });
  await train(page, 3);
  await page.locator("#speed-chart").scrollIntoViewIfNeeded();
  const box = await page.locator("#small-batch").boundingBox();
  assert.ok(box && box.y >= 0 && box.y < 200, `at ${box?.y}`);
  // What a link leads to is not covered by it.
  const bar = await page.locator(".transport").boundingBox();
  const padding = await page.evaluate(() => parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop));
  assert.ok(bar && padding >= bar.height, `${padding} and ${bar?.height}`);
  await leave();
});

test("a click shows another simulated rig", async () => {
  const { page, said, leave } = await open("gpus");
  const lanes = page.locator("#other-lanes .thin-lane");
  await lanes.nth(8).waitFor();
  await page.getByRole("button", { name: "This machine" }).click();
  await page.locator("#other-says", { hasText: "Start training first" }).waitFor();
  await train(page, 3);
  for (const [name, count] of /** @type {const} */ ([["2 like cards", 2], ["This machine", 3], ["Your own", 3], ["A fast and an old card", 2]])) {
    await page.getByRole("button", { name }).click();
    await page.waitForFunction((wanted) => document.querySelectorAll("#other-lanes .thin-lane").length === wanted + 1, count);
    assert.equal(await page.locator("#rigs [aria-pressed=true]").textContent(), name);
  }
  await page.getByRole("button", { name: "A fast and an old card" }).hover();
  const [ink, paper] = await page.locator("#rigs [aria-pressed=true]").evaluate((button) => [getComputedStyle(button).color, getComputedStyle(button).backgroundColor]);
  assert.notEqual(ink, paper, "the chosen button can be read while it is pointed at");
  assert.match((await page.locator("#other-batch").getAttribute("aria-label")) ?? "", /^Batch of 512 rows. A GeForce RTX 4070: 256/);
  assert.deepEqual(said, []);
  await leave();
});

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

test("a chart can be read at a point", async () => {
  const { page, leave } = await open("gpus");
  await train(page, 40);
  await page.locator("#loss-chart .u-over").hover();
  await page.locator("#loss-is", { hasText: /^step \d+: \d/ }).waitFor();
  await page.locator("h1").hover();
  await page.locator("#loss-is", { hasText: /^\d/ }).waitFor();
  await leave();
});

test("a card of the tour acts, watches, and says what it measured", async () => {
  const { page, said, leave } = await open("gpus", { reducedMotion: "no-preference" });
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 5);
  const says = (/** @type {string} */ id) => page.locator(`[data-card=${id}] .remark`);
  await page.locator("[data-card=slow] button").click();
  await says("slow").filter({ hasText: /^A step took [\d.]+ ms, now [\d.]+ ms\. B gets \d+ rows, before \d+\.$/ }).waitFor();
  assert.equal(await page.locator(".lane input").nth(1).getAttribute("aria-valuetext"), "slowed 4 times");
  await page.locator("[data-card=even] button").click();
  await says("even").filter({ hasText: "A step took" }).waitFor();
  assert.ok(await page.locator("[name=split][value=even]").isChecked());
  await page.locator("[data-card=plug] button").click();
  await says("plug").filter({ hasText: "No step was lost" }).waitFor();
  await page.locator("#log li", { hasText: "was lost" }).waitFor();
  await page.locator("[data-card=more] button").click();
  await says("more").filter({ hasText: "on 10 adapters" }).waitFor();
  assert.match(page.url(), /#try-more$/);
  assert.match((await page.locator("#status").textContent()) ?? "", /on 10 adapters/);
  await page.locator("h1").scrollIntoViewIfNeeded();
  const rules = await page.locator(".rules").boundingBox();
  assert.ok(rules && rules.y < 900, `ten lanes leave the rules at ${rules?.y}`);
  const faulty = await faults(page);
  assert.deepEqual(faulty, []);
  assert.deepEqual(said, []);
  await leave();
});

test("the address of a card has it done", async () => {
  const { page, leave } = await open("gpus");
  await page.goto(`${page.url()}#try-shards`);
  await page.reload();
  await page.locator("[data-card=shards] .remark", { hasText: "Largest difference" }).waitFor();
  assert.ok(await page.locator("[name=batch_norm][value=per_shard]").isChecked());
  await leave();
});

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
  const words = page.locator(".word");
  const names = await words.evaluateAll((all) => all.map((word) => /** @type {HTMLElement} */ (word).dataset.word));
  assert.equal(new Set(names).size, 12);
  assert.ok(!loaded.includes("/words.js"));
  await page.locator("summary").click();
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

test("opening that takes long shows for how long", async () => {
  const { page, leave } = await open("slow to open");
  await page.locator("#status", { hasText: /^Opening 3 adapters and compiling shaders, for \d s so far…$/ }).waitFor();
  await page.locator("#status", { hasText: "Ready" }).waitFor();
  await leave();
});

for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
  test(`axe finds nothing serious in the ${colorScheme} scheme`, async () => {
    const { page, said, leave } = await open("gpus", { colorScheme, reducedMotion: "reduce" });
    await useAll(page);
    assert.deepEqual(await faults(page), []);
    assert.deepEqual(said, []);
    await page.evaluate(() => document.querySelector("main")?.append(document.createElement("button")));
    assert.match(String(await faults(page)), /button-name/, "a planted fault is found: the check checks");
    await leave();
  });
}

test("nothing is wider than the screen, from the smallest phone on", async () => {
  const { page, said, leave } = await open("gpus", { hasTouch: true });
  await useAll(page);
  for (const width of [320, 390, 768, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    await page.waitForTimeout(300);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
    const small = await page.evaluate(() => [...document.querySelectorAll("button, input:not([type=radio]), select, summary")]
      .filter((element) => !element.matches(".word") && element.checkVisibility() && element.getBoundingClientRect().height < 24)
      .map((element) => element.outerHTML));
    assert.deepEqual(small, [], "what is pressed is 24 pixels high at least, but for words within text");
  }
  assert.deepEqual(said, []);
  await leave();
});

test("everything can be reached and worked by keyboard", async () => {
  const { page, leave } = await open("gpus");
  await page.locator("#run:enabled").waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.className), "skip");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "run");
  assert.notEqual(await page.evaluate(() => getComputedStyle(/** @type {Element} */ (document.activeElement)).outlineStyle), "none");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.body.dataset.state === "running");
  const slider = page.locator(".lane input").first();
  await slider.focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  assert.equal(await slider.getAttribute("aria-valuetext"), "slowed 2 times");
  await page.waitForTimeout(500);
  assert.equal(await slider.evaluate((element) => document.activeElement === element), true, "updates leave the focus alone");
  await page.locator("#pad").press("3");
  await page.waitForFunction(() => document.getElementById("verdict")?.textContent === "3");
  await leave();
});

test("what is read aloud does not change with each step", async () => {
  const { page, leave } = await open("gpus");
  await page.click("#run");
  await page.evaluate(() => {
    /** @type {any} */ (window).spoken = 0;
    for (const region of document.querySelectorAll("[aria-live], [role=status]")) {
      new MutationObserver(() => { /** @type {any} */ (window).spoken += 1; }).observe(region, { childList: true, characterData: true, subtree: true });
    }
  });
  const steps = () => page.evaluate(() => Number(document.getElementById("fact-step")?.textContent));
  const begin = await steps();
  await page.waitForTimeout(4000);
  assert.ok((await steps()) - begin > 30);
  const spoken = await page.evaluate(() => /** @type {any} */ (window).spoken);
  assert.ok(spoken <= 2, `${spoken} announcements in four seconds`);
  await leave();
});

test("with reduced motion nothing slides", async () => {
  const { page, leave } = await open("gpus", { reducedMotion: "reduce" });
  await page.locator("#run:enabled").waitFor();
  const moving = await page.evaluate(() => [...document.querySelectorAll("*")]
    .filter((element) => getComputedStyle(element).transitionDuration.split(", ").some((time) => time !== "0s")).length);
  assert.equal(moving, 0);
  await leave();
});

test("a field that is emptied changes nothing", async () => {
  const { page, said, leave } = await open("gpus");
  await train(page, 5);
  await page.locator("summary").click();
  for (const field of ["#seed", "#epochs", "#learning-rate"]) {
    await page.locator(field).fill("");
    await page.locator(field).press("Tab");
  }
  assert.doesNotMatch(page.url(), /NaN/);
  assert.equal(await page.evaluate(() => document.body.dataset.state), "running");
  assert.ok(Number(await page.locator("#fact-step").textContent()) > 5, "the run goes on");
  assert.deepEqual(said, []);
  await leave();
});

test("settings that begin a run anew leave a training one training, however fast they change", async () => {
  const { page, said, leave } = await open("gpus");
  await train(page, 5);
  await page.locator("summary").click();
  await page.evaluate(() => {
    for (const value of ["1", "2", "3"]) {
      const seed = /** @type {HTMLInputElement} */ (document.getElementById("seed"));
      seed.value = value;
      seed.dispatchEvent(new Event("change"));
    }
  });
  await page.waitForFunction(() => location.search.includes("seed=3"));
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 2);
  assert.equal(await page.evaluate(() => document.body.dataset.state), "running");
  assert.deepEqual(said, []);
  await leave();
});

test("what was refused is read on a phone, too, and start can be pressed again", async () => {
  const { page, said, leave } = await open("refused", { viewport: { width: 390, height: 800 } });
  await page.locator("#status", { hasText: "gives no device" }).waitFor();
  await page.locator("#announce", { hasText: "gives no device" }).waitFor({ state: "attached" });
  await train(page, 3);
  await page.locator("#learning-rate").evaluate((input) => {
    /** @type {HTMLInputElement} */ (input).value = "1";
    input.dispatchEvent(new Event("change"));
  });
  await page.locator("#status:visible", { hasText: "not finite" }).waitFor();
  assert.equal(await page.evaluate(() => document.body.dataset.state), "paused");
  assert.deepEqual(said, []);
  await leave();
});

test("steps that are trained again take the place of those before", async () => {
  const { page, said, leave } = await open("alone");
  await page.locator("#run:enabled").waitFor();
  if ((await page.locator(".remove").count()) > 1) await page.locator(".remove").nth(1).click();
  await page.locator("#lanes .lane").nth(1).waitFor({ state: "detached" });
  await train(page, 20);
  await page.locator(".unplug").click();
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) < 15);
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 30);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export-metrics")]);
  const { steps } = JSON.parse(readFileSync(await download.path(), "utf8"));
  assert.deepEqual(steps.map((/** @type {any} */ { step }) => step), steps.map((/** @type {any} */ _, /** @type {number} */ at) => at + 1));
  assert.deepEqual(said, []);
  await leave();
});

test("an engine that dies takes no button for what is here, and is said once", async () => {
  const { page, leave } = await open("dies");
  await train(page, 5);
  await page.click("#measure");
  await page.locator("#pad").press("9");
  await page.locator("[data-kind=failed]").waitFor();
  await page.waitForTimeout(200);
  assert.equal(await page.locator("[data-kind=failed]").count(), 1);
  assert.deepEqual(await page.locator("button:enabled:not(.word)").allTextContents(), ["Metrics (.json)"]);
  await leave();
});

test("a page whose scripts can't run here says so", async () => {
  const { page, leave } = await open("gpus", {}, { "/page.js": "class A { #b = ; }" });
  await page.locator("#status", { hasText: "needs a recent browser" }).waitFor();
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

test("an efficiency above 100 % is explained, and only that", async () => {
  const { page, said, leave } = await open("gpus");
  await page.click("#predict");
  await page.locator("#predicted td", { hasText: "102 %" }).waitFor();
  const [strong, weak] = await page.locator("#predicted figure > .remark").allTextContents();
  assert.equal(strong, "");
  assert.match(weak, /^More than 100 %: together with others/);
  assert.deepEqual(said, []);
  await leave();
});

test("a link to the page shows what it is, and its title how far training is", async () => {
  const { page, leave } = await open("gpus");
  for (const name of ["og:title", "og:description", "og:image", "og:image:alt"]) {
    assert.ok(((await page.locator(`meta[property="${name}"]`).getAttribute("content")) ?? "").length > 10, name);
  }
  await train(page, 3);
  await page.waitForFunction(() => /^step \d+, [\d.]+ % · manyhands$/.test(document.title));
  await page.click("#run");
  await page.click("#reset");
  await page.waitForFunction(() => document.title === "manyhands: one batch, many adapters");
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

test("an engine that does not start is said, and the page is not blank", async () => {
  const { page, leave } = await open("failed");
  await page.locator("[data-kind=failed]", { hasText: "engine_bg.wasm could not be read" }).waitFor();
  assert.equal(await page.locator("button:enabled:not(.word)").count(), 0);
  assert.ok(await page.getByRole("heading", { level: 1 }).isVisible());
  await leave();
});

test("an engine that has stopped is reported", async () => {
  const { page, leave } = await open("gpus", {}, { "/engine.js": null });
  await page.locator("[data-kind=failed]").waitFor();
  await leave();
});

test("parts that did not load are said", async () => {
  const { page, leave } = await open("gpus", {}, { "/page.js": null });
  await page.locator("#status", { hasText: "did not load" }).waitFor();
  await leave();
});

test("without the chart library all else works", async () => {
  const { page, leave } = await open("gpus", {}, { "/vendor/uPlot.iife.min.js": null });
  await train(page, 3);
  await leave();
});

/** Trains some steps, then pauses. @param {Page} page */
async function trainAndPause(page) {
  await train(page, 5);
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused");
}

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

test("a double click on Measure measures, and tells no error", async () => {
  const { page, said, leave } = await open("gpus");
  await train(page, 3);
  await page.locator("#measure").dblclick();
  await page.locator("#measured table").first().waitFor();
  // The second click would have asked to end it.
  assert.match((await page.locator("#measure-says").textContent()) ?? "", /^Batch of 64/);
  assert.equal(await page.locator("#measure").textContent(), "Measure again");
  assert.deepEqual(said, []);
  await leave();
});

test("an error stands in the place of the state for a while only", async () => {
  const { page, said, leave } = await open("refused");
  await page.clock.install();
  await page.locator("#status[data-kind=error]").waitFor();
  await train(page, 3);
  await page.locator("#learning-rate").evaluate((input) => {
    /** @type {HTMLInputElement} */ (input).value = "1";
    input.dispatchEvent(new Event("change"));
  });
  await page.locator("#status[data-kind=error]", { hasText: "not finite" }).waitFor();
  await page.clock.fastForward(6000);
  await page.locator("#status[data-kind=state]", { hasText: "Paused." }).waitFor();
  assert.deepEqual(said, []);
  await leave();
});

test("a button that is disabled for a while has the focus again afterwards", async () => {
  const { page, said, leave } = await open("unhurried");
  await page.locator("#run:enabled", { hasText: "Start" }).waitFor();
  await train(page, 3);
  await page.locator("#reset").focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.body.dataset.state === "opening");
  assert.ok(await page.evaluate(() => ["lanes", "add"].every((id) => document.getElementById(id)?.inert)), "members can't be changed while they are opened");
  await page.waitForFunction(() => document.body.dataset.state === "paused");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "reset");
  assert.ok(await page.evaluate(() => ["lanes", "add"].every((id) => !document.getElementById(id)?.inert)));
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
  assert.doesNotMatch((await page.locator("#rig-says").textContent()) ?? "", /no rows/);
  await leave();
});

test("the accuracy above is that of the digits below, from the first predictions on", async () => {
  const { page, leave } = await open("gpus");
  await page.locator("#digits-says", { hasText: "right after step" }).waitFor();
  const [right, all] = ((await page.locator("#digits-says").textContent()) ?? "").match(/\d+/g)?.map(Number) ?? [];
  await page.locator("#fact-accuracy", { hasText: `${((100 * right) / all).toFixed(1)} %` }).waitFor();
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

test("without scripts the page says what it needs", async () => {
  const { page, leave } = await open("gpus", { javaScriptEnabled: false });
  await page.locator("noscript .banner", { hasText: "needs JavaScript" }).waitFor();
  await leave();
});

test("the scheme can turn dark while the page is open", async () => {
  const { page, said, leave } = await open("gpus", { colorScheme: "light" });
  await page.click("#run");
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 5);
  assert.equal(await page.locator(".uplot").count(), 3);
  assert.deepEqual(said, []);
  await leave();
});
