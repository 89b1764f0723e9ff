// The choice of what is learned: digits are in the engine, the others are loaded when they are chosen.

import { byId, percent, say } from "./dom.js";
import { fetched, sizeOf } from "./fetched.js";
import { announce, firstLine } from "./notices.js";
import { DATA } from "./settings.js";

/** @import { Link } from "./link.js" */
/** @import { Data, Told } from "./messages.js" */

/** What the engine knows of some data. @typedef {Pick<Told<"loaded">, "task" | "test_pixels" | "test_labels">} Known */

/** @type {Record<Data, string>} */
const NAMES = { digits: "digits", fashion: "clothes", text: "text" };

export class DataChoice {
  /** @type {Link} */
  #link;
  #select = byId("data", HTMLSelectElement);
  #says = byId("data-says", HTMLElement);
  #again = byId("data-again", HTMLButtonElement);
  /** @type {() => Data | null} */
  #now;
  /** What is there, or is being loaded. @type {Map<Data, Promise<Known>>} */
  #known = new Map();
  /** Counts the choices: what an older one loads is not used. */
  #n_choices = 0;

  /**
   * @param {Link} link
   * @param {{ now: () => Data | null, chosen: (known: Known) => void }} run The data of the run, if one has begun. What is called
   *   when other data that a visitor chose are there.
   */
  constructor(link, { now, chosen }) {
    [this.#link, this.#now] = [link, now];
    for (const option of this.#select.options) {
      const { bytes } = option.dataset;
      if (bytes) option.textContent += ` (${sizeOf(Number(bytes))})`;
    }
    const choose = async () => {
      const known = await this.take(this.#select.value);
      // Back to what is learned already: only the loading ends.
      if (known && known.task.data !== now()) chosen(known);
    };
    this.#select.addEventListener("change", () => void choose());
    this.#again.addEventListener("click", () => {
      this.#select.focus();
      void choose();
    });
  }

  /** @param {Told<"hello">} hello */
  set hello({ task, test_pixels, test_labels }) {
    this.#known.set(task.data, Promise.resolve({ task, test_pixels, test_labels }));
    this.#select.disabled = false;
  }

  /**
   * Loads data, if they are not there yet. `null`: they can't be had, which is said, or others were chosen meanwhile.
   * @param {string} name
   * @returns {Promise<Known | null>}
   */
  async take(name) {
    this.#n_choices += 1;
    const choice = this.#n_choices;
    const data = DATA.find((known) => known === name);
    const option = [...this.#select.options].find(({ value }) => value === name);
    this.#again.hidden = true;
    try {
      if (!data || !option) throw new Error("they are not part of this copy of the page");
      this.#select.value = data;
      say(this.#says, "Loading…");
      const known = await (this.#known.get(data) ?? this.#load(data, option));
      if (choice !== this.#n_choices) return null;
      say(this.#says, "");
      return known;
    } catch (error) {
      if (choice !== this.#n_choices) return null;
      const text = `The data can’t be loaded: ${firstLine(/** @type {Error} */ (error).message)}. The ${NAMES[this.#now() ?? "digits"]} stay.`;
      say(this.#says, text);
      announce(text);
      this.#again.hidden = !option;
      return null;
    }
  }

  /**
   * Loads data, and keeps them even if others are chosen meanwhile.
   * @param {Data} data
   * @param {HTMLOptionElement} option
   */
  #load(data, option) {
    const loading = this.#read(data, option);
    this.#known.set(data, loading);
    loading.catch(() => this.#known.delete(data));
    return loading;
  }

  /**
   * @param {Data} data
   * @param {HTMLOptionElement} option
   * @returns {Promise<Known>}
   */
  async #read(data, { dataset: { file = "", bytes: expected } }) {
    announce(`Loading the ${NAMES[data]}.`);
    const bytes = await fetched(file, (n_bytes) => {
      const part = expected ? `, ${percent(Math.min(1, n_bytes / Number(expected)), 0)}` : "";
      if (this.#select.value === data) say(this.#says, `Loading: ${sizeOf(n_bytes)}${part}.`);
    });
    return this.#link.ask({ type: "load", data, bytes });
  }
}
