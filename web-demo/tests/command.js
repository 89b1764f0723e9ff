// Runs the native command beside the page. MANYHANDS_COMMAND names it; otherwise it is built.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** @import { RigConfig } from "../www/messages.js" */

/** The repository, where the command runs. */
export const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** What the native command prints. @param {string[]} words */
export function manyhands(...words) {
  const [command, ...first] = process.env.MANYHANDS_COMMAND ? [process.env.MANYHANDS_COMMAND] : ["cargo", "run", "--locked", "--quiet", "--"];
  const { status, stdout, stderr } = spawnSync(command, [...first, ...words], { cwd: ROOT, encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout;
}

/** What the native command prints of a rig in TOML. @param {string} text @param {string[]} words More for the command. */
export function printedOf(text, ...words) {
  const folder = mkdtempSync(path.join(tmpdir(), "manyhands-rig-"));
  const file = path.join(folder, "rig.toml");
  writeFileSync(file, text);
  const told = manyhands("simulate", file, ...words);
  rmSync(folder, { recursive: true });
  return told;
}

/**
 * Has the native command predict a rig.
 * @param {RigConfig} rig
 * @param {{ placement: { layers: string[], adapters: number[] }[], micro_batches: number }} [stages]
 * @param {string[]} words More for the command.
 */
function simulate({ preset, batch_size, host, adapters }, stages, ...words) {
  const toml = (/** @type {any} */ value) => /** @type {string} */ (Array.isArray(value) ? `[${value.map((entry) => `{ ${Object.entries(entry).map(([key, number]) => `${key} = ${number}`).join(", ")} }`).join(", ")}]` : JSON.stringify(value));
  const tables = adapters.map((spec) => `[[adapters]]\n${Object.entries(spec).map(([key, value]) => `${key} = ${toml(value)}`).join("\n")}`);
  const placed = stages?.placement.map(({ layers, adapters: on }) => `{ layers = ${JSON.stringify(layers)}, adapters = ${JSON.stringify(on)} }`);
  const placement = placed ? `placement = [${placed.join(", ")}]\nmicro_batches = ${stages?.micro_batches}\n` : "";
  return printedOf(`batch_size = ${batch_size}\npreset = "${preset}"\n${placement}[host]\ncopy_gb_s = ${host.copy_gb_s}\n${tables.join("\n")}\n`, ...words);
}

/** What the native command prints of a rig for people. @param {RigConfig} rig */
export function printed(rig) {
  return simulate(rig);
}

/**
 * What the native command predicts.
 * @param {RigConfig} rig
 * @param {{ placement: { layers: string[], adapters: number[] }[], micro_batches: number }} [stages]
 */
export function predicted(rig, stages) {
  return JSON.parse(simulate(rig, stages, "--json"));
}
