// Parts that figures share: lanes, numbers, the row of tools below a figure, and its state in the address.

import { make, say } from "../dom.js";

/** @import { Card } from "./table.js" */

/** Milliseconds in a figure: `14.9`, `363`. @param {number} ms */
export function ms(ms) {
  return ms.toFixed(ms < 100 ? 1 : 0);
}

/** A factor: `0.50`, `1.9`, `12`. @param {number} factor */
export function times(factor) {
  return factor.toFixed(factor < 1.195 ? 2 : factor < 10 ? 1 : 0);
}

/** @param {number} count */
export function whole(count) {
  return count.toLocaleString("en-US");
}

/** Bars of cards below each other, on one scale of time. */
export class Lanes {
  /** @param {string[]} hues Classes of the lanes: `a`, `b`. */
  constructor(hues) {
    this.lanes = hues.map((hue) => {
      const bar = make("span", { className: `bar ${hue}` });
      const rest = make("span", { className: "bar rest" });
      const wait = make("span", { className: "wait" });
      const [name, says, number] = ["lane-name", "lane-says", "lane-ms number"].map((className) => make("span", { className }));
      const row = make("div", { className: "lane" }, name, says, make("div", { className: "track simulated" }, bar, rest, wait), number);
      return { row, bar, rest, wait, name, says, number };
    });
    this.element = make("div", { className: "lanes" }, ...this.lanes.map(({ row }) => row));
    this.element.setAttribute("role", "img");
  }

  /**
   * Shows one lane. `rest_ms` is a part of `ms`, drawn apart, at its end; `wait_ms` follows it.
   * @param {number} at
   * @param {{ name: string, says: string, ms: number, scale: number, rest_ms?: number, wait_ms?: number, is_slowest?: boolean }} shown
   */
  show(at, { name, says, ms: all, scale, rest_ms = 0, wait_ms = 0, is_slowest = false }) {
    const lane = this.lanes[at];
    const part = Math.min(1, all / scale);
    lane.bar.style.width = `${100 * part * (all > 0 ? 1 - rest_ms / all : 1)}%`;
    lane.rest.style.width = `${100 * part * (all > 0 ? rest_ms / all : 0)}%`;
    lane.wait.style.width = `${100 * Math.max(0, Math.min(1 - part, wait_ms / scale))}%`;
    lane.row.classList.toggle("beyond", all > scale);
    lane.row.classList.toggle("slowest", is_slowest);
    say(lane.name, name);
    say(lane.says, says);
    say(lane.number, all > 0 ? `${ms(all)} ms` : "–");
  }

  /** @param {string} text What the lanes show, in words. */
  label(text) {
    this.element.setAttribute("aria-label", text);
  }
}

/**
 * A button that acts.
 * @param {string} text
 * @param {() => void} act
 * @param {string} [className]
 */
export function button(text, act, className = "") {
  const element = make("button", { type: "button", textContent: text, className });
  element.addEventListener("click", act);
  return element;
}

/**
 * A button that copies a text, and says what came of it for a while.
 * @param {string} label
 * @param {() => string} text
 * @param {string} [className]
 */
export function copies(label, text, className) {
  const element = button(label, async () => {
    say(element, await copied(text()));
    setTimeout(() => say(element, label), 2500);
  }, className);
  return element;
}

/**
 * A list of cards by name.
 * @param {Card[]} cards
 * @param {Card} chosen
 * @param {{ ariaLabel: string, className?: string }} look
 * @param {(name: string) => void} choose
 */
export function chooser(cards, chosen, look, choose) {
  const select = make("select", look);
  select.append(...cards.map(({ name, full }) => make("option", { value: name, textContent: full.replace("GeForce ", ""), selected: name === chosen.name })));
  select.addEventListener("change", () => choose(select.value));
  return select;
}

/**
 * A handle over some places, from 0.
 * @param {number} count
 * @param {number} at
 * @param {(at: number) => void} move While it moves.
 * @param {() => void} placed Once it stays.
 */
export function handle(count, at, move, placed) {
  const element = make("input", { type: "range", min: "0", max: String(count - 1), step: "1", value: String(at) });
  element.addEventListener("input", () => move(Number(element.value)));
  element.addEventListener("change", placed);
  return element;
}

/** Whether this document is a figure of its own, in a frame of another page. */
export function isEmbedded() {
  return document.body.classList.contains("embedded");
}

/** The figure's settings in the address. */
export function asked() {
  return new URLSearchParams(location.search);
}

/**
 * Writes settings of a figure to the address, beside those of others.
 * @param {Record<string, string>} state
 */
export function keep(state) {
  const query = asked();
  for (const [name, value] of Object.entries(state)) query.set(name, value);
  // Commas stay readable.
  const text = query.toString().replaceAll("%2C", ",");
  try {
    history.replaceState(null, "", `${location.pathname}?${text}${location.hash}`);
  } catch {
    // Browsers refuse more than some changes in a short time; the next one holds this, too.
  }
}

/**
 * The row below a figure: where its numbers come from, and a button that copies it as a frame for other pages.
 * @param {string} figure Name of its page in `embed/`.
 * @param {string} title
 * @param {number} height
 * @param {() => Record<string, string>} state
 */
export function tools(figure, title, height, state) {
  const source = make("span", {}, "Simulated by ", make("code", { textContent: "manyhands simulate" }), " from data sheets");
  const row = make("div", { className: "tools" }, source);
  if (isEmbedded()) {
    const home = make("a", { href: new URL("../", location.href).href, target: "_top", textContent: "A step is as slow as its slowest part" });
    row.append(home);
    return row;
  }
  row.append(copies("Copy embed", () => {
    const page = new URL(`embed/${figure}.html`, document.baseURI);
    page.search = new URLSearchParams(state()).toString().replaceAll("%2C", ",");
    page.hash = "";
    return `<iframe src="${page.href.replaceAll("&", "&amp;")}" title="${title}" width="100%" height="${height}" style="border:0" loading="lazy"></iframe>`;
  }, "quiet"));
  return row;
}

/** Copies a text; gives what to say of it. @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied";
  } catch {
    prompt("Copy this:", text);
    return "Shown";
  }
}

/**
 * Moves from one number to another in steps that the eye can follow; at once where less motion is asked for.
 * @param {number} from
 * @param {number} to
 * @param {number} lasts_ms
 * @param {(value: number) => void} show
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function glide(from, to, lasts_ms, show, signal) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    show(to);
    return Promise.resolve();
  }
  return new Promise((done) => {
    const start = performance.now();
    const frame = (/** @type {number} */ now) => {
      if (signal.aborted) return done();
      const part = Math.min(1, Math.max(0, (now - start) / lasts_ms));
      show(from + (to - from) * (1 - (1 - part) ** 3));
      if (part < 1) requestAnimationFrame(frame);
      else done();
    };
    requestAnimationFrame(frame);
  });
}

/**
 * Says in a figure that its numbers did not load.
 * @param {HTMLElement} figure
 */
export function missing(figure) {
  figure.append(make("p", { className: "remark", textContent: "The numbers of this figure did not load. Check the connection, and load the page again." }));
}
