// Made from web-demo/src/messages.rs, which says what each message is for, and in which order they come:
//
//     UPDATE=1 cargo test --package manyhands-web-demo typescript

/** An event by its type. */
export type Told<T extends Event["type"]> = Extract<Event, { type: T }>;

/** Kind of work in a simulated step. */
export type Activity = "weights" | "upload" | "compute" | "readback" | "reduce" | "update" | "broadcast";

/** An adapter by itself. */
export type AdapterAlone = {
  /** Its name. */
  name: string,
  /** Whether its speed is modelled from a card's data sheet, and not given by the rig. */
  is_modelled: boolean,
  /** Bytes that a copy of the model takes: for the whole batch at once, for as many rows as fit, or for one row if none fits. */
  needed_bytes: number,
  /** Bytes that it has, if they are known. */
  has_bytes: number | null,
  /** Milliseconds of a training step; `null` if no copy fits. */
  step_ms: number | null,
  /** Rows a second. */
  rows_per_s: number | null,
};

/** One adapter's part in a step, waits at its end included. */
export type AdapterLog = {
  /** Index into the members, or into the adapters of a simulated rig. */
  adapter: number,
  /** Its id, by which metrics name it when members have come and gone. */
  member: number,
  /** Its name. */
  name: string,
  /** Its rows. */
  rows: number,
  /** Busy: upload, compute and readback. */
  ms: number,
  /** Milliseconds of `ms` in which it got its inputs. In a simulated step also new weights that come before a run. */
  upload_ms: number,
  /** Milliseconds of `ms` in which it computed. */
  compute_ms: number,
  /** Milliseconds of `ms` in which gradients and results were read back. */
  readback_ms: number,
  /** At exchanges in mid-step, as of batch-norm statistics: messages, and waits for the others. */
  exchange_ms: number,
  /** For the others at the end of the step. */
  wait_ms: number,
  /** Rest of the step without the host's part: messages between host and adapter, and the scheduler's own work. With it the phases fill
   * the step. */
  message_ms: number,
};

/** An adapter of a rig to predict, as `manyhands simulate` reads it. Left out: what is not known. */
export type AdapterSpec = {
  /** Its name. Default: the card's. */
  name?: string,
  /** A card of `manyhands simulate --list-cards`, of which all numbers are taken that are not given. */
  card?: string,
  /** Milliseconds of a run whatever its rows. */
  fixed_ms?: number,
  /** Milliseconds for each row of a training run, in place of `gflops`. */
  per_row_ms?: number,
  /** Arithmetic that it reaches, in 10⁹ operations a second. */
  gflops?: number,
  /** Bytes that other kernels read and write, in 10⁹ a second. */
  memory_gb_s?: number,
  /** Bandwidth from host to adapter, in 10⁹ bytes a second. */
  upload_gb_s?: number,
  /** Bandwidth from adapter to host, in 10⁹ bytes a second. */
  download_gb_s?: number,
  /** Milliseconds of each transfer whatever its bytes. */
  latency_ms?: number,
  /** Memory that a model may take on it, in 10⁹ bytes; without it, any. */
  memory_gb?: number,
  /** Times at which computing takes longer. */
  slowdowns?: Array<Slowdown>,
};

/** Rows over which batch normalization takes its statistics. */
export type BatchNorm = "per_shard" | "whole_batch";

/** Work of an adapter on a piece of a batch, or of the host, in a simulated step of a model in stages. */
export type Brick = {
  /** The adapter of the pipeline; none is the host. */
  adapter: number | null,
  /** Of an adapter's work: index of the micro-batch. */
  piece: number | null,
  /** Whether it is the first way forward. The way back computes forward again, and the last stage has that alone. */
  is_forward: boolean,
  /** Kind of the work. */
  what: Activity,
  /** Milliseconds of virtual time from the start of the step. */
  start_ms: number,
  /** Milliseconds that it takes. */
  ms: number,
};

/** Settings that change during a run; missing ones stay. */
export type Change = {
  /** Rows of a training step. */
  batch_size?: number,
  /** Split of batches. */
  split?: Split,
  /** Rows over which batch normalization takes its statistics. */
  batch_norm?: BatchNorm,
  /** Learning rate of Adam. */
  learning_rate?: number,
  /** Temperature of text that is written. */
  temperature?: number,
};

/** A step by one adapter alone. */
export type ComputedAlone = {
  /** Index into the members. */
  adapter: number,
  /** Mean loss of the batch. */
  loss: number,
  /** Global norm of the gradients. */
  gradient_norm: number,
};

