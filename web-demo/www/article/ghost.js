// Real training in this browser, of digits or of a text, on two processors or more, a plug to pull, and a check that never ends: now and then
// one processor alone computes the very step that all computed, from the same weights.

import { plain } from "../check.js";
import { colour, make, paced, say, sized } from "../dom.js";
import { Link, engine } from "../link.js";
import { defaults, isGpu, isText, startsByItself } from "../settings.js";
import { Learns } from "./learns.js";
import { button, whole } from "./parts.js";

/** @import { Event, Info, Member, Settings, StepLog, Told } from "../messages.js" */

/** Processors that share the batch, where there are cores for them: one is left beside another when a plug is pulled. */
const SHARING = 3;
const CORES = 4;

/** Steps that the curve shows. */
const SHOWN = 230;
const DRAW_MS = 100;
const LETTERS = "ABCDEFGH";

class Ghost extends HTMLElement {
  /** @type {Settings | undefined} */
  #settings;
  /** @type {Member[]} */
  #members = [];
  /** @type {number[]} */
  #losses = [];
  /** @type {StepLog | undefined} */
  #last;
  /** Steps after which a plug was pulled. @type {number[]} */
  #pulled = [];
  #is_running = false;
  /** Whether a run was asked for: until it opens, all that is told is of the former one. */
  #is_asked = false;
  /** Whether the reader has stopped it, and nothing else may start it. */
  #is_held = !startsByItself();
  /** Losses that one processor alone has computed, by step. @type {Map<number, number>} */
  #alone = new Map();
  #most = 0;
  #canvas = make("canvas", { role: "img", ariaLabel: "No step yet" });
  #says = make("p", { className: "result", role: "status" });
  #shares = make("div", { className: "shares", role: "img", ariaLabel: "No step yet" });
  #step = make("span", { className: "number", textContent: "–" });
  #gap = make("span", { className: "number", textContent: "–" });
  #gap_says = make("small");
  #most_is = make("span", { className: "number", textContent: "–" });
  #most_says = make("small", { textContent: "the largest so far" });
  #run = button("Start", () => this.#toggle());
  #pull = button("Pull the plug", () => this.#unplug(), "primary");
  #again = button("Start again", () => this.#restart());
  #shard = make("input", { type: "checkbox" });
  #draw = paced(() => this.#paint(), DRAW_MS);
  /** What is said in the place of the run's sentence, of what was chosen last. */
  #remarks = "";
  /** What the network wrote last, of a text. */
  #writes = make("p", { className: "writes", hidden: true });
  #toggles = make("label", { className: "toggle" }, this.#shard, " Batch normalization by each processor’s own examples");
  /** @type {Link | undefined} */
  #link;
  /** @type {Told<"hello"> | undefined} */
  #hello;
  /** @type {Learns | undefined} */
  #learns;

