// A real Chromium with WebGPU on SwiftShader.

import { spawnSync } from "node:child_process";
import { chromium } from "playwright-core";

/** @import { Browser } from "playwright-core" */

const FLAGS = [
  "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
];
/** Without it Chromium on Linux has WebGPU, and gives no adapter: a ready test of that. */
const WEBGPU = "--enable-unsafe-webgpu";

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
