// What axe finds on a page.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** @import { Page } from "playwright-core" */

const AXE = readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

/**
 * Faults, each with the element that has it. All that axe finds, but for other rules or impacts than these.
 * @param {Page} page
 * @param {{ rules?: string[], impacts?: string[] }} [only]
 * @returns {Promise<string[]>}
 */
export async function faultsOf(page, only = {}) {
  await page.evaluate(AXE);
  return page.evaluate(async ({ rules, impacts }) => {
    const { violations } = await /** @type {any} */ (window).axe.run(rules ? { runOnly: rules } : {});
    return violations
      .filter((/** @type {any} */ it) => !impacts || impacts.includes(it.impact))
      .flatMap((/** @type {any} */ it) => it.nodes.map((/** @type {any} */ node) => `${it.id}: ${node.html} ${node.failureSummary}`));
  }, only);
}
