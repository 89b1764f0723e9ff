// A digit of each kind as strokes, for those who can't draw.

/** @import { Spot } from "./raster.js" */

/** Strokes of `x y` in hundredths of the pad. */
const TEXTS = [
  ["50 14 36 20 29 36 28 55 33 74 44 85 56 85 66 75 72 56 71 36 63 20 50 14"],
  ["38 30 46 24 54 14 54 32 53 52 53 70 53 86"],
  ["30 30 36 18 50 13 63 19 66 32 58 47 45 62 32 80 30 84 48 84 70 84"],
  ["32 20 45 13 60 16 66 28 60 41 46 47 60 50 69 62 65 78 50 86 31 80"],
  ["46 13 38 32 29 54 28 60 45 60 72 60", "62 38 60 56 58 72 56 87"],
  ["68 14 52 14 37 15 35 30 33 45 48 40 62 45 68 60 63 76 48 86 31 80"],
  ["60 13 46 24 36 42 31 62 37 79 51 86 65 78 67 64 57 54 43 57 34 68"],
  ["28 16 48 15 70 14 62 32 53 52 46 70 42 87", "38 50 52 50 66 49"],
  ["50 48 36 38 33 25 42 14 57 14 66 24 62 37 50 48 36 59 32 73 41 85 57 86 67 75 63 60 50 48"],
  ["66 30 56 17 42 17 34 29 37 42 49 48 60 42 66 30 65 50 60 68 50 86"],
];

/** Strokes from 0 to 1 of the pad; by digit. */
export const EXAMPLES = TEXTS.map(strokesOf);

/** @param {string[]} texts @returns {Spot[][]} */
export function strokesOf(texts) {
  return texts.map((text) => {
    const numbers = text.split(" ").map(Number);
    return numbers.filter((_, at) => at % 2 === 0).map((x, at) => ({ x: x / 100, y: numbers[2 * at + 1] / 100 }));
  });
}
