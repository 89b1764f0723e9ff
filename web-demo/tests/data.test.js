// Are other data loaded when they are chosen, and not before? Does all of the page go with them? The engine is a stand-in here.

import assert from "node:assert/strict";
import { test } from "node:test";
import { sends } from "./browser.js";
import { faults, open, train } from "./stand-in.js";

/** @import { Page } from "playwright-core" */

/** In the place of the files, which the stand-in does not read. */
const FILES = { "/data/fashion.bin": "clothes".repeat(100), "/data/lincoln.txt": "text".repeat(100) };

/**
 * Opens the page with files to load.
 * @param {string} [query]
 * @param {import("playwright-core").BrowserContextOptions} [options]
 * @param {string} [variant]
 */
async function opened(query = "", options = {}, variant = "gpus") {
  const visited = await open(variant, options, FILES);
  /** @type {string[]} */
  const loaded = [];
  visited.page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
  if (query) await visited.page.goto(`${visited.page.url().split("?")[0]}${query}`);
  await visited.page.locator("#data:enabled").waitFor();
  return { ...visited, loaded };
}

/** @param {Page} page @param {string} data */
async function choose(page, data) {
  await page.locator("#data").selectOption(data);
  await page.waitForFunction((name) => location.search.includes(`data=${name}`), data);
}

test("nothing of other data is loaded before they are chosen", async () => {
  const { page, said, loaded, leave } = await opened();
  await train(page, 5);
  assert.deepEqual(loaded.filter((name) => name.startsWith("/data/")), []);
  await choose(page, "fashion");
  assert.deepEqual(loaded.filter((name) => name.startsWith("/data/")), ["/data/fashion.bin"]);
  await page.locator("#data").selectOption("digits");
  await page.waitForFunction(() => !location.search.includes("data="));
  await choose(page, "fashion");
  assert.equal(loaded.filter((name) => name.startsWith("/data/")).length, 1, "they are kept");
  assert.deepEqual(said, []);
  await leave();
});

test("clothes: their networks, pictures with names, mistakes by name, and no drawing", async () => {
  const { page, said, leave } = await opened();
  await choose(page, "fashion");
  await page.locator("#run", { hasText: "Start" }).waitFor();
  assert.deepEqual(await page.locator("#model option").evaluateAll((all) => all.map((option) => /** @type {HTMLOptionElement} */ (option).value)), ["cnn", "small"]);
  // Cards are simulated with the network of the run.
  await page.waitForFunction(() => /** @type {HTMLSelectElement} */ (document.getElementById("other-model")).value === "here");
  await train(page, 8);
  await page.click("#run");
  await page.locator("#pictures-says", { hasText: /^\d+ of 500 right after step \d+\. \d+ of them are shown\./ }).waitFor();
  assert.equal(await page.locator("#reading-title").textContent(), "What it takes them for");
  assert.match((await page.locator("#wrong li").first().textContent()) ?? "", /^[\w -]+, read as [\w -]+$/);
  const picture = await page.locator("#wrong canvas").first().evaluate((canvas) => /** @type {HTMLCanvasElement} */ (canvas).width);
  assert.equal(picture, 28);
  await page.locator("#pictures").hover({ position: { x: 10, y: 10 } });
  await page.locator("#pictures-says", { hasText: /^T-shirt, read as [\w -]+ with \d+ % certainty\.$/ }).waitFor();
  assert.ok(await page.locator("#drawing").isHidden());
  await page.locator("#draw-not", { hasText: "does not read digits" }).waitFor();
  assert.match((await page.locator("#check-says").textContent()) ?? "", /^Step \d+, computed again by A alone: gap 0\.0000002 \(rounding\)\. Largest of \d+: 0\.0000002\.$/);
  assert.equal(await page.locator("#command").textContent(), "manyhands evaluate fashion.safetensors --data fashion-mnist/");
  await page.locator("#exported", { hasText: "its accuracy is near that above, not equal" }).waitFor();
  assert.match((await page.locator("#pictures").getAttribute("aria-label")) ?? "", /of 500 right/);
  await page.click("#reset");
  await page.waitForFunction(() => !/after step [1-9]/.test(document.getElementById("pictures")?.ariaLabel ?? ""));
  await page.locator("[data-card=plug] button:not(.undo)").click();
  await page.locator("[data-card=plug] .remark", { hasText: "No step was lost. Gap to one adapter alone: 0.0000002" }).waitFor();
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(said, []);
  await leave();
});

