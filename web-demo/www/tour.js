// Cards that do something to the run, wait for its effect, and say it with the numbers just measured.

import { byId, make, say, short, whole } from "./dom.js";

/** @import { Member, Request, Settings } from "./messages.js" */

/** Steps after which an effect is told: the split and the mean of the times have followed by then. */
const WATCHED = 25;
const FACTOR = 4;
const MORE = 7;
/** What addresses of cards begin with. */
const TRY = "#try-";

/**
 * Numbers of a moment.
 * @typedef {object} Moment
 * @property {number} step
 * @property {number} ms Of a step, of late.
 * @property {number} samples_per_s
 * @property {number} loss
 * @property {number[]} rows By position in the rig.
 * @property {string[]} letters
 * @property {number | null} difference The largest from the reference so far; `null` where there is none.
 * @property {boolean} has_batch_norm Whether the network has such layers.
 */

/**
 * What the cards work with.
 * @typedef {object} Tools
 * @property {() => Moment} now
 * @property {() => Member[]} members
 * @property {() => number} most Most members of a rig.
 * @property {(request: Request) => void} send
 * @property {(changed: Partial<Pick<Settings, "split" | "batch_norm">>) => void} change
 * @property {() => void} run Starts or continues training.
 * @property {() => void} step Pauses training, and shows one step slowly.
 * @property {() => Promise<string>} stages Shows stages in the simulator, and gives what came of it.
 * @property {(text: string) => void} tell Says it in the first screen, too.
 */

/**
 * @typedef {object} Card
 * @property {string} id Its address is `#try-` and this.
 * @property {string} title
 * @property {string} text
 * @property {(tools: Tools) => string | Promise<string> | void} act Gives the reason if it can't be done; or what came of it, if that
 *   is no matter of the run.
 * @property {(before: Moment, after: Moment) => string} tell
 */

/** @type {(before: Moment, after: Moment) => string} */
const times = (before, after) => `A step took ${short(before.ms)} ms, now ${short(after.ms)} ms.`;
/** @type {(before: Moment, after: Moment) => string} */
const rowsOfSecond = (before, after) => `${after.letters[1]} gets ${after.rows[1]} rows, before ${before.rows[1]}.`;
/** @type {(before: Moment, after: Moment, of_growth?: string) => string} */
const differences = (before, after, of_growth = "") => {
  if (before.difference === null || after.difference === null) return "There is no reference for these settings.";
  const [then, now] = [before.difference, after.difference].map((value) => (value === 0 ? "0" : value.toExponential(1)));
  return `Largest difference from the reference: ${then} before, ${now} now.${of_growth}`;
};

/** @type {Card[]} */
const CARDS = [
  {
    id: "start", title: "Train", text: "Start, and see the loss fall.", act: () => {},
    tell: (before, after) => `${after.step - before.step} steps later the loss is ${after.loss.toFixed(3)}.`,
  },
  {
    id: "slow", title: "Slow B down", text: `B takes ${FACTOR} times as long, and gets fewer rows.`,
    act: ({ members, send }) => {
      const second = members()[1];
      if (!second) return "This needs a second adapter: add one above.";
      return send({ type: "throttle", member: second.id, factor: FACTOR });
    },
    tell: (before, after) => `${times(before, after)} ${rowsOfSecond(before, after)}`,
  },
  {
    id: "even", title: "Split evenly", text: "All get as many rows: the fast wait for the slow.", act: ({ change }) => change({ split: "even" }),
    tell: (before, after) => times(before, after),
  },
  {
    id: "learned", title: "Split by speed", text: "Back to shares by measured speed.", act: ({ change }) => change({ split: "learned" }),
    tell: (before, after) => times(before, after),
  },
  {
    id: "plug", title: "Pull a plug", text: "The last adapter is lost in mid-step. Its rows run on the others.",
    act: ({ members, send }) => {
      const active = members().filter(({ presence }) => presence === "active");
      const last = active[active.length - 1];
      if (!last || active.length < 2) return "This needs a second adapter: add one above.";
      return send({ type: "unplug", member: last.id });
    },
    tell: (before, after) => `No step was lost. ${differences(before, after, " Roundings make it grow with training, plug or no plug.")}`,
  },
  {
    id: "shards", title: "Batch-norm by shard", text: "Each adapter takes the statistics of its own rows: the result now depends on the split.",
    act: ({ change, now }) => (now().has_batch_norm ? change({ batch_norm: "per_shard" }) : "This network has no batch-norm: choose digits or clothes as data."),
    tell: differences,
  },
  {
    id: "more", title: "Seven more", text: "Seven more devices like A. They share its hardware, so do not expect more speed.",
    act: ({ members, most, send }) => {
      const [first] = members();
      const room = Math.min(MORE, most() - members().length);
      if (!first || room <= 0) return `The rig has ${most()} adapters already, the most there can be.`;
      for (let count = 0; count < room; count += 1) send({ type: "add", index: first.info.index });
    },
    tell: (before, after) => `${times(before, after)} ${whole(before.samples_per_s)} samples/s before, ${whole(after.samples_per_s)} now, on ${after.letters.length} adapters.`,
  },
  {
    id: "step", title: "One step, slowly", text: "Training pauses, and the parts of one step light up in their order.",
    act: ({ step }) => {
      step();
      return "Training is paused. The step is shown below, and its four acts are told there.";
    },
    tell: () => "",
  },
  {
    id: "stages", title: "One model in stages", text: "Simulated: eight cards share the layers of a network, not the rows of a batch.", act: ({ stages }) => stages(), tell: () => "",
  },
];

