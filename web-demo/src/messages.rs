//! Messages between the page and the engine's worker. `www/messages.d.ts` has their types for the page, made from these by `typescript.rs`.
//!
//! The page starts the worker with `new Worker("engine.js", { type: "module" })`, sends it the engine's code as
//! `{ module: WebAssembly.Module }`, which is compiled once for all workers, and then requests; the worker answers with events. Messages are plain objects, distinguished by
//! `type`. Arrays are sent beside the text. Order, which both sides may rely on:
//!
//! - The worker speaks first: `hello` once, or `failed` once and nothing after it.
//! - `rig` comes before the first `steps` in which those members take part, so the `adapter` of an adapter's log is an index into the
//!   members of the last `rig`.
//! - Each `load`, `classify`, `measure`, `simulate`, `stages` and `export` is answered once: by its own event, or by `error` with its name in
//!   `request`. All others take effect between two training steps and are answered by `state` or `rig`.
//! - Requests are taken in their order.
//! - A request that can't be served, for example to remove the last adapter, is answered by `error`; nothing has changed then. One for a
//!   member that has left does nothing: it was on its way when that left.
//! - `simulate` and `stages` go to a worker of their own, so that training never waits for a prediction: the same script under the name
//!   `simulator`. It begins with no `hello`.
//! - If an adapter of `start` or `reset` can't be opened the run begins on CPU adapters alone, and an `error` behind the `state` says why.

use manyhands::adapters::{Info, Kind};
use manyhands::logs::EpochLog;
use manyhands::simulator::Report;
use manyhands::{AdapterStatus, Result};
use manyhands_bench::scaling::ScalingPart;
use serde::{Deserialize, Serialize};

use crate::logs::{Simulated, Spread, Stepped};
use crate::models;
use crate::settings::{Change, Described, RunSettings};
use crate::stages::Pipelined;
use crate::tasks::{LearnedData, LearningTask};
#[cfg(test)]
use crate::types;

/// Requests of the page, named as `engine.js` passes them on: a tag beside the fields would need all of them held in
/// between, with code for it that the page has to load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(tag = "type", rename = "Request"))]
#[serde(rename_all = "snake_case")]
pub enum PageRequest {
    /// Take data to learn from.
    Load {
        /// Their kind.
        data: LearnedData,
        /// Their file; sent beside the text.
        #[serde(default)]
        #[cfg_attr(test, ts(type = "Uint8Array"))]
        bytes: Vec<u8>,
    },
    /// Train from fresh weights. Ends a run that is there.
    Start {
        /// Settings of the run.
        settings: RunSettings,
        /// Whether to wait before the first step.
        paused: bool,
    },
    /// Pause after the step that runs.
    Pause,
    /// Continue.
    Resume,
    /// One training step; the run is paused then.
    Step,
    /// Back to fresh weights with the settings as they are now, paused. Lost members are opened again, throttles stay.
    Reset,
    /// One adapter more.
    Add {
        /// Its index in the list.
        index: usize,
    },
    /// One adapter less, in an orderly way.
    Remove {
        /// Id of the adapter.
        member: u32,
    },
    /// A slower adapter.
    Throttle {
        /// Id of the adapter.
        member: u32,
        /// Factor by which it is slowed down, from 1 up.
        factor: f64,
    },
    /// Destroy its device, at once, in mid-step.
    Unplug {
        /// Id of the adapter.
        member: u32,
    },
    /// Change settings from the next step on; weights and optimizer state stay.
    Change(Change),
    /// Classify a drawing by the current weights.
    Classify {
        /// Id of the request.
        id: u32,
        /// 64 values from 0 to 1, 8 × 8, row-major, ink is 1; sent beside the text.
        #[serde(default)]
        #[cfg_attr(test, ts(type = "Float32Array"))]
        pixels: Vec<f32>,
    },
    /// Measure 1 to N of the rig's members that are there, in their order, with their throttles. Training pauses meanwhile, and its
    /// weights are not touched.
    Measure {
        /// Rows of a batch.
        batch_size: u32,
    },
    /// End a measurement early: it is answered by `error`.
    Cancel,
    /// Predict a rig.
    Simulate {
        /// The described rig.
        rig: Described,
    },
    /// Predict a rig's copies, and its fastest 2, 3 and so on adapters with the layers in stages, one on each.
    Stages {
        /// The described rig.
        rig: Described,
        /// Pieces of a batch.
        micro_batches: u32,
    },
    /// The model as a file.
    Export,
}

