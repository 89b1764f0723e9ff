// The opening: a fast card, an old one beside it with half of the examples, and the fair split behind a button.

import { make } from "../dom.js";
import { button } from "./parts.js";

/** Its still picture stands in the document; the last part is behind the button. */
export class Fair extends HTMLElement {
  connectedCallback() {
    const answer = this.parentElement?.querySelector(".answer");
    if (!(answer instanceof HTMLElement)) return;
    this.classList.add("asks");
    answer.hidden = true;
    const share = button("Share them fairly", () => {
      this.classList.remove("asks");
      this.classList.add("answered");
      answer.hidden = false;
      share.remove();
      answer.focus();
    }, "primary");
    answer.tabIndex = -1;
    answer.before(make("p", { className: "ask" }, share));
  }
}
