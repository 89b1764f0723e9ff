// One network cut into stages over simulated cards, beside copies of it: the pieces of a batch as bricks, and the speed of
// both over the number of adapters. Loaded when it is first asked for: it is no part of page.js.

import { bubbleOf, drawBricks } from "./brick-lane.js";
import { BATCHES, HOST_GB_S, RIGS } from "./cards.js";
import { byId, make, onScheme, percent, say, short, whole } from "./dom.js";
import { sizeOf } from "./fetched.js";
import { OverAdapters } from "./over-adapters.js";
import { swatchOf } from "./split.js";

/** @import { Link } from "./link.js" */
/** @import { Bubble } from "./brick-lane.js" */
/** @import { Pipelined, RigConfig, Told } from "./messages.js" */

/** @typedef {"digits_cnn" | "vgg"} Network */

/** @type {Record<Network, { title: string, text: string }>} */
const NETWORKS = {
  digits_cnn: { title: "Small: 3 convolutions, 8 × 8 pixels", text: "small: 3 convolutions, the digits of this page, batch of 512" },
  vgg: { title: "Large: 13 convolutions, 224 × 224 pixels", text: "large: 13 convolutions, 224 × 224 × 3, batch of 256" },
};
const PIECES = [1, 2, 4, 8, 16, 32];
const AT_FIRST = { network: /** @type {Network} */ ("vgg"), pieces: 3 };
/** Speed beside that of one card less, below which a curve is called flat. */
const FLAT = 1.1;
const LIST = new Intl.ListFormat("en");
const HEAD = ["adapters", "copies, samples/s", "stages, samples/s", "bubble"];

export class Stages {
  #link;
  #network = make("select");
  #rig = make("select");
  #pieces = make("input", { type: "range", min: "0", max: String(PIECES.length - 1), step: "1", value: String(AT_FIRST.pieces) });
  #piecesAre = make("output", { className: "number" });
  #facts = { stages: make("dd", { textContent: "–" }), copies: make("dd", { textContent: "–" }), bubble: make("dd", { textContent: "–" }), ms: make("dd", { textContent: "–" }) };
  #lanes = make("div", { className: "thin-lanes bricks" });
  #memory = make("p", { className: "remark memory" });
  #stages = make("p", { className: "remark" });
  #says = byId("stages-says", HTMLElement);
  /** @type {Record<Network, Curves>} */
  #curves;
  /** What is shown, by network. @type {Partial<Record<Network, Told<"staged">>>} */
  #answers = {};
  /** The simulation that goes on, and whether something else was asked for meanwhile. @type {Promise<string> | null} */
  #simulating = null;
  #is_outdated = false;