  connectedCallback() {
    const cell = (/** @type {Node} */ value, /** @type {Node} */ says) => make("div", {}, value, says);
    for (const control of [this.#run, this.#pull, this.#again, this.#shard]) control.disabled = true;
    this.#shard.addEventListener("change", () => this.#normalize());
    const code = engine((n_bytes) => say(this.#says, `Loading the engine: ${(n_bytes / 1e6).toFixed(1)} MB`));
    this.#link = new Link("manyhands", code, (event) => this.#hear(event));
    this.#learns = new Learns(this.#link, this, { chosen: (task) => this.#learn(task), tell: (text) => this.#remark(text) });
    this.replaceChildren(this.#learns.element, this.#says, this.#canvas, this.#writes, this.#shares,
      make("div", { className: "check" }, cell(this.#step, make("small", { textContent: "steps, measured here and now" })), cell(this.#gap, this.#gap_says), cell(this.#most_is, this.#most_says)),
      make("div", { className: "actions" }, this.#run, this.#pull, this.#again), this.#toggles);
    this.classList.add("alive");
    say(this.#says, "Loading the engine…");
    say(this.#gap_says, "gap to one processor alone");
    new IntersectionObserver((entries) => this.#seen(entries.some(({ isIntersecting }) => isIntersecting)), { rootMargin: "50% 0px" }).observe(this);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.#draw);
    addEventListener("resize", this.#draw);
    this.#draw();
  }

  /** Trains where the reader sees it. @param {boolean} is_seen */
  #seen(is_seen) {
    this.#is_seen = is_seen;
    if (!this.#settings || this.#is_held || is_seen === this.#is_running) return;
    this.#link?.send({ type: is_seen ? "resume" : "pause" });
  }

  #is_seen = true;

  #toggle() {
    this.#is_held = this.#is_running;
    this.#link?.send({ type: this.#is_running ? "pause" : "resume" });
  }

  #restart() {
    if (!this.#settings) return;
    this.#shard.checked = false;
    this.#settings.batch_norm = "whole_batch";
    this.#is_held = false;
    this.#begin(false);
  }

  /** @param {boolean} paused */
  #begin(paused) {
    if (!this.#settings) return;
    [this.#losses, this.#pulled, this.#last, this.#most] = [[], [], undefined, 0];
    this.#alone.clear();
    this.#writes.replaceChildren();
    this.#remarks = "";
    [this.#members, this.#is_asked] = [[], true];
    this.#link?.send({ type: "start", settings: this.#settings, paused });
    this.#show();
  }

  get #active() {
    return this.#members.filter(({ presence }) => presence === "active");
  }

  #unplug() {
    const last = this.#active[this.#active.length - 1];
    if (!last || this.#active.length < 2) return;
    this.#pulled.push(this.#losses.length);
    this.#link?.send({ type: "unplug", member: last.id });
    if (!this.#is_running) this.#toggle();
  }

  #normalize() {
    this.#link?.send({ type: "change", batch_norm: this.#shard.checked ? "per_shard" : "whole_batch" });
    if (!this.#is_running) this.#toggle();
  }

  /** @param {Event} event */
  #hear(event) {
    if (event.type === "state" && event.state === "opening") this.#is_asked = false;
    if (this.#is_asked && ["rig", "steps", "written"].includes(event.type)) return;
    if (event.type === "hello") this.#meet(event);
    else if (event.type === "rig") this.#members = event.members;
    else if (event.type === "state") this.#is_running = event.state === "running";
    else if (event.type === "steps") this.#take(event.steps);
    else if (event.type === "written") return this.#writes.replaceChildren("It writes: ", make("q", { textContent: event.text }));
    else if (event.type === "failed") return this.#fail(event.message);
    else if (event.type === "error") return say(this.#says, event.message);
    else return;
    this.#show();
  }

  /** @param {Told<"hello">} hello */
  #meet(hello) {
    this.#hello = hello;
    this.#learns?.begin(hello.task);
    for (const control of [this.#run, this.#again, this.#shard]) control.disabled = false;
    this.#learn(hello.task);
  }

  /** @param {string} text */
  #remark(text) {
    this.#remarks = text;
    say(this.#says, text);
  }

  /** Learns something from fresh weights. @param {Told<"hello">["task"]} task */
  #learn(task) {
    if (!this.#hello || !this.#learns) return;
    const settings = defaults({ ...this.#hello, task }, navigator.hardwareConcurrency);
    const { model } = this.#learns.now;
    // Harder pictures later on would look like a fault.
    this.#settings = { ...settings, model, varied_from: 0, adapters: sharing(settings.adapters, this.#hello.adapters) };
    this.#toggles.hidden = !task.models.some(({ id, has_batch_norm }) => id === model && has_batch_norm);
    this.#writes.hidden = !isText(task.data);
    this.#shard.checked = false;
    this.#begin(this.#is_held || !this.#is_seen);
  }

  /** @param {string} message */
  #fail(message) {
    for (const control of [this.#run, this.#pull, this.#again, this.#shard]) control.disabled = true;
    say(this.#says, `Training is not possible here: ${message}`);
  }

  /** @param {StepLog[]} steps */
  #take(steps) {
    for (const log of steps) {
      this.#losses.length = log.step - 1;
      this.#losses.push(log.loss);
      if (log.alone) {
        this.#alone.set(log.step, log.alone.loss);
        this.#most = Math.max(this.#most, Math.abs(log.alone.loss - log.loss));
      }
      // The last batch of an epoch is a short one.
      if (!this.#last || log.rows >= this.#last.rows || log.step < this.#last.step) this.#last = log;
    }
  }

  /** The active processors in words: `2 threads of your processor`. */
  get #names() {
    const gpus = this.#active.filter(({ info }) => isGpu(info)).map(({ info }) => info.name);
    const threads = this.#active.length - gpus.length;
    const processor = threads > 1 ? `${threads} threads of your processor` : threads === 1 ? "your processor" : "";
    return [...gpus, processor].filter(Boolean).join(" and ");
  }

  #show() {
    say(this.#run, this.#is_running ? "Pause" : "Start");
    const had_focus = document.activeElement === this.#pull;
    this.#pull.disabled = !this.#settings || this.#active.length < 2 || this.#losses.length === 0;
    // A disabled button has none.
    if (had_focus && this.#pull.disabled) this.#run.focus({ preventScroll: true });
    say(this.#step, whole(this.#losses.length));
    const checked = [...this.#alone.keys()].pop();
    if (checked === undefined) {
      say(this.#gap, "–");
      say(this.#most_is, "–");
    } else {
      say(this.#gap, plain(Math.abs((this.#alone.get(checked) ?? 0) - this.#losses[checked - 1])));
      say(this.#gap_says, `gap of step ${whole(checked)}’s loss to one processor alone`);
      say(this.#most_is, plain(this.#most));
      say(this.#most_says, `the largest of ${whole(this.#alone.size)} checks`);
    }
    if (this.#members.length > 0 && !this.#remarks) say(this.#says, this.#sentence());
    const shares = this.#members.map(({ id, presence }, at) => {
      const rows = this.#last?.adapters.find(({ member }) => member === id)?.rows ?? 0;
      const lost = presence !== "active";
      const part = make("span", { className: lost ? "gone" : `tint${Math.min(at, 2)}`, textContent: lost ? "plug pulled" : rows > 0 ? `${LETTERS[at]} ${rows}` : "" });
      part.style.flexGrow = String(lost ? 12 : rows);
      return part;
    });
    this.#shares.replaceChildren(...shares);
    this.#shares.setAttribute("aria-label", `Examples of the last step: ${this.#members.map((_, at) => `${LETTERS[at]} ${shares[at].textContent}`).join("; ")}`);
    this.#draw();
  }

  #sentence() {
    const pulled = this.#pulled[this.#pulled.length - 1];
    if (pulled !== undefined && this.#active.length < this.#members.length) return `The plug was pulled at step ${whole(pulled)}. The others computed its examples before the network changed, and training went on. It comes back in some seconds.`;
    if (this.#shard.checked) return "Each processor now normalizes by its own examples. That is another computation: see the gap.";
    return `${this.#learns?.now.says}, here and now, on ${this.#names}. Below: the examples of each in a step.`;
  }

  #paint() {
    const { context, width, height, ratio } = sized(this.#canvas);
    const { losses: [most, least], ticks } = this.#learns?.now ?? { losses: [1, 0.1], ticks: [] };
    const left = 48 * ratio;
    const x = (/** @type {number} */ step) => left + ((step - this.#from) / SHOWN) * (width - left - 8 * ratio);
    const y = (/** @type {number} */ loss) => 8 * ratio + (Math.log(most / Math.min(most, Math.max(loss, least))) / Math.log(most / least)) * (height - 30 * ratio);
    context.clearRect(0, 0, width, height);
    axes(context, { y, ticks, width, height, left, ratio, from: this.#from });
    context.beginPath();
    for (const [at, loss] of this.#losses.slice(this.#from).entries()) context.lineTo(x(this.#from + at + 1), y(loss));
    [context.strokeStyle, context.lineWidth, context.lineJoin] = [colour("a"), 2 * ratio, "round"];
    context.stroke();
    [context.strokeStyle, context.lineWidth] = [colour("ink"), 1.5 * ratio];
    for (const [step, loss] of [...this.#alone].filter(([step]) => step > this.#from)) {
      context.beginPath();
      context.arc(x(step), y(loss), 4.5 * ratio, 0, 2 * Math.PI);
      context.stroke();
    }
    context.fillStyle = colour("slow");
    for (const step of this.#pulled.filter((step) => step > this.#from)) context.fillRect(x(step), 0, 1.5 * ratio, height - 22 * ratio);
    this.#canvas.setAttribute("aria-label", `Loss of ${whole(this.#losses.length)} steps; ${whole(this.#alone.size)} of them computed by one processor alone, too`);
  }

  /** Step before the first that the curve shows. */
  get #from() {
    return Math.max(0, this.#losses.length - SHOWN);
  }
}

/**
 * Adapters for the page's defaults, and threads of the processor beside them, where there are cores for three to share.
 * @param {number[]} chosen
 * @param {Info[]} all
 */
function sharing(chosen, all) {
  const cpu = all.find(({ kind }) => kind === "cpu");
  const missing = navigator.hardwareConcurrency >= CORES ? Math.max(0, SHARING - chosen.length) : 0;
  return cpu ? [...chosen, ...Array.from({ length: missing }, () => cpu.index)] : chosen;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{ y: (loss: number) => number, ticks: number[], width: number, height: number, left: number, ratio: number, from: number }} at
 */
function axes(context, { y, ticks, width, height, left, ratio, from }) {
  context.font = `${13 * ratio}px ${colour("sans")}`;
  [context.fillStyle, context.strokeStyle, context.lineWidth, context.textAlign] = [colour("soft"), colour("line"), ratio, "right"];
  for (const loss of ticks) {
    context.beginPath();
    context.moveTo(left, y(loss));
    context.lineTo(width, y(loss));
    context.stroke();
    context.fillText(String(loss), left - 8 * ratio, y(loss) + 4 * ratio);
  }
  context.textAlign = "left";
  context.fillText(`loss, from step ${whole(from + 1)} on`, left, height - 4 * ratio);
}

customElements.define("mh-ghost", Ghost);
