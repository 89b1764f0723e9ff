// Serves the built demo to the tests, on a port of its own, and other files in the place of some.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import path from "node:path";

/** @type {Record<string, string>} */
const TYPES = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml", ".wasm": "application/wasm", ".json": "application/json",
};

/**
 * @typedef {object} Served
 * @property {number} port
 * @property {() => void} close
 */

/**
 * Serves the files of the first folder that has them.
 * @param {string[]} folders
 * @param {Record<string, string>} [replaced] Texts by path, in place of files: `/engine.js`.
 * @returns {Promise<Served>}
 */
export async function serve(folders, replaced = {}) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    const name = pathname.endsWith("/") ? `${pathname}index.html` : pathname;
    const content = replaced[name] ?? (await found(folders, name));
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
 * @param {string[]} folders
 * @param {string} name
 */
async function found(folders, name) {
  for (const folder of folders) {
    const file = path.join(folder, path.normalize(decodeURIComponent(name)));
    try {
      return await readFile(file);
    } catch {
      // The next one may have it.
    }
  }
  return null;
}
