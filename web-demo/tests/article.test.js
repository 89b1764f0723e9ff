// Does the article read and act as it should: at once, without scripts, by pointer and by keyboard, on all screens, and its figures on
// other pages? The engine is a stand-in here.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { faultsOf } from "./axe.js";
import { launch, visit } from "./browser.js";
import { WRITTEN, serve, withStandIn } from "./serve.js";

/** @import { Browser, BrowserContextOptions, Page } from "playwright-core" */
/** @import { Served } from "./serve.js" */

/** @type {Browser} */
let browser;
/** @type {Served} */
let server;
before(async () => {
  [browser, server] = [await launch("no adapter"), await serve(WRITTEN, { ...withStandIn("gpus"), "/data/lincoln.txt": "It is the duty of the people." })];
});
after(async () => {
  await browser.close();
  server.close();
});

const open = (/** @type {string} */ rest = "", /** @type {BrowserContextOptions} */ options = {}) => visit(browser, `http://localhost:${server.port}/${rest}`, options);
const textOf = (/** @type {Page} */ page, /** @type {string} */ selector) => page.locator(selector).first().innerText();
/** Milliseconds of a figure's result. */
const resultOf = async (/** @type {Page} */ page, /** @type {string} */ figure) => Number((await textOf(page, `${figure} .result b`)).replace(" ms", ""));

test("the opening stands there at once, and one button answers it", async () => {
  const { page, said, leave } = await open();
  const asked = await page.evaluate(() => performance.getEntriesByType("resource").map(({ name }) => name));
  assert.ok(!asked.some((name) => name.includes("wasm") || name.includes("engine")), `${asked}`);
  assert.ok((await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime)) < 1000);
  const box = await page.locator(".opening [data-claim=even]").boundingBox();
  assert.ok(box && box.y + box.height < 720, "the claim is on the first screen");
  assert.ok(await page.locator("[data-claim=fair]").isHidden());
  await page.getByRole("button", { name: "Share them fairly" }).click();
  assert.equal(await textOf(page, "[data-claim=fair]"), "13 ms");
  assert.deepEqual(said, []);
  await leave();
});

test("the article is whole without scripts", async () => {
  const { page, leave } = await open("", { javaScriptEnabled: false });
  for (const claim of ["alone", "even", "fair", "learned", "dense_two", "hot_after", "dies_now", "piece_eight"]) assert.ok(await page.locator(`[data-claim=${claim}]`).first().isVisible(), claim);
  assert.equal(await page.getByRole("button").count(), 0);
  await leave();
});

test("a border is moved by keys and by pointer, and the step is the longer lane", async () => {
  const { page, said, leave } = await open();
  const border = page.getByRole("slider", { name: /Border/ });
  await border.focus();
  assert.equal(await resultOf(page, "mh-split"), 29);
  await page.keyboard.press("PageUp");
  await page.keyboard.press("ArrowRight");
  assert.equal(await border.getAttribute("aria-valuenow"), "292");
  await page.keyboard.press("End");
  assert.equal(await resultOf(page, "mh-split"), 14.7, "one card alone");
  const bar = await page.locator("mh-split .batch").boundingBox();
  assert.ok(bar);
  await page.mouse.move(bar.x + bar.width / 2, bar.y + 20);
  await page.mouse.down();
  await page.mouse.move(bar.x + 0.8 * bar.width, bar.y + 20, { steps: 4 });
  await page.mouse.up();
  assert.equal(await border.getAttribute("aria-valuenow"), "408");
  const lanes = await page.locator("mh-split .lane-ms").allInnerTexts();
  assert.equal(await resultOf(page, "mh-split"), Math.max(...lanes.map((text) => Number(text.replace(" ms", "")))));
  assert.match(await textOf(page, "mh-split .story"), /Your shortest step so far/);
  assert.match(page.url(), /cards=rtx-4070,gtx-1060&first=408/);
  await page.getByRole("button", { name: "Half each" }).click();
  await page.getByRole("button", { name: "Let manyhands find it" }).click();
  await page.waitForFunction(() => /Your/.test(document.querySelector("mh-split .story")?.textContent ?? ""));
  assert.equal(await resultOf(page, "mh-split"), 12.8);
  assert.deepEqual(said, []);
  await leave();
});

test("an address brings figures back as they were", async () => {
  const { page, leave } = await open("?cards=rx-6600,rtx-3060&first=200&work=7&count=8&slower=4&mine=m2,a770");
  await page.locator("mh-split.alive").waitFor();
  assert.deepEqual(await page.locator("mh-split select").evaluateAll((all) => all.map((one) => /** @type {HTMLSelectElement} */ (one).value)), ["RX 6600", "RTX 3060"]);
  assert.equal(await page.locator("mh-split [role=slider]").getAttribute("aria-valuenow"), "200");
  assert.match(await textOf(page, "mh-costs .result"), /Eight cards: 4.7 ×/);
  assert.match(await textOf(page, "mh-slow .handle-is"), /4 times slower/);
  assert.match(await textOf(page, "mh-cards .answer-line"), /A770/);
  await leave();
});

