// The rig: the batch as a bar, its trail, a lane for each adapter and one for the host, and what can be added.

import { byId, colour, make, onScheme, paced, say, short, sized } from "./dom.js";
import { GAIN, Lane, place } from "./lane.js";
import { Remark } from "./remark.js";
import { COLOURS, drawBatch } from "./split.js";

/** @import { Info, Member, Request, StepLog } from "./messages.js" */
/** @import { Part } from "./split.js" */

const TRAIL_LINES = 120;
const REDRAW_MS = 100;
const CALM_MS = 500;
const REMARK_MS = 1000;
const HOST_PHASES = ["data", "reduce", "update"];

export class Rig {
  /** @type {Map<number, Lane>} By the members' ids. */
  #lanes = new Map();
  /** @type {Lane[]} In the order of the members: `AdapterLog.adapter` is an index into it. */
  #order = [];
  /** @type {Info[]} */
  #adapters = [];
  /** Most members that it can have. */
  #most = Infinity;
  /** Members that were asked for and have not come yet. */
  #n_asked = 0;
  /** @type {{ slot: number, part: number }[][]} The newest first. */
  #trail = [];
  /** @type {StepLog | null} */
  #last = null;
  /** The last one that is shown: an epoch's short last batch would flicker. @type {StepLog | null} */
  #full = null;
  /** Its parts, by the adapters that there were: some may have left since. @type {(Part & { id: number })[]} */
  #parts = [];
  #remark = new Remark();
  /** @type {number | null} */
  #samples_per_s = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #later;
  /** Milliseconds, smoothed. */
  #host = { ms: 0, data: 0, reduce: 0, update: 0 };
  /** Those that are shown: smoothed, or of the last step. */
  #host_times = this.#host;
  #hostBars = HOST_PHASES.map((name) => make("i", { className: name }));
  #send;
  #draw = paced(() => this.#redraw(), matchMedia("(prefers-reduced-motion: reduce)").matches ? CALM_MS : REDRAW_MS);

