// The rules of a run that the visitor sets: batch size, split, batch-norm; network, seed, learning rate.

import { byId, make, say } from "./dom.js";
import { BATCH_SIZES } from "./settings.js";

/** @import { Settings, Task } from "./messages.js" */

/** Batch-norm over a shard: the scheduler gives none fewer rows while another split exists. */
const LEAST_SHARD = 8;

/** @typedef {Partial<Pick<Settings, "batch_size" | "split" | "batch_norm" | "learning_rate" | "temperature">>} Changed */
/** @typedef {Partial<Pick<Settings, "model" | "seed" | "epochs" | "varied_from">>} Restarted */

export class Rules {
  #batch = byId("batch-size", HTMLInputElement);
  #sizes = [...BATCH_SIZES];
  /** Whether the networks for the data have such layers: all or none have. */
  has_batch_norm = true;

  /** @param {{ change: (changed: Changed) => void, restart: (changed: Restarted) => void }} act */
  constructor({ change, restart }) {
    this.#batch.addEventListener("input", () => this.#showBatch(this.#sizes[Number(this.#batch.value)]));
    this.#batch.addEventListener("change", () => change({ batch_size: this.#sizes[Number(this.#batch.value)] }));
    for (const radio of radios()) {
      radio.addEventListener("change", () => change({ [radio.name]: radio.value }));
    }
    const rate = byId("learning-rate", HTMLInputElement);
    rate.addEventListener("change", () => { if (rate.reportValidity()) change({ learning_rate: rate.valueAsNumber }); });
    const model = byId("model", HTMLSelectElement);
    model.addEventListener("change", () => restart({ model: model.value }));
    for (const name of /** @type {const} */ (["seed", "epochs", "varied_from"])) {
      const input = byId(name.replace("_", "-"), HTMLInputElement);
      input.addEventListener("change", () => { if (input.reportValidity()) restart({ [name]: input.valueAsNumber }); });
    }
  }

  /** @param {Task} task */
  offer({ data, models }) {
    this.has_batch_norm = models.some((model) => model.has_batch_norm);
    for (const radio of radios()) if (radio.name === "batch_norm") radio.disabled = !this.has_batch_norm;
    byId("varied-from", HTMLInputElement).disabled = data !== "digits";
    const options = models.map(({ id, name, parameters }) =>
      make("option", { value: id, textContent: `${name}, ${parameters.toLocaleString("en-US")} weights` }));
    byId("model", HTMLSelectElement).replaceChildren(...options);
  }

  /** @param {Settings} settings */
  show(settings) {
    this.#sizes = [...new Set([...BATCH_SIZES, settings.batch_size])].sort((a, b) => a - b);
    this.#batch.max = String(this.#sizes.length - 1);
    this.#batch.value = String(this.#sizes.indexOf(settings.batch_size));
    this.#showBatch(settings.batch_size);
    for (const radio of radios()) radio.checked = settings[/** @type {"split" | "batch_norm"} */ (radio.name)] === radio.value;
    byId("learning-rate", HTMLInputElement).value = String(settings.learning_rate);
    byId("model", HTMLSelectElement).value = settings.model;
    byId("seed", HTMLInputElement).value = String(settings.seed);
    byId("epochs", HTMLInputElement).value = String(settings.epochs);
    byId("varied-from", HTMLInputElement).value = String(settings.varied_from);
  }

  /**
   * Effects of the settings on this rig.
   * @param {Settings} settings
   * @param {number} n_adapters
   */
  tell({ batch_size, split, batch_norm }, n_adapters) {
    const is_short = batch_size < n_adapters;
    const starves = batch_norm === "per_shard" && batch_size < LEAST_SHARD * n_adapters;
    say(byId("batch-size-says", HTMLElement), is_short
      ? "Fewer rows than adapters: some get none; the result is still that of the whole batch."
      : "Rows of one training step, over all adapters. With small batches fixed costs dominate.");
    say(byId("split-says", HTMLElement), split === "even"
      ? "All get the same, so the fast wait for the slow: watch the hatching above grow."
      : "Measured before the first step, then adjusted after each step.");
    say(byId("batch-norm-says", HTMLElement), !this.has_batch_norm ? "This network has no such layer: its result never depends on the split." : starves
      ? `Fewer than ${LEAST_SHARD} rows give poor statistics, so no adapter gets fewer while another split exists: here some get none.`
      : batch_norm === "per_shard"
        ? "As Keras and PyTorch do. The only place where the result depends on the split."
        : "Exact for any split, at the price of an exchange at each such layer.");
  }

  /** @param {number} size */
  #showBatch(size) {
    say(byId("batch-size-is", HTMLOutputElement), String(size));
    this.#batch.setAttribute("aria-valuetext", `${size} rows`);
  }
}

function radios() {
  return [...document.querySelectorAll("input[type=radio]")].filter((element) => element instanceof HTMLInputElement);
}