/** Data that a run learns. */
export type Data = "digits" | "fashion" | "text" | "own";

/** One epoch. */
export type EpochLog = {
  /** Counted from 1. */
  epoch: number,
  /** Training steps so far. */
  step: number,
  /** Over the epoch's batches. */
  loss: number,
  /** Over the epoch's batches. */
  accuracy: number,
  /** Over the test part, after the epoch. */
  val_loss: number,
  /** Over the test part, after the epoch. */
  val_accuracy: number,
  /** Learning rate at the end. */
  learning_rate: number,
  /** Validation included. */
  seconds: number,
  /** Rows each second of training. */
  samples_per_s: number,
};

/** Messages of the worker. Arrays are sent beside the text. */
export type Event = { "type": "hello",
  /** Version of the crate. */
  version: string,
  /** All that can be added; the CPU adapter is always among them. */
  adapters: Array<Info>,
  /** Reason why none of them is WebGPU's. */
  missing: Missing | null,
  /** The digits, which are in the program. */
  task: Task,
  /** Most members of a rig. */
  most_adapters: number,
  /** Pixels of all test pictures, row-major, from 0 to the task's `white`. */
  test_pixels: Uint8Array,
  /** Class of each test picture. */
  test_labels: Uint8Array,
}
| { "type": "loaded",
  /** The data with their networks. */
  task: Task,
  /** Pixels of all test pictures, row-major, from 0 to the task's `white`; empty for a text. */
  test_pixels: Uint8Array,
  /** Class of each test picture. */
  test_labels: Uint8Array,
}
| { "type": "failed",
  /** The error. */
  message: string,
}
| { "type": "state",
  /** State of the engine. */
  state: State,
  /** Training steps so far. */
  step: number,
  /** Number of started epochs. */
  epoch: number,
}
| { "type": "rig",
  /** In order. */
  members: Array<Member>,
}
| { "type": "steps",
  /** In order. */
  steps: Array<StepLog>,
}
| { "type": "epoch",
  /** The engine's own log. */
  epoch: EpochLog,
}
| { "type": "predictions",
  /** The weights are those after this step. */
  step: number,
  /** The most probable class of each. */
  classes: Uint8Array,
  /** Its probability. */
  confidences: Float32Array,
}
| { "type": "written",
  /** After which training step. */
  step: number,
  /** The line. */
  text: string,
}
| { "type": "classified",
  /** Id of the request. */
  id: number,
  /** After which training step. */
  step: number,
  /** Probability of each digit, 0 to 9. */
  probabilities: Float32Array,
}
| { "type": "notice",
  /** Its weight. */
  level: Level,
  /** The text. */
  message: string,
  /** After which training step. */
  step: number,
}
| { "type": "measuring" } & Part
| { "type": "measured",
  /** Its result. */
  report: Report,
  /** Its spread. */
  spread: Spread,
  /** Turns of each number of adapters, in alternation. */
  rounds: number,
}
| { "type": "simulated",
  /** Its result: that of the rig as it is behind all events. */
  report: Prediction,
  /** The report's adapters by their positions in the rig. */
  order: Array<number>,
  /** Number of the report's first adapters that training uses: the others slow a step down, and are left out. 0: a copy of the model
   * fits on none. */
  best: number,
  /** Steps of all adapters together, with the events in them. */
  steps: Array<SimulatedStep>,
  /** Steps of the adapters that training uses; empty if it uses all, and where there are events. */
  best_steps: Array<SimulatedStep>,
}
| { "type": "staged",
  /** That of copies. */
  report: Prediction,
  /** Of the fastest 2, 3 and so on adapters: up to as many as the network has parts for. */
  pipelines: Array<Pipelined>,
}
| { "type": "exported",
  /** Name of the file. */
  name: string,
  /** The file. */
  bytes: Uint8Array,
}
| { "type": "error",
  /** `type` of what was asked for, if something was. */
  request: Request["type"] | null,
  /** The crate's text: what is wrong, then `\n  help: ` and what to do. */
  message: string,
};

/** The host of a rig to predict. */
export type HostSpec = {
  /** Bytes that it reads and writes when it adds gradients and updates parameters, in 10⁹ a second. */
  copy_gb_s: number,
};

/** Event in a simulated run. */
export type Incident = {
  /** Number of the step, counted from 0. */
  step: number,
  /** Position of the adapter in the rig. */
  adapter: number,
  /** Kind of the event. */
  what: IncidentKind,
};