/// An adapter of the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    /// Description of the adapter.
    #[serde(flatten)]
    pub info: Info,
    /// Requests for which the browser gave it.
    pub requested_as: Vec<&'static str>,
}

/// A network to choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ModelChoice {
    /// `cnn` (the digits network of `manyhands train`), `small`, `gru` and so on.
    pub id: &'static str,
    /// Name for people: `three convolutions`.
    pub name: &'static str,
    /// Number of parameters.
    pub parameters: usize,
    /// Whether some layer normalizes by statistics of the batch.
    pub has_batch_norm: bool,
}

/// Data to learn from, with the networks for them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "Task"))]
pub struct Learnable {
    /// Their kind.
    pub data: LearnedData,
    /// Networks to choose.
    pub models: Vec<ModelChoice>,
    /// Names of a picture's classes, by label; empty for a text.
    pub classes: Vec<String>,
    /// Pixels of a picture's side; 0 where there are none.
    pub side: usize,
    /// The value of full ink in test pictures; 0 where there are none.
    pub white: u8,
    /// Width of their networks' output.
    pub outputs: usize,
    /// Of a text: the loss on its test part, if each character is expected as often as it is in the training part.
    pub frequencies_loss: Option<f64>,
}

impl Learnable {
    /// Describes a task.
    ///
    /// # Errors
    /// If a network can't be built.
    pub fn of(task: &LearningTask) -> Result<Self> {
        Ok(Self {
            data: task.data,
            models: models::choices(task)?,
            classes: task.white().map_or_else(Vec::new, |_| task.classes()),
            side: task.white().map_or(0, |_| task.input().axes()[0]),
            white: task.white().unwrap_or_default(),
            outputs: task.outputs(),
            frequencies_loss: task.frequencies_loss,
        })
    }
}

/// State of an adapter in use: whether it takes part in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "Presence"))]
#[serde(rename_all = "snake_case")]
pub enum MemberPresence {
    /// The adapter takes part in training.
    Active,
    /// The adapter is gone. The scheduler opens it again after a while, or never.
    Lost,
    /// The scheduler opens the adapter again now.
    Returning,
}

/// An adapter in use.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "Member"))]
pub struct RigMember {
    /// Names it in requests. Given once; never to another member of this page's life.
    pub id: u32,
    /// Its position in the engine, by which messages name it: `adapter 2`. Another one's after `reset`.
    pub position: usize,
    /// Description of the adapter.
    #[cfg_attr(test, ts(as = "types::Info"))]
    pub info: Listed,
    /// Whether it takes part, is lost, or is opened again.
    pub presence: MemberPresence,
    /// If it was lost: milliseconds until it is opened again; none if it never is.
    pub again_ms: Option<f64>,
    /// Whether it is excluded because training is faster without it.
    pub is_excluded: bool,
    /// Times as long as it would take by itself; 1 is its own speed.
    pub throttle: f64,
    /// Id of an earlier member on the same physical device. Devices of WebGPU on SwiftShader share the processor with the CPU adapter, too.
    pub shares_device_with: Option<u32>,
}

impl RigMember {
    /// Records its status.
    #[must_use]
    pub fn with_status(self, status: AdapterStatus) -> Self {
        let (presence, again_ms, is_excluded) = match status {
            AdapterStatus::Active { is_excluded } => (MemberPresence::Active, None, is_excluded),
            AdapterStatus::Lost { again_ms } => (MemberPresence::Lost, again_ms, false),
            AdapterStatus::Returning => (MemberPresence::Returning, None, false),
            AdapterStatus::Left => (MemberPresence::Lost, None, false),
        };
        Self { presence, again_ms, is_excluded, ..self }
    }

    /// Whether the page would show both alike. It does not show the time until a return.
    pub fn is_like(&self, other: &Self) -> bool {
        Self { again_ms: None, ..self.clone() } == Self { again_ms: None, ..other.clone() }
    }
}

/// Whether two adapters compute with the same hardware. Software adapters and the CPU adapter share the CPU.
pub fn share_device(a: &Info, b: &Info) -> bool {
    let on_processor = |info: &Info| matches!(info.kind, Kind::Cpu | Kind::Software);
    (on_processor(a) && on_processor(b)) || Info { index: b.index, ..a.clone() } == *b
}

