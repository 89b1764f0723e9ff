// Messages between the page and the engine's worker.
//
// The page starts the worker with `new Worker("engine.js", { type: "module" })`, sends it the engine's
// code as `{ wasm: ArrayBuffer }`, which is loaded beside the scripts, and then `Request`s; the worker answers with `Event`s. Messages are
// plain objects, distinguished by `type`. Names, units and meanings are those of the crate: `StepLog`, `AdapterLog` and `EpochLog` of `src/trainer/log.rs`, `Info` of `src/adapters/mod.rs`, `RigConfig`
// and `Report` of `src/simulator/`. This file holds types alone; `tsc` checks both sides against it.
//
// Order, which both sides may rely on:
// - The worker speaks first: `hello` once, or `failed` once and nothing after it.
// - `rig` comes before the first `steps` in which those members take part, so `AdapterLog.adapter` is an index into
//   the members of the last `rig`.
// - Each `load`, `classify`, `measure`, `simulate`, `stages` and `export` is answered once: by its own event, or by `error` with its
//   name in `request`. All others take effect between two training steps and are answered by `state` or `rig`.
// - Requests are taken in their order.
// - A request that can't be served, for example to remove the last adapter, is answered by `error`; nothing has
//   changed then. One for a member that has left does nothing: it was on its way when that left.
// - If an adapter of `start` or `reset` can't be opened the run begins on CPU adapters alone, and an `error` behind the
//   `state` says why.

/**
 * Why WebGPU gives no adapter here. `no_webgpu`: the browser has none. `insecure_origin`: it has, but for secure
 * origins only. `no_adapter`: it has, but `requestAdapter` gives null.
 * @typedef {"no_webgpu" | "insecure_origin" | "no_adapter"} Missing
 */

/**
 * An adapter that can be added to the rig; once, or several times as several devices.
 * @typedef {object} Info
 * @property {number} index Position in the list of adapters: 0 and up.
 * @property {string} name As the browser describes it, or the crate's name of the CPU adapter.
 * @property {"discrete_gpu" | "integrated_gpu" | "virtual_gpu" | "cpu" | "software"} kind A GPU of unknown kind is a
 *   `virtual_gpu`, as in the crate; `software` computes on the processor (SwiftShader).
 * @property {string} backend `webgpu`, or `host` for the CPU adapter.
 * @property {string} driver Vendor and architecture, if the browser gives them; may be empty.
 * @property {number} vendor 0: browsers do not give it.
 * @property {number} device 0.
 * @property {string} bus_id Empty.
 * @property {string[]} requested_as Requests for which it was given: `high-performance`, `low-power`, `fallback`. Several where
 *   the browser gives the same adapter for them. Empty for the CPU adapter.
 */

/**
 * A model that the worker can train.
 * @typedef {object} ModelChoice
 * @property {string} id `cnn` (the digits network of `manyhands train`), `small`, `gru` and so on.
 * @property {string} name For people: `three convolutions`.
 * @property {number} parameters How many.
 * @property {boolean} has_batch_norm Whether some layer normalizes by statistics of the batch.
 */

/**
 * Data that can be learned, with the networks for them: `digits` are in the engine; `fashion` (pictures of clothes) and `text` are
 * files that the page loads when they are chosen.
 * @typedef {object} Task
 * @property {Data} data
 * @property {ModelChoice[]} models
 * @property {string[]} classes Names of a picture's classes, by label; empty for a text.
 * @property {number} side Of a picture, in pixels; 0 for a text.
 * @property {number} white The value of full ink in `test_pixels`; 0 for a text.
 * @property {number | null} frequencies_loss Of a text: the loss on its test part, if each character is expected as often as it is in
 *   the training part.
 */
/** @typedef {"digits" | "fashion" | "text"} Data */

/**
 * Settings of a run, as in the page's address.
 * @typedef {object} Settings
 * @property {Data} data What is learned.
 * @property {string} model `ModelChoice.id`.
 * @property {number[]} adapters `Info.index` of each member, in order; an adapter may be listed twice. At least one.
 * @property {number[]} throttles Factor by which each member is slowed down, in order: `Member.throttle`. Missing ones are 1.
 * @property {number} batch_size Rows of a training step over all adapters: 1 to 512, may be below the number of adapters.
 * @property {"learned" | "even"} split
 * @property {"per_shard" | "whole_batch"} batch_norm Whose statistics batch normalization uses.
 * @property {number} learning_rate For Adam.
 * @property {number} seed Initial weights, order of rows, dropout. A whole number from 0 to 4294967295.
 * @property {number} epochs Training ends after this number, `resume` continues for as many again. 0: no end.
 * @property {number} varied_from The first epoch whose digits are turned and stretched, counted from 1. 0: none.
 * @property {number} temperature Of text that is written: low ones keep to what is likely.
 */

