// A rig that the visitor describes, for the simulator.

import { CARDS, LATENCY_MS } from "./cards.js";
import { byId, make, say } from "./dom.js";
import { Prediction } from "./scaling.js";

/** @import { Link } from "./link.js" */
/** @import { Card } from "./cards.js" */
/** @import { AdapterSpec, RigConfig } from "./messages.js" */

const AT_FIRST = 3;

/** @type {{ name: Exclude<keyof Card, "name" | "latency_ms">, text: string, low: number }[]} */
const FIELDS = [
  { name: "gflops", text: "GFLOP/s", low: 0.001 },
  { name: "memory_gb_s", text: "memory GB/s", low: 0.001 },
  { name: "upload_gb_s", text: "upload GB/s", low: 0.001 },
  { name: "download_gb_s", text: "download GB/s", low: 0.001 },
  { name: "fixed_ms", text: "fixed ms a run", low: 0 },
];

export class RigForm {
  #form = byId("rig-form", HTMLFormElement);
  #list = byId("rig-adapters", HTMLElement);
  #says = byId("predict-says", HTMLElement);
  #prediction = new Prediction();

  /** @param {Link} link */
  constructor(link) {
    const choice = byId("rig-add", HTMLSelectElement);
    choice.append(
      make("option", { value: "", textContent: "an adapter…" }),
      ...CARDS.map(({ name }, at) => make("option", { value: String(at), textContent: name })),
    );
    choice.addEventListener("change", () => {
      if (choice.value !== "") this.#add(CARDS[Number(choice.value)]);
      choice.value = "";
    });
    CARDS.slice(0, AT_FIRST).forEach((spec) => this.#add(spec));
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
        next?.querySelector("button")?.focus();
      } else say(this.#says, "A rig needs one adapter at least.");
    });
    this.#list.append(element);
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
