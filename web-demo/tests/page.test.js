// Is the page what it should be on machines that the test machine is not: with graphics cards, without an engine,
// without scripts? The engine is a stand-in here.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { WASM } from "./serve.js";
import { faults, open, openAt, train, useAll } from "./stand-in.js";

test("training starts by itself, but not where the system asks for less motion or less data", async () => {
  const { page, said, leave } = await open("gpus", { reducedMotion: "no-preference" });
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 3);
  assert.equal(await page.locator("#run").textContent(), "Pause");
  assert.deepEqual(said, []);
  await leave();

  const calm = await open("gpus");
  await calm.page.locator("#run:enabled", { hasText: "Start" }).waitFor();
  await calm.leave();

  const saving = await open("gpus", { reducedMotion: "no-preference" });
  await saving.page.addInitScript(() => Object.defineProperty(Navigator.prototype, "connection", { get: () => ({ saveData: true }) }));
  await saving.page.reload();
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
  await page.locator("[data-kind=failed]", { hasText: "the engine can’t be loaded: the server answers 404" }).waitFor();
  await leave();
});

test("training has no end unless one is asked for", async () => {
  const { page, leave } = await open("gpus");
  await page.locator("summary", { hasText: "Seed" }).click();
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
  const wholly = ["#batch", "#lanes", "#host-lane", "#other-facts", "#other-lanes", "#loss-chart", "#check-says", "#speed-chart", "#batch-size", "[name=split] >> nth=0", "#model"];
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
  for (const [name, count] of /** @type {const} */ ([["2 identical cards", 2], ["Your own", 3], ["A fast and an old card", 2]])) {
    await page.getByRole("button", { name, exact: true }).click();
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

test("a chart can be read at a point", async () => {
  const { page, leave } = await open("gpus");
  await train(page, 40);
  await page.locator("#loss-chart .u-over").hover();
  await page.locator("#loss-is", { hasText: /^step \d+: \d/ }).waitFor();
  await page.locator("h1").hover();
  await page.locator("#loss-is", { hasText: /^\d/ }).waitFor();
  await leave();
});

test("what is written beside the marks of a chart does not cover itself", async () => {
  const { page, said, leave } = await open("gpus");
  await page.evaluate(() => {
    const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
    const now = Object.assign(window, { drawn: /** @type {Record<string, number[]>} */ ({}) });
    CanvasRenderingContext2D.prototype.clearRect = function (...args) {
      if (this.canvas.closest("#loss-chart")) now.drawn = {};
      return clearRect.apply(this, args);
    };
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
      if (this.canvas.closest("#loss-chart") && /lost|back/.test(text)) now.drawn[text] = [x, y, x + this.measureText(text).width];
      return fillText.call(this, text, x, y);
    };
  });
  await train(page, 6);
  await page.locator(".unplug").nth(1).click();
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 13);
  await page.locator(".unplug").nth(2).click();
  // The fourth has no text where it comes so late that the chart has no line left for it.
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 120 && Object.keys(/** @type {any} */ (window).drawn).length >= 3);
  const drawn = await page.evaluate(() => /** @type {[string, number[]][]} */ (Object.entries(/** @type {any} */ (window).drawn)));
  for (const [text, [left, top, right]] of drawn) {
    for (const [other, box] of drawn) assert.ok(text === other || top !== box[1] || right <= box[0] || box[2] <= left, JSON.stringify(drawn));
  }
  assert.deepEqual(said, []);
  await leave();
});

test("a card of the tour acts, watches, and says what it measured", async () => {
  const { page, said, leave } = await open("gpus", { reducedMotion: "no-preference" });
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 5);
  const says = (/** @type {string} */ id) => page.locator(`[data-card=${id}] .remark`);
  const press = (/** @type {string} */ id) => page.locator(`[data-card=${id}] button:not(.undo)`).click();
  await press("slow");
  await says("slow").filter({ hasText: /^A step took [\d.]+ ms, now [\d.]+ ms\. B gets \d+ examples, before \d+\.$/ }).waitFor();
  assert.equal(await page.locator(".lane input").nth(1).getAttribute("aria-valuetext"), "slowed 4 times");
  await press("even");
  await says("even").filter({ hasText: "A step took" }).waitFor();
  assert.ok(await page.locator("[name=split][value=even]").isChecked());
  await press("plug");
  await says("plug").filter({ hasText: /^No step was lost\. Gap to one adapter alone: 0\.0000002 before, 0\.0000002 now\.$/ }).waitFor();
  await page.locator("#log li", { hasText: "was lost" }).waitFor();
  await press("more");
  await says("more").filter({ hasText: "on 10 adapters" }).waitFor();
  assert.match((await page.locator("#status").textContent()) ?? "", /on 10 adapters/);
  assert.equal(new URL(page.url()).hash, "", "opened again it would add as many again");
  await page.getByRole("link", { name: "Address of “Split by speed”" }).click();
  await says("learned").filter({ hasText: "A step took" }).waitFor();
  assert.equal(new URL(page.url()).hash, "");
  await page.locator("h1").scrollIntoViewIfNeeded();
  const rules = await page.locator(".rules").boundingBox();
  assert.ok(rules && rules.y < 900, `ten lanes leave the rules at ${rules?.y}`);
  const faulty = await faults(page);
  assert.deepEqual(faulty, []);
  assert.deepEqual(said, []);
  await leave();
});

