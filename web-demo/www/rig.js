// The rig: the batch as a bar, its trail, and a lane for each adapter with the controls that act on it.

import { byId, colour, make, onScheme, paced, percent, say, short, sized, within } from "./dom.js";
import { isGpu } from "./settings.js";

/** @import { Info, Member, Request, StepLog } from "./messages.js" */

/** Factors of the slider that slows an adapter down. */
const FACTORS = [1, 1.5, 2, 3, 4, 6, 8, 12, 16];
const COLOURS = 6;
/** Part of a new step in the times shown: single steps jump about too fast to read. */
const GAIN = 0.25;
const TRAIL_LINES = 120;
const REDRAW_MS = 100;
/** A part of the step spent waiting that is worth a word. */
const MUCH_WAITING = 0.2;
const PHASES = /** @type {const} */ (["upload", "compute", "readback", "wait"]);

/** @typedef {Record<typeof PHASES[number], number>} Phases */

/**
 * A member as it is shown.
 * @typedef {object} Lane
 * @property {Member} member
 * @property {number} slot Its letter and colour. Free again when the member has left.
 * @property {HTMLElement} element
 * @property {HTMLElement[]} bars One for each phase.
 * @property {number} rows
 * @property {Phases | null} times Smoothed.
 */

/** @param {number} slot */
const letter = (slot) => String.fromCharCode(65 + (slot % 26));

export class Rig {
  /** @type {Map<number, Lane>} */
  #lanes = new Map();
  /** @type {Lane[]} In the order of the members: `AdapterLog.adapter` is an index into it. */
  #order = [];
  /** @type {Info[]} */
  #adapters = [];
  /** @type {{ slot: number, part: number }[][]} The newest first. */
  #trail = [];
  /** @type {StepLog | null} */
  #last = null;
  #host = { ms: 0, data: 0, reduce: 0, update: 0 };
  #send;
  #draw = paced(() => this.#redraw(), matchMedia("(prefers-reduced-motion: reduce)").matches ? 500 : REDRAW_MS);
  #hostBars = ["data", "reduce", "update"].map((name) => make("i", { className: name }));

