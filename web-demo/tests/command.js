// Runs the native command beside the page. MANYHANDS_COMMAND names it; otherwise it is built.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/** The repository, where the command runs. */
export const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** What the native command prints. @param {string[]} words */
export function manyhands(...words) {
  const [command, ...first] = process.env.MANYHANDS_COMMAND ? [process.env.MANYHANDS_COMMAND] : ["cargo", "run", "--locked", "--quiet", "--"];
  const { status, stdout, stderr } = spawnSync(command, [...first, ...words], { cwd: ROOT, encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout;
}
