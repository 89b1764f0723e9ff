// The simulator of the built engine, without a browser: its answers are those that the page's worker gives.

import { readFileSync } from "node:fs";
import path from "node:path";
import { BUILT } from "./serve.js";

/** @import { RigConfig, Told } from "../www/messages.js" */

/** @type {Promise<any> | undefined} */
let loading;
/** What it has told last. @type {any} */
let told;

async function load() {
  const folder = path.join(BUILT, "engine");
  // It is written as a module, for browsers, beside no package that says so.
  const glue = await import(`data:text/javascript,${encodeURIComponent(readFileSync(path.join(folder, "manyhands_web_demo.js"), "utf8"))}`);
  glue.initSync({ module: readFileSync(path.join(folder, "manyhands_web_demo_bg.wasm")) });
  glue.start_simulator((/** @type {string} */ text) => { told = JSON.parse(text); });
  return glue;
}

/**
 * @param {string} name
 * @param {object} request
 */
async function ask(name, request) {
  loading ??= load();
  const engine = await loading;
  engine.simulate(name, JSON.stringify({ [name]: request }));
  if (told.type === "error") throw new Error(told.message);
  return told;
}

/**
 * The prediction for a rig, with what happens in its steps.
 * @param {RigConfig} rig
 * @returns {Promise<Told<"simulated">>}
 */
export function simulated(rig) {
  return ask("simulate", { rig });
}

/**
 * The prediction for a rig with the layers in stages.
 * @param {RigConfig} rig
 * @param {number} micro_batches
 * @returns {Promise<Told<"staged">>}
 */
export function staged(rig, micro_batches) {
  return ask("stages", { rig, micro_batches });
}
