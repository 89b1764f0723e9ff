// The article: its figures come to life, each as a custom element, and training is loaded when its chapter comes near.

import { startsByItself } from "../settings.js";
import "./bricks.js";
import "./embed.js";
import { Fair } from "./fair.js";
import { Guess } from "./guess.js";
import "./lost.js";

customElements.define("mh-fair", Fair);
customElements.define("mh-guess", Guess);

/** Training loads when the reader is at the first figure, or has jumped to its own; where less data or motion is asked for, only there. */
const ghost = document.querySelector("mh-ghost");
if (ghost) {
  const watch = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    import("./ghost.js").catch(() => ghost.append("Training did not load. Check the connection, and load the page again."));
  });
  const first = startsByItself() ? document.querySelector("mh-split") : null;
  for (const figure of [first, ghost]) if (figure) watch.observe(figure);
}
