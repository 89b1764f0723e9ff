// Settings of a run, and their form in the page's address.

/** @import { Data, Info, Settings, Told } from "./messages.js" */

/** Batch sizes that the slider offers; an address may name others. */
export const BATCH_SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/** What suits each kind of data. @type {Record<Data, Pick<Settings, "batch_size" | "learning_rate">>} */
const SUITS = {
  digits: { batch_size: 64, learning_rate: 0.002 },
  fashion: { batch_size: 64, learning_rate: 0.002 },
  text: { batch_size: 32, learning_rate: 0.005 },
  own: { batch_size: 32, learning_rate: 0.005 },
};

const MAX_BATCH_SIZE = 512;
const MAX_SEED = 4294967295;
const MAX_THROTTLE = 16;
/** The first epochs learn the digits as they are; harder pictures come behind them. */
const VARIED_FROM = 11;

/** Of text that is written: words are told apart, and not the same in each line. */
const TEMPERATURE = 0.6;
/** @type {Data[]} */
export const DATA = ["digits", "fashion", "text", "own"];
export const TEMPERATURES = { least: 0.1, most: 1.5 };

/** Settings that mean something else for other data, or nothing. */
const OF_DATA = ["model", "batch_size", "learning_rate", "varied_from", "temperature"];

/** Whether a network learns to write. @param {Data} [data] */
export function isText(data) {
  return data === "text" || data === "own";
}

/** @param {Info} info */
export function isGpu(info) {
  return info.kind !== "cpu" && info.kind !== "software";
}

/**
 * Default settings in this browser: all GPUs and the CPU adapter. Where there is no GPU, the CPU adapter twice, if there are
 * cores for both: that is a split, too. Software adapters are used only when asked for, as by the crate.
 * @param {Told<"hello">} hello
 * @param {number} n_cores
 * @returns {Settings}
 */
export function defaults({ adapters, task: { data, models } }, n_cores) {
  const gpus = adapters.filter(isGpu);
  const cpu = adapters.filter((info) => info.kind === "cpu").slice(0, 1);
  const chosen = gpus.length > 0 ? [...gpus, ...cpu] : n_cores > 1 ? [...cpu, ...cpu] : cpu;
  return {
    ...SUITS[data],
    data,
    model: models[0].id,
    adapters: chosen.map((info) => info.index),
    throttles: [],
    split: "learned",
    batch_norm: "whole_batch",
    seed: 0,
    epochs: 0,
    varied_from: VARIED_FROM,
    temperature: TEMPERATURE,
  };
}

/** Whether training begins without a click: not where the system asks for less motion or less data. */
export function startsByItself() {
  const { connection } = /** @type {{ connection?: { saveData?: boolean } }} */ (navigator);
  return !connection?.saveData && !["(prefers-reduced-motion: reduce)", "(prefers-reduced-data: reduce)"].some((query) => matchMedia(query).matches);
}

/** The data that an address names. @param {string} search */
export function dataOf(search) {
  return new URLSearchParams(search).get("data") ?? "digits";
}

/**
 * Settings of an address, over the defaults; and what of it makes no sense here, in words. What suits only the data that the
 * address names is left out if other data are learned.
 * @param {string} search
 * @param {Told<"hello">} hello
 * @param {number} n_cores
 * @returns {{ settings: Settings, remarks: string[] }}
 */