  /** @param {(request: Request) => void} send */
  constructor(send) {
    this.#send = send;
    byId("host-time", HTMLElement).append(...this.#hostBars);
    new ResizeObserver(this.#draw).observe(byId("trail", HTMLCanvasElement));
    onScheme(this.#draw);
  }

  /** @param {Info[]} adapters All that can be added. */
  offer(adapters) {
    this.#adapters = adapters;
    this.#drawOffers();
  }

  /** Letters of the members, by position. */
  get letters() {
    return this.#order.map((lane) => letter(lane.slot));
  }

  /** @param {Member[]} members */
  set members(members) {
    for (const [id, lane] of this.#lanes) {
      if (members.some((member) => member.id === id)) continue;
      lane.element.remove();
      this.#lanes.delete(id);
    }
    this.#order = members.map((member) => this.#laneOf(member));
    this.#order.forEach((lane, at) => {
      const list = byId("lanes", HTMLElement);
      if (list.children[at] !== lane.element) list.insertBefore(lane.element, list.children[at] ?? null);
      this.#describe(lane);
    });
    this.#drawOffers();
    this.#draw();
  }

  /** @param {StepLog[]} steps */
  take(steps) {
    for (const step of steps) this.#learn(step);
    const last = steps[steps.length - 1];
    if (!last) return;
    this.#last = last;
    const parts = last.adapters.flatMap(({ adapter, rows }) => {
      const lane = this.#order[adapter];
      return lane && rows > 0 ? [{ slot: lane.slot, part: rows / last.rows }] : [];
    });
    this.#trail = [parts, ...this.#trail].slice(0, TRAIL_LINES);
    this.#draw();
  }

  /** Forgets the steps, as after a reset. */
  clear() {
    this.#trail = [];
    this.#last = null;
    for (const lane of this.#order) {
      lane.rows = 0;
      lane.times = null;
    }
    this.#draw();
  }

  /** @param {StepLog} step */
  #learn(step) {
    const follow = (/** @type {number} */ old, /** @type {number} */ now) => (this.#last ? old + GAIN * (now - old) : now);
    const host = this.#host;
    host.ms = follow(host.ms, step.ms);
    host.data = follow(host.data, step.data_ms);
    host.reduce = follow(host.reduce, step.reduce_ms);
    host.update = follow(host.update, step.update_ms);
    this.#order.forEach((lane, at) => {
      const log = step.adapters.find(({ adapter }) => adapter === at);
      lane.rows = log?.rows ?? 0;
      if (!log) {
        lane.times = null;
        return;
      }
      const now = { upload: log.upload_ms, compute: log.compute_ms, readback: log.readback_ms, wait: log.wait_ms };
      const old = lane.times;
      if (old) for (const phase of PHASES) now[phase] = old[phase] + GAIN * (now[phase] - old[phase]);
      lane.times = now;
    });
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
    const template = byId("lane-template", HTMLTemplateElement);
    const element = within(/** @type {DocumentFragment} */ (template.content.cloneNode(true)), ".lane", HTMLElement);
    const bars = PHASES.map((phase) => make("i", { className: phase }));
    within(element, ".time", HTMLElement).append(...bars);
    element.style.setProperty("--lane", `var(--a${slot % COLOURS})`);
    element.dataset.member = String(member.id);
    const lane = { member, slot, element, bars, rows: 0, times: null };
    this.#lanes.set(member.id, lane);
    this.#wire(lane);
    return lane;
  }

  /** @param {Lane} lane */
  #wire({ element, member: { id }, slot }) {
    const swatch = within(element, ".swatch", HTMLElement);
    swatch.textContent = letter(slot);
    swatch.style.background = `var(--a${slot % COLOURS})`;
    swatch.style.color = `var(--on${slot % COLOURS})`;
    const slider = within(element, "input", HTMLInputElement);
    slider.max = String(FACTORS.length - 1);
    slider.addEventListener("input", () => {
      const factor = FACTORS[Number(slider.value)];
      this.#showFactor(element, factor);
      this.#send({ type: "throttle", member: id, factor });
    });
    within(element, ".unplug", HTMLButtonElement).addEventListener("click", () => this.#send({ type: "unplug", member: id }));
    within(element, ".remove", HTMLButtonElement).addEventListener("click", () => this.#send({ type: "remove", member: id }));
  }

  /**
   * @param {HTMLElement} element
   * @param {number} factor
   */
  #showFactor(element, factor) {
    say(within(element, "output", HTMLOutputElement), factor === 1 ? "at full speed" : `slowed ${factor} ×`);
    within(element, "input", HTMLInputElement).setAttribute("aria-valuetext", factor === 1 ? "at full speed" : `slowed ${factor} times`);
  }

  /** What is said of a member, but for its numbers. @param {Lane} lane */
  #describe({ member, element, slot }) {
    const { info, presence, throttle } = member;
    const who = `adapter ${letter(slot)}, ${info.name}`;
    say(within(element, ".name", HTMLElement), info.name);
    say(within(element, ".kind", HTMLElement), this.#kind(member));
    element.classList.toggle("away", presence !== "there");
    const slider = within(element, "input", HTMLInputElement);
    if (document.activeElement !== slider) slider.value = String(nearestFactor(throttle));
    slider.setAttribute("aria-label", `Slow down ${who}`);
    this.#showFactor(element, throttle);
    const unplug = within(element, ".unplug", HTMLButtonElement);
    unplug.disabled = presence !== "there";
    unplug.setAttribute("aria-label", `Pull the plug on ${who}`);
    const remove = within(element, ".remove", HTMLButtonElement);
    remove.disabled = this.#order.length < 2;
    remove.setAttribute("aria-label", `Remove ${who}`);
  }

  /** What a member is, honestly. @param {Member} member */
  #kind(member) {
    const { info, presence, again_ms, is_resting, shares_device_with } = member;
    if (presence === "lost") {
      return again_ms === null ? "lost, and not opened again" : "lost; it is opened again in a while";
    }
    if (presence === "returning") return "is back, and compiles its shaders";
    if (is_resting) return "rests: training is faster without it";
    const other = shares_device_with === null ? undefined : this.#lanes.get(shares_device_with);
    if (!other) return kindOf(info);
    const where = letter(other.slot);
    if (other.member.info.index !== info.index) return `${kindOf(info)}; shares the processor with ${where}`;
    if (info.kind === "cpu") return `a further worker on the processor: shares its cores with ${where}`;
    if (info.kind === "software") return `a further device on that of ${where}: they share the processor`;
    return `a further device on the GPU of ${where}: they share it, so this is no second GPU`;
  }

  #drawOffers() {
    const offers = this.#adapters.map((info) => {
      const in_use = this.#order.some(({ member }) => member.info.index === info.index);
      const again = info.kind === "cpu" ? "another worker on the" : "another device on";
      const name = info.kind === "cpu" ? "CPU" : info.name;
      const button = make("button", { className: "small", textContent: in_use ? `+ ${again} ${name}` : `+ ${name}` });
      button.addEventListener("click", () => this.#send({ type: "add", index: info.index }));
      return button;
    });
    const box = byId("add", HTMLElement);
    const texts = (/** @type {Iterable<Element>} */ list) => [...list].map(({ textContent }) => textContent).join("\n");
    // Buttons that stay keep their focus.
    if (texts(box.children) !== texts(offers)) box.replaceChildren(...offers);
  }

  #redraw() {
    this.#drawBatch();
    this.#drawTrail();
    const host = this.#host;
    const scale = host.ms > 0 ? 100 / host.ms : 0;
    for (const lane of this.#order) this.#drawLane(lane, scale);
    this.#drawHost(scale);
    say(byId("step-ms", HTMLElement), this.#last ? `a step: ${short(host.ms)} ms` : "");
    say(byId("rig-says", HTMLElement), this.#remark());
  }

  #drawBatch() {
    const bar = byId("batch", HTMLElement);
    const last = this.#last;
    while (bar.children.length < this.#order.length) bar.append(make("span"));
    while (bar.children.length > this.#order.length) bar.lastElementChild?.remove();
    const texts = this.#order.map((lane, at) => {
      const part = last ? lane.rows / last.rows : 0;
      const segment = /** @type {HTMLElement} */ (bar.children[at]);
      segment.style.width = `${100 * part}%`;
      segment.style.paddingInline = part < 0.06 ? "0" : "";
      segment.style.borderRightWidth = part === 0 ? "0" : "";
      segment.style.background = `var(--a${lane.slot % COLOURS})`;
      segment.style.color = `var(--on${lane.slot % COLOURS})`;
      say(segment, part < 0.035 ? "" : part < 0.09 ? letter(lane.slot) : `${letter(lane.slot)} ${lane.rows}`);
      return `${letter(lane.slot)} ${lane.member.info.name}: ${lane.rows}`;
    });
    bar.classList.toggle("none", !last);
    bar.setAttribute("aria-label", last ? `Batch of ${last.rows} rows. ${texts.join(", ")}` : "No batch yet");
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

  /**
   * @param {Lane} lane
   * @param {number} scale Percent a millisecond.
   */
  #drawLane({ element, bars, rows, times, member }, scale) {
    let from = this.#host.data * scale;
    PHASES.forEach((phase, at) => {
      const wide = (times?.[phase] ?? 0) * scale;
      place(bars[at], from, wide);
      from += wide;
    });
    const numbers = times
      ? `${rows} ${rows === 1 ? "row" : "rows"} · busy ${short(times.upload + times.compute + times.readback)} ms · waits ${short(times.wait)} ms`
      : this.#last && member.presence === "there" ? "no rows" : "";
    say(within(element, ".lane-numbers", HTMLElement), numbers);
    const label = times
      ? `${rows} rows. ${PHASES.map((phase) => `${phase} ${short(times[phase])} ms`).join(", ")}`
      : "no rows in this step";
    within(element, ".time", HTMLElement).setAttribute("aria-label", label);
  }

  /** @param {number} scale */
  #drawHost(scale) {
    const { data, reduce, update } = this.#host;
    const end = 100 - (reduce + update) * scale;
    place(this.#hostBars[0], 0, this.#last ? data * scale : 0);
    place(this.#hostBars[1], end, this.#last ? reduce * scale : 0);
    place(this.#hostBars[2], end + reduce * scale, this.#last ? update * scale : 0);
    const texts = [`data ${short(data)} ms`, `sums ${short(reduce)} ms`, `update ${short(update)} ms`];
    say(byId("host-numbers", HTMLElement), this.#last ? texts.join(" · ") : "");
    byId("host-time", HTMLElement).setAttribute("aria-label", this.#last ? texts.join(", ") : "No step yet");
  }

  /** What there is to see just now, and why. */
  #remark() {
    const working = this.#order.filter(({ times }) => times);
    if (!this.#last) return "";
    if (this.#order.length === 1) {
      return "One adapter: the update runs on it, and nothing is exchanged. Add another to see a batch being split.";
    }
    const idle = this.#order.filter(({ times, member }) => !times && member.presence === "there" && !member.is_resting);
    if (idle.length > 0 && this.#last.rows < 8 * this.#order.length) {
      return `${letters(idle)} ${idle.length === 1 ? "has" : "have"} no rows: the batch is small. An empty share adds nothing, and the result is exact.`;
    }
    const waits = working.map(({ times }) => times?.wait ?? 0);
    const slowest = working[waits.indexOf(Math.min(...waits))];
    const lost = Math.max(...waits) / this.#host.ms;
    if (lost > MUCH_WAITING && slowest) {
      return `The others wait for ${letter(slowest.slot)} up to ${percent(lost, 0)} of a step.`;
    }
    return "";
  }
}

/** @param {Lane[]} lanes */
function letters(lanes) {
  return lanes.map(({ slot }) => letter(slot)).join(", ");
}

/**
 * @param {HTMLElement} bar
 * @param {number} from Percent.
 * @param {number} wide Percent.
 */
function place(bar, from, wide) {
  bar.style.left = `${from.toFixed(2)}%`;
  bar.style.width = `${wide.toFixed(2)}%`;
}

/** @param {number} throttle */
function nearestFactor(throttle) {
  const found = FACTORS.findIndex((factor) => factor >= throttle);
  return found < 0 ? FACTORS.length - 1 : found;
}

/** @param {Info} info */
function kindOf(info) {
  const driver = info.driver ? `; ${info.driver}` : "";
  if (info.kind === "cpu") return "the processor, through WebAssembly";
  if (info.kind === "software") return `software: computes on the processor, for want of a GPU${driver}`;
  if (info.kind === "discrete_gpu") return `graphics card, through WebGPU${driver}`;
  if (info.kind === "integrated_gpu") return `integrated graphics, through WebGPU${driver}`;
  return `${isGpu(info) ? "graphics processor, through WebGPU" : info.kind}${driver}`;
}
