// Lines of text that the network writes while it learns.

import { byId, make, say, whole } from "./dom.js";
import { TEMPERATURES, isText } from "./settings.js";

/** @import { Settings, Told } from "./messages.js" */

/** Lines that are kept: among the first ones, from noise to words, and the newest. */
const MOST = 60;
const FIRST = 12;

export class Writing {
  #newest = byId("writes", HTMLElement);
  #list = byId("written", HTMLElement);
  #temperature = byId("temperature", HTMLInputElement);

  /** @param {(temperature: number) => void} change */
  constructor(change) {
    [this.#temperature.min, this.#temperature.max] = [String(TEMPERATURES.least), String(TEMPERATURES.most)];
    this.#temperature.addEventListener("input", () => this.#tell());
    this.#temperature.addEventListener("change", () => change(this.#temperature.valueAsNumber));
  }

  /** @param {Settings} settings */
  show({ data, temperature }) {
    byId("writing", HTMLElement).hidden = !isText(data);
    this.#newest.hidden = !isText(data);
    this.#temperature.value = String(temperature);
    this.#tell();
  }

  #tell() {
    const text = this.#temperature.valueAsNumber.toFixed(1);
    say(byId("temperature-is", HTMLOutputElement), text);
    this.#temperature.setAttribute("aria-valuetext", text);
  }

  /** @param {Told<"written">} line */
  take({ step, text }) {
    this.#list.prepend(make("li", {}, make("span", { className: "number", textContent: `step ${whole(step)}` }), make("q", { textContent: text })));
    // What it wrote first stays: the way from noise to words is what one wants to see.
    if (this.#list.children.length > MOST) this.#list.children[MOST - FIRST]?.remove();
    const [, before] = this.#list.querySelectorAll("q");
    this.#newest.replaceChildren(...(before ? [make("span", { className: "older", textContent: before.textContent ?? "" })] : []), text);
  }

  /** What brings back the lines of now. */
  keep() {
    const [lines, newest] = [this.#list, this.#newest].map(({ childNodes }) => [...childNodes]);
    return () => {
      this.#list.replaceChildren(...lines);
      this.#newest.replaceChildren(...newest);
    };
  }

  clear() {
    this.#list.replaceChildren();
    this.#newest.replaceChildren();
  }
}
