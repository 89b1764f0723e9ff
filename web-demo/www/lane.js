// One adapter in use: what it is, where its time goes in a step, and the controls that act on it.

import { byId, make, say, short, within } from "./dom.js";
import { inkOf, letterOf, paintOf } from "./split.js";

/** @import { AdapterLog, Info, Member, Request } from "./messages.js" */

/** Factors of the slider that slows an adapter down. */
const FACTORS = [1, 1.5, 2, 3, 4, 6, 8, 12, 16];
/** Part of a new step in the means: single steps jump about too fast to read. */
export const GAIN = 0.25;
/** `a, b, and c`. */
const LIST = new Intl.ListFormat("en");
export const PHASES = /** @type {const} */ (["upload", "compute", "exchange", "readback", "wait", "message"]);

/** @typedef {Record<typeof PHASES[number], number>} Phases */

export class Lane {
  /** Rows of the last step. */
  rows = 0;
  /** Milliseconds that are shown: smoothed, or of the last step; `null` while it has no rows. @type {Phases | null} */
  #times = null;
  /** Smoothed. @type {Phases | null} */
  #means = null;
  #bars = PHASES.map((phase) => make("i", { className: phase }));
  /** Whether its removal was asked for. */
  #leaves = false;

  /**
   * @param {Member} member
   * @param {number} slot Its letter and colour; free again when the member has left.
   * @param {(request: Request) => void} send
   */
  constructor(member, slot, send) {
    this.member = member;
    this.slot = slot;
    const template = byId("lane-template", HTMLTemplateElement);
    this.element = within(/** @type {DocumentFragment} */ (template.content.cloneNode(true)), ".lane", HTMLElement);
    this.element.style.setProperty("--lane", this.paint);
    within(this.element, ".time", HTMLElement).append(...this.#bars);
    const swatch = within(this.element, ".swatch", HTMLElement);
    swatch.textContent = this.letter;
    swatch.style.background = this.paint;
    swatch.style.color = this.ink;
    this.#wire(send);
  }

  get letter() {
    return letterOf(this.slot);
  }

  /** Its colour, and that of text on it. */
  get paint() {
    return paintOf(this.slot);
  }

  get ink() {
    return inkOf(this.slot);
  }

  /** @param {(request: Request) => void} send */
  #wire(send) {
    const { id } = this.member;
    const slider = within(this.element, "input", HTMLInputElement);
    slider.max = String(FACTORS.length - 1);
    slider.addEventListener("input", () => {
      const factor = FACTORS[Number(slider.value)];
      this.#showFactor(factor);
      send({ type: "throttle", member: id, factor });
    });
    const unplug = within(this.element, ".unplug", HTMLButtonElement);
    unplug.addEventListener("click", () => {
      // `disabled` would take the focus away from the button that was just pressed.
      if (unplug.ariaDisabled !== "true") send({ type: "unplug", member: id });
      unplug.ariaDisabled = "true";
    });
    within(this.element, ".remove", HTMLButtonElement).addEventListener("click", () => {
      // A second click would ask for a member that has left.
      if (!this.#leaves) send({ type: "remove", member: id });
      this.#leaves = true;
    });
  }

  /** @param {number} factor */
  #showFactor(factor) {
    say(within(this.element, "output", HTMLOutputElement), factor === 1 ? "at full speed" : `slowed ${factor} ×`);
    const spoken = factor === 1 ? "at full speed" : `slowed ${factor} times`;
    within(this.element, "input", HTMLInputElement).setAttribute("aria-valuetext", spoken);
  }

  /**
   * Shows the member's kind and status.
   * @param {Lane | undefined} twin That of the earlier member on the same physical device.
   * @param {"alone" | "one of several"} company
   */
  describe(twin, company) {
    const { info, presence, throttle } = this.member;
    const who = `adapter ${this.letter}, ${info.name}`;
    say(within(this.element, ".name", HTMLElement), info.name);
    say(within(this.element, ".kind", HTMLElement), kindOf(this.member, twin));
    this.element.classList.toggle("away", presence !== "active");
    const slider = within(this.element, "input", HTMLInputElement);
    if (document.activeElement !== slider) slider.value = String(nearestFactor(throttle));
    slider.setAttribute("aria-label", `Slow down ${who}`);
    this.#showFactor(throttle);
    const unplug = within(this.element, ".unplug", HTMLButtonElement);
    unplug.ariaDisabled = String(presence !== "active");
    unplug.setAttribute("aria-label", `Pull the plug: disconnect ${who}`);
    const remove = within(this.element, ".remove", HTMLButtonElement);
    remove.disabled = company === "alone";
    this.#leaves = false;
    remove.setAttribute("aria-label", `Remove ${who}`);
  }

