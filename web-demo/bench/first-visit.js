// What a first visitor sees within ten seconds, without a click: training on, the loss falling, the lanes of eight simulated cards with
// their speed-up, and the gap to one adapter alone. On a desktop, a phone both ways, and at 200 %, light and dark; each by itself.
//
//     cargo xtask web build && node web-demo/bench/first-visit.js [FOLDER]
//
// Writes screenshots into the folder, `target/first-visit` by default: of the screen after ten seconds, and of the whole page. Fails
// if something was not there in time, or the console had a message. No other program should run meanwhile.

import { mkdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { launch, visit } from "../tests/browser.js";
import { BUILT, serve } from "../tests/serve.js";

const HERE = fileURLToPath(new URL("..", import.meta.url));
const FOLDER = process.argv[2] ?? path.join(HERE, "../target/first-visit");
const WITHIN_MS = 10_000;
const LOOK_MS = 50;
const VIEWS = [
  { name: "1280x720", viewport: { width: 1280, height: 720 } },
  { name: "390x844", viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 },
  { name: "844x390", viewport: { width: 844, height: 390 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 },
  // A screen of 1280 × 720 at 200 %.
  { name: "200-percent", viewport: { width: 640, height: 360 }, deviceScaleFactor: 2 },
];

/** What is there. Runs in the page. */
function look() {
  const text = (id) => document.getElementById(id)?.textContent ?? "";
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return {
    paint: paint ? paint.startTime : null,
    step: Number(text("fact-step").replaceAll(",", "")) || 0,
    loss: parseFloat(text("loss-is")),
    lanes: document.querySelectorAll("#other-lanes .thin-lane").length,
    speed_up: parseFloat(text("other-speed-up")),
    gap: parseFloat(text("check-says").match(/Largest of \d+: ([\d.]+\d)/)?.[1] ?? "NaN"),
    now: performance.now(),
  };
}

/** Watches a page until all is there or the time is over: milliseconds of each from the start of loading. */
async function watch(page) {
  const seen = {};
  let [first, last] = [NaN, null];
  for (;;) {
    last = await page.evaluate(look);
    if (Number.isNaN(first) && last.step > 0) first = last.loss;
    const is_there = {
      "first paint": last.paint !== null, "training": last.step > 0, "loss has halved": last.loss < first / 2,
      "eight cards": last.lanes === 9 && last.speed_up > 1, "gap": last.gap < 1e-5,
    };
    for (const [name, is] of Object.entries(is_there)) seen[name] ??= is ? (name === "first paint" ? last.paint : last.now) : undefined;
    if (last.now > WITHIN_MS) return { seen, last };
    await page.waitForTimeout(LOOK_MS);
  }
}

mkdirSync(FOLDER, { recursive: true });
const server = await serve([["/", BUILT]]);
let is_well = true;
for (const { name, ...view } of VIEWS) {
  for (const colorScheme of ["light", "dark"]) {
    const browser = await launch("no adapter");
    const { page, said } = await visit(browser, "about:blank", { ...view, colorScheme, reducedMotion: "no-preference" });
    await page.goto(`http://localhost:${server.port}/lab/`);
    const { seen, last } = await watch(page);
    const file = path.join(FOLDER, `${name}-${colorScheme}`);
    await page.screenshot({ path: `${file}.png` });
    const late = Object.entries(seen).filter(([, ms]) => ms === undefined || ms > WITHIN_MS).map(([what]) => what);
    const times = Object.entries(seen).map(([what, ms]) => `${what} ${ms === undefined ? "–" : (ms / 1000).toFixed(1)} s`);
    console.log(`${name} ${colorScheme}: ${times.join(", ")}; after 10 s: step ${last.step}, loss ${last.loss}, ${last.speed_up} × on eight cards, gap ${last.gap}`);
    await page.screenshot({ path: `${file}-whole.png`, fullPage: true });
    if (late.length > 0 || said.length > 0) {
      is_well = false;
      console.error(`${name} ${colorScheme}: ${[...late.map((what) => `${what} was not there in time`), ...said].join("; ")}`);
    }
    await browser.close();
  }
}
server.close();
console.log(`screenshots: ${FOLDER}`);
process.exitCode = is_well ? 0 : 1;
