// Random actions on everything that the built page offers, by pointer and by keyboard, with all data: is anything said on the console,
// does a batch's split not add up, are there more adapters than may be, is the focus lost, does axe find anything, does memory grow?
//
//     cargo xtask web build && node web-demo/bench/soak.js [MINUTES [SEED]]
//
// Ten minutes, unless others are asked for. Without WebGPU, so that rigs are workers of the CPU. Prints what was found, and fails if
// anything was; the same seed has the same actions, but not at the same steps of training.

import { readFileSync, readdirSync } from "node:fs";
import { faultsOf } from "../tests/axe.js";
import { launch, visit } from "../tests/browser.js";
import { BUILT, serve } from "../tests/serve.js";

const [minutes, seed] = [Number(process.argv[2] ?? 10), Number(process.argv[3] ?? 0)];
/** A look at memory and at what axe finds. */
const LOOK_MS = 60_000;
const VIEWS = [[1280, 720], [390, 844], [844, 390], [640, 360]];
/** Actions that load the processor for long, and are chosen seldom. */
const SELDOM = ["measure", "stages", "more", "reload"];
/** Longest that opening adapters and measuring take. */
const PATIENCE_MS = 180_000;
const MOST_ADAPTERS = 16;
/** A rig larger than this is made smaller by the next action: each worker takes a part of two cores. */
const MANY = 6;
const MEGABYTE = 2 ** 20;

/** Random numbers of a seed: the mulberry of 32 bits. */
let state = seed;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), state | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}
const one = (list) => list[Math.floor(random() * list.length)];

const found = new Map();
function find(text) {
  if (!found.has(text)) console.error(`found: ${text}`);
  found.set(text, (found.get(text) ?? 0) + 1);
}

/** Elements of a kind that can be acted on now. */
async function ready(page, selector) {
  const all = await page.locator(`${selector}:visible`).all();
  const enabled = await Promise.all(all.map((element) => element.evaluate((it) => !it.disabled && it.closest("[inert]") === null).catch(() => false)));
  return all.filter((_, at) => enabled[at]);
}

/** Presses a button by a click or by a key. After a key the focus has to be somewhere. */
function press(selector) {
  return async (page) => {
    const button = one(await ready(page, selector));
    if (!button) return;
    if (random() < 0.5) return button.click({ timeout: 3000 });
    await button.focus({ timeout: 3000 });
    await page.keyboard.press(one(["Enter", " "]));
    // What is disabled while adapters are opened, or scaling is measured, gets it back then.
    const settled = () => document.activeElement !== document.body;
    await page.waitForFunction(settled, undefined, { timeout: PATIENCE_MS }).catch(async () => {
      find(`the focus was lost by ${selector}, state ${await page.evaluate(() => document.body.dataset.state)}`);
    });
  };
}

const slide = (selector) => async (page) => {
  const slider = one(await ready(page, selector));
  if (!slider) return;
  await slider.focus({ timeout: 3000 });
  for (let count = 0; count < 1 + random() * 4; count += 1) await page.keyboard.press(one(["ArrowLeft", "ArrowRight", "ArrowRight", "Home"]));
};

const choose = (selector) => async (page) => {
  const list = one(await ready(page, selector));
  if (!list) return;
  const values = await list.locator("option").evaluateAll((all) => all.map((option) => option.value));
  if (values.length > 0) await list.selectOption(one(values), { timeout: 3000 });
};

const write = (selector, values) => async (page) => {
  const input = one(await ready(page, selector));
  if (!input) return;
  await input.fill(String(one(values)), { timeout: 3000 });
  await input.press("Tab");
};

async function draw(page) {
  if (!(await page.locator("#pad").isVisible())) return;
  await page.locator("#pad").scrollIntoViewIfNeeded();
  const box = await page.locator("#pad").boundingBox();
  if (!box) return;
  const spot = () => [box.x + random() * box.width, box.y + random() * box.height];
  await page.mouse.move(...spot());
  await page.mouse.down();
  for (let count = 0; count < 4; count += 1) await page.mouse.move(...spot(), { steps: 3 });
  await page.mouse.up();
}

/** Saves the metrics of the run, and has them played. */
async function replay(page) {
  const [button] = await ready(page, "#export-metrics");
  if (!button || !(await page.locator("#replay-file").isEnabled())) return;
  const [download] = await Promise.all([page.waitForEvent("download", { timeout: 5000 }), button.click({ timeout: 3000 })]);
  await page.locator("#replay-file").setInputFiles(await download.path(), { timeout: 3000 });
}

/** By names; those with several are for things that change much. */
const ACTIONS = {
  run: press("#run"), step: press("#step"), slow: press("#step-slowly"), reset: press("#reset"), batch: slide("#batch-size"), split: press("[name=split]"), norm: press("[name=batch_norm]"),
  data: choose("#data"), model: choose("#model"), again: press("#data-again"), temperature: slide("#temperature"), throttle: slide("#lanes input"),
  unplug: press("#lanes .unplug"), remove: press("#lanes .remove"), add: press("#add button"), rig: press("#rigs button"), other: choose("#other-model"),
  card: press("#tour li:not([data-card=more]):not([data-card=stages]) button"), more: press("[data-card=more] button"), measure: press("#measure"),
  predict: press("#predict"), spec: write("#rig-adapters input[type=number]", [1, 10, 500]), stages: press("#stages button"), stage: choose("#stages select"), pieces: slide("#stages input"),
  details: press("summary"), seed: write("#seed", [0, 1, 7]), rate: write("#learning-rate", [0.0005, 0.002, 0.02]), epochs: write("#epochs", [0, 0, 1]), varied: write("#varied-from", [0, 2, 11]),
  draw, digit: async (page) => { if (await page.locator("#pad").isVisible()) await page.locator("#pad").press(String(Math.floor(random() * 10))); }, clear: press("#clear"),
  metrics: press("#export-metrics"), weights: press("#export-model"), link: press("#copy-link"), picture: press("#export-card"), replay, played: press("[data-kind=replay] button"), word: press(".word"),
  point: async (page) => { const chart = one(await ready(page, ".chart, #pictures")); await chart?.hover({ timeout: 3000 }); },
  scheme: (page) => page.emulateMedia({ colorScheme: one(["light", "dark"]) }),
  view: (page) => { const [width, height] = one(VIEWS); return page.setViewportSize({ width, height }); },
  reload: (page) => page.reload(),
};
const NAMES = Object.keys(ACTIONS).filter((name) => !SELDOM.includes(name));

