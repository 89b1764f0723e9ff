// A question before a figure: the reader guesses, then sees.

import { make } from "../dom.js";
import { button } from "./parts.js";

/** Its answers are a list in the document; the right one has `data-right`. What follows from it stands in `.then`, hidden until then. */
export class Guess extends HTMLElement {
  connectedCallback() {
    const then = this.querySelector(".then");
    const answers = [...this.querySelectorAll("li")];
    if (!(then instanceof HTMLElement) || answers.length === 0) return;
    then.hidden = true;
    then.tabIndex = -1;
    const choose = (/** @type {HTMLLIElement} */ chosen) => {
      for (const answer of answers) {
        const is_right = answer.dataset.right !== undefined;
        answer.replaceChildren(make("span", { className: is_right ? "right" : "", textContent: answer.textContent }), answer === chosen ? make("small", { textContent: is_right ? " Your guess: right" : " Your guess" }) : "");
      }
      this.classList.add("guessed");
      then.hidden = false;
      then.focus({ preventScroll: true });
    };
    for (const answer of answers) answer.replaceChildren(button(answer.textContent?.trim() ?? "", () => choose(answer)));
    this.classList.add("alive");
  }
}
