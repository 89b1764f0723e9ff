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

/**
 * What the native command predicts.
 * @param {RigConfig} rig
 * @param {{ placement: { layers: string[], adapters: number[] }[], micro_batches: number }} [stages]
 */
export function predicted({ preset, batch_size, host, adapters }, stages) {
  const folder = mkdtempSync(path.join(tmpdir(), "manyhands-rig-"));
  const file = path.join(folder, "rig.toml");
  const tables = adapters.map((spec) => `[[adapters]]\n${Object.entries(spec).map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join("\n")}`);
  const placed = stages?.placement.map(({ layers, adapters: on }) => `{ layers = ${JSON.stringify(layers)}, adapters = ${JSON.stringify(on)} }`);
  const placement = placed ? `placement = [${placed.join(", ")}]\nmicro_batches = ${stages?.micro_batches}\n` : "";
  writeFileSync(file, `batch_size = ${batch_size}\npreset = "${preset}"\n${placement}[host]\ncopy_gb_s = ${host.copy_gb_s}\n${tables.join("\n")}\n`);
  const report = JSON.parse(manyhands("simulate", file, "--json"));
  rmSync(folder, { recursive: true });
  return report;
}