/** The card that the address names, if any. */
function named() {
  return location.hash.startsWith(TRY) ? location.hash.slice(TRY.length) : "";
}

export class Tour {
  #tools;
  /** What waits for its effect. @type {{ card: Card, before: Moment, says: HTMLElement } | null} */
  #watched = null;
  /** @type {Map<string, { card: Card, button: HTMLButtonElement, says: HTMLElement }>} */
  #cards = new Map();

  /** @param {Tools} tools */
  constructor(tools) {
    this.#tools = tools;
    const items = CARDS.map((card) => {
      const button = make("button", { className: "small", textContent: card.title, disabled: true });
      const says = make("p", { className: "remark", textContent: card.text });
      says.setAttribute("role", "status");
      button.addEventListener("click", () => this.#act(card.id));
      this.#cards.set(card.id, { card, button, says });
      const address = make("a", { className: "address", href: `${TRY}${card.id}`, textContent: "#", ariaLabel: `Address of “${card.title}”` });
      const item = make("li", {}, make("div", { className: "card-head" }, button, address), says);
      // No id: an address would scroll the rig out of sight.
      item.dataset.card = card.id;
      return item;
    });
    byId("tour", HTMLElement).append(...items);
    addEventListener("hashchange", () => this.#act(named()));
  }

  /** The engine is there: an address that names a card has it done once steps were measured. */
  start() {
    for (const { button } of this.#cards.values()) button.disabled = false;
    const id = named();
    const found = this.#cards.get(id);
    if (!found) return;
    const { card, says } = found;
    const first = { ...card, tell: () => { queueMicrotask(() => this.#act(id)); return card.text; } };
    this.#tools.run();
    this.#watched = { card: first, before: { ...this.#tools.now(), step: 0 }, says };
  }

  /** @param {string} id */
  #act(id) {
    const found = this.#cards.get(id);
    // Without an engine, or in a replay, nothing can be done: before the engine is there, `start` will see the address.
    if (!found || found.button.matches(":disabled, [inert] *")) return;
    // What it changes is in the query from now on: opened again, the address must not have it done twice.
    if (location.hash.startsWith(TRY)) history.replaceState(null, "", location.pathname + location.search);
    const { card, says } = found;
    const before = this.#tools.now();
    const refused = card.act(this.#tools);
    if (refused instanceof Promise) {
      say(says, "Simulating…");
      void refused.then((text) => { say(says, text); this.#tools.tell(text); });
      return;
    }
    if (refused) return say(says, refused);
    this.#tools.run();
    this.#watched = { card, before, says };
    say(says, "Watching the next steps…");
  }

  /** Steps were trained. */
  learned() {
    const watched = this.#watched;
    if (!watched) return;
    const after = this.#tools.now();
    // After a restart steps count from 1 again.
    if (after.step < watched.before.step) watched.before.step = after.step;
    if (after.step - watched.before.step < WATCHED) return;
    this.#watched = null;
    const text = watched.card.tell(watched.before, after);
    say(watched.says, text);
    this.#tools.tell(text);
  }
}