/**
 * An adapter in use.
 * @typedef {object} Member
 * @property {number} id Names it in requests. Given once; never to another member of this page's life.
 * @property {Info} info
 * @property {"active" | "lost" | "returning"} presence Lost ones are opened again by the scheduler after a while.
 * @property {number | null} again_ms If lost: milliseconds until it is opened again; null if it never is.
 * @property {number} position By which messages of the engine name it: `adapter 2`. Another one's after `reset`.
 * @property {boolean} is_excluded True while the scheduler excludes it because training is faster without it.
 * @property {number} throttle Times as long as it would take by itself; 1 is its own speed.
 * @property {number | null} shares_device_with Id of an earlier member on the same physical device; null if there is none.
 *   Devices of WebGPU on SwiftShader share the processor with the CPU adapter, too.
 */

/**
 * One adapter's part in a training step.
 * @typedef {object} AdapterLog
 * @property {number} adapter Index into the members.
 * @property {number} member Its id, by which metrics name it when members have come and gone.
 * @property {string} name
 * @property {number} rows
 * @property {number} ms Busy: upload, compute and readback.
 * @property {number} upload_ms
 * @property {number} compute_ms
 * @property {number} readback_ms
 * @property {number} exchange_ms At exchanges in mid-step, as of batch-norm statistics: messages, and waits for the others.
 * @property {number} wait_ms For the others at the end of the step.
 * @property {number} message_ms Rest of the step without the host's part: messages between host and adapter, and the scheduler's own
 *   work. With it the phases fill the step.
 */

/**
 * One training step.
 * @typedef {object} StepLog
 * @property {number} step Counted from 1 over all epochs.
 * @property {number} epoch Counted from 1.
 * @property {number} batch Counted from 1 within the epoch.
 * @property {number} batches Batches of an epoch.
 * @property {number} rows
 * @property {number} loss Of this batch.
 * @property {number} accuracy Of this batch.
 * @property {number} learning_rate
 * @property {number} gradient_norm
 * @property {boolean} is_applied False if a value was not finite and nothing was updated.
 * @property {number} ms The whole step, waiting for data included.
 * @property {number} data_ms Of these, waiting for data.
 * @property {number} reduce_ms Of these, adding gradients on the host.
 * @property {number} update_ms Of these, updating on the host and broadcasting weights.
 * @property {number} samples_per_s Of the step alone.
 * @property {number} clock_ms From the end of the step before to the end of this one: with the ends of epochs, predictions of the
 *   test digits, and whatever else the worker did meanwhile. The first step after a pause counts alone.
 * @property {AdapterLog[]} adapters Those that had rows.
 */

/**
 * One epoch.
 * @typedef {object} EpochLog
 * @property {number} epoch Counted from 1.
 * @property {number} step Training steps so far.
 * @property {number} loss Over the epoch's batches.
 * @property {number} accuracy
 * @property {number} val_loss Over the 360 test digits, after the epoch.
 * @property {number} val_accuracy
 * @property {number} learning_rate
 * @property {number} seconds Validation included.
 * @property {number} samples_per_s
 */

/**
 * A number of adapters, and what they do together.
 * @typedef {object} Point
 * @property {number} n_adapters
 * @property {number} batch_size
 * @property {number[]} shares Rows of each adapter.
 * @property {number} step_ms Of a measurement: the median.
 * @property {number} rows_per_s
 * @property {number} efficiency Rows a second over the sum of what the same adapters do alone with the batch of one, so
 *   that `rows_per_s / efficiency` is the ideal line.
 * @property {string} limit Largest part of a step, in words; empty for a measurement.
 */

/**
 * Throughput of 1 to N adapters, measured or predicted.
 * @typedef {object} Report
 * @property {number} batch_size
 * @property {string[]} adapters Names in the order in which they join: of a prediction, the fastest first.
 * @property {Point[]} strong The same batch for any number of adapters.
 * @property {Point[]} weak As many times the batch as there are adapters.
 */

/**
 * Rows a second between which half of the measured steps are, for each point of a report.
 * @typedef {{ strong: [low: number, high: number][], weak: [low: number, high: number][] }} Spread
 */

