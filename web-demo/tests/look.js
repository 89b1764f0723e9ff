// Serves the page as it is written, with a stand-in for the engine, to work on its looks:
//
//     npm run look [gpus | software | none | failed]

import { readFile } from "node:fs/promises";
import { WRITTEN, serve } from "./serve.js";

const variant = process.argv[2] ?? "gpus";
const mock = await readFile(new URL("mock-engine.js", import.meta.url), "utf8");
const { port } = await serve(WRITTEN, { "/engine.js": `globalThis.VARIANT = "${variant}";\n${mock}` });
console.log(`http://localhost:${port}/ with a stand-in for the engine: ${variant}`);
