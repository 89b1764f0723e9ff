// The lab was at this address once: links to its settings and cards lead on to it.
"use strict";
{
  /** Settings of `settings.js`, by which its addresses are known. */
  const OF_LAB = ["data", "adapters", "throttles", "model", "batch_size", "split", "batch_norm", "learning_rate", "seed", "epochs", "varied_from", "temperature"];
  const query = new URLSearchParams(location.search);
  if (location.hash.startsWith("#try-") || OF_LAB.some((name) => query.has(name))) location.replace(`lab/${location.search}${location.hash}`);
}
