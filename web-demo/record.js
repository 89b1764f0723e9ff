// Records what the article's figures show: predictions of `manyhands simulate`, for each card that it knows by name.
//
//     MANYHANDS_COMMAND=target/debug/manyhands node web-demo/record.js
//
// Writes `cards.json`, `works.json`, `slowed.json`, `lost.json`, `memory.json` and `bricks.json` in `www/article/`, within fifteen minutes. Single steps are those of the
// built page's simulator, which the command does not print. Tests compare samples with both. With names of tables, only these are written.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { manyhands } from "./tests/command.js";
import * as engine from "./tests/simulator.js";
import { HOST_GB_S } from "./www/article/table.js";

/** The network of the article's steps, and examples of a batch. */
export const MODEL = "cnn6";
export const BATCH = 512;
/** Examples between two recorded lanes. */
export const EVERY = 16;

/**
 * Work of a step, from little to much.
 * @type {{ model: string, batch_size: number, words: string }[]}
 */
export const WORKS = [
  { model: "mlp", batch_size: 256, words: "a dense network, 256 examples" },
  { model: "cnn", batch_size: 64, words: "two convolutions for small pictures, 64 examples" },
  { model: "cnn6", batch_size: 64, words: "six convolutions, 64 examples" },
  { model: "cnn6", batch_size: 128, words: "six convolutions, 128 examples" },
  { model: "cnn6", batch_size: 256, words: "six convolutions, 256 examples" },
  { model: "cnn6", batch_size: 512, words: "six convolutions, 512 examples" },
  { model: "cnn6", batch_size: 1024, words: "six convolutions, 1,024 examples" },
  { model: "vgg", batch_size: 64, words: "VGG, thirteen convolutions for photographs, 64 examples" },
];
/** The card of which a second one is asked about. */
export const WORKER = "RTX 3060";
/** Numbers of these cards. */
export const COUNTS = [2, 4, 8];

/**
 * A prediction, in the command's own words.
 * @typedef {{ shares: number[], step_ms: number, limit: string }} Point
 * @typedef {{ adapters: string[], alone: { name: string, step_ms: number, has_bytes: number, needed_bytes: number }[], strong: Point[], even: Point | null,
 *   staged: { step_ms: number, stages: { bytes: number }[] } | null }} Prediction
 */

/**
 * What the command predicts for cards by name.
 * @param {string[]} cards
 * @param {{ model?: string, batch_size?: number, split?: "learned" | "even" }} [work]
 * @returns {Prediction}
 */
export function predicted(cards, { model = MODEL, batch_size = BATCH, split = "learned" } = {}) {
  return JSON.parse(manyhands("simulate", "--cards", cards.join(", "), "--model", model, "--batch-size", String(batch_size), "--split", split, "--json"));
}

/** Names of all cards. */
export function names() {
  const [header, , ...rows] = manyhands("simulate", "--list-cards").trimEnd().split("\n");
  const end = header.indexOf(" units");
  return rows.map((row) => row.slice(0, end).trim()).filter(Boolean);
}

/**
 * Milliseconds of a step in which a card has so many examples and no other has more to do. With a second one of its kind and an even
 * split, the step is as long as the lane of either, with all that two cards cost.
 * @param {string} card
 * @param {number} rows
 */
export function lane(card, rows) {
  return rounded(predicted([card, card], { batch_size: 2 * rows, split: "even" }).strong[1].step_ms);
}

/** Cards of which the first becomes slower, and how many times. */
export const PAIR = ["RTX 4070", "GTX 1060"];
export const FACTORS = [1, 1.5, 2, 3, 4, 6, 8];

/**
 * What the command predicts for a rig.
 * @param {string} rig As TOML.
 * @returns {Prediction}
 */
function simulated(rig) {
  const folder = mkdtempSync(path.join(tmpdir(), "manyhands-rig-"));
  const file = path.join(folder, "rig.toml");
  writeFileSync(file, rig);
  const report = JSON.parse(manyhands("simulate", file, "--json"));
  rmSync(folder, { recursive: true });
  return report;
}

/**
 * What the command predicts where cards are slower than their data sheets say.
 * @param {{ card: string, factor: number }[]} cards
 * @param {{ batch_size?: number, split?: "learned" | "even" }} [work]
 * @returns {Prediction}
 */
