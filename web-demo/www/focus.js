// Keeps the focus in the page when what had it is disabled or made inert.

import { byId } from "./dom.js";

export class Focus {
  /** The button that had the focus when it was disabled. @type {HTMLButtonElement | null} */
  #button = null;
  /** What had the focus in a part of the page that was made inert. @type {HTMLElement | null} */
  #within = null;

  /**
   * Enables a button, or not. If it had the focus when it was disabled, it gets the focus back.
   * @param {HTMLButtonElement} button
   * @param {boolean} is_enabled
   */
  enable(button, is_enabled) {
    if (!is_enabled && document.activeElement === button) this.#button = button;
    button.disabled = !is_enabled;
    if (!is_enabled || this.#button !== button) return;
    this.#button = null;
    if (document.activeElement === document.body) button.focus();
  }

  /** Gives the focus of a button that stays disabled to another one, if that is enabled. @param {HTMLButtonElement} other */
  pass(other) {
    if (!this.#button?.disabled || other.disabled) return;
    // Some browsers leave the focus on a button that is disabled.
    if (document.activeElement === document.body || document.activeElement === this.#button) other.focus();
    this.#button = null;
  }

  /**
   * Makes a part of the page inert, or not. If it had the focus, it gets the focus back.
   * @param {HTMLElement} part
   * @param {boolean} is_inert
   */
  setInert(part, is_inert) {
    const focused = document.activeElement;
    if (is_inert && !part.inert && focused instanceof HTMLElement && part.contains(focused)) this.#within = focused;
    part.inert = is_inert;
    const within = this.#within;
    if (is_inert || !within || (within.isConnected && !part.contains(within))) return;
    if (focused === document.body) (within.isConnected ? within : byId("add", HTMLElement).querySelector("button"))?.focus();
    this.#within = null;
  }
}
