// Lays the page into a folder, beside the engine that `cargo xtask web build` puts there:
//
//     node web-demo/build.js FOLDER
//
// MANYHANDS_PAGE is the address at which it will be published, if that is known: programs that show a picture for a link need the
// picture's whole address.
//
// One script and one style sheet without comments: 16 kB less to load than the files as they are written, gzipped, and one
// request in place of eighteen. Needs `npm ci --omit=dev` in this folder.

import { cp, mkdir, readFile, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { writeData } from "./datasets.js";
import { LATER } from "./www/later.js";

const HERE = path.dirname(fileURLToPath(import.meta.url));
/** Imports what wasm-bindgen writes, which lies beside it only there. */
const WORKER = "src/engine.js";
const AS_THEY_ARE = ["moved.js", "icon.svg", "early.js"];
/** The article's scripts, with that which finds the engine beside itself, and the tables of its figures. */
const ARTICLE = ["link.js", "article/article.js", "article/embed.js", "article/lost.js", "article/bricks.js", "article/ghost.js", "article/ask.js", "article/article.css"];
const TABLES = ["article/bricks.json", "article/cards.json", "article/lost.json", "article/memory.json", "article/slowed.json", "article/works.json"];
const PREVIEW = "preview.png";
const CHARTS = path.join(HERE, "node_modules/uplot");

const [folder, ...rest] = process.argv.slice(2);
if (!folder || rest.length > 0) {
  console.error("one folder is needed\n  help: node web-demo/build.js FOLDER");
  process.exit(2);
}

await Promise.all(["vendor", "lab"].map((name) => mkdir(path.join(folder, name), { recursive: true })));
/** @type {import("esbuild").BuildOptions} */
const SMALL = { minify: true, format: "esm", target: ["es2022", "chrome113", "firefox121", "safari17"], logLevel: "warning" };
const glue = path.join(folder, "engine/manyhands_web_demo.js");
const written = (/** @type {string} */ name) => path.join(HERE, "www", name);
await Promise.all([
  build({ ...SMALL, entryPoints: ["page.js", "page.css"].map(written), bundle: true, outdir: folder, external: LATER.map((name) => `./${name}`) }),
  // A bundle of its own, in which what page.js has, too, is repeated: parts that both import would be one more request before the start.
  build({ ...SMALL, entryPoints: LATER.map(written), bundle: true, outdir: folder }),
  build({ ...SMALL, entryPoints: ARTICLE.map(written), bundle: true, outbase: written(""), outdir: folder, external: ["./ghost.js", "./ask.js", "../link.js"] }),
  build({ ...SMALL, entryPoints: [path.join(HERE, WORKER)], outdir: folder }),
  build({ ...SMALL, entryPoints: [path.join(CHARTS, "dist/uPlot.esm.js"), path.join(CHARTS, "dist/uPlot.min.css")], outdir: path.join(folder, "vendor") }),
  build({ ...SMALL, entryPoints: [glue], allowOverwrite: true, outfile: glue }),
]);
const [article, lab] = await Promise.all(["index.html", "lab/index.html"].map((name) => readFile(written(name), "utf8")));
const address = process.env.MANYHANDS_SOURCE;
const source = address ? `<p>Source, and how to install it: <a href="${new URL(address).href}">${address}</a></p>` : "";
/** Data that are not there can't be chosen, and are not spoken of. */
const sizes = await writeData(folder);
const offered = lab.replaceAll(/<span data-file="([^"]+)">([^<]*)<\/span>/g, (_, file, text) => (file in sizes ? text : "")).replaceAll(/ *<option value="\w+" data-file="([^"]+)">.*\n/g, (option, file) => (file in sizes ? option.replace(">", ` data-bytes="${sizes[file]}">`) : ""));
const preview = process.env.MANYHANDS_PAGE ? new URL(PREVIEW, process.env.MANYHANDS_PAGE).href : `../${PREVIEW}`;
await Promise.all([
  writeFile(path.join(folder, "index.html"), article.replace(`content="${PREVIEW}"`, `content="${preview.replace("../", "")}"`).replace("<!-- source -->", source)),
  writeFile(path.join(folder, "lab/index.html"), offered.replace('_bg.wasm" as', `_bg.wasm" data-bytes="${(await stat(glue.replace(".js", "_bg.wasm"))).size}" as`).replace(`content="../${PREVIEW}"`, `content="${preview}"`).replace("<!-- source -->", source)),
  cp(written("embed"), path.join(folder, "embed"), { recursive: true }),
  cp(path.join(HERE, "../docs/web-demo.png"), path.join(folder, PREVIEW)),
  ...[...AS_THEY_ARE, ...TABLES].map((name) => cp(path.join(HERE, "www", name), path.join(folder, name))),
  cp(path.join(CHARTS, "LICENSE"), path.join(folder, "vendor/LICENSE")),
]);
