// Training steps of this engine and of TensorFlow.js, in the same Chromium on the same WebGPU adapter, in alternation.
//
//     cargo xtask web bench && npm ci --prefix web-demo/bench && node web-demo/bench/steps.js [ROUNDS]
//
// CPU-seconds of all of the browser's processes count, which on a software adapter is the work that was done, whatever
// else the machine does meanwhile; wall time stands beside it. The median over the rounds is told, after a step to warm up.

import { createServer } from "node:http";
import { readFile, readdir } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const ROUTES = [["/engine/", path.join(HERE, "../../target/web-bench/")], ["/tensorflow/", path.join(HERE, "node_modules/@tensorflow/")]];
const TYPES = { ".js": "text/javascript", ".wasm": "application/wasm" };
const FLAGS = [
  "--no-sandbox", "--enable-unsafe-webgpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const TICKS_PER_S = 100;
const MODELS = [["mlp", "MLP 784-1024-1024-10, batch 256, Adam"], ["cnn", "CNN 28×28, batch 64, SGD with momentum"]];

const rounds = Number(process.argv[2] ?? 3);

const server = createServer(async (request, response) => {
  const name = new URL(request.url ?? "/", "http://localhost").pathname;
  const route = ROUTES.find(([prefix]) => name.startsWith(prefix));
  try {
    const body = route ? await readFile(path.join(route[1], name.slice(route[0].length))) : "<!doctype html><title>bench</title>";
    response.writeHead(200, { "content-type": TYPES[path.extname(name)] ?? "text/html" }).end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((done) => server.listen(0, "127.0.0.1", () => done(undefined)));
const address = `http://127.0.0.1:${server.address().port}/`;
const executablePath = process.env.MANYHANDS_CHROMIUM ?? "/usr/bin/chromium";
const launched = await chromium.launchServer({ executablePath, args: FLAGS });
const browser = await chromium.connect(launched.wsEndpoint());

/** CPU-seconds of the browser and all that it started. */
async function cpuSeconds() {
  const processes = new Map();
  for (const id of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const stat = await readFile(`/proc/${id}/stat`, "utf8").catch(() => "");
    // The name, in brackets, may hold anything.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (fields.length > 20) processes.set(Number(id), { parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) });
  }
  const isOurs = (id) => id === launched.process().pid || (processes.has(id) && id > 1 && isOurs(processes.get(id).parent));
  let ticks = 0;
  for (const [id, process] of processes) if (isOurs(id)) ticks += process.ticks;
  return ticks / TICKS_PER_S;
}

/** Runs in the page: `open(model)` and `step()` of this engine. */
async function ours() {
  const engine = await import("/engine/manyhands_web_demo.js");
  await engine.default({ module_or_path: "/engine/manyhands_web_demo_bg.wasm" });
  globalThis.open = (model) => engine.bench_open(model);
  globalThis.step = () => engine.bench_step();
}

/** Runs in the page: the same of TensorFlow.js. Its tensors stay on the device; this engine sends each batch anew. */
async function theirs() {
  await new Promise((done, fail) => {
    const script = document.createElement("script");
    Object.assign(script, { src: "/tensorflow/tfjs/dist/tf.min.js", onload: done, onerror: fail });
    document.head.append(script);
  });
  await new Promise((done, fail) => {
    const script = document.createElement("script");
    Object.assign(script, { src: "/tensorflow/tfjs-backend-webgpu/dist/tf-backend-webgpu.min.js", onload: done, onerror: fail });
    document.head.append(script);
  });
  const { tf } = globalThis;
  await tf.setBackend("webgpu");
  await tf.ready();
  const { dense, conv2d, batchNormalization, activation, maxPooling2d, flatten } = tf.layers;
  const layers = {
    mlp: () => [flatten({ inputShape: [28, 28, 1] }), dense({ units: 1024, activation: "relu" }), dense({ units: 1024, activation: "relu" }), dense({ units: 10, activation: "softmax" })],
    cnn: () => [
      conv2d({ inputShape: [28, 28, 1], filters: 32, kernelSize: 3, useBias: false }), batchNormalization(), activation({ activation: "relu" }),
      conv2d({ filters: 64, kernelSize: 3, useBias: false }), batchNormalization(), activation({ activation: "relu" }),
      maxPooling2d({ poolSize: 2 }), flatten(), dense({ units: 128, activation: "relu" }), dense({ units: 10, activation: "softmax" }),
    ],
  };
  globalThis.open = async (name) => {
    const [rows, optimizer] = name === "mlp" ? [256, tf.train.adam(1e-3)] : [64, tf.train.momentum(0.01, 0.9)];
    const model = tf.sequential({ layers: layers[name]() });
    model.compile({ optimizer, loss: "categoricalCrossentropy" });
    const x = tf.randomUniform([rows, 28, 28, 1]);
    const y = tf.oneHot(tf.tensor1d(Array.from({ length: rows }, (_, row) => row % 10), "int32"), 10);
    globalThis.step = async () => model.trainOnBatch(x, y);
  };
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

for (const [model, title] of MODELS) {
  const sides = [["this engine", ours], ["TensorFlow.js 4.22, webgpu", theirs]];
  const runs = [];
  for (const [name, load] of sides) {
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    page.on("pageerror", (error) => console.error(`${name}: ${error}`));
    await page.goto(address);
    await page.evaluate(load);
    await page.evaluate((model) => globalThis.open(model), model);
    await page.evaluate(() => globalThis.step());
    runs.push({ name, page, cpu: [], wall: [] });
  }
  for (let round = 0; round < rounds; round += 1) {
    for (const run of runs) {
      const before = await cpuSeconds();
      const begin = performance.now();
      await run.page.evaluate(() => globalThis.step());
      run.wall.push((performance.now() - begin) / 1e3);
      run.cpu.push(await cpuSeconds() - before);
    }
  }
  console.log(`\n${title}: a step, median of ${rounds}`);
  for (const { name, cpu, wall, page } of runs) {
    console.log(`${name.padEnd(28)} ${median(cpu).toFixed(2).padStart(7)} CPU-s  ${median(wall).toFixed(2).padStart(7)} s`);
    await page.close();
  }
  console.log(`TensorFlow.js takes ${(median(runs[1].cpu) / median(runs[0].cpu)).toFixed(1)} times the CPU time`);
}
await launched.close();
server.close();
