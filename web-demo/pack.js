// Compresses each file of the built page beside it, as `.br` and `.gz`, for servers that send such files as they are:
//
//     node web-demo/pack.js FOLDER
//
// Zopfli searches longer than gzip at its best level: its files are a twentieth smaller, and every browser reads them.

import { readFile, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants } from "node:zlib";
import { gzipAsync } from "@gfx/zopfli";

/** More of them made the engine smaller by less than a thousandth. */
const ITERATIONS = 5;

const [folder, ...rest] = process.argv.slice(2);
if (!folder || rest.length > 0) {
  console.error("one folder is needed\n  help: node web-demo/pack.js FOLDER");
  process.exit(2);
}

const found = await readdir(folder, { recursive: true, withFileTypes: true });
// Pictures are compressed already.
for (const file of found.filter((entry) => entry.isFile() && !entry.name.endsWith(".png"))) {
  const name = path.join(file.parentPath ?? file.path, file.name);
  const content = await readFile(name);
  const size = { [constants.BROTLI_PARAM_SIZE_HINT]: content.length, [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS };
  await Promise.all([
    gzipAsync(content, { numiterations: ITERATIONS }).then((packed) => writeFile(`${name}.gz`, packed)),
    promisify(brotliCompress)(content, { params: size }).then((packed) => writeFile(`${name}.br`, packed)),
  ]);
}
