// Says what is wrong where the page's own scripts can't: they did not load.
"use strict";
addEventListener(
  "error",
  (event) => {
    const script = event.target;
    if (!(script instanceof HTMLScriptElement)) return;
    const say = () => {
      const status = document.getElementById("status");
      if (status) {
        status.textContent =
          location.protocol === "file:"
            ? "Browsers load no modules from a file. Serve this folder: cargo xtask web serve."
            : "A part of this page did not load. Check the connection and load it again.";
      }
    };
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", say);
    else say();
  },
  true,
);
