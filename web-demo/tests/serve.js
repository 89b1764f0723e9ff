// Serves the built demo to the tests, on a port of its own, and other files in the place of some.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** @type {Record<string, string>} */
const TYPES = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml", ".wasm": "application/wasm", ".json": "application/json",
};

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
 * @returns {Promise<Served>}
 */
export async function serve(routes, replaced = {}) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    const name = pathname.endsWith("/") ? `${pathname}index.html` : pathname;
    const content = name in replaced ? await replaced[name] : await found(routes, name);
    if (content === null) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": TYPES[path.extname(name)] ?? "application/octet-stream" }).end(content);
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
