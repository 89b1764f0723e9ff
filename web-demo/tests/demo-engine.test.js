// Does the page train while the engine is on its way, or gets no adapter? The built page with the engine itself.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import path from "node:path";
import { PATIENCE_MS, reach } from "./browser.js";
import { open, openWith, webgpu } from "./built.js";
import { BUILT, WASM } from "./serve.js";

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
  let load = () => {};
  const loaded = new Promise((resolve) => { load = () => resolve(readFileSync(path.join(BUILT, WASM))); });
  const { page, said, leave } = await openWith(webgpu, { [WASM]: loaded }, "?adapters=cpu&model=small");
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