/**
 * A rig to predict, as `manyhands simulate` reads it, in JSON. Left out: what is not known.
 * @typedef {object} RigConfig
 * @property {number} batch_size
 * @property {"here" | "mlp" | "cnn6" | "vgg" | "digits_cnn"} preset `here` is the network of the run.
 * @property {{ copy_gb_s: number }} host
 * @property {AdapterSpec[]} adapters
 */

/**
 * @typedef {object} AdapterSpec
 * @property {string} name
 * @property {number} fixed_ms
 * @property {number} [per_row_ms] In place of `gflops`.
 * @property {number} [gflops]
 * @property {number} [memory_gb_s]
 * @property {number} [upload_gb_s]
 * @property {number} [download_gb_s]
 * @property {number} latency_ms
 */

/**
 * A simulated step of all adapters together, in milliseconds of virtual time.
 * @typedef {object} SimulatedStep
 * @property {number} rows
 * @property {number} ms
 * @property {number} reduce_ms
 * @property {number} update_ms
 * @property {boolean} is_counted Whether `Report.strong` is made of it: the steps before, in which the split is learned, are not.
 * @property {AdapterLog[]} adapters `adapter` is an index into `Report.adapters`. Their phases and waits, the host's sums and its
 *   update fill the step. New weights that come before a run count as its upload.
 */

/**
 * The predicted speed of a network in stages, as `manyhands simulate` reports it.
 * @typedef {object} StagedReport
 * @property {number} micro_batches
 * @property {number} step_ms
 * @property {number} rows_per_s
 * @property {{ layers: string, adapters: string[], bytes: number, rows: number[], busy_ms: number[] }[]} stages
 */

/**
 * Work of an adapter on a piece of a batch in a simulated step, or the host's, in milliseconds of virtual time.
 * @typedef {object} Brick
 * @property {number | null} adapter Index into `Pipelined.adapters`; `null` is the host.
 * @property {number | null} piece Of an adapter's work: index of the micro-batch.
 * @property {boolean} is_forward Whether it is the first way forward. The way back computes forward again, and the last stage
 *   has that alone.
 * @property {"weights" | "upload" | "compute" | "readback" | "reduce" | "update" | "broadcast"} what
 * @property {number} start_ms From the start of the step.
 * @property {number} ms
 */

/**
 * The layers in stages, one on each adapter.
 * @typedef {object} Pipelined
 * @property {string[]} adapters
 * @property {{ layers: string[], adapters: number[] }[]} placement As a rig's file has it.
 * @property {StagedReport} staged
 * @property {number} ms Of the step that is made of the bricks.
 * @property {Brick[]} bricks
 */

// ---- page to worker

/**
 * Take the file of data that are to be learned.
 * @typedef {{ type: "load", data: Data, bytes: Uint8Array }} Load
 */
/**
 * Train from fresh weights, paused or not. Ends a run that is there.
 * @typedef {{ type: "start", settings: Settings, paused: boolean }} Start
 */
/** @typedef {{ type: "pause" }} Pause After the step that runs. */
/** @typedef {{ type: "resume" }} Resume */
/** @typedef {{ type: "step" }} Step One training step; the run is paused then. */
/**
 * Back to fresh weights with the settings as they are now (also those that were changed), paused. Lost members are
 * opened again, throttles stay.
 * @typedef {{ type: "reset" }} Reset
 */
/** @typedef {{ type: "add", index: number }} Add Opens the adapter of that `Info.index` as a further member. */
/** @typedef {{ type: "remove", member: number }} Remove Takes a member out in an orderly way, by its id. */
/** @typedef {{ type: "throttle", member: number, factor: number }} Throttle `factor` from 1 up. */
/** @typedef {{ type: "unplug", member: number }} Unplug Really destroys its device, at once, in mid-step. */
/**
 * Takes effect with the next step; weights and optimizer state stay. Missing settings stay unchanged.
 * @typedef {{ type: "change", batch_size?: number, split?: Settings["split"], batch_norm?: Settings["batch_norm"],
 *   learning_rate?: number }} Change
 */
/**
 * Classify a drawing by the current weights.
 * @typedef {{ type: "classify", id: number, pixels: Float32Array }} Classify `pixels`: 64 values from 0 to 1, 8×8,
 *   row-major, ink is 1.
 */
/**
 * Measure 1 to N of the rig's members that are there, in their order, with this batch and their throttles. Training pauses
 * meanwhile, and its weights are not touched.
 * @typedef {{ type: "measure", batch_size: number }} Measure
 */