test("little work is slower on two cards than on one, and much is faster", async () => {
  const { page, leave } = await open();
  const work = page.getByLabel("Work in a step");
  await work.focus();
  assert.match(await textOf(page, "mh-costs .result"), /0.12 × as fast.*leaves it out/s);
  for (let at = 0; at < 5; at += 1) await page.keyboard.press("ArrowRight");
  assert.match(await textOf(page, "mh-costs .result"), /1.8 × as fast/);
  await leave();
});

test("a hot card makes steps longer until the split follows", async () => {
  const { page, leave } = await open();
  await page.locator("mh-slow.alive").waitFor();
  assert.equal(await resultOf(page, "mh-slow"), 23.9);
  await page.getByRole("button", { name: "The next steps" }).click();
  assert.equal(await resultOf(page, "mh-slow"), 20.2);
  assert.ok(await page.getByLabel(/gets hot/).evaluate((element) => element === document.activeElement), "focus stays with the figure");
  await leave();
});

test("a card dies in mid-step: others compute its examples again, and the next steps are split over them", async () => {
  const { page, said, leave } = await open();
  const figure = page.locator("mh-lost");
  const step = figure.getByRole("button", { name: /Pull its plug|The step after|Plug it in again/ });
  const rows = async () => (await figure.locator(".lane-says").allInnerTexts()).map((text) => (text.match(/\d+(?= examples| of )/g) ?? []).map(Number));
  for (const [card, helper] of [["GTX 1060", "RTX 4070"], ["RTX 4070", "RX 6600"]]) {
    await figure.getByLabel("The card that dies").selectOption({ label: card });
    const before = await resultOf(page, "mh-lost");
    const split = (await rows()).map(([own]) => own);
    assert.equal(split.reduce((sum, own) => sum + own, 0), 512);
    await step.click();
    assert.ok((await resultOf(page, "mh-lost")) > before, "the step is longer");
    assert.match(await textOf(page, "mh-lost .result"), new RegExp(`the ${helper} computed the lost \\d+ examples again. All 512 are in it`));
    const [name, again] = (await figure.locator(".lane", { hasText: "again" }).innerText()).match(/^(\D+\d+)[^]*, and (\d+) of the /)?.slice(1) ?? [];
    assert.equal(name, helper);
    assert.equal(Number(again), split[["RTX 4070", "RX 6600", "GTX 1060"].indexOf(card)], "as many as were lost");
    await step.click();
    assert.match(await textOf(page, "mh-lost .result"), /for 512 examples: the split has moved/);
    assert.equal((await rows()).flat().reduce((sum, own) => sum + own, 0), 512);
    assert.match(page.url(), new RegExp(`plug=${card.toLowerCase().replace(" ", "-")}&when=after`));
    await step.click();
  }
  assert.deepEqual(said, []);
  await leave();
});

test("more pieces leave stages less idle, until they cost more than they save", async () => {
  const { page, said, leave } = await open("?pieces=2");
  const handle = page.locator("mh-bricks").getByRole("slider");
  assert.equal(await handle.getAttribute("aria-valuetext"), "2 pieces");
  const idle = async () => Number((await textOf(page, "mh-bricks .result")).match(/idle for (\d+) %/)?.[1]);
  await handle.focus();
  /** @type {{ ms: number, idle: number }[]} */
  const seen = [];
  for (const key of ["Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"]) {
    await page.keyboard.press(key);
    seen.push({ ms: await resultOf(page, "mh-bricks"), idle: await idle() });
  }
  assert.deepEqual(seen.map((one) => one.idle).sort((a, b) => b - a), seen.map((one) => one.idle), "always less idle");
  assert.equal(seen.findIndex(({ ms }) => ms === Math.min(...seen.map((one) => one.ms))), 4, "sixteen pieces are the shortest step");
  // Bricks are drawn on each lane, in the card's colour.
  for (const canvas of await page.locator("mh-bricks canvas").all()) {
    assert.ok(await canvas.evaluate((it) => /** @type {HTMLCanvasElement} */ (it).getContext("2d")?.getImageData(0, 0, /** @type {HTMLCanvasElement} */ (it).width, 1).data.some((byte) => byte > 0)));
  }
  assert.deepEqual(said, []);
  await leave();
});

test("a network that fits on no card fits in stages", async () => {
  const { page, leave } = await open();
  const handle = page.locator("mh-stages").getByRole("slider");
  await handle.focus();
  assert.match(await textOf(page, "mh-stages .result"), /takes 5.5 GB, the card has 4/);
  await page.keyboard.press("ArrowRight");
  assert.match(await textOf(page, "mh-stages .result"), /Each card takes 1.5 GB of its 4/);
  assert.equal(await page.locator("mh-stages .lane").count(), 2);
  await leave();
});

test("guesses are answered", async () => {
  const { page, leave } = await open();
  const first = page.locator("mh-guess").first();
  assert.ok(await first.locator(".then").isHidden());
  await first.getByRole("button", { name: "It jumps up" }).click();
  assert.ok(await first.locator(".then").isVisible());
  assert.match(await first.locator(".right").innerText(), /Nothing/);
  await leave();
});