  /** @param {Link} link */
  constructor(link) {
    this.#link = link;
    for (const [value, { text }] of Object.entries(NETWORKS)) this.#network.append(make("option", { value, textContent: text }));
    for (const { id, name } of RIGS) this.#rig.append(make("option", { value: id, textContent: name }));
    this.#network.value = AT_FIRST.network;
    const fact = (/** @type {string} */ name, /** @type {HTMLElement} */ value) => make("div", {}, make("dt", { textContent: name }), value);
    const plate = byId("stages-plate", HTMLElement);
    plate.append(
      make("div", { className: "fields" },
        make("label", {}, "Network", this.#network),
        make("label", {}, "Cards", this.#rig),
        make("label", {}, make("span", {}, "Micro-batches of a batch ", this.#piecesAre), this.#pieces)),
      make("dl", { className: "facts" },
        fact("samples/s in stages", this.#facts.stages), fact("samples/s as copies", this.#facts.copies), fact("bubble", this.#facts.bubble), fact("ms a step in stages", this.#facts.ms)),
      this.#memory,
      this.#lanes,
      make("p", { className: "key remark" }, ...["forward", "back", "transfer", "idle"].map((kind) => make("span", {}, make("i", { className: `brick-${kind}` }), kind))),
      this.#stages,
    );
    const [small, large] = [new Curves(NETWORKS.digits_cnn.title), new Curves(NETWORKS.vgg.title)];
    plate.append(make("div", { className: "pair" }, small.figure, large.figure));
    this.#curves = { digits_cnn: small, vgg: large };
    this.#network.addEventListener("change", () => this.#show());
    this.#rig.addEventListener("change", () => void this.simulate());
    this.#pieces.addEventListener("input", () => this.#sayPieces());
    this.#pieces.addEventListener("change", () => void this.simulate());
    this.#sayPieces();
    onScheme(() => this.#draw());
    new ResizeObserver(() => this.#draw()).observe(this.#lanes);
  }

  #sayPieces() {
    const pieces = PIECES[Number(this.#pieces.value)];
    say(this.#piecesAre, String(pieces));
    this.#pieces.setAttribute("aria-valuetext", `${pieces} micro-batches`);
  }

  /**
   * Simulates both networks on the chosen cards: of what is chosen meanwhile, only the last. Gives what came of it in words.
   * @returns {Promise<string>}
   */
  simulate() {
    this.#is_outdated = this.#simulating !== null;
    this.#simulating ??= this.#simulate().finally(() => { this.#simulating = null; });
    return this.#simulating;
  }

  /** @returns {Promise<string>} */
  async #simulate() {
    this.#is_outdated = false;
    say(this.#says, "Simulating…");
    const rig = RIGS.find(({ id }) => id === this.#rig.value) ?? RIGS[0];
    const micro_batches = PIECES[Number(this.#pieces.value)];
    try {
      for (const preset of /** @type {Network[]} */ (Object.keys(NETWORKS))) {
        /** @type {RigConfig} */
        const described = { preset, batch_size: BATCHES[preset], host: { copy_gb_s: HOST_GB_S }, adapters: rig.adapters };
        const answer = await this.#link.ask({ type: "stages", rig: described, micro_batches });
        if (this.#is_outdated) return await this.#simulate();
        this.#answers[preset] = answer;
        this.#curves[preset].compare(answer);
      }
    } catch (error) {
      const text = /** @type {Error} */ (error).message;
      say(this.#says, text);
      return text;
    }
    return this.#show();
  }

  /** @returns {string} */
  #show() {
    const answer = this.#answers[/** @type {Network} */ (this.#network.value)];
    const pipeline = answer?.pipelines[answer.pipelines.length - 1];
    if (!answer || !pipeline) return "";
    const { staged, adapters } = pipeline;
    const copies = answer.report.strong[adapters.length - 1];
    const bubble = bubbleOf(pipeline);
    say(this.#facts.stages, whole(staged.rows_per_s));
    say(this.#facts.copies, whole(copies.rows_per_s));
    say(this.#facts.bubble, percent(bubble.idle, 0));
    say(this.#facts.ms, short(staged.step_ms));
    const n_stages = staged.stages.length;
    const ideal = (n_stages - 1) / (staged.micro_batches + n_stages - 1);
    const of = answer.report.strong.length > adapters.length ? ` The network has parts for ${adapters.length} adapters only.` : "";
    const [faster, factor] = staged.rows_per_s > copies.rows_per_s ? ["stages", staged.rows_per_s / copies.rows_per_s] : ["copies", copies.rows_per_s / staged.rows_per_s];
    const text = `On ${adapters.length} simulated cards ${faster} are ${factor.toFixed(2)} times as fast. The lanes of the stages are idle for ${percent(bubble.idle, 0)} of a pass.`;
    say(this.#says, `${text}${of}`);
    const bytes = staged.stages.map((stage) => stage.bytes);
    const [least, most, copy] = [Math.min(...bytes), Math.max(...bytes), Math.max(...answer.report.alone.map(({ needed_bytes }) => needed_bytes))];
    say(this.#memory, `A copy takes ${sizeOf(copy)} on each card, a stage ${sizeOf(least)} to ${sizeOf(most)}: stages are for networks that do not fit on one card. ${faster === "copies" ? "Where they fit, copies are faster." : ""}`);
    say(this.#stages, `No card computes: the scheduler’s own code runs in virtual time, and the cards’ speeds are guesses. Equal stages without transfers would be idle for ${percent(ideal, 0)}: `
      + `(stages − 1) / (micro-batches + stages − 1). Stages compute forward twice, and each adapter holds the weights of its layers alone.${flatOf(answer)}`);
    this.#fill(pipeline, bubble);
    return text;
  }

  /**
   * @param {Pipelined} pipeline
   * @param {Bubble} bubble
   */
  #fill({ adapters, placement, staged }, { of_each }) {
    const lanes = staged.stages.map(({ layers }, stage) => {
      const [slot] = placement[stage].adapters;
      // Letters and colours follow the stages, whatever the order of their cards.
      const swatch = swatchOf(stage);
      const canvas = make("canvas", { className: "time", role: "img", ariaLabel: `Stage ${stage + 1} on ${adapters[slot]}, layers ${layers}: idle for ${percent(of_each[slot], 0)} of a pass` });
      [canvas.dataset.slot, canvas.dataset.stage] = [String(slot), String(stage)];
      const lane = make("div", { className: "thin-lane", title: `${adapters[slot]}: ${layers}` }, swatch, make("span", { className: "name", textContent: layers.replaceAll("`", "") }), canvas,
        make("span", { className: "number", textContent: `${sizeOf(staged.stages[stage].bytes)} · idle ${percent(of_each[slot], 0)}` }));
      return lane;
    });
    const host = make("canvas", { className: "time", role: "img", ariaLabel: "The host: sums and update end the step" });
    const last = make("div", { className: "thin-lane" }, make("span", { className: "swatch host-swatch" }), make("span", { className: "name", textContent: "host" }), host, make("span"));
    this.#lanes.replaceChildren(...lanes, last);
    this.#draw();
  }

  #draw() {
    const answer = this.#answers[/** @type {Network} */ (this.#network.value)];
    const pipeline = answer?.pipelines[answer.pipelines.length - 1];
    if (!pipeline) return;
    for (const canvas of this.#lanes.querySelectorAll("canvas")) {
      const slot = canvas.dataset.slot === undefined ? null : Number(canvas.dataset.slot);
      drawBricks(canvas, pipeline.bricks.filter(({ adapter }) => adapter === slot), pipeline.ms, slot === null ? null : Number(canvas.dataset.stage));
    }
  }
}

/** Why more cards add little speed, where it is so. @param {Told<"staged">} answer */
function flatOf({ pipelines }) {
  const speeds = pipelines.map(({ staged }) => staged.rows_per_s);
  const flat = speeds.flatMap((speed, at) => (at > 0 && speed < FLAT * speeds[at - 1] ? [pipelines[at].adapters.length] : []));
  if (flat.length === 0) return "";
  return ` With ${LIST.format(flat.map(String))} cards the dashed curve is nearly flat. That is not a bad cut: a layer is not divided, so the stage with the longest one stays as long, and each card more adds transfers and idle time.`;
}

/** Copies and stages of a network on the same axes. */
class Curves extends OverAdapters {
  /** @param {string} title */
  constructor(title) {
    super(title, {
      small: "samples/s over adapters: line copies, dashes stages", head: HEAD,
      curves: [{ name: "copies", ink: "ink", width: 2, points: true }, { name: "stages", ink: "ink", width: 1.5, dash: [5, 4], points: true }],
    });
  }

  /** @param {Told<"staged">} answer */
  compare({ report, pipelines }) {
    const counts = report.strong.map(({ n_adapters }) => n_adapters);
    const copies = report.strong.map(({ rows_per_s }) => rows_per_s);
    // One adapter holds all layers in either form.
    const stages = counts.map((n, at) => (n === 1 ? copies[at] : (pipelines[n - 2]?.staged.rows_per_s ?? null)));
    const rows = counts.map((n, at) => {
      const [speed, pipeline] = [stages[at], pipelines[n - 2]];
      const texts = [String(n), whole(copies[at]), speed === null ? "–" : whole(speed), pipeline ? percent(bubbleOf(pipeline).idle, 0) : "–"];
      return make("tr", {}, ...texts.map((text) => make("td", { textContent: text })));
    });
    this.show({ counts, speeds: [copies, stages], rows, caption: "simulated" });
  }
}