  /**
   * Takes in its part of a step.
   * @param {AdapterLog | undefined} log
   * @param {"mean" | "step"} shown
   */
  learn(log, shown) {
    this.rows = log?.rows ?? 0;
    if (!log) {
      [this.#times, this.#means] = [null, null];
      return;
    }
    const now = {
      upload: log.upload_ms, compute: log.compute_ms, exchange: log.exchange_ms, readback: log.readback_ms, wait: log.wait_ms, message: log.message_ms,
    };
    const means = { ...now };
    const old = this.#means;
    if (old) for (const phase of PHASES) means[phase] = old[phase] + GAIN * (now[phase] - old[phase]);
    [this.#times, this.#means] = [shown === "mean" ? means : now, means];
  }

  forget() {
    this.rows = 0;
    [this.#times, this.#means] = [null, null];
  }

  /** Milliseconds of its part in a step, with its waits. */
  get ms() {
    const times = this.#times;
    return times ? PHASES.reduce((sum, phase) => sum + times[phase], 0) : 0;
  }

  /**
   * @param {number} from Where its work begins, in percent of the step.
   * @param {number} scale Percent a millisecond.
   */
  draw(from, scale) {
    const [times, rows] = [this.#times, this.rows];
    PHASES.forEach((phase, at) => {
      const wide = (times?.[phase] ?? 0) * scale;
      place(this.#bars[at], from, wide);
      from += wide;
    });
    const busy = times ? times.upload + times.compute + times.readback : 0;
    const numbers = this.member.presence !== "active" ? "" : times
      ? `${rows} ${rows === 1 ? "row" : "rows"} · busy ${short(busy)} · waits ${short(times.exchange + times.wait)} ms`
      : scale > 0 ? "no rows" : "";
    say(within(this.element, ".lane-numbers", HTMLElement), numbers);
    const label = times ? `${rows} rows. ${PHASES.map((phase) => `${phase} ${short(times[phase])} ms`).join(", ")}` : "no rows in this step";
    within(this.element, ".time", HTMLElement).setAttribute("aria-label", label);
  }
}

/**
 * @param {HTMLElement} bar
 * @param {number} from Percent.
 * @param {number} wide Percent.
 */
export function place(bar, from, wide) {
  bar.style.left = `${from.toFixed(2)}%`;
  bar.style.width = `${wide.toFixed(2)}%`;
}

/** @param {number} throttle */
function nearestFactor(throttle) {
  const found = FACTORS.findIndex((factor) => factor >= throttle);
  return found < 0 ? FACTORS.length - 1 : found;
}

/**
 * Description of a member.
 * @param {Member} member
 * @param {Lane | undefined} twin
 */
function kindOf({ info, presence, again_ms, is_excluded }, twin) {
  if (presence === "lost") return again_ms === null ? "lost, not reopened" : "lost; it will be reopened";
  if (presence === "returning") return "reopened; compiling its shaders";
  if (is_excluded) return "excluded: training is faster without it";
  if (!twin) return plainKind(info);
  if (twin.member.info.index !== info.index) return `${plainKind(info)}; shares the CPU with ${twin.letter}`;
  if (info.kind === "cpu") return `another worker on the CPU: shares its cores with ${twin.letter}`;
  if (info.kind === "software") return `another device on that of ${twin.letter}: they share the CPU`;
  return `another device on the GPU of ${twin.letter}: they share it, so this is no second GPU`;
}

/** @param {Info} info */
function plainKind({ kind, driver, requested_as }) {
  const choice = requested_as.length > 0 ? `; the browser’s ${LIST.format(requested_as)} choice` : "";
  const by = `${driver ? `; ${driver}` : ""}${choice}`;
  if (kind === "cpu") return "the CPU, through WebAssembly";
  if (kind === "software") return `software: computes on the CPU, without a GPU${choice}`;
  if (kind === "discrete_gpu") return `graphics card, through WebGPU${by}`;
  if (kind === "integrated_gpu") return `integrated graphics, through WebGPU${by}`;
  return `graphics processor, through WebGPU${by}`;
}
