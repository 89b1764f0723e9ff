// Bytes and times of the built page on a slow line: first paint, the engine, the first step.
//
//     cargo xtask web build && node web-demo/bench/line.js [ROUNDS]
//
// The line is Chromium's own emulation (`Network.emulateNetworkConditions`): 1.5 Mbit/s down and up, with a delay of 40 ms and of 150 ms
// for each request of the page. What its worker asks for may come faster: its two scripts (9 kB). The server sends the packed files: once those of gzip, once those of brotli. Each visit has a browser of its own. Medians of the rounds; no other program should run meanwhile.

import { launch, visit } from "../tests/browser.js";
import { BUILT, serve } from "../tests/serve.js";

const BYTES_PER_S = 1.5e6 / 8;
const DELAYS_MS = [40, 150];
const LOOK_MS = 20;
const MOST_MS = 60_000;
const rounds = Number(process.argv[2] ?? 3);

/** What is there, in milliseconds from the start of loading. Runs in the page. */
function look() {
  const end = (name) => Math.max(0, ...performance.getEntriesByType("resource").filter((entry) => entry.name.endsWith(name)).map((entry) => entry.responseEnd));
  return {
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
    wasm: end(".wasm"),
    bytes: [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
    all: Math.max(...performance.getEntriesByType("resource").map((entry) => entry.responseEnd)),
    step: Number(document.getElementById("fact-step")?.textContent?.replaceAll(",", "")) || 0,
    now: performance.now(),
  };
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

/** One visit: bytes that came, and times. */
async function load(encoding, latency) {
  const server = await serve([["/", BUILT]], {}, encoding);
  const browser = await launch("no adapter");
  const { page } = await visit(browser, "about:blank", { reducedMotion: "no-preference" });
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  await session.send("Network.emulateNetworkConditions", { offline: false, latency, downloadThroughput: BYTES_PER_S, uploadThroughput: BYTES_PER_S });
  await page.goto(`http://localhost:${server.port}/lab/`, { waitUntil: "commit" });
  let start = null;
  for (;;) {
    const seen = await page.evaluate(look);
    if (start === null && seen.step > 0) start = seen.now;
    if (start !== null || seen.now > MOST_MS) {
      await browser.close();
      server.close();
      return { ...seen, start };
    }
    await page.waitForTimeout(LOOK_MS);
  }
}

for (const encoding of ["gz", "br"]) {
  for (const latency of DELAYS_MS) {
    const runs = [];
    for (let round = 0; round < rounds; round += 1) runs.push(await load(encoding, latency));
    const seconds = (of) => `${(median(runs.map(of)) / 1000).toFixed(2)} s`;
    console.log(`${encoding === "gz" ? "gzip" : "brotli"}, ${latency} ms: ${runs[0].bytes} bytes until the first step; first paint ${seconds(({ paint }) => paint)}, engine there ${seconds(({ wasm }) => wasm)}, first step shown ${seconds(({ start }) => start)}, last file ${seconds(({ all }) => all)}`);
  }
}
