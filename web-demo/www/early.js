// Says what is wrong where the page's own scripts can't: they did not load, or can't run in this browser.
"use strict";
{
  const say = (/** @type {string} */ text) => {
    const status = document.getElementById("status");
    if (status) status.textContent = text;
    else addEventListener("DOMContentLoaded", () => say(text));
  };
  const TOO_OLD = "This page needs a recent browser: current versions of Chrome, Edge, Firefox and Safari work.";
  if (!("noModule" in HTMLScriptElement.prototype)) say(TOO_OLD);
  addEventListener(
    "error",
    (event) => {
      if (event.target instanceof HTMLScriptElement) {
        say(
          location.protocol === "file:"
            ? "Browsers load no modules from a file. Serve this folder: cargo xtask web serve."
            : "A part of this page did not load. Check the connection and load it again.",
        );
      } else if (event instanceof ErrorEvent && document.body.dataset.state === undefined) {
        // The page has not come to life.
        say(TOO_OLD);
      }
    },
    true,
  );
}