export function predictedSlow(cards, { batch_size = BATCH, split = "learned" } = {}) {
  const tables = cards.map(({ card, factor }) => `    { card = "${card}", slowdowns = [{ from_ms = 0.0, to_ms = 1e9, factor = ${factor.toFixed(2)} }] },\n`);
  return simulated(`batch_size = ${batch_size}\npreset = "${MODEL}"\nsplit = "${split}"\nhost = { copy_gb_s = ${HOST_GB_S.toFixed(1)} }\nadapters = [\n${tables.join("")}]\n`);
}

/**
 * Steps of the pair before and after the split follows a slowdown of the first card.
 * @param {number} slower
 */
export function slowed(slower) {
  const [card, other] = PAIR;
  const full = predicted([card]).alone[0].name;
  const [{ shares: old }, now] = [predicted(PAIR).strong[1], predictedSlow([{ card, factor: slower }, { card: other, factor: 1 }])];
  const lane = (/** @type {string} */ card, /** @type {number} */ factor, /** @type {number} */ rows) =>
    predictedSlow([{ card, factor }, { card, factor }], { batch_size: 2 * rows, split: "even" }).strong[1].step_ms;
  const before = [lane(card, slower, old[0]), lane(other, 1, old[1])];
  // The command puts the fastest first.
  const shares = now.adapters[0] === full ? now.strong[1].shares : [...now.strong[1].shares].reverse();
  const after = [lane(card, slower, shares[0]), lane(other, 1, shares[1])];
  return { slower, old, before: before.map(rounded), shares, after: after.map(rounded) };
}

/** Cards of which one dies, and the step in which it does, from 0: the split is learned by then. */
export const TRIO = ["RTX 4070", "RX 6600", "GTX 1060"];
const DIES = 8;

/**
 * Steps of the three before one dies, in which it dies, and later; until then it has worked for `lost_ms` on that step.
 * @param {number} adapter
 */
export async function lost(adapter) {
  const adapters = TRIO.map((card) => ({ card }));
  const { steps } = await engine.simulated({ batch_size: BATCH, preset: MODEL, host: { copy_gb_s: HOST_GB_S }, adapters, events: [{ step: DIES, adapter, what: "lost" }] });
  const exact = (/** @type {number} */ ms) => Number(ms.toFixed(4));
  const part = (/** @type {number} */ step, /** @type {number} */ of) => steps[step].adapters.find((one) => one.adapter === of);
  const shared = (/** @type {number} */ step) => ({ ms: exact(steps[step].ms), rows: TRIO.map((_, of) => part(step, of)?.rows ?? 0), lanes: TRIO.map((_, of) => exact(part(step, of)?.ms ?? 0)) });
  const { upload_ms, compute_ms } = part(DIES - 1, adapter) ?? { upload_ms: 0, compute_ms: 0 };
  return { lost_ms: exact(upload_ms + compute_ms / 2), steps: [DIES - 1, DIES, steps.length - 1].map(shared) };
}

/** Pieces of a batch whose stages are shown as bricks. */
export const PIECES = [1, 2, 4, 8, 16, 32];
/** Cards of these stages. */
const PIPELINE = { card: "GTX 1650", stages: 4 };

/**
 * The article's network in stages, with a batch in so many pieces: milliseconds of its step, and all work of its cards.
 * @param {number} pieces
 */
export async function bricked(pieces) {
  const adapters = Array.from({ length: PIPELINE.stages }, (_, at) => ({ card: PIPELINE.card, name: `${PIPELINE.card} ${at}` }));
  const { report, pipelines } = await engine.staged({ batch_size: BATCH, preset: MODEL, host: { copy_gb_s: HOST_GB_S }, adapters }, pieces);
  const { placement, staged, bricks } = pipelines[PIPELINE.stages - 2];
  const stage = (/** @type {number | null} */ adapter) => placement.findIndex(({ adapters: [on] }) => on === adapter);
  const kind = (/** @type {typeof bricks[number]} */ { what, is_forward }) => (what !== "compute" ? 2 : is_forward ? 0 : 1);
  const work = bricks.filter(({ adapter }) => adapter !== null).map((brick) => [stage(brick.adapter), brick.piece ?? 0, kind(brick), rounded(brick.start_ms), rounded(brick.ms)]);
  return { copies: rounded(report.strong[PIPELINE.stages - 1].step_ms), step: { pieces, ms: Number(staged.step_ms.toFixed(2)), bricks: work } };
}

/** A network that fits on no card of a kind: dense layers of so many units, and examples of its batch. */
export const LARGE = { card: "GTX 1650", layers: 20, units: 4096, batch_size: 256, micro_batches: 4 };
/** Numbers of these cards. */
export const STAGES = [1, 2, 3, 4];

