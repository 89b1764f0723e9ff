// What the page says of the data that are learned, where it differs.

import { BITS, byId, percent, say } from "./dom.js";
import { isText } from "./settings.js";

/** @import { Data, EpochLog } from "./messages.js" */

/**
 * @typedef {object} Words
 * @property {string} title Of the test pictures.
 * @property {string} note
 * @property {string} fact Name of the number beside step and epoch.
 * @property {string} exported What the native command makes of the model.
 * @property {string} command That evaluates the model natively.
 */

/** @type {Words} */
const OF_TEXT = {
  title: "", fact: "bits/character in training", note: "", command: "manyhands evaluate text.safetensors --data lincoln.txt",
  exported: "loads it and tells its loss over the whole text, data/lincoln.txt of this page, in nats: 1 nat is 1.44 bits.",
};

/** @type {Record<Data, Words>} */
const WORDS = {
  digits: {
    title: "What it reads", fact: "test accuracy", command: "manyhands evaluate digits.safetensors",
    exported: "loads it and reaches the same accuracy.",
    note: "360 test digits, which are not used for training. Wrong ones are shown inverted; they become fewer as the network learns, and the last ones are hard for people, too.",
  },
  fashion: {
    title: "What it takes them for", fact: "test accuracy", command: "manyhands evaluate fashion.safetensors --data fashion-mnist/",
    exported: "loads it and tests it on all 10,000 test pictures, in 256 shades: its accuracy is near that above, not equal.",
    note: "1,000 test pictures of Fashion-MNIST, a hundred of each kind, which are not used for training. Wrong ones are shown inverted. Shirts, pullovers and coats are what it mistakes longest.",
  },
  text: OF_TEXT,
  own: { ...OF_TEXT, command: "manyhands evaluate text.safetensors --data your-text.txt", exported: "loads it and tells its loss over your whole text, in nats: 1 nat is 1.44 bits." },
};

/** Shows what goes with the data. @param {Data} data */
export function showWords(data) {
  const { title, note, fact, exported, command } = WORDS[data];
  byId("reading", HTMLElement).hidden = isText(data);
  if (title) say(byId("reading-title", HTMLElement), title);
  if (note) say(byId("reading-note", HTMLElement), note);
  say(byId("fact-accuracy-name", HTMLElement), fact);
  say(byId("exported", HTMLElement), exported);
  say(byId("command", HTMLElement), command);
}

/** The number that says how good the network is. @param {Data} data @param {{ accuracy: number | null, loss: number }} now */
export function goodness(data, { accuracy, loss }) {
  if (isText(data)) return Number.isNaN(loss) ? "–" : loss.toFixed(2);
  return accuracy === null ? "–" : percent(accuracy);
}

/** An epoch's end in words. @param {Data} data @param {EpochLog} epoch */
export function epochSays(data, { epoch, val_loss, val_accuracy }) {
  return isText(data)
    ? `Epoch ${epoch}: ${(BITS * val_loss).toFixed(2)} bits a character on the test text.`
    : `Epoch ${epoch}: test accuracy ${percent(val_accuracy)}.`;
}
