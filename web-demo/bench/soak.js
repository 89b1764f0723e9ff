// Random actions on everything that the built page offers, by pointer and by keyboard: on the article, its figures in frames, and the lab with
// all data. Is anything said on the console, does a batch's split not add up, are there more adapters than may be, is the focus lost, does
// axe find anything, does memory grow?
//
//     cargo xtask web build && node web-demo/bench/soak.js [MINUTES [SEED [PLACE]]]
//
// Ten minutes, unless others are asked for: three tenths on the article, one on frames, six on the lab, or all on the place that is named. Without WebGPU, so that rigs are workers of the CPU. Prints what was found, and fails if
// anything was; the same seed has the same actions, but not at the same steps of training.

import { readFileSync, readdirSync } from "node:fs";
import { faultsOf } from "../tests/axe.js";
import { launch, visit } from "../tests/browser.js";
import { BUILT, serve } from "../tests/serve.js";

const [minutes, seed, only] = [Number(process.argv[2] ?? 10), Number(process.argv[3] ?? 0), process.argv[4]];
/** Looks at memory and at what axe finds, of a place: the first ones see it grow to its size. */
const [LOOKS, LONGEST_LOOK_MS] = [5, 60_000];
const VIEWS = [[1280, 720], [390, 844], [844, 390], [640, 360]];
/** Actions that load the processor for long, and are chosen seldom. */
const SELDOM = ["measure", "stages", "more", "reload"];
/** Longest that opening adapters and measuring take. */
const PATIENCE_MS = 180_000;
const MOST_ADAPTERS = 16;
/** A rig larger than this is made smaller by the next action: each worker takes a part of two cores. */
const MANY = 6;
/** Differences of the loss beyond roundings. */
const ROUNDINGS = 1e-4;
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

/** Gives a text of one's own, or what is none. */
const give = (selector) => async (page) => {
  const [input] = await ready(page, selector);
  const text = one(["Mary had a little lamb, its fleece was white as snow. ".repeat(40), "Auf dem Berge steht ein Haus.\n".repeat(30), "too short", "no\0text"]);
  await input?.setInputFiles({ name: "own.txt", mimeType: "text/plain", buffer: Buffer.from(text) }, { timeout: 3000 });
};