test("a card brings about what it needs, whatever was done before, and undoes it", async () => {
  const { page, said, leave } = await open("none", { reducedMotion: "no-preference" });
  await page.waitForFunction(() => Number(document.getElementById("fact-step")?.textContent) > 5);
  const says = (/** @type {string} */ id, /** @type {RegExp} */ text) => page.locator(`[data-card=${id}] .remark`, { hasText: text }).waitFor();
  const press = (/** @type {string} */ id) => page.locator(`[data-card=${id}] button:not(.undo)`).click();
  const undo = (/** @type {string} */ id) => page.locator(`[data-card=${id}] .undo`).click();
  const lanes = () => page.locator("#lanes .lane").count();
  // There are two adapters at most, of which one is removed.
  await page.locator(".remove").last().click();
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 1);
  await press("plug");
  await says("plug", /^First, what it needs: 2 more adapters…$/);
  await says("plug", /^No step was lost\. Gap to one adapter alone: 0\.0000002 before, 0\.0000002 now\.$/);
  assert.equal(await lanes(), 3);
  await undo("plug");
  await page.waitForFunction(() => document.querySelectorAll("#lanes .lane").length === 1);
  // Evenly, with B as fast as A, shows nothing: B is slowed down first.
  await press("even");
  await says("even", /^First, what it needs: one more adapter…$/);
  await says("even", /^First, what it needs: B slowed 4 times…$/);
  await says("even", /^A step took [\d.]+ ms, now [\d.]+ ms\. B gets 32 examples, before \d\d?\.$/);
  const [, before, now] = ((await page.locator("[data-card=even] .remark").textContent()) ?? "").match(/took ([\d.]+) ms, now ([\d.]+)/)?.map(Number) ?? [];
  assert.ok(now > 1.3 * before, `${before} ms, then ${now} ms`);
  // The next begins with shares by speed and B at full speed.
  await press("slow");
  await says("slow", /^First, what it needs: shares by speed, B at full speed…$/);
  await says("slow", /^A step took .* B gets \d+ examples, before 3\d\.$/);
  await undo("slow");
  assert.ok(await page.locator("[name=split][value=even]").isChecked());
  assert.equal(await page.locator(".lane input").nth(1).getAttribute("aria-valuetext"), "slowed 4 times");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Slow B down");
  await press("shards");
  await says("shards", /^Gap to one adapter alone: 0\.0000002 before, 0\.01 now\.$/);
  await undo("shards");
  assert.ok(await page.locator("[name=batch_norm][value=whole_batch]").isChecked());
  assert.deepEqual(said, []);
  await leave();
});

test("wherever the page is scrolled to, the split stays in sight", async () => {
  const { page, leave } = await open("gpus", { viewport: { width: 1280, height: 720 } });
  await train(page, 3);
  assert.ok(await page.locator("#small-batch").isHidden(), "the bar itself is in sight");
  const height = () => page.locator(".transport").evaluate((element) => element.getBoundingClientRect().height);
  const before = await height();
  await page.locator("#tour").scrollIntoViewIfNeeded();
  await page.locator("#draw-title").scrollIntoViewIfNeeded();
  await page.locator("#small-batch:visible").waitFor();
  const box = await page.locator("#small-batch").boundingBox();
  assert.ok(box && box.y >= 0 && box.y < 120 && box.width > 1000, JSON.stringify(box));
  assert.equal(await height(), before, "nothing moves");
  await leave();
});