/** Kind of an event in a simulated run: computing takes so many times as long from that step on, or the adapter is lost in the middle of it. */
export type IncidentKind = { "slowed": number } | "lost";

/** An adapter that can be added to the rig; once, or several times as several devices. */
export type Info = {
  /** Position in the list of adapters: 0 and up. */
  index: number,
  /** As the browser describes it, or the crate's name of the CPU adapter. */
  name: string,
  /** Kind of the adapter. */
  kind: Kind,
  /** `webgpu`, or `host` for the CPU adapter. */
  backend: string,
  /** Vendor and architecture, if the browser gives them; may be empty. */
  driver: string,
  /** 0: browsers do not give it. */
  vendor: number,
  /** 0. */
  device: number,
  /** Empty. */
  bus_id: string,
  /** Requests for which it was given: `high-performance`, `low-power`, `fallback`. Several where the browser gives the same adapter for
   * them. Empty for the CPU adapter. */
  requested_as: Array<string>,
};

/** Kind of an adapter. A GPU of unknown kind is a `virtual_gpu`; `software` computes on the processor (SwiftShader). */
export type Kind = "discrete_gpu" | "integrated_gpu" | "virtual_gpu" | "cpu" | "software";

/** Weight of a message of the scheduler. */
export type Level = "info" | "warn";

/** An adapter in use. */
export type Member = {
  /** Names it in requests. Given once; never to another member of this page's life. */
  id: number,
  /** Its position in the engine, by which messages name it: `adapter 2`. Another one's after `reset`. */
  position: number,
  /** Description of the adapter. */
  info: Info,
  /** Whether it takes part, is lost, or is opened again. */
  presence: Presence,
  /** If it was lost: milliseconds until it is opened again; none if it never is. */
  again_ms: number | null,
  /** Whether it is excluded because training is faster without it. */
  is_excluded: boolean,
  /** Times as long as it would take by itself; 1 is its own speed. */
  throttle: number,
  /** Id of an earlier member on the same physical device. Devices of WebGPU on SwiftShader share the processor with the CPU adapter, too. */
  shares_device_with: number | null,
};

/** Reason why WebGPU gives no adapter here. `no_webgpu`: the browser has none. `insecure_origin`: it has, but for secure origins only. `no_adapter`:
 * it has, but `requestAdapter` gives null. */
export type Missing = "no_webgpu" | "insecure_origin" | "no_adapter";

/** A network to choose. */
export type ModelChoice = {
  /** `cnn` (the digits network of `manyhands train`), `small`, `gru` and so on. */
  id: string,
  /** Name for people: `three convolutions`. */
  name: string,
  /** Number of parameters. */
  parameters: number,
  /** Whether some layer normalizes by statistics of the batch. */
  has_batch_norm: boolean,
};

/** A network that the page trains. */
export type PageNetwork = {
  /** The data that it learns. */
  data: Data,
  /** Its id. */
  model: string,
  /** Width of its output: `outputs` of the data. */
  outputs: number,
};

/** Progress of a measurement. */
export type Part = {
  /** Whether the batch is constant or grows. */
  scaling: Scaling,
  /** Number of adapters; for adapters alone, the index. */
  n_adapters: number,
  /** Number of finished parts. */
  done: number,
  /** Number of all parts. */
  total: number,
};

/** The layers in stages, one on each adapter, in the simulator. */
export type Pipelined = {
  /** Names of the adapters, by which `placement` counts them. */
  adapters: Array<string>,
  /** As a rig's file for `manyhands simulate` has it. */
  placement: Array<StageSpec>,
  /** Its speed. */
  staged: StagedReport,
  /** Milliseconds of the step that is made of the bricks. */
  ms: number,
  /** All work of the step. */
  bricks: Array<Brick>,
};

/** A number of adapters, and what they do together. */
export type Point = {
  /** Number of adapters. */
  n_adapters: number,
  /** Rows of a batch. */
  batch_size: number,
  /** Rows of each adapter. */
  shares: Array<number>,
  /** Of a measurement: the median. */
  step_ms: number,
  /** Rows a second. */
  rows_per_s: number,
  /** Rows a second over the sum of what the same adapters do alone with the batch of one, so that `rows_per_s / efficiency` is the ideal
   * line. */
  efficiency: number,
  /** Largest part of a step, in words; empty for a measurement. */
  limit: string,
};

