// A real Chromium with WebGPU on SwiftShader, and visits to the demo in it.

import { spawnSync } from "node:child_process";
import { chromium } from "playwright-core";

/** @import { Browser, BrowserContextOptions, Page } from "playwright-core" */

const FLAGS = [
  "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
  // A name that is not localhost: an insecure origin.
  "--host-resolver-rules=MAP insecure.test 127.0.0.1",
];
/** Without it Chromium on Linux has WebGPU, and gives no adapter: a ready test of that. */
const WEBGPU = "--enable-unsafe-webgpu";
const TIMEOUT_MS = 60_000;
/** Steps on SwiftShader on a busy machine take their time. */
export const PATIENCE_MS = 120_000;

function browserPath() {
  if (process.env.MANYHANDS_CHROMIUM) return process.env.MANYHANDS_CHROMIUM;
  for (const name of ["chromium", "google-chrome", "chromium-browser"]) {
    const found = spawnSync("which", [name], { encoding: "utf8" });
    if (found.status === 0) return found.stdout.trim();
  }
  throw new Error("no Chromium was found\n  help: install `chromium`, or set MANYHANDS_CHROMIUM to its path");
}

/**
 * @param {"webgpu" | "no adapter"} gpu
 * @returns {Promise<Browser>}
 */
export function launch(gpu) {
  const args = gpu === "webgpu" ? [...FLAGS, WEBGPU] : FLAGS;
  return chromium.launch({ executablePath: browserPath(), args, timeout: 120_000 });
}

/**
 * A page, and what it said on the console or threw: nothing, if all is well.
 * @typedef {{ page: Page, said: string[], leave: () => Promise<void> }} Visit
 */

/**
 * Opens an address in a context of its own. With reduced motion the demo waits for Start, as most tests need it.
 * @param {Browser} browser
 * @param {string} address
 * @param {BrowserContextOptions} [options]
 * @returns {Promise<Visit>}
 */
export async function visit(browser, address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  /** @type {string[]} */
  const said = [];
  page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => said.push(`thrown: ${error.stack ?? error.message}`));
  page.on("crash", () => said.push("the page crashed"));
  await page.goto(address);
  return { page, said, leave: () => context.close() };
}

/** Requests from now on that could hold more than the name of a file of the page. @param {Page} page */
export function sends(page) {
  /** @type {string[]} */
  const sent = [];
  page.on("request", (request) => {
    if (request.method() !== "GET" || new URL(request.url()).search) sent.push(`${request.method()} ${request.url()}`);
  });
  return sent;
}

/** The step that a page shows. @param {Page} page */
export function stepsOf(page) {
  return page.evaluate(() => Number(document.getElementById("fact-step")?.textContent?.replaceAll(",", "")));
}

/**
 * Waits until a page shows a step.
 * @param {Page} page
 * @param {number} least
 */
export function reach(page, least) {
  return page.waitForFunction(
    (wanted) => Number(document.getElementById("fact-step")?.textContent?.replaceAll(",", "")) >= wanted, least, { timeout: PATIENCE_MS },
  );
}
