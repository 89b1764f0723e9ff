// Steps of two cards by name, from what `manyhands simulate` predicted of each: `record.js` writes the tables.

/**
 * A card: its name in lists and in full, milliseconds of a step alone, and those of its lane by examples.
 * @typedef {{ name: string, full: string, alone: number, lanes: number[] }} Card
 * @typedef {{ model: string, batch: number, every: number, cards: Card[] }} Recorded
 * @typedef {{ model: string, batch_size: number, words: string, alone: number, together: { count: number, ms: number, part_ms: number }[] }} Work
 * @typedef {{ slower: number, old: number[], before: number[], shares: number[], after: number[] }} Slowed
 * @typedef {{ ms: number, rows: number[], lanes: number[] }} Shared
 * @typedef {{ lost_ms: number, steps: Shared[] }} Lost
 * @typedef {{ pieces: number, ms: number, bricks: number[][] }} Bricked
 * @typedef {{ count: number, copy: number, has: number, stages: number[], ms: number | null }} Memory
 */

/** Bandwidth of the host beside cards by name, as the command has it, in 10⁹ bytes a second. */
export const HOST_GB_S = 20;

/** Before tables are there. @type {Card} */
export const NO_CARD = { name: "", full: "", alone: 0, lanes: [] };

/** @type {Map<string, Promise<any>>} */
const loaded = new Map();

/**
 * A recorded table, asked for once.
 * @param {"cards" | "works" | "slowed" | "lost" | "memory" | "bricks"} name
 */
function load(name) {
  const known = loaded.get(name);
  if (known) return known;
  const asked = fetch(new URL(`${name}.json`, import.meta.url)).then((response) => {
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    return response.json();
  });
  loaded.set(name, asked);
  // The next figure may have more luck.
  asked.catch(() => loaded.delete(name));
  return asked;
}

/** @returns {Promise<Table>} */
export async function cards() {
  return new Table(await load("cards"));
}

/** @returns {Promise<{ card: string, works: Work[] }>} */
export function works() {
  return load("works");
}

/** @returns {Promise<{ cards: string[], steps: Slowed[] }>} */
export function slowed() {
  return load("slowed");
}

/** @returns {Promise<{ card: string, steps: Memory[] }>} */
export function memory() {
  return load("memory");
}

/** Runs of three cards, of which one dies: each in turn. @returns {Promise<{ cards: string[], runs: Lost[] }>} */
export function lost() {
  return load("lost");
}

/** Steps of a network in stages. A brick: stage, piece, kind of work, start and milliseconds. @returns {Promise<{ card: string, stages: number, copies: number, steps: Bricked[] }>} */
export function bricks() {
  return load("bricks");
}

/** Name of a card in an address. @param {string} name */
export function slug(name) {
  return name.toLowerCase().replaceAll(" ", "-");
}

export class Table {
  /** Before it is there. */
  static get empty() {
    return new Table({ model: "", batch: 1, every: 1, cards: [] });
  }

  /** @param {Recorded} recorded */
  constructor({ model, batch, every, cards }) {
    this.model = model;
    this.batch = batch;
    this.cards = cards;
    this.every = every;
  }

  /**
   * The card of a name, in an address or in words.
   * @param {string} name
   */
  card(name) {
    return this.cards.find((card) => slug(card.name) === slug(name));
  }

  /**
   * Milliseconds until a card has done its examples beside another: computing, and what two cards cost.
   * @param {Card} card
   * @param {number} rows
   */
  lane({ lanes }, rows) {
    if (rows <= 0) return 0;
    const at = Math.min(Math.max(Math.floor(rows / this.every) - 1, 0), lanes.length - 2);
    return lanes[at] + (lanes[at + 1] - lanes[at]) * (rows / this.every - 1 - at);
  }

  /**
   * A step in which the first card has so many examples and the other the rest.
   * @param {[Card, Card]} pair
   * @param {number} first
   */
  step([a, b], first) {
    if (first >= this.batch) return { ms: a.alone, lanes: [a.alone, 0] };
    if (first <= 0) return { ms: b.alone, lanes: [0, b.alone] };
    const lanes = [this.lane(a, first), this.lane(b, this.batch - first)];
    return { ms: Math.max(...lanes), lanes };
  }

  /**
   * Examples of the first card in the shortest step.
   * @param {[Card, Card]} pair
   */
  best(pair) {
    let best = 0;
    for (let first = 1; first <= this.batch; first += 1) {
      if (this.step(pair, first).ms < this.step(pair, best).ms) best = first;
    }
    return best;
  }

  /**
   * Examples of the first card in each step while the split is learned: each card gets as many as suit the speed it has just shown.
   * @param {[Card, Card]} pair
   * @param {number} first
   */
  learned(pair, first) {
    const steps = [first];
    const best = this.best(pair);
    if (best === 0 || best === this.batch) return [first, best];
    let share = Math.min(Math.max(first, this.every), this.batch - this.every);
    for (let step = 0; step < 12; step += 1) {
      const [a, b] = this.step(pair, share).lanes;
      const [fast, slow] = [share / a, (this.batch - share) / b];
      const next = Math.round((this.batch * fast) / (fast + slow));
      if (Math.abs(next - share) < 2) break;
      share = next;
      steps.push(share);
    }
    return steps;
  }
}
