// Modules that are loaded when they are first used: bundles of their own, no part of page.js.

export const LATER = ["card.js", "lines.js", "replay.js", "stages.js", "step-picture.js", "words.js"];