/// State of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "State"))]
#[serde(rename_all = "snake_case")]
pub enum EngineState {
    /// Nothing was started yet.
    Idle,
    /// Adapters are opened and shaders compiled.
    Opening,
    /// Training.
    Running,
    /// The run waits.
    Paused,
    /// Scaling is measured; training is paused.
    Measuring,
    /// All epochs are done.
    Finished,
}

/// Weight of a message of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// News of the rig.
    Info,
    /// A fault.
    Warn,
}

/// Messages of the worker. Arrays are sent beside the text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The engine is there and knows its adapters.
    Hello {
        /// Version of the crate.
        version: &'static str,
        /// All that can be added; the CPU adapter is always among them.
        #[cfg_attr(test, ts(as = "Vec<types::Info>"))]
        adapters: Vec<Listed>,
        /// Reason why none of them is WebGPU's.
        #[cfg_attr(test, ts(as = "Option<types::Missing>"))]
        missing: serde_json::Value,
        /// The digits, which are in the program.
        task: Learnable,
        /// Most members of a rig.
        most_adapters: usize,
        /// Pixels of all test pictures, row-major, from 0 to the task's `white`.
        #[serde(skip_serializing)]
        #[cfg_attr(test, ts(type = "Uint8Array"))]
        test_pixels: Vec<u8>,
        /// Class of each test picture.
        #[serde(skip_serializing)]
        #[cfg_attr(test, ts(type = "Uint8Array"))]
        test_labels: Vec<u8>,
    },
    /// Data were taken: a run may learn them.
    Loaded {
        /// The data with their networks.
        task: Learnable,
        /// Pixels of all test pictures, row-major, from 0 to the task's `white`; empty for a text.
        #[serde(skip_serializing)]
        #[cfg_attr(test, ts(type = "Uint8Array"))]
        test_pixels: Vec<u8>,
        /// Class of each test picture.
        #[serde(skip_serializing)]
        #[cfg_attr(test, ts(type = "Uint8Array"))]
        test_labels: Vec<u8>,
    },
    /// The engine can't work at all: wasm did not load, or died. No message follows.
    Failed {
        /// The error.
        message: String,
    },
    /// The state, on each change.
    State {
        /// State of the engine.
        state: EngineState,
        /// Training steps so far.
        step: u64,
        /// Number of started epochs.
        epoch: u64,
    },
    /// The adapters in use, whenever one or its presence changes.
    Rig {
        /// In order.
        members: Vec<RigMember>,
    },
    /// Training steps, about twenty times a second at most. After the loss of the only adapter steps come again, from the last copy of its
    /// weights on.
    Steps {
        /// In order.
        #[cfg_attr(test, ts(as = "Vec<types::StepLog>"))]
        steps: Vec<Stepped>,
    },
    /// An epoch.
    Epoch {
        /// The engine's own log.
        #[cfg_attr(test, ts(as = "types::EpochLog"))]
        epoch: EpochLog,
    },
    /// Predictions for the test pictures: at the start of a run on digits, after each epoch, and when a run is paused; more often where
    /// that takes less than a tenth of the time.
    Predictions {
        /// The weights are those after this step.
        step: u64,
        /// The most probable class of each.
        #[serde(skip_serializing)]
        #[cfg_attr(test, ts(type = "Uint8Array"))]
        classes: Vec<u8>,
        /// Its probability.
        #[serde(skip_serializing)]
        #[cfg_attr(test, ts(type = "Float32Array"))]
        confidences: Vec<f32>,
    },
    /// A line that the network has written: when predictions would come, but about once a second at most, and at a pause.
    Written {
        /// After which training step.
        step: u64,
        /// The line.
        text: String,
    },
    /// Prediction for a drawing.
    Classified {
        /// Id of the request.
        id: u32,
        /// After which training step.
        step: u64,
        /// Probability of each digit, 0 to 9.
        #[serde(skip_serializing)]
        #[cfg_attr(test, ts(type = "Float32Array"))]
        probabilities: Vec<f32>,
    },
    /// A message of the scheduler: a lost adapter, a reopened one, an excluded one.
    Notice {
        /// Its weight.
        level: Level,
        /// The text.
        message: String,
        /// After which training step.
        step: u64,
    },
    /// Progress of a measurement.
    Measuring(#[cfg_attr(test, ts(as = "types::Part"))] ScalingPart),
    /// A measurement.
    Measured {
        /// Its result.
        #[cfg_attr(test, ts(as = "types::Report"))]
        report: Report,
        /// Its spread.
        spread: Spread,
        /// Turns of each number of adapters, in alternation.
        rounds: usize,
    },
    /// A prediction. Steps count the adapters as the described rig does.
    Simulated {
        /// Its result: that of the rig as it is behind all events.
        #[cfg_attr(test, ts(as = "types::Predicted"))]
        report: Report,
        /// The report's adapters by their positions in the rig.
        order: Vec<usize>,
        /// Number of the report's first adapters that training uses: the others slow a step down, and are left out. 0: a copy of the model
        /// fits on none.
        best: usize,
        /// Steps of all adapters together, with the events in them.
        steps: Vec<Simulated>,
        /// Steps of the adapters that training uses; empty if it uses all, and where there are events.
        best_steps: Vec<Simulated>,
    },
    /// A prediction of stages.
    Staged {
        /// That of copies.
        #[cfg_attr(test, ts(as = "types::Predicted"))]
        report: Report,
        /// Of the fastest 2, 3 and so on adapters: up to as many as the network has parts for.
        pipelines: Vec<Pipelined>,
    },
    /// The model as a file, as the crate saves it.
    Exported {
        /// Name of the file.
        name: &'static str,
        /// The file.
        #[serde(skip_serializing)]
        #[cfg_attr(test, ts(type = "Uint8Array"))]
        bytes: Vec<u8>,
    },
    /// A request was refused, or training stopped: then the run is paused.
    Error {
        /// `type` of what was asked for, if something was.
        #[cfg_attr(test, ts(type = "Request[\"type\"] | null"))]
        request: Option<String>,
        /// The crate's text: what is wrong, then `\n  help: ` and what to do.
        message: String,
    },
}

