// Serves the page as it is written, with a stand-in for the engine, to work on its looks:
//
//     npm run look [gpus | software | none | failed]

import { WRITTEN, serve, withStandIn } from "./serve.js";

const variant = process.argv[2] ?? "gpus";
const { port } = await serve(WRITTEN, withStandIn(variant));
console.log(`http://localhost:${port}/lab/ with a stand-in for the engine: ${variant}`);