test("text: lines, curves and rules are in the first screen", async () => {
  const { page, leave } = await opened("?data=text", { viewport: { width: 1280, height: 720 } }, "none");
  await page.waitForFunction(() => /** @type {HTMLSelectElement} */ (document.getElementById("data")).value === "text");
  await train(page, 21);
  for (const part of ["#writes", "#loss-chart .uplot", "#speed-chart .uplot", "#batch-size", "#data", "#model"]) {
    const box = await page.locator(part).boundingBox();
    assert.ok(box && box.y > 0 && box.y + box.height <= 720, `${part} ends at ${box && box.y + box.height}`);
  }
  await leave();
});

test("text: lines as it learns, bits beside those of frequencies alone, and no batch-norm", async () => {
  const { page, said, leave } = await opened("?data=text");
  await page.waitForFunction(() => ["data", "other-model"].map((id) => /** @type {HTMLSelectElement} */ (document.getElementById(id)).value).join() === "text,here");
  await train(page, 41);
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused");
  const lines = await page.locator("#written li").allTextContents();
  assert.ok(lines.length >= 5 && /^step \d+.{60}/.test(lines[0]), lines[0]);
  assert.ok((await page.locator("#writes").textContent())?.endsWith(lines[0].replace(/^step \d+/, "")), "the newest stands in the first screen");
  await page.locator("#check-says", { hasText: `Dotted: ${(2.98 / Math.LN2).toFixed(2)} bits` }).waitFor();
  assert.equal(await page.locator("#loss-unit").textContent(), ", bits a character");
  assert.equal(await page.locator("#fact-accuracy-name").textContent(), "bits/character in training");
  // Both are drawn at their own pace.
  await page.waitForFunction(() => {
    const [bits, loss] = ["fact-accuracy", "loss-is"].map((id) => parseFloat(document.getElementById(id)?.textContent ?? ""));
    return bits > 0 && Math.abs(bits - loss) < 0.01;
  });
  assert.match(await page.title(), /, [\d.]+ bits · manyhands$/);
  assert.ok(await page.locator("#reading").isHidden() && (await page.locator("#drawing").isHidden()));
  assert.ok(await page.locator("[name=batch_norm]").first().isDisabled());
  await page.locator("#batch-norm-says", { hasText: "has no such layer" }).waitFor();
  await page.locator("[data-card=shards] button:not(.undo)").click();
  await page.locator("[data-card=shards] .remark", { hasText: "no batch-norm" }).waitFor();

  await page.locator("#exported", { hasText: "in nats" }).waitFor();
  await page.locator(".temperature output").click();
  assert.notEqual(await page.evaluate(() => document.activeElement?.tagName), "BUTTON", "the value is no part of the word's button");

  await page.locator("#temperature").focus();
  await page.keyboard.press("ArrowRight");
  await page.locator("#temperature-is", { hasText: /^0\.7$/ }).waitFor();
  await page.waitForFunction(() => location.search.includes("temperature=0.7"));
  await page.locator("[data-word=temperature]").focus();
  await page.locator("#word-says", { hasText: "divided by" }).waitFor();
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(said, []);

  await page.locator("#data").selectOption("digits");
  await page.locator("#reading").waitFor();
  assert.ok(await page.locator("#writing").isHidden() && (await page.locator("#writes").isHidden()));
  assert.ok(await page.locator("[name=batch_norm]").first().isEnabled());
  assert.equal(await page.locator("#loss-unit").textContent(), "");
  await leave();
});