/// Numbers that are sent beside the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SentNumbers<'a> {
    /// As a `Uint8Array`.
    Bytes(&'a [u8]),
    /// As a `Float32Array`.
    Floats(&'a [f32]),
}

impl Event {
    /// Its arrays by the names of their fields.
    pub fn arrays(&self) -> Vec<(&'static str, SentNumbers<'_>)> {
        use SentNumbers::{Bytes, Floats};
        match self {
            Self::Hello { test_pixels, test_labels, .. } | Self::Loaded { test_pixels, test_labels, .. } => {
                vec![("test_pixels", Bytes(test_pixels)), ("test_labels", Bytes(test_labels))]
            }
            Self::Predictions { classes, confidences, .. } => {
                vec![("classes", Bytes(classes)), ("confidences", Floats(confidences))]
            }
            Self::Classified { probabilities, .. } => vec![("probabilities", Floats(probabilities))],
            Self::Exported { bytes, .. } => vec![("bytes", Bytes(bytes))],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::RowSplit;

    fn request(text: &str) -> PageRequest {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn requests_are_read_as_engine_js_hands_them_on() {
        let start = request(
            r#"{"start":{"paused":true,"settings":{"model":"cnn","adapters":[0,1],"throttles":[1,4],"batch_size":64,
                "split":"even","batch_norm":"whole_batch","learning_rate":0.002,"seed":4294967295,"epochs":0}}}"#,
        );
        let PageRequest::Start { settings, paused: true } = &start else { panic!("{start:?}") };
        assert_eq!((settings.seed, settings.split), (4_294_967_295, RowSplit::Even));
        assert_eq!(settings.throttles, [1.0, 4.0]);
        let change = Change { batch_size: Some(3), ..Change::default() };
        assert_eq!(request(r#"{"change":{"batch_size":3}}"#), PageRequest::Change(change));
        assert_eq!(request(r#"{"classify":{"id":7}}"#), PageRequest::Classify { id: 7, pixels: Vec::new() });
        assert_eq!(request(r#"{"unplug":{"member":2}}"#), PageRequest::Unplug { member: 2 });
        assert_eq!(request(r#"{"pause":null}"#), PageRequest::Pause);
    }

    #[test]
    fn adapters_on_the_processor_share_it() {
        let cpu = manyhands_engine::adapters::cpu::info();
        let software = Info { kind: Kind::Software, name: "SwiftShader".into(), ..cpu.clone() };
        let gpu = Info { kind: Kind::VirtualGpu, name: "a".into(), ..cpu.clone() };
        let other = Info { name: "b".into(), index: 1, ..gpu.clone() };
        assert!(share_device(&cpu, &software));
        assert!(share_device(&gpu, &Info { index: 4, ..gpu.clone() }));
        assert!(!share_device(&gpu, &other) && !share_device(&gpu, &cpu));
    }
}
