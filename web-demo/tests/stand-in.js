// Visits to the page as it is written, with a stand-in for the engine, and what tests do there.

import { after, before } from "node:test";
import { faultsOf } from "./axe.js";
import { launch, visit } from "./browser.js";
import { WRITTEN, serve, withStandIn } from "./serve.js";

/** @import { Browser, BrowserContextOptions, Page } from "playwright-core" */
/** @import { Served } from "./serve.js" */

/** What axe checks of a page that people work with. */
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** @type {Browser} */
let browser;
/** @type {Served[]} */
const servers = [];

before(async () => { browser = await launch("no adapter"); });
after(async () => {
  await browser.close();
  servers.forEach((server) => server.close());
});

/**
 * Opens the page with a stand-in of a kind.
 * @param {string} variant
 * @param {BrowserContextOptions} [options]
 * @param {Record<string, string | null>} [replaced]
 */
export async function open(variant, options = {}, replaced = {}) {
  const server = await serve(WRITTEN, { ...withStandIn(variant), ...replaced });
  servers.push(server);
  return visit(browser, `http://localhost:${server.port}/lab/`, options);
}

/**
 * Opens the page anew with a card of the tour in its address. On a page that is open already the card acts at once and
 * takes itself out of the address, so that what is then loaded again may have no card any more.
 * @param {Page} page
 * @param {string} hash
 */
export async function openAt(page, hash) {
  const address = page.url() + hash;
  await page.goto("about:blank");
  await page.goto(address);
}

/**
 * Starts training, and waits until it is past a step.
 * @param {Page} page
 * @param {number} step
 */
export async function train(page, step) {
  await page.click("#run");
  await page.waitForFunction((least) => Number(document.getElementById("fact-step")?.textContent) > least, step);
}

/** Trains some steps, then pauses. @param {Page} page */
export async function trainAndPause(page) {
  await train(page, 5);
  await page.click("#run");
  await page.waitForFunction(() => document.body.dataset.state === "paused");
}

/** Everything on the page in use: training, an adapter lost, a digit drawn, both reports. @param {Page} page */
export async function useAll(page) {
  await train(page, 30);
  await page.locator(".unplug").nth(1).click();
  await page.locator("#pad").press("3");
  await page.click("#measure");
  await page.click("#predict");
  await page.locator("summary", { hasText: "Seed" }).click();
  await page.locator("#predicted table").first().waitFor();
  await page.click("#stages-show");
  await page.locator("#stages table tbody tr").nth(15).waitFor();
  await page.locator("#log .number").first().waitFor();
}

/** What axe finds of weight. @param {Page} page */
export async function faults(page) {
  // What lies just beneath the bar at the top depends on how far the page is scrolled.
  await page.evaluate(() => scrollTo({ top: 0, behavior: "instant" }));
  return faultsOf(page, { rules: RULES, impacts: ["serious", "critical"] });
}