test("data that can't be loaded are said, with a button to try again, and the run goes on", async () => {
  const { page, leave } = await opened();
  await page.route("**/data/fashion.bin", (route) => route.abort(), { times: 1 });
  await train(page, 3);
  await page.locator("#data").selectOption("fashion");
  await page.locator("#data-says", { hasText: "can’t be loaded: the connection failed. The digits stay." }).waitFor();
  assert.equal(await page.evaluate(() => document.body.dataset.state), "running");
  assert.ok(!page.url().includes("data="));
  await page.route("**/data/fashion.bin", (route) => route.fulfill({ status: 200, body: "" }), { times: 1 });
  await page.click("#data-again");
  await page.locator("#data-says", { hasText: "the pictures need to be those of the page. The" }).waitFor();
  await page.route("**/data/fashion.bin", (route) => route.fulfill({ status: 503, body: "" }), { times: 1 });
  await page.click("#data-again");
  await page.locator("#data-says", { hasText: "the server answers 503" }).waitFor();
  assert.deepEqual(await faults(page), []);
  await page.locator("#data-again").press("Enter");
  await page.waitForFunction(() => location.search.includes("data=fashion"));
  assert.equal(await page.evaluate(() => document.activeElement?.id), "data", "the focus is not lost with the button");
  assert.ok(await page.locator("#data-again").isHidden());
  assert.equal(await page.locator("#data-says").textContent(), "");
  await leave();
});

test("an address whose data are not there trains the digits, and says why", async () => {
  const { page, leave } = await open("gpus", {}, { "/data/lincoln.txt": null });
  await page.goto(`${page.url()}?data=text&seed=3`);
  await page.locator("#data-says", { hasText: "the server answers 404" }).waitFor();
  await train(page, 3);
  await page.locator("#reading").waitFor();
  assert.match(page.url(), /\?seed=3$/);
  await page.goto(`${page.url().split("?")[0]}?data=birds`);
  await page.locator("[data-kind=address]", { hasText: "data=birds, but it needs one of digits, fashion, text, own" }).waitFor();
  await leave();
});

/**
 * Holds a file back. Gives what sends it.
 * @param {Page} page
 * @param {string} name
 */
async function hold(page, name) {
  /** @type {() => void} */
  let send = () => {};
  const sent = new Promise((resolve) => { send = () => resolve(undefined); });
  await page.route(`**/data/${name}`, async (route) => { await sent; await route.fulfill({ status: 200, body: "late" }); });
  return send;
}

/** The step that is shown. @param {Page} page */
async function stepOf(page) {
  return Number(await page.locator("#fact-step").textContent());
}

test("a choice while another is loaded takes its place", async () => {
  const { page, said, loaded, leave } = await opened();
  const send = await hold(page, "fashion.bin");
  await page.locator("#data").selectOption("fashion");
  await page.locator("#data-says", { hasText: "Loading" }).waitFor();
  await choose(page, "text");
  send();
  await train(page, 12);
  await page.locator("#writing").waitFor();
  assert.match(page.url(), /data=text/);
  assert.equal(await page.locator("#data-says").textContent(), "");
  await choose(page, "fashion");
  assert.equal(loaded.filter((name) => name === "/data/fashion.bin").length, 1, "what came too late is kept");
  assert.deepEqual(said, []);
  await leave();
});

test("back to the data of the run, while others are loaded or could not be, and the run goes on", async () => {
  const { page, leave } = await opened();
  const send = await hold(page, "fashion.bin");
  await train(page, 5);
  await page.locator("#data").selectOption("fashion");
  await page.locator("#data-says", { hasText: "Loading" }).waitFor();
  let before = await stepOf(page);
  await page.locator("#data").selectOption("digits");
  await page.locator("#data-says:empty").waitFor({ state: "attached" });
  send();
  await page.waitForFunction((step) => Number(document.getElementById("fact-step")?.textContent) > step + 5, before);
  assert.ok(!page.url().includes("data="), "clothes that come later change nothing");

  await page.route("**/data/lincoln.txt", (route) => route.abort());
  await page.locator("#data").selectOption("text");
  await page.locator("#data-again").waitFor();
  before = await stepOf(page);
  await page.locator("#data").selectOption("digits");
  await page.locator("#data-again").waitFor({ state: "hidden" });
  assert.equal(await page.locator("#data-says").textContent(), "");
  assert.ok((await stepOf(page)) >= before);
  assert.equal(await page.evaluate(() => document.body.dataset.state), "running");
  await leave();
});

