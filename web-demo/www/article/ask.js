// Predictions that no table holds: the scheduler itself in virtual time, in a worker of the engine.

import { Link, engine } from "../link.js";
import { HOST_GB_S } from "./table.js";

/** @import { AdapterSpec, Preset, Told } from "../messages.js" */

/** @type {Link | undefined} */
let link;

/**
 * What `manyhands simulate` predicts for cards by name.
 * @param {string[]} cards
 * @param {Preset} preset
 * @param {number} batch_size
 * @returns {Promise<Told<"simulated">>}
 */
export function simulated(cards, preset, batch_size) {
  link ??= new Link("simulator", engine(() => {}), () => {});
  /** @type {AdapterSpec[]} */
  const adapters = cards.map((card) => ({ card }));
  return link.ask({ type: "simulate", rig: { batch_size, preset, host: { copy_gb_s: HOST_GB_S }, adapters } });
}
