// Cards that do something to the run, wait for its effect, and say it with the numbers just measured.

import { plain } from "./check.js";
import { byId, make, say, short, whole } from "./dom.js";

/** @import { Member, Request, Settings } from "./messages.js" */

/** Steps after which an effect is told: the split and the mean of the times have followed by then. */
const WATCHED = 25;
const FACTOR = 4;
const MORE = 7;
/** Times that what a card needs is brought about: an adapter that was added may then have to be slowed down. */
const MOST_PREPARED = 3;
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
 * @property {{ step: number, gap: number } | null} check The last step that one adapter alone has computed, too, and its gap.
 * @property {boolean} has_batch_norm Whether the network has such layers.
 */

/**
 * What the cards work with.
 * @typedef {object} Tools
 * @property {() => Moment} now
 * @property {() => Member[]} members
 * @property {() => Pick<Settings, "split" | "batch_norm">} settings
 * @property {() => number} most Most members of a rig.
 * @property {(request: Request) => void} send
 * @property {(changed: Partial<Pick<Settings, "split" | "batch_norm">>) => void} change
 * @property {() => void} run Starts or continues training.
 * @property {() => boolean} is_running
 * @property {() => Promise<string>} step Pauses training, and shows one step slowly. Gives what came of it in words.
 * @property {() => Promise<string>} stages Shows stages in the simulator, and gives what came of it.
 * @property {(text: string) => void} tell Says it in the first screen, too.
 */

/**
 * What has to be so before a card acts: it shows nothing otherwise. What is not named stays as it is.
 * @typedef {object} Needs
 * @property {number} [adapters] Fewest that are there.
 * @property {"learned" | "even"} [split]
 * @property {"whole_batch"} [batch_norm]
 * @property {"none" | "second"} [slowed]
 */

/**
 * @typedef {object} Card
 * @property {string} id Its address is `#try-` and this.
 * @property {string} title
 * @property {string} text
 * @property {Needs} [needs]
 * @property {(tools: Tools) => string | Promise<string> | void} act Gives the reason if it can't be done; or what came of it, if that
 *   is no matter of the run.
 * @property {(before: Moment, after: Moment, at: number) => string} tell `at` is the second adapter's position.
 */

/** How the run was before a card. @typedef {Pick<Settings, "split" | "batch_norm"> & { throttles: Map<number, number>, is_running: boolean }} Former */

/** @type {(before: Moment, after: Moment) => string} */
const times = (before, after) => `A step took ${short(before.ms)} ms, now ${short(after.ms)} ms.`;
/** @type {(before: Moment, after: Moment, at: number) => string} */
const rowsOfSecond = (before, after, at) => `${after.letters[at]} gets ${after.rows[at]} examples, before ${before.rows[at]}.`;
/** @type {(before: Moment, after: Moment) => string} */
const gaps = (before, after) => {
  if (!after.check || after.check.step <= before.step) return "There are no two adapters now to compare a step with one alone.";
  return `Gap to one adapter alone: ${before.check ? `${plain(before.check.gap)} before, ` : ""}${plain(after.check.gap)} now.`;
};

/** Positions of the members that are there. @param {Member[]} members */
const present = (members) => members.flatMap(({ presence }, at) => (presence === "active" ? [at] : []));

