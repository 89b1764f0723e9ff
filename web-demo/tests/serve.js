// Serves the built demo to the tests, on a port of its own, and other files in the place of some.

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** @type {Record<string, string>} */
const TYPES = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml", ".wasm": "application/wasm", ".json": "application/json",
};

/** By the ends of packed files. */
const ENCODINGS = { gz: "gzip", br: "br" };

const HERE = fileURLToPath(new URL("..", import.meta.url));

/**
 * Where addresses that begin so lie.
 * @typedef {[prefix: string, folder: string]} Route
 */

/**
 * The page as it is written, for tests with a stand-in for the engine.
 * @type {Route[]}
 */
export const WRITTEN = [["/vendor/", path.join(HERE, "node_modules/uplot/dist")], ["/", path.join(HERE, "www")]];

/** The page that `cargo xtask web build` has built; MANYHANDS_WEB_DEMO names another folder. */
export const BUILT = process.env.MANYHANDS_WEB_DEMO ?? path.join(HERE, "dist");

export const WASM = "/engine/manyhands_web_demo_bg.wasm";

/**
 * What takes the place of the engine: a stand-in of a kind.
 * @param {string} variant
 * @returns {Record<string, string>}
 */
export function withStandIn(variant) {
  const mock = readFileSync(new URL("mock-engine.js", import.meta.url), "utf8");
  // The smallest module that there is.
  return { [WASM]: "\0asm\x01\0\0\0", "/engine.js": `globalThis.VARIANT = "${variant}";\n${mock}` };
}

/**
 * @typedef {object} Served
 * @property {number} port
 * @property {() => void} close
 */

/**
 * Serves files.
 * @param {Route[]} routes
 * @param {Record<string, string | null | Promise<Buffer>>} [replaced] Contents by path, in place of files: `/engine.js`.
 *   `null`: not there.
 * @param {keyof typeof ENCODINGS} [packed] Sends what `pack.js` laid beside a file, where there is something.
 * @returns {Promise<Served>}
 */
export async function serve(routes, replaced = {}, packed) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    const name = pathname.endsWith("/") ? `${pathname}index.html` : pathname;
    const content = name in replaced ? await replaced[name] : await found(routes, name);
    if (content === null) {
      response.writeHead(404).end();
      return;
    }
    const small = packed && !(name in replaced) ? await found(routes, `${name}.${packed}`) : null;
    const body = small ?? content;
    const encoding = small && packed ? { "content-encoding": ENCODINGS[packed] } : {};
    response.writeHead(200, { "content-type": TYPES[path.extname(name)] ?? "application/octet-stream", ...encoding }).end(body);
  });
  await new Promise((done) => { server.listen(0, "0.0.0.0", () => done(undefined)); });
  const address = server.address();
  if (!address || typeof address === "string") throw new Error("the server has no port");
  return { port: address.port, close: () => server.close() };
}

/**
 * @param {Route[]} routes
 * @param {string} name
 */
async function found(routes, name) {
  const route = routes.find(([prefix]) => name.startsWith(prefix));
  if (!route) return null;
  const [prefix, folder] = route;
  return readFile(path.join(folder, path.normalize(decodeURIComponent(name.slice(prefix.length))))).catch(() => null);
}