test("the address of a card has it done", async () => {
  const { page, leave } = await open("gpus");
  await openAt(page, "#try-shards");
  await page.locator("[data-card=shards] .remark", { hasText: "Gap to one adapter alone: 0.0000002 before, 0.01 now." }).waitFor();
  assert.ok(await page.locator("[name=batch_norm][value=per_shard]").isChecked());
  const { search, hash } = new URL(page.url());
  assert.deepEqual([search, hash], ["?batch_norm=per_shard", ""], "what it did is in the address once");
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
  await page.locator("summary", { hasText: "Seed" }).click();
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
  await page.locator("summary", { hasText: "Seed" }).click();
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

test("each measured number stands with its spread, and what the spread hides is said", async () => {
  for (const [variant, said] of /** @type {const} */ ([["gpus", ""], ["uneven", "More than 100 %: alone, each adapter computes the whole batch, of which it gets a part here; and small surpluses lie within the spread. 1 and 2 adapters can’t be told apart: their bars overlap. 2 and 3 adapters can’t be told apart: their bars overlap."]])) {
    const { page, leave } = await open(variant);
    await train(page, 3);
    await page.click("#measure");
    await page.locator("#measure-says", { hasText: "Medians of 3 rounds in alternation" }).waitFor();
    const figure = page.locator("#measured figure").first();
    assert.equal(await figure.locator(".remark").textContent(), said);
    const cells = await figure.locator("tbody tr").first().locator("td small").allTextContents();
    // The stand-in has 2,600 rows a second alone, and spreads them by 5 % or by 60 %.
    const [step, speed, efficiency] = variant === "gpus" ? ["23–26", "2,470–2,730", "95–105 %"] : ["15.4–62", "1,040–4,160", "40–160 %"];
    assert.deepEqual(cells, [step, speed, efficiency]);
    await leave();
  }
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
  // So has a part of the page that is inert for a while; a lane that is gone then gives it to the buttons that add one.
  for (const [selector, owner] of [["#lanes input", "lanes"], ["#add button", "add"]]) {
    await page.locator(selector).first().focus();
    await page.evaluate(() => document.getElementById("reset")?.click());
    await page.waitForFunction(() => document.body.dataset.state === "opening");
    await page.waitForFunction(() => document.body.dataset.state === "paused");
    assert.ok(await page.evaluate((id) => document.getElementById(id)?.contains(document.activeElement), owner), `${selector} has lost the focus`);
  }
  assert.deepEqual(said, []);
  await leave();
});

test("one speed is one number in the whole page, and a step’s time stands beside what passes from one to the next", async () => {
  const { page, said, leave } = await open("gpus");
  await train(page, 30);
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused");
  await page.waitForTimeout(600);
  const text = (/** @type {string} */ id) => page.locator(`#${id}`).textContent().then((told) => told ?? "");
  const speed = await text("fact-speed");
  assert.equal(await text("speed-is"), speed);
  const [, every] = (await text("step-ms")).match(/^step [\d.]+ ms, every ([\d.]+) ms$/) ?? [];
  assert.ok(Math.abs(64_000 / Number(every) - Number(speed.replace(",", ""))) < 0.02 * Number(speed.replace(",", "")), `${every} ms and ${speed} samples/s`);
  assert.deepEqual(said, []);
  await leave();
});

test("the bar and the lanes show the same step, also at the end of an epoch", async () => {
  const { page, said, leave } = await open("gpus");
  // 23 batches, of which the last has 29 rows.
  await train(page, 21);
  for (let count = 0; count < 8; count += 1) {
    const [bar, lanes] = await page.evaluate(() => [document.getElementById("batch")?.ariaLabel, [...document.querySelectorAll("#lanes .lane-numbers")].map(({ textContent }) => parseInt(textContent ?? ""))]);
    assert.deepEqual([...(/** @type {string} */ (bar)).matchAll(/: (\d+)/g)].map(([, rows]) => Number(rows)), lanes);
    await page.waitForTimeout(50);
  }
  assert.deepEqual(said, []);
  await leave();
});

test("the accuracy above is that of the digits below, from the first predictions on", async () => {
  const { page, leave } = await open("gpus");
  await page.locator("#pictures-says", { hasText: "right after step" }).waitFor();
  const [right, all] = ((await page.locator("#pictures-says").textContent()) ?? "").match(/\d+/g)?.map(Number) ?? [];
  await page.locator("#fact-accuracy", { hasText: `${((100 * right) / all).toFixed(1)} %` }).waitFor();
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
  // Their library is loaded beside the first steps.
  await page.waitForFunction(() => document.querySelectorAll(".uplot").length === 3);
  assert.deepEqual(said, []);
  await leave();
});
