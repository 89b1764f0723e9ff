// The choice of what is learned: digits are in the engine, the others are loaded when they are chosen.

import { byId, make, percent, say } from "./dom.js";
import { fetched, sizeOf } from "./fetched.js";
import { announce, firstLine } from "./notices.js";
import { ownText, takesFiles } from "./own-text.js";
import { DATA } from "./settings.js";

/** @import { Link } from "./link.js" */
/** @import { Data, Told } from "./messages.js" */

/** What the engine knows of some data. @typedef {Pick<Told<"loaded">, "task" | "test_pixels" | "test_labels">} Known */

/** @type {Record<Data, string>} */
const NAMES = { digits: "digits", fashion: "clothes", text: "text", own: "text" };
/** What is learned on. @type {Record<Data, string>} */
const STAYS = { digits: "The digits stay", fashion: "The clothes stay", text: "The text stays", own: "Your text stays" };

export class DataChoice {
  /** @type {Link} */
  #link;
  #select = byId("data", HTMLSelectElement);
  #says = byId("data-says", HTMLElement);
  #again = byId("data-again", HTMLButtonElement);
  #input = byId("own-text", HTMLInputElement);
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
    takesFiles(this.#input, document.body, async (file) => {
      const known = await this.#takeOwn(file);
      if (known) chosen(known);
    });
    this.#again.addEventListener("click", () => {
      this.#select.focus();
      void choose();
    });
  }

  /** @param {Told<"hello">} hello */
  set hello({ task, test_pixels, test_labels }) {
    this.#known.set(task.data, Promise.resolve({ task, test_pixels, test_labels }));
    this.#select.disabled = false;
    this.#input.disabled = false;
  }

  /** Takes a text of the visitor's own in the place of the one before. @param {File} file */
  async #takeOwn(file) {
    const known = await this.#attempt(false, async () => {
      const bytes = await ownText(file);
      const known = await this.#link.ask({ type: "load", data: "own", bytes });
      this.#known.set("own", Promise.resolve(known));
      const option = this.#optionOf("own") ?? this.#select.appendChild(make("option", { value: "own" }));
      option.textContent = `your text, ${file.name}`;
      return known;
    });
    if (known) this.#select.value = "own";
    return known;
  }

  /** @param {string} name */
  #optionOf(name) {
    return [...this.#select.options].find(({ value }) => value === name);
  }

  /**
   * Loads data, if they are not there yet. `null`: they can't be had, which is said, or others were chosen meanwhile.
   * @param {string} name
   * @returns {Promise<Known | null>}
   */
  take(name) {
    const data = DATA.find((known) => known === name);
    const option = this.#optionOf(name);
    return this.#attempt(option !== undefined, () => {
      if (data === "own" && !option) throw new Error("your text is kept nowhere, so choose it again below");
      if (!data || !option) throw new Error("they are not part of this copy of the page");
      this.#select.value = data;
      return this.#known.get(data) ?? this.#load(data, option);
    });
  }

  /**
   * Loads data, and says what goes on. `null`: they can't be had, or others were chosen meanwhile.
   * @param {boolean} may_again Whether to offer another attempt.
   * @param {() => Promise<Known>} load
   */
  async #attempt(may_again, load) {
    this.#n_choices += 1;
    const choice = this.#n_choices;
    this.#again.hidden = true;
    say(this.#says, "Loading…");
    try {
      const known = await load();
      if (choice !== this.#n_choices) return null;
      say(this.#says, "");
      return known;
    } catch (error) {
      if (choice !== this.#n_choices) return null;
      const text = `The data can’t be loaded: ${firstLine(/** @type {Error} */ (error).message)}. ${STAYS[this.#now() ?? "digits"]}.`;
      say(this.#says, text);
      announce(text);
      this.#again.hidden = !may_again;
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
