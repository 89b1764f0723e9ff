// What the network that trains in the article learns: digits, which are in the engine, or a text, the page's or the visitor's own.

import { make } from "../dom.js";
import { fetched, sizeOf } from "../fetched.js";
import { ownText, takesFiles } from "../own-text.js";

/** @import { Link } from "../link.js" */
/** @import { Data, Told } from "../messages.js" */

/** @typedef {Told<"hello">["task"]} Task */

/**
 * What one can learn.
 * @typedef {object} Learned
 * @property {Data} data
 * @property {string} name
 * @property {string} model Id of the network.
 * @property {[most: number, least: number]} losses At the curve's ends.
 * @property {number[]} ticks
 * @property {string} says What the network does, behind "A network".
 */

/** @type {Omit<Learned, "data" | "name" | "says">} */
const WRITES = { model: "gpt", losses: [5, 1], ticks: [1, 2, 4] };
/** @type {Learned[]} */
const CHOICES = [
  { data: "digits", name: "to read digits", model: "cnn", losses: [4, 0.002], ticks: [0.01, 0.1, 1], says: "A network learns to read digits" },
  { data: "text", name: "to write, from Lincoln’s messages", says: "A small GPT learns to write, letter by letter, from messages of Lincoln", ...WRITES },
];

export class Learns {
  now = CHOICES[0];
  #choices = [...CHOICES];
  /** @type {Link} */
  #link;
  /** @type {(task: Task) => void} */
  #chosen;
  /** @type {(text: string) => void} */
  #tell;
  /** What the engine knows, by data. @type {Map<Data, Task>} */
  #known = new Map();
  #select = make("select", { ariaLabel: "What it learns", disabled: true });
  #input = make("input", { type: "file", accept: ".txt,.md,text/plain", disabled: true });
  /** Counts the choices: what an older one loads is not used. */
  #n_choices = 0;

  /**
   * @param {Link} link
   * @param {HTMLElement} figure Takes a file that is dropped on it.
   * @param {{ chosen: (task: Task) => void, tell: (text: string) => void }} run What is called when something else is there to learn,
   *   and for what is said meanwhile.
   */
  constructor(link, figure, { chosen, tell }) {
    [this.#link, this.#chosen, this.#tell] = [link, chosen, tell];
    this.#offer();
    this.#select.addEventListener("change", () => void this.#choose(this.#choices[this.#select.selectedIndex]));
    takesFiles(this.#input, figure, (file) => {
      this.#choices = [...CHOICES, { data: "own", name: `to write, from ${file.name}`, says: `A small GPT learns to write, letter by letter, from ${file.name}`, ...WRITES }];
      this.#offer();
      void this.#choose(this.#choices[CHOICES.length], file);
    });
    this.element = make("div", { className: "learns" }, make("label", {}, "It learns ", this.#select), make("label", { className: "file" }, "Your own text…", this.#input));
  }

  /** @param {Task} task Which the engine has by itself. */
  begin(task) {
    this.#known.set(task.data, task);
    [this.#select.disabled, this.#input.disabled] = [false, false];
  }

  #offer() {
    this.#select.replaceChildren(...this.#choices.map(({ name }) => make("option", { textContent: name })));
    this.#select.selectedIndex = this.#choices.findIndex(({ data }) => data === this.now.data);
  }

  /** @param {Learned} learned @param {File} [file] */
  async #choose(learned, file) {
    this.#n_choices += 1;
    const choice = this.#n_choices;
    this.#select.selectedIndex = this.#choices.indexOf(learned);
    try {
      const known = file ? undefined : this.#known.get(learned.data);
      const task = known ?? await this.#load(learned.data, file);
      if (choice !== this.#n_choices) return;
      this.#known.set(learned.data, task);
      this.now = learned;
      this.#chosen(task);
    } catch (error) {
      if (choice !== this.#n_choices) return;
      if (file) this.#choices = this.now.data === "own" ? [...CHOICES, this.now] : CHOICES;
      this.#offer();
      this.#tell(`That can’t be learned: ${/** @type {Error} */ (error).message}. It goes on learning ${this.now.name}.`);
    }
  }

  /** @param {Data} data @param {File} [file] */
  async #load(data, file) {
    const bytes = file ? await ownText(file) : await fetched(new URL("data/lincoln.txt", document.baseURI).href, (n_bytes) => this.#tell(`Loading the text: ${sizeOf(n_bytes)}`));
    return (await this.#link.ask({ type: "load", data, bytes })).task;
  }
}