/** What must hold at any time. Runs in the page. */
function look() {
  const label = document.getElementById("batch")?.ariaLabel ?? "";
  const [, rows] = label.match(/^Batch of (\d+) rows/) ?? [];
  const sum = [...label.matchAll(/: (\d+)(?=,|$)/g)].reduce((total, [, part]) => total + Number(part), 0);
  return {
    split: rows !== undefined && sum !== Number(rows) ? label : "", n_lanes: document.querySelectorAll("#lanes .lane").length,
    is_wide: document.documentElement.scrollWidth > document.documentElement.clientWidth, state: document.body.dataset.state,
    step: document.getElementById("fact-step")?.textContent, has_failed: document.querySelector("[data-kind=failed]") !== null,
  };
}

/** Megabytes of all processes of the browser, and of the page's own objects after a collection. */
async function memory(page, session) {
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  const { nodes } = await session.send("Memory.getDOMCounters");
  const processes = new Map();
  for (const id of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const read = (name) => Number(readFileSync(`/proc/${id}/status`, "utf8").match(new RegExp(`^${name}:\\s+(\\d+)`, "m"))?.[1] ?? 0);
      processes.set(Number(id), { parent: read("PPid"), resident: read("VmRSS") / 1024 });
    } catch {
      // It has ended meanwhile.
    }
  }
  const is_ours = (id) => id === process.pid || (processes.has(id) && id > 1 && is_ours(processes.get(id).parent));
  const resident = [...processes].filter(([id]) => id !== process.pid && is_ours(id)).reduce((sum, [, { resident: part }]) => sum + part, 0);
  return { heap: usedSize / MEGABYTE, nodes, resident };
}

const server = await serve([["/", BUILT]]);
const browser = await launch("no adapter");
const { page, said } = await visit(browser, "about:blank", { reducedMotion: "no-preference", viewport: { width: 1280, height: 720 }, acceptDownloads: true });
await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
await page.goto(`http://localhost:${server.port}/lab/`);
await page.locator("#run:enabled").waitFor();
const session = await page.context().newCDPSession(page);
const begin = performance.now();
const counts = {};
const looks = [];
let looked = -Infinity;
while (performance.now() - begin < minutes * 60_000) {
  const n_lanes = await page.locator("#lanes .lane").count();
  const name = n_lanes > MANY && random() < 0.7 ? "remove" : random() < 0.02 ? one(SELDOM) : one(NAMES);
  counts[name] = (counts[name] ?? 0) + 1;
  try {
    await ACTIONS[name](page);
  } catch (error) {
    // What was pressed may have gone or been disabled meanwhile; a page that hangs is found below.
    if (!/Timeout|not attached|detached|not enabled|not visible/.test(String(error))) find(`${name}: ${String(error).split("\n")[0]}`);
    else counts[`${name} (gone)`] = (counts[`${name} (gone)`] ?? 0) + 1;
  }
  await page.waitForTimeout(100 + random() * 500);
  const seen = await page.evaluate(look);
  if (seen.split) find(`the split does not add up: ${seen.split}`);
  if (seen.n_lanes > MOST_ADAPTERS) find(`${seen.n_lanes} adapters`);
  if (seen.has_failed) find(`the engine has failed, after ${name}`);
  if (seen.is_wide) find(`wider than its window of ${JSON.stringify(page.viewportSize())} after ${name}`);
  for (const message of said.splice(0)) find(`console, after ${name}: ${message}`);
  if (performance.now() - looked < LOOK_MS) continue;
  looked = performance.now();
  for (const fault of await faultsOf(page, { impacts: ["serious", "critical"] })) find(`axe: ${fault}`);
  const now = await memory(page, session);
  looks.push(now);
  console.log(`${((looked - begin) / 60_000).toFixed(1)} min: ${seen.state}, step ${seen.step}, ${seen.n_lanes} adapters, ${now.heap.toFixed(1)} MB of objects, ${now.nodes} nodes, ${now.resident.toFixed(0)} MB resident`);
}
const n_actions = Object.values(counts).reduce((sum, count) => sum + count, 0);
console.log(`${n_actions} actions: ${Object.entries(counts).map(([name, count]) => `${name} ${count}`).join(", ")}`);
const last = looks[looks.length - 1];
if (looks.length > 3 && last.heap > 2 * looks[1].heap + 20) find(`objects grew from ${looks[1].heap.toFixed(1)} to ${last.heap.toFixed(1)} MB`);
for (const [text, count] of found) console.log(`${count} times: ${text}`);
console.log(found.size === 0 ? "nothing was found" : `${found.size} kinds of faults`);
await browser.close();
server.close();
process.exitCode = found.size === 0 ? 0 : 1;
