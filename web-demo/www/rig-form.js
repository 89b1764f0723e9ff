// A rig that the visitor describes, for the simulator.

import { CARDS, LATENCY_MS } from "./cards.js";
import { byId, make, say } from "./dom.js";
import { Prediction } from "./scaling.js";

/** @import { Link } from "./link.js" */
/** @import { Card } from "./cards.js" */
/** @import { AdapterSpec, RigConfig } from "./messages.js" */

const AT_FIRST = 3;
/** Adapters that an address may name. */
const MOST = 16;

/** @type {{ name: Exclude<keyof Card, "name" | "latency_ms">, text: string, low: number }[]} */
const FIELDS = [
  { name: "gflops", text: "GFLOP/s", low: 0.001 },
  { name: "memory_gb_s", text: "memory GB/s", low: 0.001 },
  { name: "upload_gb_s", text: "upload GB/s", low: 0.001 },
  { name: "download_gb_s", text: "download GB/s", low: 0.001 },
  { name: "fixed_ms", text: "fixed ms a run", low: 0 },
];

/** Name of the described rig in the page's address. */
const IN_ADDRESS = "rig";

export class RigForm {
  #form = byId("rig-form", HTMLFormElement);
  #list = byId("rig-adapters", HTMLElement);
  #says = byId("predict-says", HTMLElement);
  #prediction = new Prediction();

  /** The rig that the form has at first, as an address has it. */
  #usual;
  #changed;

  /**
   * @param {Link} link
   * @param {() => void} changed Called when another rig is described.
   */
  constructor(link, changed) {
    this.#changed = changed;
    const choice = byId("rig-add", HTMLSelectElement);
    choice.append(
      make("option", { value: "", textContent: "an adapter…" }),
      ...CARDS.map(({ name }, at) => make("option", { value: String(at), textContent: name })),
    );
    choice.addEventListener("change", () => {
      if (choice.value !== "") this.#add(CARDS[Number(choice.value)]);
      choice.value = "";
      changed();
    });
    CARDS.slice(0, AT_FIRST).forEach((spec) => this.#add(spec));
    this.#usual = this.#text;
    this.#restore(new URLSearchParams(location.search).get(IN_ADDRESS));
    this.#form.addEventListener("input", changed);
    byId("copy-rig", HTMLButtonElement).addEventListener("click", () => void this.#copy());
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#predict(link);
    });
  }

  /** @param {boolean} is_ready */
  set enabled(is_ready) {
    byId("predict", HTMLButtonElement).disabled = !is_ready;
  }

  /** @param {Required<Card>} spec */
  #add(spec) {
    const name = make("label", { className: "spec-name" }, "Adapter", make("input", { type: "text", name: "name", value: spec.name, required: true, maxLength: 60 }));
    const fields = FIELDS.map(({ name: key, text, low }) => {
      const input = make("input", { type: "number", name: key, min: String(low), step: "any", value: String(spec[key]), required: true });
      return make("label", {}, text, input);
    });
    const remove = make("button", { type: "button", className: "small", textContent: "Remove" });
    const element = make("div", { className: "spec" }, name, ...fields, remove);
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", spec.name);
    remove.setAttribute("aria-label", `Remove ${spec.name}`);
    remove.addEventListener("click", () => {
      if (this.#list.children.length > 1) {
        const next = element.nextElementSibling ?? element.previousElementSibling;
        element.remove();
        this.#changed();
        next?.querySelector("button")?.focus();
      } else say(this.#says, "A rig needs one adapter at least.");
    });
    this.#list.append(element);
  }

  /** The rig in the page's address, if it is another than at first. @returns {Record<string, string>} */
  get query() {
    return this.#text === this.#usual ? {} : { [IN_ADDRESS]: this.#text };
  }

  /** The form's values: network, batch and host, then each adapter, behind semicolons. */
  get #text() {
    const values = (/** @type {ParentNode} */ root) => [...root.querySelectorAll("[name]")].map((field) => /** @type {HTMLInputElement} */ (field).value.replaceAll(/[,;]/g, " ")).join(",");
    return [this.#form.querySelector(".fields"), ...this.#list.children].map((part) => (part ? values(part) : "")).join(";");
  }

