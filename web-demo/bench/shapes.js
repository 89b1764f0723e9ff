// How many of thirty drawn digits the built page's network reads, and how many of the test digits, while it trains: with pictures
// that are varied from the eleventh epoch on, as in the page, and with pictures as they are.
//
//     cargo xtask web build && node web-demo/bench/shapes.js [SEEDS [TENS]]
//
// The page's worker is asked after each ten epochs (230 steps), with the page's own settings but for the seed. Nothing is timed.

import { launch, visit } from "../tests/browser.js";
import { BUILT, serve } from "../tests/serve.js";
import { SHAPES } from "../tests/shapes.js";
import { raster } from "../www/raster.js";

const [n_seeds, tens] = [Number(process.argv[2] ?? 3), Number(process.argv[3] ?? 8)];
const drawn = SHAPES.map(({ strokes }) => [...(raster(strokes) ?? [])]);

/** Trains in a worker of the page, and asks after each ten epochs. Runs in the page. */
async function train({ settings, tens, drawn }) {
  const worker = new Worker("../engine.js", { type: "module", name: "manyhands" });
  const waiting = [];
  const heard = (wanted) => new Promise((resolve, reject) => waiting.push({ wanted, resolve, reject }));
  let [labels, read_as] = [[], []];
  worker.addEventListener("message", ({ data }) => {
    if (data.type === "hello") labels = data.test_labels;
    if (data.type === "predictions") read_as = data.classes;
    for (const it of waiting.splice(0)) {
      if (data.type === "failed" || data.type === "error") it.reject(new Error(data.message));
      else if (it.wanted(data)) it.resolve(data);
      else waiting.push(it);
    }
  });
  const hello = heard(({ type }) => type === "hello");
  worker.postMessage({ module: await WebAssembly.compile(await (await fetch("../engine/manyhands_web_demo_bg.wasm")).arrayBuffer()) });
  await hello;
  const results = [];
  for (let ten = 0; ten < tens; ten += 1) {
    const finished = heard(({ type, state }) => type === "state" && state === "finished");
    worker.postMessage(ten === 0 ? { type: "start", settings, paused: false } : { type: "resume" });
    const { step } = await finished;
    const read = [];
    for (const [id, pixels] of drawn.entries()) {
      const classified = heard(({ type, id: of }) => type === "classified" && of === id);
      worker.postMessage({ type: "classify", id, pixels: Float32Array.from(pixels) });
      const { probabilities } = await classified;
      read.push(probabilities.indexOf(Math.max(...probabilities)));
    }
    results.push({ step, read, right: read_as.reduce((sum, label, at) => sum + (label === labels[at] ? 1 : 0), 0), of: labels.length });
  }
  worker.terminate();
  return results;
}

const server = await serve([["/", BUILT]]);
const browser = await launch("no adapter");
console.log("pictures           seed  steps  drawn digits  test digits  read wrong");
for (const [pictures, varied_from] of [["varied from 231", 11], ["as they are", 0]]) {
  for (let seed = 0; seed < n_seeds; seed += 1) {
    const settings = {
      model: "cnn", adapters: [0], throttles: [], batch_size: 64, split: "even", batch_norm: "whole_batch", learning_rate: 0.002, seed, epochs: 10, varied_from,
    };
    const { page, leave } = await visit(browser, "about:blank");
    page.setDefaultTimeout(0);
    await page.goto(`http://localhost:${server.port}/lab/`);
    for (const { step, read, right, of } of await page.evaluate(train, { settings, tens, drawn })) {
      const wrong = SHAPES.flatMap(({ name, digit }, at) => (read[at] === digit ? [] : [`${name} as ${read[at]}`]));
      console.log(`${pictures.padEnd(18)} ${String(seed).padStart(4)}  ${String(step).padStart(5)}  ${`${SHAPES.length - wrong.length} of ${SHAPES.length}`.padStart(12)}  ${`${(100 * right / of).toFixed(1)} %`.padStart(11)}  ${wrong.join(", ")}`);
    }
    await leave();
  }
}
await browser.close();
server.close();
