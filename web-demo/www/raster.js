// Strokes to the 8×8 pixels that the training data has.
//
// There, digits were scanned, scaled to fill 32×32 one-bit pixels, and each 4×4 of these summed to 0–16. So strokes are
// scaled to the height of that field, or to most of its width if they are wide, centred, and inked anew with a pen that
// leaves as much ink as an average training digit: how thick a line looks on the pad plays no part.

/** @typedef {{ x: number, y: number }} Spot */

const FIELD = 32;
const BLOCK = 4;
const SIDE = FIELD / BLOCK;
/** Most of the field's width: nearly all training digits leave the outer columns empty. */
const WIDEST = 26;
/** Inked pixels of 32×32 in an average training digit: 312.6 of 16 × 64. */
const INK = 313;
const THINNEST = 4;
const THICKEST = 9;

/**
 * 64 values from 0 to 1, row-major, or `null` where nothing was drawn.
 * @param {Spot[][]} strokes In any unit, y downwards.
 * @returns {Float32Array | null}
 */
export function raster(strokes) {
  const spots = strokes.flat();
  if (spots.length === 0) return null;
  let pen = (THINNEST + THICKEST) / 2;
  let field = inked(strokes, spots, pen);
  for (let round = 0; round < 4; round += 1) {
    const ink = field.reduce((sum, pixel) => sum + pixel, 0);
    pen = Math.min(THICKEST, Math.max(THINNEST, (pen * INK) / ink));
    field = inked(strokes, spots, pen);
  }
  const pixels = new Float32Array(SIDE * SIDE);
  field.forEach((pixel, at) => {
    const row = Math.floor(at / FIELD / BLOCK);
    const column = Math.floor((at % FIELD) / BLOCK);
    pixels[row * SIDE + column] += pixel / (BLOCK * BLOCK);
  });
  return pixels;
}

/**
 * The field with strokes of a pen, 0 or 1 each.
 * @param {Spot[][]} strokes
 * @param {Spot[]} spots
 * @param {number} pen Its width.
 */
function inked(strokes, spots, pen) {
  const [xs, ys] = [spots.map(({ x }) => x), spots.map(({ y }) => y)];
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  const scale = Math.min((FIELD - pen) / Math.max(bottom - top, 1e-9), (WIDEST - pen) / Math.max(right - left, 1e-9), 1e6);
  /** @param {Spot} spot */
  const placed = ({ x, y }) => ({
    x: FIELD / 2 + (x - (left + right) / 2) * scale,
    y: FIELD / 2 + (y - (top + bottom) / 2) * scale,
  });
  const lines = strokes.flatMap((stroke) => {
    const at = stroke.map(placed);
    return at.length === 1 ? [[at[0], at[0]]] : at.slice(1).map((spot, before) => [at[before], spot]);
  });
  const field = new Uint8Array(FIELD * FIELD);
  for (const [from, to] of lines) {
    const [first, last] = [within(Math.min(from.x, to.x) - pen / 2), within(Math.max(from.x, to.x) + pen / 2)];
    const [above, below] = [within(Math.min(from.y, to.y) - pen / 2), within(Math.max(from.y, to.y) + pen / 2)];
    for (let row = above; row <= below; row += 1) {
      for (let column = first; column <= last; column += 1) {
        if (distance({ x: column + 0.5, y: row + 0.5 }, from, to) <= pen / 2) field[row * FIELD + column] = 1;
      }
    }
  }
  return field;
}

/** The row or column of a place, within the field. @param {number} place */
function within(place) {
  return Math.min(FIELD - 1, Math.max(0, Math.floor(place)));
}

/**
 * From a spot to a line between two others.
 * @param {Spot} spot
 * @param {Spot} from
 * @param {Spot} to
 */
function distance(spot, from, to) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length2 = dx * dx + dy * dy;
  const along = length2 > 0 ? ((spot.x - from.x) * dx + (spot.y - from.y) * dy) / length2 : 0;
  const part = Math.min(1, Math.max(0, along));
  return Math.hypot(spot.x - from.x - part * dx, spot.y - from.y - part * dy);
}