  /** Fills the form as an address says. What makes no sense changes nothing, and is said. @param {string | null} text */
  #restore(text) {
    if (text === null) return;
    const [first, ...others] = text.split(";").map((part) => part.split(","));
    const specs = others.map(([name, ...values]) => ({ name, latency_ms: LATENCY_MS, ...Object.fromEntries(FIELDS.map(({ name: key }, at) => [key, Number(values[at] || NaN)])) }));
    const is_right = specs.length > 0 && specs.length <= MOST && specs.every((spec) => spec.name && FIELDS.every(({ name, low }) => Number(/** @type {any} */ (spec)[name]) >= low));
    const fields = [...this.#form.querySelectorAll(".fields [name]")];
    const former = fields.map((field) => /** @type {HTMLInputElement} */ (field).value);
    fields.forEach((field, at) => { /** @type {HTMLInputElement} */ (field).value = first[at] ?? ""; });
    if (is_right && fields.every((field) => /** @type {HTMLInputElement} */ (field).value !== "" && /** @type {HTMLInputElement} */ (field).checkValidity())) {
      this.#list.replaceChildren();
      for (const spec of specs) this.#add(/** @type {Required<Card>} */ (/** @type {unknown} */ (spec)));
      return;
    }
    fields.forEach((field, at) => { /** @type {HTMLInputElement} */ (field).value = former[at]; });
    say(this.#says, "The address has a rig that makes no sense: the usual one is here.");
  }

  /** What is described. @returns {RigConfig} */
  get rig() {
    const of = (/** @type {ParentNode} */ root, /** @type {string} */ name) =>
      /** @type {HTMLInputElement | HTMLSelectElement} */ (root.querySelector(`[name="${name}"]`)).value;
    /** @type {Map<string, number>} Like names are numbered, as by the command. */
    const counts = new Map();
    const adapters = [...this.#list.children].map((element) => {
      const name = of(element, "name");
      const count = (counts.get(name) ?? 0) + 1;
      counts.set(name, count);
      const spec = { name: count > 1 ? `${name} #${count}` : name, latency_ms: LATENCY_MS };
      for (const { name } of FIELDS) Object.assign(spec, { [name]: Number(of(element, name)) });
      return /** @type {AdapterSpec} */ (spec);
    });
    return {
      preset: /** @type {RigConfig["preset"]} */ (of(this.#form, "preset")),
      batch_size: Number(of(this.#form, "batch_size")),
      host: { copy_gb_s: Number(of(this.#form, "copy_gb_s")) },
      adapters,
    };
  }

  /** Puts the rig on the clipboard, as a file for `manyhands simulate`. */
  async #copy() {
    try {
      await navigator.clipboard.writeText(tomlOf(this.rig));
      say(this.#says, "On the clipboard: save it as rig.toml, for manyhands simulate rig.toml.");
    } catch {
      say(this.#says, "The browser does not allow access to the clipboard.");
    }
  }

  /** @param {Link} link */
  async #predict(link) {
    say(this.#says, "Predicting…");
    try {
      const { report } = await link.ask({ type: "simulate", rig: this.rig });
      this.#prediction.show(report);
      say(this.#says, `The fastest first: ${report.adapters.join(", ")}.`);
    } catch (error) {
      say(this.#says, /** @type {Error} */ (error).message);
    }
  }
}

/** A rig as `manyhands simulate` reads it. @param {RigConfig} rig */
function tomlOf({ preset, batch_size, host, adapters }) {
  const tables = adapters.map((spec) => `[[adapters]]\n${Object.entries(spec).map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join("\n")}\n`);
  return `preset = "${preset}"\nbatch_size = ${batch_size}\nhost = { copy_gb_s = ${host.copy_gb_s} }\n\n${tables.join("\n")}`;
}