/** A predicted throughput, with what only a prediction has. */
export type Prediction = {
  /** Each adapter by itself, the fastest first; at the end those on which no copy of the model fits. */
  alone: Array<AdapterAlone>,
  /** All adapters with equal parts of the batch, as most programs split it; `null` for one adapter, and where `strong` has such parts. */
  even: Point | null,
  /** Sentences about adapters that are left out of the numbers. */
  notes: Array<string>,
  /** Rows of a batch. */
  batch_size: number,
  /** Names in the order in which they join: of a prediction, the fastest first. */
  adapters: Array<string>,
  /** Points with the same batch for any number of adapters. */
  strong: Array<Point>,
  /** Points with as many times the batch as there are adapters. */
  weak: Array<Point>,
};

/** State of an adapter in use: whether it takes part in training. */
export type Presence = "active" | "lost" | "returning";

/** The networks for which the page predicts: its own, and only these of the crate's presets. */
export type Preset = "here" | "mlp" | "cnn6" | "vgg" | "digits_cnn";

/** Throughput of 1 to N adapters, measured or predicted. */
export type Report = {
  /** Rows of a batch. */
  batch_size: number,
  /** Names in the order in which they join: of a prediction, the fastest first. */
  adapters: Array<string>,
  /** Points with the same batch for any number of adapters. */
  strong: Array<Point>,
  /** Points with as many times the batch as there are adapters. */
  weak: Array<Point>,
};

/** Requests of the page, named as `engine.js` passes them on: a tag beside the fields would need all of them held in
 * between, with code for it that the page has to load. */
export type Request = { "type": "load",
  /** Their kind. */
  data: Data,
  /** Their file; sent beside the text. */
  bytes: Uint8Array,
}
| { "type": "start",
  /** Settings of the run. */
  settings: Settings,
  /** Whether to wait before the first step. */
  paused: boolean,
}
| { "type": "pause" }
| { "type": "resume" }
| { "type": "step" }
| { "type": "reset" }
| { "type": "add",
  /** Its index in the list. */
  index: number,
}
| { "type": "remove",
  /** Id of the adapter. */
  member: number,
}
| { "type": "throttle",
  /** Id of the adapter. */
  member: number,
  /** Factor by which it is slowed down, from 1 up. */
  factor: number,
}
| { "type": "unplug",
  /** Id of the adapter. */
  member: number,
}
| { "type": "change" } & Change
| { "type": "classify",
  /** Id of the request. */
  id: number,
  /** 64 values from 0 to 1, 8 × 8, row-major, ink is 1; sent beside the text. */
  pixels: Float32Array,
}
| { "type": "measure",
  /** Rows of a batch. */
  batch_size: number,
}
| { "type": "cancel" }
| { "type": "simulate",
  /** The described rig. */
  rig: RigConfig,
}
| { "type": "stages",
  /** The described rig. */
  rig: RigConfig,
  /** Pieces of a batch. */
  micro_batches: number,
}
| { "type": "export" };

/** A rig to predict, with a preset of the crate. */
export type RigConfig = {
  /** Rows of a batch. */
  batch_size: number,
  /** The model. */
  preset: Preset,
  /** The page's network, if the model is that one. */
  here?: PageNetwork,
  /** The host. */
  host: HostSpec,
  /** The adapters. */
  adapters: Array<AdapterSpec>,
  /** Split of each batch. Default: by speed. */
  split?: Split,
  /** Events in the run, by step: adapters become slower or are lost. */
  events?: Array<Incident>,
};

/** Kind of a measurement's part. */
export type Scaling = "alone" | "strong" | "weak";

/** Settings of a run. */
export type Settings = {
  /** The data to learn from. */
  data: Data,
  /** Id of the network. */
  model: string,
  /** Indices of the adapters in the list, in order; one may be there twice. At least one. */
  adapters: Array<number>,
  /** Factor by which each is slowed down; missing ones are 1. */
  throttles: Array<number>,
  /** Rows of a training step over all adapters: 1 to 512, may be below the number of adapters. */
  batch_size: number,
  /** Split of batches. */
  split: Split,
  /** Rows over which batch normalization takes its statistics. */
  batch_norm: BatchNorm,
  /** Learning rate of Adam. */
  learning_rate: number,
  /** Seed of weights, order and dropout: a whole number from 0 to 4294967295. */
  seed: number,
  /** Epochs after which training ends, and that `resume` adds; 0 for no end. */
  epochs: number,
  /** The first epoch, counted from 1, whose pictures are varied; 0 for none. */
  varied_from: number,
  /** Temperature of text that is written: low ones keep to what is likely. */
  temperature: number,
};

