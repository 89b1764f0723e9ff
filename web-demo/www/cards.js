// Cards for the simulator, with guessed speeds, and rigs of them.

/** @import { AdapterSpec } from "./messages.js" */

/** Of a transfer over PCI Express, whatever its bytes. */
export const LATENCY_MS = 0.1;

/** @type {(name: string, numbers: [number, number, number, number, number]) => Required<Card>} */
const card = (name, [gflops, memory_gb_s, upload_gb_s, download_gb_s, fixed_ms]) => ({
  name, gflops, memory_gb_s, upload_gb_s, download_gb_s, fixed_ms, latency_ms: LATENCY_MS,
});

/** @typedef {Pick<AdapterSpec, "name" | "gflops" | "memory_gb_s" | "upload_gb_s" | "download_gb_s" | "fixed_ms" | "latency_ms">} Card */

const RTX_3060 = card("GeForce RTX 3060", [3200, 240, 10, 8, 2]);
const RX_6600 = card("Radeon RX 6600", [2200, 150, 6, 5, 2]);
const RADEON_680M = card("Radeon 680M", [850, 35, 12, 8, 3]);
const RTX_4070 = card("GeForce RTX 4070", [7200, 330, 20, 16, 2]);
const GTX_1060 = card("GeForce GTX 1060", [1100, 120, 6, 5, 2]);
const RTX_4060_LAPTOP = card("GeForce RTX 4060 Laptop", [2900, 170, 10, 8, 2]);

/** Guesses, made as those of `examples/rigs/`. */
export const CARDS = [RTX_3060, RX_6600, RADEON_680M, RTX_4070, GTX_1060, RTX_4060_LAPTOP];

/** @type {(spec: Required<Card>, count: number) => Required<Card>[]} */
const like = (spec, count) => Array.from({ length: count }, (_, at) => ({ ...spec, name: `${spec.name} #${at + 1}` }));

/**
 * Rigs to choose by a click.
 * @type {{ id: string, name: string, title: string, adapters: Required<Card>[] }[]}
 */
export const RIGS = [
  { id: "eight", name: "8 identical cards", title: "Eight identical cards", adapters: like(RTX_3060, 8) },
  { id: "two", name: "2 identical cards", title: "Two identical cards", adapters: like(RTX_3060, 2) },
  { id: "old", name: "A fast and an old card", title: "A fast and an old card", adapters: [RTX_4070, GTX_1060] },
  { id: "laptop", name: "A laptop’s two GPUs", title: "A laptop’s two GPUs", adapters: [RTX_4060_LAPTOP, RADEON_680M] },
];

/** Rows of a batch for each network. */
export const BATCHES = { cnn6: 512, vgg: 256, mlp: 512, digits_cnn: 512, here: 512 };
/** Of the host's memory, a guess. */
export const HOST_GB_S = 20;
