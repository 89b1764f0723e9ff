// What a visitor takes along: the model, the metrics, a picture of the run, its address, and the run as a program.

import { byId, say } from "./dom.js";

/** @import { Shown } from "./card.js" */
/** @import { Link } from "./link.js" */
/** @import { Settings } from "./messages.js" */

/**
 * What there is of the run.
 * @typedef {object} Sources
 * @property {() => Settings | null} settings
 * @property {() => object} metrics As they are saved.
 * @property {() => Shown | null} picture
 */

const KEPT_MS = 60_000;

export class Exports {
  #says = byId("export-says", HTMLElement);
  #lines = byId("lines", HTMLDetailsElement);
  #link;
  #sources;

  /** @param {Link} link @param {Sources} sources */
  constructor(link, sources) {
    this.#link = link;
    this.#sources = sources;
    for (const [id, press] of Object.entries(this.#presses)) byId(id, HTMLButtonElement).addEventListener("click", () => void press());
    this.#lines.addEventListener("toggle", () => void this.showLines());
  }

  /** By the ids of their buttons. */
  get #presses() {
    return {
      "export-model": () => this.#saveModel(),
      "export-metrics": () => this.#save("manyhands-metrics.json", `${JSON.stringify(this.#sources.metrics(), null, 1)}\n`, "application/json"),
      "export-card": () => this.#savePicture(),
      "copy-link": () => this.#copyLink(),
    };
  }

  /** There is a run now. */
  enable() {
    for (const id of Object.keys(this.#presses)) byId(id, HTMLButtonElement).disabled = false;
  }

  /** Shows the present settings as programs, where they are asked for. */
  async showLines() {
    const settings = this.#sources.settings();
    if (!this.#lines.open || !settings) return;
    try {
      const { linesOf } = await import("./lines.js");
      for (const [name, text] of Object.entries(linesOf(settings))) byId(`lines-${name}`, HTMLElement).textContent = text;
      say(byId("lines-says", HTMLElement), "");
    } catch {
      say(byId("lines-says", HTMLElement), "The programs did not load. Close this part and open it again.");
    }
  }

  /**
   * Hands a file to the visitor.
   * @param {string} name
   * @param {BlobPart} content
   * @param {string} type
   */
  #save(name, content, type) {
    const anchor = document.createElement("a");
    anchor.href = URL.createObjectURL(new Blob([content], { type }));
    anchor.download = name;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(anchor.href), KEPT_MS);
    say(this.#says, `Saved as ${name}.`);
  }

  async #saveModel() {
    try {
      const { name, bytes } = await this.#link.ask({ type: "export" });
      this.#save(name, new Uint8Array(bytes), "application/octet-stream");
    } catch (error) {
      say(this.#says, /** @type {Error} */ (error).message);
    }
  }

  /** Saves the run as it is now as a picture. */
  async #savePicture() {
    const shown = this.#sources.picture();
    if (!shown) return;
    try {
      const { pictureOf } = await import("./card.js");
      this.#save("manyhands.png", await pictureOf(shown), "image/png");
    } catch (error) {
      say(this.#says, `The picture could not be made: ${/** @type {Error} */ (error).message}. Try again.`);
    }
  }

  async #copyLink() {
    try {
      await navigator.clipboard.writeText(location.href);
      say(this.#says, "The address is on the clipboard.");
    } catch {
      say(this.#says, "The browser does not allow access to the clipboard: copy the address from its bar.");
    }
  }
}