/** A simulated step of some adapters together, in milliseconds of virtual time. Adapters are numbered as in the described rig. Their phases and
 * waits, the host's sums and its update fill the step. */
export type SimulatedStep = {
  /** Rows of the batch. */
  rows: number,
  /** The whole step. */
  ms: number,
  /** Milliseconds of `ms` that the host added gradients. */
  reduce_ms: number,
  /** Milliseconds of `ms` that the host updated weights. */
  update_ms: number,
  /** Whether the report's `strong` is made of it: the steps before, in which the split is learned, are not. */
  is_counted: boolean,
  /** Parts of the adapters that had rows. */
  adapters: Array<AdapterLog>,
};

/** Time in which an adapter computes more slowly. */
export type Slowdown = {
  /** Start. */
  from_ms: number,
  /** End. */
  to_ms: number,
  /** Factor on the time of computing. */
  factor: number,
};

/** Split of batches. */
export type Split = "learned" | "even";

/** Rows a second between which half of the steps are, of each point of a measurement. */
export type Spread = {
  /** Rows a second at both quartiles, of each point with a constant batch. */
  strong: Array<[number, number]>,
  /** Rows a second at both quartiles, of each point with a growing batch. */
  weak: Array<[number, number]>,
};

/** A stage of a network. */
export type StagePoint = {
  /** Its first and last layer. */
  layers: string,
  /** Names of its adapters. */
  adapters: Array<string>,
  /** Bytes that it takes on each of them. */
  bytes: number,
  /** Rows of a step on each of them. */
  rows: Array<number>,
  /** Milliseconds of a step in which each of them is busy. */
  busy_ms: Array<number>,
};

/** The layers of a stage, and the positions of its adapters. */
export type StageSpec = {
  /** Names of layers, and ranges of them. */
  layers: Array<string>,
  /** Positions of its adapters. */
  adapters: Array<number>,
};

/** The predicted speed of a network in stages, as `manyhands simulate` reports it. */
export type StagedReport = {
  /** Pieces of a batch. */
  micro_batches: number,
  /** Milliseconds of a training step. */
  step_ms: number,
  /** Rows a second. */
  rows_per_s: number,
  /** The stages, in order. */
  stages: Array<StagePoint>,
};

/** State of the engine. */
export type State = "idle" | "opening" | "running" | "paused" | "measuring" | "finished";

/** One training step. */
export type StepLog = {
  /** Counted from 1 over all epochs. */
  step: number,
  /** Counted from 1. */
  epoch: number,
  /** Counted from 1 within the epoch. */
  batch: number,
  /** Batches of an epoch. */
  batches: number,
  /** Rows of the batch. */
  rows: number,
  /** Mean loss of this batch. */
  loss: number,
  /** Part of the rows of this batch that were classified right. */
  accuracy: number,
  /** Learning rate. */
  learning_rate: number,
  /** Global norm of the gradients. */
  gradient_norm: number,
  /** False if a value was not finite and nothing was updated. */
  is_applied: boolean,
  /** The whole step, waiting for data included. */
  ms: number,
  /** Milliseconds of `ms` that it waited for data. */
  data_ms: number,
  /** Milliseconds of `ms` that the host added gradients. */
  reduce_ms: number,
  /** Milliseconds of `ms` that the host updated and sent weights. */
  update_ms: number,
  /** Samples a second within the step, without what the worker did between steps. */
  samples_per_s: number,
  /** From the end of the step before to the end of this one: with the ends of epochs, predictions of the test digits, and whatever else
   * the worker did meanwhile. The first step after a pause counts alone. */
  clock_ms: number,
  /** Parts of the adapters that had rows. */
  adapters: AdapterLog[],
  /** This step, computed again by one adapter alone from the same weights; now and then, where several share a step. */
  alone: ComputedAlone | null,
};

/** Data to learn from, with the networks for them. */
export type Task = {
  /** Their kind. */
  data: Data,
  /** Networks to choose. */
  models: Array<ModelChoice>,
  /** Names of a picture's classes, by label; empty for a text. */
  classes: Array<string>,
  /** Pixels of a picture's side; 0 where there are none. */
  side: number,
  /** The value of full ink in test pictures; 0 where there are none. */
  white: number,
  /** Width of their networks' output. */
  outputs: number,
  /** Of a text: the loss on its test part, if each character is expected as often as it is in the training part. */
  frequencies_loss: number | null,
};
