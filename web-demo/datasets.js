// Lays into the built page's folder the data that a visitor may choose, each as a file of its own.

import { cp, mkdir, readFile, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gunzip } from "node:zlib";

const HERE = path.dirname(fileURLToPath(import.meta.url));
/** Where Debian's package `dataset-fashion-mnist` has its files. */
export const FASHION = process.env.MANYHANDS_FASHION_MNIST ?? "/usr/share/datasets/fashion-mnist";
const SIDE = 28;
const CLASSES = 10;
/** Pictures of each class: the last are for testing, a seventh of all, as `src/tasks.rs` reads them. */
const [TRAIN, TEST] = [600, 100];
/** Of the heads of IDX files. */
const HEAD = { labels: 8, images: 16 };

/**
 * Writes the files.
 * @param {string} folder
 * @returns {Promise<Record<string, number>>} Bytes of each, by name.
 */
export async function writeData(folder) {
  await mkdir(path.join(folder, "data"), { recursive: true });
  await cp(path.join(HERE, "data/lincoln.txt"), path.join(folder, "data/lincoln.txt"));
  const clothes = await fashion();
  if (clothes) await writeFile(path.join(folder, "data/fashion.bin"), clothes);
  const names = ["data/lincoln.txt", ...(clothes ? ["data/fashion.bin"] : [])];
  return Object.fromEntries(await Promise.all(names.map(async (name) => [name, (await stat(path.join(folder, name))).size])));
}

/** Labels, then pictures in 16 shades, two pixels in a byte; `null` if the package is not installed. */
async function fashion() {
  try {
    const [train, test] = [await part("train", TRAIN), await part("t10k", TEST)];
    return Buffer.concat([train.labels, test.labels, train.pictures, test.pictures]);
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== "ENOENT") throw error;
    console.error(`the page has no clothes to choose: ${FASHION} is not there\n  help: install \`dataset-fashion-mnist\`, or name its folder in MANYHANDS_FASHION_MNIST`);
    return null;
  }
}

/**
 * The first pictures of each class, in their order.
 * @param {string} name
 * @param {number} most Of a class.
 */
async function part(name, most) {
  const read = async (/** @type {string} */ file) => promisify(gunzip)(await readFile(path.join(FASHION, `${name}-${file}-ubyte.gz`)));
  const [labels, images] = [(await read("labels-idx1")).subarray(HEAD.labels), (await read("images-idx3")).subarray(HEAD.images)];
  const counts = Array(CLASSES).fill(0);
  const rows = [...labels.keys()].filter((row) => {
    counts[labels[row]] += 1;
    return counts[labels[row]] <= most;
  });
  if (rows.length !== CLASSES * most) throw new Error(`${FASHION} has too few pictures in ${name}`);
  return { labels: Buffer.from(rows.map((row) => labels[row])), pictures: Buffer.concat(rows.map((row) => packed(images.subarray(row * SIDE * SIDE, (row + 1) * SIDE * SIDE)))) };
}

/** Pixels of 0 to 255 as 16 shades, two in a byte: the left one in its lower half. @param {Uint8Array} pixels */
function packed(pixels) {
  const shade = (/** @type {number} */ at) => Math.round(pixels[at] / 17);
  return Buffer.from(Array.from({ length: pixels.length / 2 }, (_, at) => shade(2 * at) | (shade(2 * at + 1) << 4)));
}