/** @typedef {{ type: "cancel" }} Cancel Ends a measurement early; it is answered by `error` with request `measure`. */
/** @typedef {{ type: "simulate", rig: RigConfig }} Simulate */
/**
 * Predict a rig's copies, and its fastest 2, 3 and so on adapters with the layers in stages, one on each.
 * @typedef {{ type: "stages", rig: RigConfig, micro_batches: number }} Stages
 */
/** @typedef {{ type: "export" }} Export The model as safetensors, as the crate saves it. */

/**
 * @typedef {Load | Start | Pause | Resume | Step | Reset | Add | Remove | Throttle | Unplug | Change | Classify | Measure |
 *   Cancel | Simulate | Stages | Export} Request
 */

// ---- worker to page

/**
 * The engine is there and knows its adapters.
 * @typedef {object} Hello
 * @property {"hello"} type
 * @property {string} version Of the crate.
 * @property {Info[]} adapters All that can be added; the CPU adapter is always among them.
 * @property {Missing | null} missing Why none of them is WebGPU's; null if one is.
 * @property {number} most_adapters Most members of a rig.
 * @property {Task} task The digits.
 * @property {Uint8Array} test_pixels 360 × 64 values from 0 to 16, the test digits.
 * @property {Uint8Array} test_labels 360.
 */
/**
 * Data were taken: a run may learn them.
 * @typedef {object} Loaded
 * @property {"loaded"} type
 * @property {Task} task
 * @property {Uint8Array} test_pixels Of each test picture, row-major, from 0 to `Task.white`; empty for a text.
 * @property {Uint8Array} test_labels
 */
/**
 * The engine can't work at all: wasm did not load, or died. Nothing comes after it.
 * @typedef {{ type: "failed", message: string }} Failed
 */
/**
 * Sent on each change. `idle`: nothing was started yet. `opening`: adapters are opened and shaders compiled.
 * `finished`: all epochs are done.
 * @typedef {object} State
 * @property {"state"} type
 * @property {"idle" | "opening" | "running" | "paused" | "measuring" | "finished"} state
 * @property {number} step Training steps so far.
 * @property {number} epoch Epochs begun so far.
 */
/** @typedef {{ type: "rig", members: Member[] }} Rig Whenever a member or its presence changes. */
/**
 * Steps since the last such event, in order: sent at most about twenty times a second. After the loss of the only adapter
 * steps come again, from the last copy of its weights on.
 * @typedef {{ type: "steps", steps: StepLog[] }} Steps
 */
/** @typedef {{ type: "epoch", epoch: EpochLog }} Epoch */
/**
 * Predictions for the test pictures: at the start of a run on digits, after each epoch, and when a run is paused; more often where
 * that takes less than a tenth of the time.
 * @typedef {object} Predictions
 * @property {"predictions"} type
 * @property {number} step The weights are those after this step.
 * @property {Uint8Array} classes The most probable class of each.
 * @property {Float32Array} confidences Its probability.
 */
/**
 * A line of text, written by the network: when predictions would come, but about once a second at most, and at a pause.
 * @typedef {{ type: "written", step: number, text: string }} Written
 */
/** @typedef {{ type: "classified", id: number, step: number, probabilities: Float32Array }} Classified Ten of them. */
/**
 * A message of the scheduler: a lost adapter, a reopened one, an excluded one.
 * @typedef {{ type: "notice", level: "info" | "warn", message: string, step: number }} Notice
 */
/**
 * How far a measurement is.
 * @typedef {{ type: "measuring", scaling: "alone" | "strong" | "weak", n_adapters: number, done: number, total: number
 *   }} Measuring `done` of `total` parts.
 */
/**
 * @typedef {object} Measured
 * @property {"measured"} type
 * @property {Report} report
 * @property {Spread} spread
 * @property {number} rounds Turns of each number of adapters, in alternation.
 */
/** @typedef {{ type: "simulated", report: Report, steps: SimulatedStep[] }} Simulated */
/**
 * @typedef {object} Staged
 * @property {"staged"} type
 * @property {Report} report Of copies.
 * @property {Pipelined[]} pipelines Of the fastest 2, 3 and so on adapters: up to as many as the network has parts for.
 */
/** @typedef {{ type: "exported", name: string, bytes: Uint8Array }} Exported */
/**
 * A request was refused, or training stopped (then `request` is null and the run is paused). The crate's text: what is
 * wrong, then `\n  help: ` and what to do.
 * @typedef {{ type: "error", request: Request["type"] | null, message: string }} Problem
 */

/**
 * @typedef {Hello | Failed | State | Rig | Steps | Epoch | Predictions | Classified | Notice | Measuring | Measured |
 *   Simulated | Staged | Exported | Problem | Loaded | Written} Event
 */

export {};