test("training starts when its chapter comes near", async () => {
  const { page, said, leave } = await open("", { reducedMotion: "no-preference" });
  assert.equal(await page.locator("mh-ghost canvas").count(), 0);
  // As by a link: the figures before are never seen.
  await page.locator("mh-ghost").scrollIntoViewIfNeeded();
  await page.waitForFunction(() => Number(document.querySelector("mh-ghost .check .number")?.textContent) > 3);
  await page.getByRole("button", { name: "Pull the plug" }).click();
  await page.locator("mh-ghost .gone").waitFor();
  assert.match(await textOf(page, "mh-ghost .result"), /plug was pulled/);
  assert.deepEqual(said, []);
  await leave();
});

test("what is learned is chosen by the keyboard, and a text can be dropped on the figure", async () => {
  const { page, said, leave } = await open("", { reducedMotion: "no-preference" });
  const figure = page.locator("mh-ghost");
  const says = (/** @type {RegExp} */ wanted) => figure.locator("[role=status]").filter({ hasText: wanted }).waitFor();
  await figure.scrollIntoViewIfNeeded();
  await says(/^A network learns to read digits, here and now/);
  await figure.getByLabel("What it learns").focus();
  await page.keyboard.press("ArrowDown");
  await says(/^A small GPT learns to write, letter by letter, from messages of Lincoln, here and now/);
  await figure.locator(".writes q").waitFor();
  assert.ok(await figure.getByLabel(/Batch normalization/).isHidden());
  await figure.evaluate((element) => {
    const dropped = new DataTransfer();
    dropped.items.add(new File(["Es war einmal. ".repeat(40)], "märchen.txt"));
    element.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
  });
  await says(/from märchen\.txt, here and now/);
  // What can't be learned leaves all as it is.
  await figure.locator("input[type=file]").setInputFiles({ name: "photo.jpg", mimeType: "image/jpeg", buffer: Buffer.from([0xff, 0xd8, 0]) });
  await says(/^That can’t be learned: photo\.jpg is no plain text: save it as one, as \.txt\. It goes on learning to write, from märchen\.txt\.$/);
  await figure.getByLabel("What it learns").selectOption("to read digits");
  await says(/^A network learns to read digits/);
  assert.ok(await figure.getByLabel(/Batch normalization/).isVisible());
  assert.deepEqual(await faultsOf(page), []);
  assert.deepEqual(said, []);
  await leave();
});

for (const [colorScheme, width, height] of /** @type {const} */ ([["light", 1280, 720], ["dark", 1440, 900], ["light", 390, 844], ["dark", 844, 390], ["light", 320, 640]])) {
  test(`nothing is cut off or out of reach at ${width} × ${height}, ${colorScheme}`, async () => {
    const { page, said, leave } = await open("", { colorScheme, viewport: { width, height } });
    await page.locator("mh-cards.alive").waitFor();
    await page.getByRole("button", { name: "Share them fairly" }).click();
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
    const small = await page.evaluate(() => [...document.querySelectorAll("body *")].filter((element) => parseFloat(getComputedStyle(element).fontSize) < 13 && element.textContent?.trim()).map((element) => element.outerHTML.slice(0, 80)));
    assert.deepEqual(small, [], "nothing is set smaller than 13 px");
    if (width !== 320) assert.deepEqual(await faultsOf(page), []);
    assert.deepEqual(said, []);
    await leave();
  });
}

test("two figures live in a page of another origin", async (context) => {
  const host = await serve([], {
    "/index.html": `<!doctype html><html lang="en"><title>Lecture</title><body>
<h1>Lecture</h1>
<iframe src="http://localhost:${server.port}/embed/split.html?cards=rtx-3060,rx-6600&amp;first=300" title="a" width="700" height="580"></iframe>
<iframe src="http://localhost:${server.port}/embed/costs.html?work=5" title="b" width="700" height="690"></iframe>
</body></html>`, "/favicon.ico": "" });
  context.after(() => host.close());
  const { page, said, leave } = await visit(browser, `http://127.0.0.1:${host.port}/`);
  const split = page.frameLocator("iframe").first();
  const border = split.getByRole("slider");
  assert.equal(await border.getAttribute("aria-valuenow"), "300");
  await border.focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await border.getAttribute("aria-valuenow"), "304");
  assert.match(await page.frameLocator("iframe").nth(1).locator(".result").innerText(), /1.8 ×/);
  for (const frame of page.frames().slice(1)) {
    assert.ok(await frame.evaluate(() => document.documentElement.scrollHeight <= innerHeight), "the frame is high enough");
  }
  assert.deepEqual(said, []);
  await leave();
});

test("a figure's frame can be copied", async () => {
  const { page, leave } = await open("?cards=rtx-4070,gtx-1060&first=300", { permissions: ["clipboard-read", "clipboard-write"] });
  await page.locator("mh-split").getByRole("button", { name: "Copy embed" }).click();
  const code = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(code, /^<iframe src="http:\/\/localhost:\d+\/embed\/split\.html\?cards=rtx-4070,gtx-1060&amp;first=300" title=/);
  await leave();
});