test("a choice while the address’s data are loaded begins the run, and the address keeps its settings for later", async () => {
  const visited = await open("gpus", {}, FILES);
  const { page, said, leave } = visited;
  const send = await hold(page, "lincoln.txt");
  await page.goto(`${page.url()}?data=text&batch_size=16&temperature=1.1&seed=3`);
  await page.locator("#data-says", { hasText: "Loading" }).waitFor();
  await page.locator("#data").selectOption("digits");
  await train(page, 3);
  assert.match(page.url(), /\?seed=3$/, "what suits the text alone is left out");
  assert.equal(await page.locator("#batch-size-is").textContent(), "64");
  send();
  await page.waitForFunction((step) => Number(document.getElementById("fact-step")?.textContent) > step + 5, await stepOf(page));
  await page.locator("#data").selectOption("text");
  await page.waitForFunction(() => location.search === "?data=text&batch_size=16&seed=3&temperature=1.1");
  await choose(page, "fashion");
  await page.locator("#data").selectOption("text");
  await page.waitForFunction(() => location.search === "?data=text&seed=3");
  assert.deepEqual(said, []);
  await leave();
});

test("what the engine still sends of the data before is not shown", async () => {
  const { page, leave } = await open("late", {}, FILES);
  await train(page, 8);
  await page.locator("#pictures-says", { hasText: "of 360 right" }).waitFor();
  // It sees each change, from before it is asked for: a machine may be too busy for a look every so often.
  const watched = page.evaluate(() => new Promise((resolve) => {
    const texts = new Set();
    const ids = ["wrong", "pictures-says", "fact-accuracy", "loss-is"];
    let is_other = false;
    const watcher = new MutationObserver(() => {
      // It is drawn at its own pace; nothing of the run before comes again.
      is_other ||= location.search.includes("data=fashion") && document.getElementById("loss-is")?.textContent === "";
      for (const id of is_other ? ids : []) texts.add(`${id}: ${document.getElementById(id)?.textContent}`);
      if (document.body.dataset.state !== "opening") return;
      watcher.disconnect();
      resolve([...texts]);
    });
    watcher.observe(document.body, { attributes: true, characterData: true, childList: true, subtree: true });
  }));
  await page.locator("#data").selectOption("fashion");
  const seen = /** @type {string[]} */ (await watched);
  assert.ok(seen.length > 0 && seen.every((text) => !/undefined|NaN|right|\d/.test(text)), seen.join("\n"));
  await page.locator("#pictures-says", { hasText: "of 500 right" }).waitFor();
  await leave();
});

test("an engine that fails while data are loaded starts nothing, and the list is closed", async () => {
  const { page, leave } = await open("gpus", {}, FILES);
  const send = await hold(page, "lincoln.txt");
  await page.goto(`${page.url()}?data=text`);
  await page.locator("#data-says", { hasText: "Loading" }).waitFor();
  await page.workers()[0].evaluate(() => { postMessage({ type: "failed", message: "RuntimeError: unreachable" }); });
  await page.locator("[data-kind=failed]").waitFor();
  send();
  await page.locator("#data-says", { hasText: "can’t be loaded: the engine is gone" }).waitFor();
  const open_ones = await page.locator("button:not(.word):enabled, select:enabled").evaluateAll((all) => all.map(({ id }) => id));
  assert.deepEqual(open_ones, ["export-metrics"]);
  assert.equal(await page.locator("#status").textContent(), "The engine has stopped.");
  await leave();
});

for (const data of ["fashion", "text"]) {
  test(`nothing is wider than a phone with ${data}, light and dark`, async () => {
    for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
      const { page, said, leave } = await opened(`?data=${data}`, { viewport: { width: 390, height: 844 }, colorScheme });
      await train(page, 25);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
      assert.deepEqual(await faults(page), []);
      assert.deepEqual(said, []);
      await leave();
    }
  });
}

