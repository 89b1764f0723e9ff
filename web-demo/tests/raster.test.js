// Do strokes become pixels like those of the training data? Needs nothing.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { EXAMPLES } from "../www/examples.js";
import { raster } from "../www/raster.js";
import { SHAPES } from "./shapes.js";
import { STYLES } from "./styles.js";

const PIXELS = 64;
const IDX_HEADER = 16;

/** Sum of all pixels, and the middle of their mass. @param {Float32Array} image */
function moments(image) {
  const ink = image.reduce((sum, pixel) => sum + pixel, 0);
  const mean = (/** @type {(at: number) => number} */ of) => image.reduce((sum, pixel, at) => sum + pixel * of(at), 0) / ink;
  return { ink, row: mean((at) => Math.floor(at / 8)), column: mean((at) => at % 8) };
}

/** The training data's images, from 0 to 1. */
function digits() {
  const bytes = readFileSync(new URL("../../data/digits-images-idx3-ubyte", import.meta.url)).subarray(IDX_HEADER);
  return Array.from({ length: bytes.length / PIXELS }, (_, row) =>
    Float32Array.from(bytes.subarray(row * PIXELS, (row + 1) * PIXELS), (value) => value / 16));
}

/** @param {number[]} values */
function spread(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
  return { mean, deviation };
}

test("examples have the ink and the place of training digits", () => {
  const known = digits().map(moments);
  for (const name of /** @type {const} */ (["ink", "row", "column"])) {
    const { mean, deviation } = spread(known.map((it) => it[name]));
    EXAMPLES.forEach((strokes, digit) => {
      const image = raster(strokes);
      assert.ok(image);
      const value = moments(image)[name];
      assert.ok(Math.abs(value - mean) < 3 * deviation, `${digit}: ${name} is ${value}, in the data ${mean} ± ${deviation}`);
    });
  }
});

test("neither place, size nor the number of points of a drawing matter", () => {
  for (const strokes of EXAMPLES) {
    const moved = strokes.map((stroke) => stroke.map(({ x, y }) => ({ x: 300 + 40 * x, y: -20 + 40 * y })));
    const dense = strokes.map((stroke) => stroke.flatMap((spot, at) => {
      const next = stroke[at + 1] ?? spot;
      return [spot, { x: (spot.x + next.x) / 2, y: (spot.y + next.y) / 2 }];
    }));
    const image = raster(strokes);
    assert.ok(image);
    for (const other of [raster(moved), raster(dense)]) {
      other?.forEach((value, at) => assert.ok(Math.abs(value - image[at]) <= 2 / 16, `pixel ${at}: ${value} and ${image[at]}`));
    }
  }
});

test("drawings to train on are those of their strokes, and none is one that the page is tested with", () => {
  const pixels = (/** @type {import("../www/raster.js").Spot[][]} */ strokes) => [...(raster(strokes) ?? [])].map((value) => Math.round(16 * value));
  const bytes = Uint8Array.from(STYLES.flatMap(({ digit, strokes }) => [digit, ...pixels(strokes)]));
  const file = new URL("../src/styles.bin", import.meta.url);
  if (process.env.UPDATE) writeFileSync(file, bytes);
  assert.deepEqual(new Uint8Array(readFileSync(file)), bytes, "`UPDATE=1` writes them anew");
  for (const { name, strokes } of SHAPES) {
    const shape = pixels(strokes);
    const nearest = Math.min(...STYLES.map((style) => pixels(style.strokes).reduce((sum, value, at) => sum + Math.abs(value - shape[at]), 0)));
    // A fourth of the ink of a digit.
    assert.ok(nearest > 78, `${name}: ${nearest} of ${16 * PIXELS}`);
  }
});

test("nothing drawn gives nothing, and a dot is finite", () => {
  assert.equal(raster([]), null);
  assert.equal(raster([[]]), null);
  const dot = raster([[{ x: 0.3, y: 0.9 }]]);
  assert.ok(dot?.every((value) => value >= 0 && value <= 1));
  assert.ok((dot?.reduce((sum, value) => sum + value, 0) ?? 0) > 0);
});
