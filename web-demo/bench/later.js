// Writes `later.txt`: the functions of the engine that a first visit does not call, and that go into its second file.
//
//     cargo xtask web later
//
// That builds the page with an engine that notes calls, and calls this script with its folder. A page is opened as a first visitor does,
// without adapters and with a GPU; requests to the simulator are held back. Each line is a hash of a function's name (`bindgen/src/calls.rs`).
// A list that is not of this code is no error: a function that it does not name is in the first file, and one that is called early
// though it is named makes the first file wait for the second.

import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { launch, reach, stepsOf, visit } from "../tests/browser.js";
import { serve } from "../tests/serve.js";

const LIST = new URL("../later.txt", import.meta.url);
/** Instructions; what stands for a smaller function in the first file is no smaller. */
const SMALLEST = 12;
const CHANNEL = "calls";
/** @type {{ gpu: "webgpu" | "no adapter", query: string, steps: number }[]} Past the first epoch of varied pictures; some epochs on a GPU. */
const VISITS = [{ gpu: "no adapter", query: "", steps: 300 }, { gpu: "webgpu", query: "?adapters=software,cpu", steps: 60 }];

/** Before the JavaScript of wasm-bindgen, in each worker: answers with the exported globals, by name. */
const ANSWER = `
const instantiate = WebAssembly.instantiate;
let exports = {};
WebAssembly.instantiate = async (...given) => {
  const made = await instantiate(...given);
  exports = (made.instance ?? made).exports;
  return made;
};
const channel = new BroadcastChannel("${CHANNEL}");
channel.onmessage = ({ data }) => {
  if (data === "ask") channel.postMessage(Object.entries(exports).filter(([, it]) => it instanceof WebAssembly.Global).map(([name, { value }]) => [name, value]));
};
`;

const [folder, ...rest] = process.argv.slice(2);
if (!folder || rest.length > 0) {
  console.error("a folder of the page is needed\n  help: cargo xtask web later");
  process.exit(2);
}

const SCRIPT = "/engine/manyhands_web_demo.js";
const script = await readFile(path.join(folder, SCRIPT), "utf8");
const server = await serve([["/", folder]], { [SCRIPT]: ANSWER + script });
/** @type {Map<string, { size: number, is_called: boolean }>} By hash. */
const functions = new Map();

/** Runs in the page. @param {string} name */
function ask(name) {
  return new Promise((done) => {
    const channel = new BroadcastChannel(name);
    /** @type {[string, number][][]} */
    const noted = [];
    channel.onmessage = ({ data }) => noted.push(data);
    channel.postMessage("ask");
    setTimeout(() => done(noted), 3000);
  });
}

/**
 * Each change of a run and its rig, with some steps behind it.
 * @param {import("playwright-core").Page} page
 */
async function change(page) {
  const press = (/** @type {string} */ selector) => page.locator(selector).first().click();
  const slide = (/** @type {string} */ selector, /** @type {string} */ key) => page.locator(selector).first().press(key);
  await press("summary");
  for (const act of [
    // Evenly split, so that steps take long, and timers end.
    () => press("[name=split][value=even]"), () => slide("#lanes input", "End"), () => slide("#lanes input", "Home"), () => press("[name=split][value=learned]"),
    () => press("[name=batch_norm][value=per_shard]"), () => press("[name=batch_norm][value=whole_batch]"), () => slide("#batch-size", "Home"),
    () => slide("#batch-size", "End"), () => page.locator("#learning-rate").fill("0.003"), () => page.locator("#seed").focus(),
    () => press("#add button:enabled"), () => press("#lanes .unplug:enabled"), () => press("#lanes .remove:enabled"),
  ]) {
    await act();
    await reach(page, (await stepsOf(page)) + 3);
  }
}

/**
 * Opens the page, and notes what was called after some steps. With reduced motion it waits for Start; then it is paused, makes one step, is reset, goes on, and is changed.
 * @param {"webgpu" | "no adapter"} gpu
 * @param {string} query
 * @param {number} steps
 * @param {"no-preference" | "reduce"} reducedMotion
 */
async function note(gpu, query, steps, reducedMotion) {
  const browser = await launch(gpu);
  const { page, said } = await visit(browser, "about:blank", { reducedMotion });
  await page.addInitScript(() => {
    const post = Worker.prototype.postMessage;
    Worker.prototype.postMessage = function (/** @type {any[]} */ ...all) {
      if (all[0].type !== "simulate") post.apply(this, /** @type {any} */ (all));
    };
  });
  await page.goto(`http://localhost:${server.port}/${query}`);
  if (reducedMotion === "reduce") await page.locator("#run:enabled").click();
  await reach(page, steps);
  if (reducedMotion === "reduce") {
    await page.click("#run");
    await page.waitForFunction(() => document.body.dataset.state === "paused");
    await page.locator("#step:enabled").click();
    await page.waitForTimeout(1000);
    await page.locator("#reset:enabled").click();
    await page.locator("#run:enabled").click();
    await reach(page, 1);
    await change(page);
  }
  const noted = await page.evaluate(ask, CHANNEL);
  await browser.close();
  if (said.length > 0) throw new Error(said.join("\n"));
  // The engine, and at least one worker of a CPU adapter.
  if (noted.length < 2) throw new Error(`${noted.length} workers answered, but there are more`);
  for (const [name, value] of noted.flat()) {
    const [, hash, size] = name.split(" ");
    if (size === undefined) continue;
    const other = functions.get(hash);
    functions.set(hash, { size: Math.max(Number(size), other?.size ?? 0), is_called: value > 0 || other?.is_called === true });
  }
}

for (const { gpu, query, steps } of VISITS) {
  for (const reducedMotion of /** @type {const} */ (["no-preference", "reduce"])) {
    await note(gpu, query, steps, reducedMotion);
  }
}
server.close();
const later = [...functions].filter(([, { size, is_called }]) => !is_called && size >= SMALLEST).map(([hash]) => hash);
await writeFile(LIST, `${later.sort().join("\n")}\n`);
console.log(`${functions.size} functions; ${later.length} come later`);