  /** @param {(request: Request) => void} send */
  constructor(send) {
    this.#send = send;
    byId("host-time", HTMLElement).append(...this.#hostBars);
    new ResizeObserver(this.#draw).observe(byId("trail", HTMLCanvasElement));
    onScheme(this.#draw);
  }

  /**
   * @param {Info[]} adapters All that can be added.
   * @param {number} most Most members that it can have.
   */
  offer(adapters, most) {
    [this.#adapters, this.#most] = [adapters, most];
    this.#drawOffers();
  }

  /** A member was asked for. */
  expect() {
    this.#n_asked += 1;
    this.#drawOffers();
  }

  /** A member that was asked for will not come. */
  giveUp() {
    this.#n_asked = Math.max(0, this.#n_asked - 1);
    this.#drawOffers();
  }

  /** A message of the engine with the page's letters in the place of its numbers. @param {string} message */
  named(message) {
    return message.replace(/\badapter (\d+)\b/g, (number, position) => {
      const lane = this.#order.find(({ member }) => member.position === Number(position));
      return lane ? `adapter ${lane.letter}` : number;
    });
  }

  /** Samples each second by the clock, of late. @param {number | null} samples_per_s */
  set samples_per_s(samples_per_s) {
    this.#samples_per_s = samples_per_s;
  }

  /** Milliseconds of a step, of late. */
  get step_ms() {
    return this.#host.ms;
  }

  /** Rows of the members in the last full batch, by position. */
  get rows() {
    return this.#order.map(({ member }) => this.#parts.find(({ id }) => id === member.id)?.rows ?? 0);
  }

  /** The last full batch, cut by adapter; those that came after it have no rows. @returns {{ parts: Part[], rows: number }} */
  get batch() {
    const late = this.#order.filter(({ member }) => !this.#parts.some(({ id }) => id === member.id));
    return { parts: [...this.#parts, ...late.map(({ slot, member }) => ({ slot, name: member.info.name, rows: 0 }))], rows: this.#full?.rows ?? 0 };
  }

  /** Letters of the members, by position. */
  get letters() {
    return this.#order.map((lane) => lane.letter);
  }

  /** @param {Member[]} members */
  set members(members) {
    for (const [id, lane] of this.#lanes) {
      if (members.some((member) => member.id === id)) continue;
      const had_focus = lane.element.contains(document.activeElement);
      lane.element.remove();
      if (had_focus) byId("add", HTMLElement).querySelector("button")?.focus();
      this.#lanes.delete(id);
    }
    this.#n_asked = Math.max(0, this.#n_asked - Math.max(0, members.length - this.#order.length));
    this.#order = members.map((member) => this.#laneOf(member));
    this.#remark.members = members;
    const list = byId("lanes", HTMLElement);
    this.#order.forEach((lane, at) => {
      if (list.children[at] !== lane.element) list.insertBefore(lane.element, list.children[at] ?? null);
      const { shares_device_with } = lane.member;
      const twin = shares_device_with === null ? undefined : this.#lanes.get(shares_device_with);
      lane.describe(twin, members.length === 1 ? "alone" : "one of several");
    });
    this.#drawOffers();
    this.#draw();
  }

  /**
   * @param {StepLog[]} steps
   * @param {"mean" | "step"} shown The times that are shown: of late, or those of the last step.
   */
  take(steps, shown) {
    for (const step of steps) this.#learn(step, shown);
    const [last, full] = [this.#last, this.#full];
    if (!last || !full) return;
    // The short last batch of an epoch is a short line.
    const parts = last.adapters.flatMap(({ adapter, rows }) => {
      const lane = this.#order[adapter];
      return lane && rows > 0 ? [{ slot: lane.slot, part: rows / full.rows }] : [];
    });
    this.#trail = [parts, ...this.#trail].slice(0, TRAIL_LINES);
    this.#draw();
  }

  /** Takes the rig off the page. Gives what brings it back. */
  keep() {
    const [lanes, order, n_asked, host, host_times] = [this.#lanes, this.#order, this.#n_asked, this.#host, this.#host_times];
    const [trail, last, full, parts, remark] = [this.#trail, this.#last, this.#full, this.#parts, this.#remark];
    // Lanes know their letters and times: others are shown meanwhile.
    this.#show(new Map(), []);
    [this.#n_asked, this.#remark] = [0, new Remark()];
    this.clear();
    return () => {
      this.#show(lanes, order);
      [this.#n_asked, this.#host, this.#host_times, this.#remark] = [n_asked, host, host_times, remark];
      [this.#trail, this.#last, this.#full, this.#parts] = [trail, last, full, parts];
      this.#drawOffers();
      this.#draw();
    };
  }

  /**
   * @param {Map<number, Lane>} lanes
   * @param {Lane[]} order
   */
  #show(lanes, order) {
    [this.#lanes, this.#order] = [lanes, order];
    byId("lanes", HTMLElement).replaceChildren(...order.map(({ element }) => element));
  }

  /** Forgets the steps, as after a reset. */
  clear() {
    this.#trail = [];
    [this.#last, this.#full, this.#parts] = [null, null, []];
    this.#remark.clear();
    for (const lane of this.#order) lane.forget();
    this.#draw();
  }

  /** The parts of a step by adapters that are there. @param {StepLog} step */
  place({ adapters }) {
    return adapters.flatMap((log) => {
      const lane = this.#lanes.get(log.member);
      return lane ? [{ slot: lane.slot, log }] : [];
    });
  }

  /** Lights the part of a step that has been played, 0 to 1; `null`: all of it. @param {number | null} part */
  light(part) {
    const { classList, style } = byId("rig", HTMLElement);
    classList.toggle("played", part !== null);
    if (part !== null) style.setProperty("--played", `${(100 * part).toFixed(2)}%`);
  }

  /** @param {StepLog} step @param {"mean" | "step"} shown */
  #learn(step, shown) {
    const host = this.#host;
    const follow = (/** @type {number} */ old, /** @type {number} */ now) => (this.#last ? old + GAIN * (now - old) : now);
    this.#host = {
      ms: follow(host.ms, step.ms),
      data: follow(host.data, step.data_ms),
      reduce: follow(host.reduce, step.reduce_ms),
      update: follow(host.update, step.update_ms),
    };
    this.#host_times = shown === "mean" ? this.#host : { ms: step.ms, data: step.data_ms, reduce: step.reduce_ms, update: step.update_ms };
    // The bar and the lanes show the same step. The short last batch of an epoch would flicker, but where it is asked for by itself.
    if (!this.#full || !isShort(step) || shown === "step") {
      this.#order.forEach((lane, at) => lane.learn(step.adapters.find(({ adapter }) => adapter === at), shown));
      this.#full = step;
      this.#parts = this.#order.map(({ slot, member, rows }) => ({ id: member.id, slot, name: member.info.name, rows }));
      this.#remark.take(step);
    }
    this.#last = step;
  }

  /**
   * @param {Member} member
   * @returns {Lane}
   */
  #laneOf(member) {
    const known = this.#lanes.get(member.id);
    if (known) {
      known.member = member;
      return known;
    }
    const taken = new Set([...this.#lanes.values()].map((lane) => lane.slot));
    let slot = 0;
    while (taken.has(slot)) slot += 1;
    const lane = new Lane(member, slot, this.#send);
    this.#lanes.set(member.id, lane);
    return lane;
  }

  #drawOffers() {
    this.#nameOffers();
    const is_full = this.#order.length + this.#n_asked >= this.#most;
    // `disabled` would take the focus away.
    for (const button of byId("add", HTMLElement).querySelectorAll("button")) button.ariaDisabled = String(is_full);
    say(byId("add-says", HTMLElement), is_full ? `A rig here has ${this.#most} adapters at most: remove one to add another.` : "");
  }

  #nameOffers() {
    const texts = this.#adapters.map(({ index, kind, name }) => {
      const is_in_use = this.#order.some(({ member }) => member.info.index === index);
      const again = kind === "cpu" ? "another worker on the" : "another device on";
      return `+ ${is_in_use ? `${again} ` : ""}${kind === "cpu" ? "CPU" : name}`;
    });
    const box = byId("add", HTMLElement);
    // Buttons that stay as they are keep their focus.
    if (texts.join("\n") === [...box.children].map(({ textContent }) => textContent).join("\n")) return;
    const buttons = this.#adapters.map(({ index }, at) => {
      const button = make("button", { className: "small", textContent: texts[at] });
      button.setAttribute("aria-describedby", "add-says");
      button.addEventListener("click", () => { if (button.ariaDisabled !== "true") this.#send({ type: "add", index }); });
      return button;
    });
    const focused = [...box.children].findIndex((element) => element === document.activeElement);
    box.replaceChildren(...buttons);
    buttons[focused]?.focus();
  }

  #redraw() {
    const { ms, data } = this.#host_times;
    // A lane that was just reopened has fewer steps than the mean.
    const longest = Math.max(ms, ...this.#order.map((lane) => data + lane.ms));
    const scale = this.#last && ms > 0 ? 100 / longest : 0;
    this.#drawBatch();
    this.#drawTrail();
    for (const lane of this.#order) lane.draw(data * scale, scale);
    this.#drawHost(scale);
    // Samples a second count what the page does between steps, too.
    const every_ms = this.#samples_per_s && this.#full ? (1000 * this.#full.rows) / this.#samples_per_s : 0;
    say(byId("step-ms", HTMLElement), this.#last ? `step ${short(ms)} ms${every_ms > ms ? `, every ${short(every_ms)} ms` : ""}` : "");
    say(byId("rig-says", HTMLElement), this.#remark.text((id) => this.#lanes.get(id)?.letter ?? "", performance.now()));
    // Where no step follows, what is true by now is shown later.
    clearTimeout(this.#later);
    if (!this.#remark.is_settled) this.#later = setTimeout(this.#draw, REMARK_MS);
  }

  #drawBatch() {
    for (const id of ["batch", "small-batch"]) drawBatch(byId(id, HTMLElement), this.#parts, this.#full?.rows ?? 0);
  }

  #drawTrail() {
    const { context, width, height, ratio } = sized(byId("trail", HTMLCanvasElement));
    const colours = Array.from({ length: COLOURS }, (_, at) => colour(`a${at}`));
    context.clearRect(0, 0, width, height);
    this.#trail.forEach((parts, line) => {
      let x = 0;
      const top = Math.round(line * ratio);
      for (const { slot, part } of parts) {
        const right = x + part * width;
        context.fillStyle = colours[slot % COLOURS];
        context.fillRect(Math.round(x), top, Math.round(right) - Math.round(x), Math.round((line + 1) * ratio) - top);
        x = right;
      }
    });
  }

  /** @param {number} scale Percent a millisecond. */
  #drawHost(scale) {
    const { data, reduce, update } = this.#host_times;
    const end = 100 - (reduce + update) * scale;
    place(this.#hostBars[0], 0, data * scale);
    place(this.#hostBars[1], end, reduce * scale);
    place(this.#hostBars[2], end + reduce * scale, update * scale);
    const texts = [`data ${short(data)} ms`, `sums ${short(reduce)} ms`, `update ${short(update)} ms`];
    say(byId("host-numbers", HTMLElement), this.#last ? `${texts.map((text) => text.replace(" ms", "")).join(" · ")} ms` : "");
    byId("host-time", HTMLElement).setAttribute("aria-label", this.#last ? texts.join(", ") : "No step yet");
  }
}

/** Whether it is the last batch of an epoch, which may have fewer rows. @param {StepLog} step */
function isShort({ batch, batches }) {
  return batches > 1 && batch === batches;
}