/** @type {Card[]} */
const CARDS = [
  {
    id: "start", title: "Train", text: "Start, and see the loss fall.", act: () => {},
    tell: (before, after) => `${after.step - before.step} steps later the loss is ${after.loss.toFixed(3)}.`,
  },
  {
    id: "slow", title: "Slow B down", text: `B takes ${FACTOR} times as long, and gets fewer examples.`, needs: { adapters: 2, split: "learned", slowed: "none" },
    act: ({ members, send }) => send({ type: "throttle", member: members()[present(members())[1]].id, factor: FACTOR }),
    tell: (before, after, at) => `${times(before, after)} ${rowsOfSecond(before, after, at)}`,
  },
  {
    id: "even", title: "Split evenly", text: `B takes ${FACTOR} times as long, and yet all get as many examples: the fast wait for the slow.`, needs: { adapters: 2, split: "learned", slowed: "second" },
    act: ({ change }) => change({ split: "even" }),
    tell: (before, after, at) => `${times(before, after)} ${rowsOfSecond(before, after, at)}`,
  },
  {
    id: "learned", title: "Split by speed", text: `B takes ${FACTOR} times as long: from equal shares to shares by measured speed.`, needs: { adapters: 2, split: "even", slowed: "second" },
    act: ({ change }) => change({ split: "learned" }),
    tell: (before, after, at) => `${times(before, after)} ${rowsOfSecond(before, after, at)}`,
  },
  {
    id: "plug", title: "Pull a plug", text: "The last of three adapters is lost in mid-step. Its examples run on the others.", needs: { adapters: 3, batch_norm: "whole_batch" },
    act: ({ members, send }) => send({ type: "unplug", member: members()[present(members()).at(-1) ?? 0].id }),
    tell: (before, after) => `No step was lost. ${gaps(before, after)}`,
  },
  {
    id: "shards", title: "Batch-norm by shard", text: "Each adapter takes the statistics of its own examples: the result now depends on the split.", needs: { adapters: 2, batch_norm: "whole_batch" },
    act: ({ change, now }) => (now().has_batch_norm ? change({ batch_norm: "per_shard" }) : "This network has no batch-norm: choose digits or clothes as data."),
    tell: gaps,
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
  { id: "step", title: "One step, slowly", text: "Training pauses, and the parts of one step light up in their order.", act: ({ step }) => step(), tell: () => "" },
  {
    id: "stages", title: "One model in stages", text: "Simulated: eight cards share the layers of a network, not the examples of a batch.", act: ({ stages }) => stages(), tell: () => "",
  },
];

/** The card that the address names, if any. */
function named() {
  return location.hash.startsWith(TRY) ? location.hash.slice(TRY.length) : "";
}

export class Tour {
  #tools;
  /**
   * What waits: for its effect, or for what it needs, which was then brought about so many times.
   * @type {{ card: Card, before: Moment, at: number, says: HTMLElement, prepared?: number } | null}
   */
  #watched = null;
  /** How it was before the last card, and the members that it has added. @type {{ id: string, former: Former, ids: Set<number> } | null} */
  #done = null;
  /** @type {Map<string, { card: Card, button: HTMLButtonElement, undo: HTMLButtonElement, says: HTMLElement }>} */
  #cards = new Map();

  /** @param {Tools} tools */
  constructor(tools) {
    this.#tools = tools;
    const items = CARDS.map((card) => {
      const button = make("button", { className: "small", textContent: card.title, disabled: true });
      const undo = make("button", { className: "small undo", textContent: "Undo", hidden: true, ariaLabel: `Undo “${card.title}”` });
      const says = make("p", { className: "remark", textContent: card.text });
      says.setAttribute("role", "status");
      button.addEventListener("click", () => this.#begin(card.id));
      undo.addEventListener("click", () => this.#undo());
      this.#cards.set(card.id, { card, button, undo, says });
      const address = make("a", { className: "address", href: `${TRY}${card.id}`, textContent: "#", ariaLabel: `Address of “${card.title}”` });
      const item = make("li", {}, make("div", { className: "card-head" }, button, undo, address), says);
      // No id: an address would scroll the rig out of sight.
      item.dataset.card = card.id;
      return item;
    });
    byId("tour", HTMLElement).append(...items);
    addEventListener("hashchange", () => this.#begin(named()));
  }

  /** The engine is there: an address that names a card has it done once steps were measured. */
  start() {
    for (const { button } of this.#cards.values()) button.disabled = false;
    const id = named();
    const found = this.#cards.get(id);
    if (!found) return;
    const { card, says } = found;
    const first = { ...card, tell: () => { queueMicrotask(() => this.#begin(id)); return card.text; } };
    this.#tools.run();
    this.#watched = { card: first, before: { ...this.#tools.now(), step: 0 }, at: 0, says };
  }

  /** @param {string} id */
  #begin(id) {
    const found = this.#cards.get(id);
    // Without an engine, or in a replay, nothing can be done: before the engine is there, `start` will see the address.
    if (!found || found.button.matches(":disabled, [inert] *")) return;
    // What it changes is in the query from now on: opened again, the address must not have it done twice.
    if (location.hash.startsWith(TRY)) history.replaceState(null, "", location.pathname + location.search);
    const members = this.#tools.members();
    const former = { ...this.#tools.settings(), throttles: new Map(members.map((member) => [member.id, member.throttle])), is_running: this.#tools.is_running() };
    this.#done = { id, former, ids: new Set(members.map((member) => member.id)) };
    for (const { undo } of this.#cards.values()) undo.hidden = true;
    this.#act(found.card, found.says, 0);
  }

  /**
   * @param {Card} card
   * @param {HTMLElement} says
   * @param {number} prepared How often what it needs was brought about.
   */
  #act(card, says, prepared) {
    const missing = prepared < MOST_PREPARED ? this.#prepare(card.needs ?? {}) : [];
    const before = this.#tools.now();
    const at = present(this.#tools.members())[1] ?? 0;
    if (missing.length > 0) {
      this.#tools.run();
      this.#watched = { card, before, at, says, prepared: prepared + 1 };
      return say(says, `First, what it needs: ${missing.join(", ")}…`);
    }
    if (present(this.#tools.members()).length < (card.needs?.adapters ?? 1)) return say(says, `This needs ${card.needs?.adapters} adapters that are there: add one above.`);
    const refused = card.act(this.#tools);
    if (refused instanceof Promise) {
      say(says, "One moment…");
      void refused.then((text) => {
        say(says, text);
        this.#tools.tell(text);
        this.#offerUndo(card.id);
      });
      return undefined;
    }
    if (refused) return say(says, refused);
    this.#tools.run();
    this.#watched = { card, before, at, says };
    return say(says, "Watching the next steps…");
  }

  /** Brings about what a card needs, as far as it can be asked for now. Gives that in words. @param {Needs} needs */
  #prepare({ adapters = 0, split, batch_norm, slowed }) {
    const { members, settings, most, send, change, now } = this.#tools;
    const there = present(members());
    const missing = [];
    const lacks = Math.min(adapters - there.length, most() - members().length);
    for (let count = 0; count < lacks; count += 1) send({ type: "add", index: members()[there[0] ?? 0].info.index });
    if (lacks > 0) missing.push(lacks === 1 ? "one more adapter" : `${lacks} more adapters`);
    if (split && settings().split !== split) {
      change({ split });
      missing.push(split === "even" ? "equal shares" : "shares by speed");
    }
    if (batch_norm && now().has_batch_norm && settings().batch_norm !== batch_norm) {
      change({ batch_norm });
      missing.push("statistics of the whole batch");
    }
    for (const [number, at] of slowed ? there.entries() : []) {
      const { id, throttle } = members()[at];
      const factor = slowed === "second" && number === 1 ? FACTOR : 1;
      if (throttle === factor) continue;
      send({ type: "throttle", member: id, factor });
      missing.push(factor === 1 ? `${now().letters[at]} at full speed` : `${now().letters[at]} slowed ${factor} times`);
    }
    return missing;
  }

  /** @param {string} id */
  #offerUndo(id) {
    if (this.#done?.id !== id) return;
    const found = this.#cards.get(id);
    // To train on can't be undone.
    if (found && id !== "start" && id !== "stages") found.undo.hidden = false;
  }

  /** Brings back how it was before the last card. What was lost comes back by itself. */
  #undo() {
    if (!this.#done) return;
    const { id, former, ids } = this.#done;
    const { members, settings, send, change, run, is_running } = this.#tools;
    const found = this.#cards.get(id);
    const { split, batch_norm } = former;
    if (settings().split !== split || settings().batch_norm !== batch_norm) change({ split, batch_norm });
    for (const member of members()) {
      if (!ids.has(member.id)) send({ type: "remove", member: member.id });
      else if (member.throttle !== (former.throttles.get(member.id) ?? 1)) send({ type: "throttle", member: member.id, factor: former.throttles.get(member.id) ?? 1 });
    }
    if (former.is_running && !is_running()) run();
    [this.#done, this.#watched] = [null, null];
    if (!found) return;
    found.undo.hidden = true;
    found.button.focus({ preventScroll: true });
    say(found.says, found.card.text);
    this.#tools.tell("As it was before.");
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
    if (watched.prepared !== undefined) return this.#act(watched.card, watched.says, watched.prepared);
    const text = watched.card.tell(watched.before, after, watched.at);
    say(watched.says, text);
    this.#tools.tell(text);
    this.#offerUndo(watched.card.id);
  }
}