export function parse(search, hello, n_cores) {
  const settings = defaults(hello, n_cores);
  /** @type {string[]} */
  const remarks = [];
  /** @type {(name: string, text: string, needed: string) => void} */
  const refuse = (name, text, needed) => {
    remarks.push(`The address says ${name}=${text}, but it needs ${needed}: the default is used.`);
  };
  /** @type {(name: "batch_size" | "seed" | "epochs" | "varied_from" | "learning_rate" | "temperature", low: number, high: number) => void} */
  const number = (name, low, high) => {
    const text = given(name);
    if (text === null) return;
    const value = Number(text);
    const is_right = name === "learning_rate" || name === "temperature" ? Number.isFinite(value) : Number.isInteger(value);
    if (text !== "" && is_right && value >= low && value <= high) settings[name] = value;
    else refuse(name, text, `a number from ${low} to ${high}`);
  };
  /** @type {<K extends "data" | "model" | "split" | "batch_norm">(name: K, known: Settings[K][]) => void} */
  const choice = (name, known) => {
    const text = given(name);
    if (text === null) return;
    const found = known.find((value) => value === text);
    if (found) settings[name] = found;
    else refuse(name, text, `one of ${known.join(", ")}`);
  };
  const throttles = () => {
    const text = query.get("throttles");
    if (text === null) return;
    const factors = text.split(",").map(Number);
    const is_right = factors.length <= settings.adapters.length && factors.every((factor) => factor >= 1 && factor <= MAX_THROTTLE);
    if (is_right) settings.throttles = factors;
    else refuse("throttles", text, `factors from 1 to ${MAX_THROTTLE}, one for each adapter at most`);
  };
  const query = new URLSearchParams(search);
  const is_for_these = dataOf(search) === settings.data;
  const given = (/** @type {string} */ name) => (is_for_these || !OF_DATA.includes(name) ? query.get(name) : null);
  number("batch_size", 1, MAX_BATCH_SIZE);
  number("seed", 0, MAX_SEED);
  number("epochs", 0, 10_000);
  number("varied_from", 0, 10_000);
  number("learning_rate", 1e-5, 1);
  number("temperature", TEMPERATURES.least, TEMPERATURES.most);
  choice("data", DATA);
  // Those of the address may not be there.
  settings.data = hello.task.data;
  choice("model", hello.task.models.map(({ id }) => id));
  choice("split", ["learned", "even"]);
  choice("batch_norm", ["per_shard", "whole_batch"]);
  const items = query.get("adapters")?.split(",") ?? [];
  const found = items.map((item) => adapterOf(item.trim(), hello.adapters));
  const absent = items.filter((_, at) => found[at] === undefined);
  if (absent.length > 0) remarks.push(`The address names adapter ${absent.join(", ")}, which is not here: ignored.`);
  const indices = found.filter((index) => index !== undefined);
  const most = hello.most_adapters;
  if (indices.length > most) remarks.push(`The address names ${indices.length} adapters, but a rig here has ${most} at most: the others are ignored.`);
  if (indices.length > 0) settings.adapters = indices.slice(0, most);
  throttles();
  return { settings, remarks };
}

/** Name of an adapter in an address: GPUs by their index, which another machine has, too. @param {Info} info */
function nameOf(info) {
  return isGpu(info) ? String(info.index) : info.kind;
}

/**
 * As `--adapters` names them: an index, `cpu` or `software`.
 * @param {string} item
 * @param {Info[]} adapters
 */
function adapterOf(item, adapters) {
  return adapters.find((info) => item === nameOf(info) || item === String(info.index))?.index;
}

/**
 * The part of an address after `?`: differences from the defaults.
 * @param {Settings} settings
 * @param {Told<"hello">} hello
 * @param {number} n_cores
 */
export function format(settings, hello, n_cores) {
  const plain = defaults(hello, n_cores);
  const query = new URLSearchParams();
  if (settings.data !== "digits") query.set("data", settings.data);
  if (String(settings.adapters) !== String(plain.adapters)) {
    const names = settings.adapters.map((index) => hello.adapters.filter((info) => info.index === index).map(nameOf));
    query.set("adapters", names.join(","));
  }
  if (settings.throttles.some((factor) => factor !== 1)) query.set("throttles", settings.throttles.join(","));
  for (const name of /** @type {const} */ (["model", "batch_size", "split", "batch_norm", "learning_rate", "seed", "epochs", "varied_from", "temperature"])) {
    if (settings[name] !== plain[name]) query.set(name, String(settings[name]));
  }
  return query.toString().replaceAll("%2C", ",");
}
