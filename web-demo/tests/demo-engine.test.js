// Does the page train while the engine is only partly there, or gets no adapter? The built page with the engine itself.

import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { test } from "node:test";
import path from "node:path";
import { PATIENCE_MS, reach } from "./browser.js";
import { drawsAreRead, open, openWith, pause, plain, webgpu } from "./built.js";
import { BUILT, LATER, WASM } from "./serve.js";

/** Whether the page was built by `cargo xtask web build --quick`, with its larger engine. */
const isQuick = () => statSync(path.join(BUILT, WASM)).size > 1_500_000;

test("the engine’s first file trains while its second is on its way, and the simulator waits for it", async (t) => {
  if (isQuick()) return t.skip("a quick build calls other functions than those of the list");
  /** @type {(bytes: Buffer) => void} */
  let arrive = () => {};
  /** @type {Promise<Buffer>} */
  const late = new Promise((resolve) => { arrive = resolve; });
  const { page, said, leave } = await openWith(plain, { [LATER]: late });
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
    const { page, leave } = await openWith(plain, { [LATER]: file });
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
  const { page, leave } = await openWith(webgpu, { "/engine.js": `${engine}\n${refuse}` }, "?adapters=software,cpu&model=small");
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
  const { page, said, leave } = await openWith(webgpu, { [name]: loaded }, "?adapters=cpu&model=small");
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