/**
 * Memory of the large network on so many cards: a copy on each, and as many stages with the same number of layers, about.
 * @param {number} count
 */
export function staged(count) {
  const { card, layers, units, batch_size, micro_batches } = LARGE;
  const first = (/** @type {number} */ stage) => Math.round((stage * layers) / count);
  const stages = Array.from({ length: count }, (_, stage) => `    { layers = ["dense_${first(stage)}..re_lu_${first(stage + 1) - 1}"], adapters = [${stage}] },\n`);
  const adapters = Array.from({ length: count }, (_, at) => `    { card = "${card}", name = "${card} ${at}" },\n`);
  const model = Array.from({ length: layers }, (_, at) => `    { type = "dense", units = ${units}, name = "dense_${at}" },\n    { type = "relu", name = "re_lu_${at}" },\n`);
  const placement = count > 1 ? `placement = [\n${stages.join("")}]\nmicro_batches = ${micro_batches}\n` : "";
  const report = simulated(`batch_size = ${batch_size}\n${placement}host = { copy_gb_s = ${HOST_GB_S.toFixed(1)} }\nadapters = [\n${adapters.join("")}]\n[model]\ninput = [${units}]\nlayers = [\n${model.join("")}]\n`);
  const gb = (/** @type {number} */ bytes) => Number((bytes / 1e9).toFixed(2));
  const of_stages = report.staged ? { stages: report.staged.stages.map(({ bytes }) => gb(bytes)), ms: rounded(report.staged.step_ms) } : { stages: [], ms: null };
  return { count, copy: gb(report.alone[0].needed_bytes), has: gb(report.alone[0].has_bytes), ...of_stages };
}

/** To a hundredth, of long times to a tenth. @param {number} ms */
function rounded(ms) {
  return Number(ms < 100 ? ms.toFixed(2) : ms.toFixed(1));
}

/** @param {string} name */
function card(name) {
  const [alone] = predicted([name]).alone;
  const lanes = Array.from({ length: BATCH / EVERY }, (_, at) => lane(name, EVERY * (at + 1)));
  return { name, full: alone.name, alone: rounded(alone.step_ms), lanes };
}

/** @param {typeof WORKS[number]} work */
export function worked({ model, batch_size, words }) {
  const alone = (/** @type {number} */ rows) => rounded(predicted([WORKER], { model, batch_size: rows }).alone[0].step_ms);
  const of = (/** @type {number} */ count) => {
    const { strong } = predicted(Array.from({ length: count }, () => WORKER), { model, batch_size });
    return { count, ms: rounded(strong[count - 1].step_ms), part_ms: alone(Math.ceil(batch_size / count)) };
  };
  return { model, batch_size, words, alone: alone(batch_size), together: COUNTS.map(of) };
}

/** One line for each part, so that changes can be read. @param {unknown[]} parts */
function lines(parts) {
  return parts.map((part) => JSON.stringify(part)).join(",\n");
}

/** @param {(step: number) => Promise<unknown>} recorded @param {number[]} of */
async function inTurn(recorded, of) {
  const all = [];
  for (const one of of) all.push(await recorded(one));
  return all;
}

/** The text of each table. @type {Record<string, () => Promise<string> | string>} */
const TABLES = {
  works: () => `{"card":"${WORKER}","works":[\n${lines(WORKS.map(worked))}\n]}\n`,
  memory: () => `${JSON.stringify({ card: LARGE.card, steps: STAGES.map(staged) })}\n`,
  slowed: () => `{"cards":${JSON.stringify(PAIR)},"steps":[\n${lines(FACTORS.map(slowed))}\n]}\n`,
  lost: async () => `{"cards":${JSON.stringify(TRIO)},"runs":[\n${lines(await inTurn(lost, [...TRIO.keys()]))}\n]}\n`,
  bricks: async () => {
    const all = /** @type {Awaited<ReturnType<typeof bricked>>[]} */ (await inTurn(bricked, PIECES));
    return `{"card":"${PIPELINE.card}","stages":${PIPELINE.stages},"copies":${all[0].copies},"steps":[\n${lines(all.map(({ step }) => step))}\n]}\n`;
  },
  cards: () => `{"model":"${MODEL}","batch":${BATCH},"every":${EVERY},"cards":[\n${lines(names().map(card))}\n]}\n`,
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const wanted = process.argv.slice(2);
  for (const [name, text] of Object.entries(TABLES)) {
    if (wanted.length === 0 || wanted.includes(name)) writeFileSync(new URL(`www/article/${name}.json`, import.meta.url), await text());
  }
}