/** By names; those with several are for things that change much. */
const ACTIONS = {
  run: press("#run"), step: press("#step"), slow: press("#step-slowly"), reset: press("#reset"), batch: slide("#batch-size"), split: press("[name=split]"), norm: press("[name=batch_norm]"),
  data: choose("#data"), own: give("#own-text"), model: choose("#model"), again: press("#data-again"), temperature: slide("#temperature"), throttle: slide("#lanes input"),
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
/** What must hold at any time. Runs in the page. */
function look() {
  const label = document.getElementById("batch")?.ariaLabel ?? "";
  const [, rows] = label.match(/^Batch of (\d+) rows/) ?? [];
  const sum = [...label.matchAll(/: (\d+)(?=,|$)/g)].reduce((total, [, part]) => total + Number(part), 0);
  return {
    wrong: rows !== undefined && sum !== Number(rows) ? [label] : [], gap: undefined,
    is_wide: document.documentElement.scrollWidth > document.documentElement.clientWidth, has_failed: document.querySelector("[data-kind=failed]") !== null,
    at: `${document.body.dataset.state}, step ${document.getElementById("fact-step")?.textContent}, ${document.querySelectorAll("#lanes .lane").length} adapters`,
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

/** Figures that stand in frames. */
const FRAMES = ["split", "costs", "slow", "lost", "stages", "bricks", "cards"];

/** Puts the border of a split somewhere by the pointer. */
async function drag(page) {
  const bar = one(await ready(page, "mh-split .batch"));
  if (!bar) return;
  await bar.scrollIntoViewIfNeeded({ timeout: 3000 });
  const box = await bar.boundingBox();
  if (!box) return;
  const spot = () => [box.x + random() * box.width, box.y + box.height / 2];
  await page.mouse.move(...spot());
  await page.mouse.down();
  await page.mouse.move(...spot(), { steps: 3 });
  await page.mouse.up();
}

/** What article and frames share. Buttons are pressed by their figures, of which each has few. */
const FIGURES = {
  button: press("main button"), handle: slide("main input[type=range]"), border: slide("main [role=slider]"), drag, list: choose("main select"), details: press("summary"), scheme: ACTIONS.scheme, view: ACTIONS.view,
};
const ARTICLE = {
  ...FIGURES, guess: press("mh-guess button"), training: press("mh-ghost button"), toggle: press("mh-ghost input[type=checkbox]"), own: give("mh-ghost input[type=file]"), reload: ACTIONS.reload,
  scroll: (page) => page.evaluate((part) => scrollTo({ top: part * document.documentElement.scrollHeight, behavior: "instant" }), random()),
};

/** What must hold of figures at any time. Runs in the page. */
function lookAtFigures() {
  const wrong = [];
  const sum = (texts) => texts.reduce((total, text) => total + Number(text), 0);
  const border = document.querySelector("mh-split [role=slider]")?.getAttribute("aria-valuetext");
  if (border && sum([...border.matchAll(/(\d+)(?= examples| for the)/g)].map(([rows]) => rows)) !== 512) wrong.push(border);
  const lost = document.querySelector("mh-lost .lanes")?.getAttribute("aria-label") ?? "";
  // What a card loses is computed again, and counts once.
  const rows = [...lost.matchAll(/: (\d+) examples(?:, and (\d+) of)?/g)].flatMap(([, own, again]) => [own, again ?? 0]);
  if (lost && sum(rows) !== 512) wrong.push(lost);
  const [broken] = document.body.innerText.match(/.*(?:NaN|undefined|Infinity|\[object).*/) ?? [];
  if (broken) wrong.push(broken);
  const gap = document.querySelectorAll("mh-ghost .check .number")[2]?.textContent;
  return {
    wrong, gap: Number(gap), is_wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    at: `step ${document.querySelector("mh-ghost .check .number")?.textContent ?? "–"}`, has_failed: /did not load|not possible here/.test(document.body.innerText),
  };
}

/** A kind of page: where it is, what is done there, and what is looked at. */
const PLACES = {
  article: { part: 0.3, address: () => "", ready: "mh-cards.alive", actions: ARTICLE, look: lookAtFigures },
  frames: { part: 0.1, address: () => `embed/${one(FRAMES)}.html`, ready: ".alive", actions: { ...FIGURES, other: (page) => page.goto(new URL(`${one(FRAMES)}.html`, page.url()).href) }, look: lookAtFigures },
  lab: { part: 0.6, address: () => "lab/", ready: "#run:enabled", actions: ACTIONS, look },
};

/** Acts on a place for a while. */
async function soak(name, minutes) {
  const { address, ready: first, actions, look } = PLACES[name];
  const { page, said, leave } = await visit(browser, "about:blank", { reducedMotion: "no-preference", viewport: { width: 1280, height: 720 }, acceptDownloads: true });
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.goto(`http://localhost:${server.port}/${address()}`);
  await page.locator(first).waitFor();
  const session = await page.context().newCDPSession(page);
  const names = Object.keys(actions).filter((one) => !SELDOM.includes(one));
  const seldom = SELDOM.filter((one) => one in actions);
  const [begin, counts, looks] = [performance.now(), {}, []];
  let looked = -Infinity;
  /** Whether steps of the run had other statistics than those of the whole batch: the largest gap is theirs. */
  let differs = false;
  while (performance.now() - begin < minutes * 60_000) {
    const n_lanes = await page.locator("#lanes .lane").count();
    const action = n_lanes > MANY && random() < 0.7 ? "remove" : seldom.length > 0 && random() < 0.02 ? one(seldom) : one(names);
    counts[action] = (counts[action] ?? 0) + 1;
    try {
      await actions[action](page);
    } catch (error) {
      // What was pressed may have gone or been disabled meanwhile; a page that hangs is found below.
      if (!/Timeout|not attached|detached|not enabled|not visible/.test(String(error))) find(`${name}, ${action}: ${String(error).split("\n")[0]}`);
      else counts[`${action} (gone)`] = (counts[`${action} (gone)`] ?? 0) + 1;
    }
    await page.waitForTimeout(100 + random() * 500);
    differs = action === "toggle" || (differs && action !== "reload");
    const seen = await page.evaluate(look);
    for (const wrong of seen.wrong) find(`${name}: wrong or no sum: ${wrong}`);
    if (!differs && seen.gap > ROUNDINGS) find(`${name}: a gap of ${seen.gap} to one processor alone`);
    if (n_lanes > MOST_ADAPTERS) find(`${n_lanes} adapters`);
    if (seen.has_failed) find(`${name} has failed, after ${action}`);
    if (seen.is_wide) find(`${name} is wider than its window of ${JSON.stringify(page.viewportSize())} after ${action}`);
    for (const message of said.splice(0)) find(`console of ${name}, after ${action}: ${message}`);
    if (performance.now() - looked < Math.min(LONGEST_LOOK_MS, (minutes * 60_000) / LOOKS)) continue;
    looked = performance.now();
    for (const fault of await faultsOf(page, { impacts: ["serious", "critical"] })) find(`axe, ${name}: ${fault}`);
    const now = await memory(page, session);
    looks.push(now);
    console.log(`${name}, ${((looked - begin) / 60_000).toFixed(1)} min: ${seen.at}, ${now.heap.toFixed(1)} MB of objects, ${now.nodes} nodes, ${now.resident.toFixed(0)} MB resident`);
  }
  const n_actions = Object.values(counts).reduce((sum, count) => sum + count, 0);
  console.log(`${name}: ${n_actions} actions: ${Object.entries(counts).map(([action, count]) => `${action} ${count}`).join(", ")}`);
  const last = looks[looks.length - 1];
  if (looks.length > 3 && last.heap > 2 * looks[1].heap + 20) find(`objects of ${name} grew from ${looks[1].heap.toFixed(1)} to ${last.heap.toFixed(1)} MB`);
  await leave();
}

const server = await serve([["/", BUILT]]);
const browser = await launch("no adapter");
for (const [name, { part }] of Object.entries(PLACES)) {
  if (only === undefined) await soak(name, part * minutes);
  else if (only === name) await soak(name, minutes);
}
for (const [text, count] of found) console.log(`${count} times: ${text}`);
console.log(found.size === 0 ? "nothing was found" : `${found.size} kinds of faults`);
await browser.close();
server.close();
process.exitCode = found.size === 0 ? 0 : 1;