/** A text of the visitor's own. @param {string} name @param {string | Buffer} content */
const file = (name, content) => ({ name, mimeType: "text/plain", buffer: Buffer.from(content) });

test("a text of one's own is read here, learned, and sent nowhere", async () => {
  const { page, said, leave } = await opened();
  const sent = sends(page);
  await train(page, 3);
  await page.locator("#own-text").setInputFiles(file("diary.txt", "Dear diary. ".repeat(50)));
  await page.waitForFunction(() => location.search.includes("data=own"));
  assert.equal(await page.locator("#data option:checked").textContent(), "your text, diary.txt");
  assert.deepEqual(await page.locator("#model option").evaluateAll((all) => all.map((option) => /** @type {HTMLOptionElement} */ (option).value)), ["gru", "gpt"]);
  assert.equal(await page.locator("#command").textContent(), "manyhands evaluate text.safetensors --data your-text.txt");
  await page.locator("#written li").first().waitFor();
  // Another one takes its place, also where it is dropped; UTF-16 of Windows is read.
  await page.evaluate(() => {
    const dropped = new DataTransfer();
    dropped.items.add(new File([new Uint8Array([0xff, 0xfe]), new Uint16Array(Array.from("Ein Märchen. ".repeat(50), (letter) => letter.charCodeAt(0)))], "märchen.txt"));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
  });
  await page.waitForFunction(() => document.querySelector("#data option:checked")?.textContent === "your text, märchen.txt");
  await page.waitForFunction(() => document.getElementById("data-says")?.textContent === "");
  assert.deepEqual(sent, [], "a request that could hold a part of it");
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(said, []);
  await leave();
});

test("what is no text, or too long, is refused, and the run goes on", async () => {
  const { page, said, leave } = await opened();
  await train(page, 3);
  const says = page.locator("#data-says");
  for (const [name, content, problem] of /** @type {[string, string | Buffer, RegExp][]} */ ([
    ["photo.jpg", Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0]), /photo\.jpg is no plain text: save it as one, as \.txt\. The digits stay\.$/],
    ["zeros.txt", "a\0b", /zeros\.txt is no plain text/],
    ["long.txt", Buffer.alloc(4_000_001, "a"), /long\.txt has 4\.0 MB, and 4\.0 MB are the most: choose a part of it/],
    // The stand-in, as the engine, refuses a text that is too short.
    ["empty.txt", "", /the pictures need to be/],
  ])) {
    await page.locator("#own-text").setInputFiles(file(name, content));
    await says.filter({ hasText: problem }).waitFor();
  }
  const before = await stepOf(page);
  await page.waitForFunction((step) => Number(document.getElementById("fact-step")?.textContent) > step + 3, before);
  // The address of another's text holds none of it.
  await page.goto(`${page.url().split("?")[0]}?data=own&model=gpt`);
  await says.filter({ hasText: "your text is kept nowhere, so choose it again below. The digits stay." }).waitFor();
  assert.deepEqual(said, []);
  await leave();
});

test("large numbers beside long names fit on a phone", async () => {
  const { page, leave } = await opened("?data=text", { viewport: { width: 390, height: 844 } });
  for (const [id, text] of [["fact-step", "12,345"], ["fact-accuracy", "3.21"], ["fact-speed", "1,234"], ["fact-gain", "12.34 ×"]]) {
    await page.evaluate(([of, says]) => { /** @type {HTMLElement} */ (document.getElementById(of)).textContent = says; }, [id, text]);
  }
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
  await leave();
});

test("the GPT's programs say what the page trains", async () => {
  const { page, said, leave } = await opened("?data=text&model=gpt");
  await page.locator("#lines summary").click();
  await page.locator("#lines-python", { hasText: "normed, normed, use_causal_mask=True)" }).waitFor();
  await page.locator("#lines-rust", { hasText: "presets::gpt(&Size { input: [40].into(), outputs, seed: 0 }, 2, 64)?;" }).waitFor();
  assert.equal(await page.locator("#lines-rust", { hasText: /Sequential|layers/ }).count(), 0);
  assert.deepEqual(said, []);
  await leave();
});
