//! The messages of `www/messages.js`, which explains each. Arrays are sent beside the text.

use manyhands::adapters::{Info, Kind};
use manyhands::internals::adapters::Timing;
use manyhands::internals::bench::scaling::{Curve, Part, Point};
use manyhands::internals::scheduler::ShardReport;
use manyhands::internals::simulator::SimulatedStep;
use manyhands::logs::{AdapterLog, EpochLog, StepLog};
use manyhands::simulator::Report;
use manyhands::{AdapterStatus, Result};
use serde::{Deserialize, Serialize};

use crate::models;
use crate::settings::{Change, Described, Settings};
use crate::stages::Pipelined;
use crate::tasks::{Data, Task};

/// Requests of the page, named as `engine.js` passes them on: a tag beside the fields would need all of them held in
/// between, with code for it that the page has to load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Take data to learn from.
    Load {
        /// Their kind.
        data: Data,
        /// Their file; sent beside the text.
        #[serde(skip)]
        bytes: Vec<u8>,
    },
    /// Train from fresh weights.
    Start {
        /// Settings of the run.
        settings: Settings,
        /// Whether to wait before the first step.
        paused: bool,
    },
    /// After the step that runs.
    Pause,
    /// Continue.
    Resume,
    /// One training step.
    Step,
    /// Back to fresh weights.
    Reset,
    /// One adapter more.
    Add {
        /// Its index in the list.
        index: usize,
    },
    /// One adapter less.
    Remove {
        /// Id of the adapter.
        member: u32,
    },
    /// A slower adapter.
    Throttle {
        /// Id of the adapter.
        member: u32,
        /// Factor by which it is slowed down.
        factor: f64,
    },
    /// Destroy its device.
    Unplug {
        /// Id of the adapter.
        member: u32,
    },
    /// Change settings.
    Change(Change),
    /// Classify a drawing.
    Classify {
        /// Id of the request.
        id: u32,
        /// Sent beside the text.
        #[serde(skip)]
        pixels: Vec<f32>,
    },
    /// Measure 1 to N members.
    Measure {
        /// Rows of a batch.
        batch_size: u32,
    },
    /// End a measurement.
    Cancel,
    /// Predict a rig.
    Simulate {
        /// The described rig.
        rig: Described,
    },
    /// Predict a rig with the layers in stages.
    Stages {
        /// The described rig.
        rig: Described,
        /// Pieces of a batch.
        micro_batches: u32,
    },
    /// The model as a file.
    Export,
}

impl Request {
    /// Its `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Load { .. } => "load",
            Self::Start { .. } => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Step => "step",
            Self::Reset => "reset",
            Self::Add { .. } => "add",
            Self::Remove { .. } => "remove",
            Self::Throttle { .. } => "throttle",
            Self::Unplug { .. } => "unplug",
            Self::Change(_) => "change",
            Self::Classify { .. } => "classify",
            Self::Measure { .. } => "measure",
            Self::Cancel => "cancel",
            Self::Simulate { .. } => "simulate",
            Self::Stages { .. } => "stages",
            Self::Export => "export",
        }
    }
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
pub struct ModelChoice {
    /// Its id.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Number of parameters.
    pub parameters: usize,
    /// Whether some layer normalizes by statistics of the batch.
    pub has_batch_norm: bool,
}

/// Data to learn from, with the networks for them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Learnable {
    /// Their kind.
    pub data: Data,
    /// Networks to choose.
    pub models: Vec<ModelChoice>,
    /// Names of the classes of pictures.
    pub classes: Vec<String>,
    /// Pixels of a picture's side; 0 where there are none.
    pub side: usize,
    /// The value of full ink.
    pub white: u8,
    /// Loss of a text by the frequencies of its characters alone.
    pub frequencies_loss: Option<f64>,
}

impl Learnable {
    /// Describes a task.
    ///
    /// # Errors
    /// If a network can't be built.
    pub fn of(task: &Task) -> Result<Self> {
        Ok(Self {
            data: task.data,
            models: models::choices(task)?,
            classes: task.white().map_or_else(Vec::new, |_| task.classes()),
            side: task.white().map_or(0, |_| task.input().axes()[0]),
            white: task.white().unwrap_or_default(),
            frequencies_loss: task.frequencies_loss,
        })
    }
}

/// Whether an adapter in use is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// It takes part.
    Active,
    /// The scheduler opens it again after a while, or never.
    Lost,
    /// It is being opened again.
    Returning,
}

/// An adapter in use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Member {
    /// Id of the adapter.
    pub id: u32,
    /// Its position in the engine, by which messages name it.
    pub position: usize,
    /// Description of the adapter.
    pub info: Listed,
    /// Whether it is there.
    pub presence: Presence,
    /// If it was lost: when it is opened again.
    pub again_ms: Option<f64>,
    /// Whether it is excluded because training is faster without it.
    pub is_excluded: bool,
    /// Factor by which it is slowed down.
    pub throttle: f64,
    /// An earlier member of the same physical device.
    pub shares_device_with: Option<u32>,
}

impl Member {
    /// Records its status.
    #[must_use]
    pub fn with_status(self, status: AdapterStatus) -> Self {
        let (presence, again_ms, is_excluded) = match status {
            AdapterStatus::Active { is_excluded } => (Presence::Active, None, is_excluded),
            AdapterStatus::Lost { again_ms } => (Presence::Lost, again_ms, false),
            AdapterStatus::Returning => (Presence::Returning, None, false),
            AdapterStatus::Left => (Presence::Lost, None, false),
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

/// A member as the page's logs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Position among the members.
    pub at: usize,
    /// Id of the adapter.
    pub id: u32,
}

/// One adapter's part in a step, waits at its end included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worked {
    adapter: usize,
    member: u32,
    name: String,
    rows: u32,
    ms: f64,
    upload_ms: f64,
    compute_ms: f64,
    readback_ms: f64,
    exchange_ms: f64,
    wait_ms: f64,
    message_ms: f64,
}

impl Worked {
    /// `places` are the members' places by their positions in the engine; `ms_of_adapters` is the step without the host's part.
    fn of(log: AdapterLog, places: &[Option<Place>], ms_of_adapters: f64) -> Option<Self> {
        let AdapterLog { adapter, name, rows, ms, upload_ms, compute_ms, readback_ms, wait_ms, end_wait_ms } = log;
        let Place { at: adapter, id: member } = (*places.get(adapter)?)?;
        Some(Self {
            adapter,
            member,
            name,
            rows,
            ms,
            upload_ms,
            compute_ms,
            readback_ms,
            exchange_ms: wait_ms,
            wait_ms: end_wait_ms,
            message_ms: (ms_of_adapters - ms - wait_ms - end_wait_ms).max(0.0),
        })
    }
}

/// A training step: the engine's own log, with adapters numbered as in the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stepped {
    #[serde(flatten)]
    log: StepLog,
    clock_ms: f64,
    adapters: Vec<Worked>,
}

impl Stepped {
    /// `places` are the members' places by their positions in the engine; `clock_ms` is the time since the step before.
    pub fn of(mut log: StepLog, places: &[Option<Place>], clock_ms: f64) -> Self {
        let adapters = std::mem::take(&mut log.adapters);
        let of_adapters = log.ms - log.data_ms - log.reduce_ms - log.update_ms - log.processes_ms;
        let adapters = adapters.into_iter().filter_map(|adapter| Worked::of(adapter, places, of_adapters)).collect();
        Self { log, clock_ms, adapters }
    }
}

/// A simulated training step, with adapters numbered as in the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulated {
    rows: u32,
    ms: f64,
    reduce_ms: f64,
    update_ms: f64,
    is_counted: bool,
    adapters: Vec<Worked>,
}

impl Simulated {
    /// `names` are those of the report's adapters.
    pub fn of(step: &SimulatedStep, names: &[String]) -> Self {
        let SimulatedStep { ms, is_counted, report } = step;
        let all_ms = ms - report.reduce_ms - report.update_ms;
        let worked = |shard: &ShardReport| {
            let Timing { upload_ms, compute_ms, readback_ms, wait_ms: exchange_ms, weights, .. } = shard.timing;
            let busy_ms = weights.ms + upload_ms + compute_ms + readback_ms;
            Worked {
                adapter: shard.adapter_idx,
                member: 0,
                name: names.get(shard.adapter_idx).cloned().unwrap_or_default(),
                rows: shard.rows,
                ms: busy_ms,
                upload_ms: weights.ms + upload_ms,
                compute_ms,
                readback_ms,
                exchange_ms,
                wait_ms: (all_ms - busy_ms - exchange_ms).max(0.0),
                message_ms: 0.0,
            }
        };
        Self {
            rows: report.shards.iter().map(|shard| shard.rows).sum(),
            ms: *ms,
            reduce_ms: report.reduce_ms,
            update_ms: report.update_ms,
            is_counted: *is_counted,
            adapters: report.shards.iter().map(worked).collect(),
        }
    }
}

/// Rows a second between which half of the steps are, of each point of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    strong: Vec<[f64; 2]>,
    weak: Vec<[f64; 2]>,
}

impl From<&Curve> for Spread {
    fn from(curve: &Curve) -> Self {
        let rows_per_s = |Point { batch_size, quartiles_ms: [fast, slow], .. }: &Point| {
            [slow, fast].map(|ms| f64::from(*batch_size) * 1e3 / ms.max(1e-3))
        };
        let all = |points: &[Point]| points.iter().map(rows_per_s).collect();
        Self { strong: all(&curve.strong), weak: all(&curve.weak) }
    }
}

/// State of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
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
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It happened.
    Info,
    /// It should not have.
    Warn,
}

/// Messages of the worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The engine is ready. With `test_pixels` and `test_labels`.
    Hello {
        /// Version of the crate.
        version: &'static str,
        /// All that can be added.
        adapters: Vec<Listed>,
        /// Reason why no adapter is WebGPU's.
        missing: serde_json::Value,
        /// The digits, which are in the program.
        task: Learnable,
        /// Most members of a rig.
        most_adapters: usize,
    },
    /// Data were taken. With `test_pixels` and `test_labels`.
    Loaded {
        /// The data with their networks.
        task: Learnable,
    },
    /// The engine failed; no message follows.
    Failed {
        /// The error.
        message: String,
    },
    /// State of the engine.
    State {
        /// State of the engine.
        state: State,
        /// Training steps so far.
        step: u64,
        /// Number of started epochs.
        epoch: u64,
    },
    /// The adapters in use.
    Rig {
        /// In order.
        members: Vec<Member>,
    },
    /// Training steps.
    Steps {
        /// In order.
        steps: Vec<Stepped>,
    },
    /// An epoch.
    Epoch {
        /// The engine's own log.
        epoch: EpochLog,
    },
    /// Predictions for the test pictures. With `classes` and `confidences`.
    Predictions {
        /// After which training step.
        step: u64,
    },
    /// A line that the network has written.
    Written {
        /// After which training step.
        step: u64,
        /// The line.
        text: String,
    },
    /// Prediction for a drawing. With `probabilities`.
    Classified {
        /// Id of the request.
        id: u32,
        /// After which training step.
        step: u64,
    },
    /// A message of the scheduler.
    Notice {
        /// Its weight.
        level: Level,
        /// The text.
        message: String,
        /// After which training step.
        step: u64,
    },
    /// Progress of a measurement.
    Measuring(Part),
    /// A measurement.
    Measured {
        /// Its result.
        report: Report,
        /// Its spread.
        spread: Spread,
        /// Turns of each number of adapters.
        rounds: usize,
    },
    /// A prediction.
    Simulated {
        /// Its result.
        report: Report,
        /// Steps of all adapters together.
        steps: Vec<Simulated>,
    },
    /// A prediction of stages.
    Staged {
        /// That of copies.
        report: Report,
        /// Of the fastest 2, 3 and so on adapters.
        pipelines: Vec<Pipelined>,
    },
    /// The model. With `bytes`.
    Exported {
        /// Name of the file.
        name: &'static str,
    },
    /// An error that a request caused.
    Error {
        /// `type` of what was asked for.
        request: Option<&'static str>,
        /// The crate's text.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use manyhands::internals::presets;
    use manyhands::internals::simulator::simulate_steps;
    use manyhands::simulator::RigConfig;

    use super::*;
    use crate::settings::Split;

    fn request(text: &str) -> Request {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn requests_are_read_as_engine_js_hands_them_on() {
        let start = request(
            r#"{"start":{"paused":true,"settings":{"model":"cnn","adapters":[0,1],"throttles":[1,4],"batch_size":64,
                "split":"even","batch_norm":"whole_batch","learning_rate":0.002,"seed":4294967295,"epochs":0}}}"#,
        );
        let Request::Start { settings, paused: true } = &start else { panic!("{start:?}") };
        assert_eq!((settings.seed, settings.split), (4_294_967_295, Split::Even));
        assert_eq!(settings.throttles, [1.0, 4.0]);
        assert_eq!(start.name(), "start");
        let change = Change { batch_size: Some(3), ..Change::default() };
        assert_eq!(request(r#"{"change":{"batch_size":3}}"#), Request::Change(change));
        assert_eq!(request(r#"{"classify":{"id":7}}"#), Request::Classify { id: 7, pixels: Vec::new() });
        assert_eq!(request(r#"{"unplug":{"member":2}}"#), Request::Unplug { member: 2 });
        assert_eq!(request(r#"{"pause":null}"#), Request::Pause);
    }

    #[test]
    fn phases_fill_a_simulated_step_and_its_steps_make_the_report() {
        let rig = request(
            r#"{"simulate":{"rig":{"preset":"cnn6","batch_size":64,"host":{"copy_gb_s":20.0},"adapters":[
                {"name":"slow","fixed_ms":2.0,"gflops":1000.0,"memory_gb_s":100.0,"upload_gb_s":6.0,"download_gb_s":5.0,"latency_ms":0.1},
                {"name":"fast","fixed_ms":2.0,"gflops":3000.0,"memory_gb_s":300.0,"upload_gb_s":6.0,"download_gb_s":5.0,"latency_ms":0.1}]}}}"#,
        );
        let Request::Simulate { rig } = rig else { panic!("{rig:?}") };
        let model = rig.preset.build(|| presets::find("mlp").unwrap().build(0)).unwrap();
        let (report, steps) = simulate_steps(&RigConfig::from(rig), &model).unwrap();
        assert_eq!(report.adapters, ["fast", "slow"]);
        let steps: Vec<Simulated> = steps.iter().map(|step| Simulated::of(step, &report.adapters)).collect();
        for step in &steps {
            assert_eq!(step.rows, 64);
            let host_ms = step.reduce_ms + step.update_ms;
            for part in &step.adapters {
                let sum_ms =
                    part.upload_ms + part.compute_ms + part.readback_ms + part.exchange_ms + part.wait_ms + host_ms;
                assert!((sum_ms - step.ms).abs() < 0.01 * step.ms, "{part:?} in {} ms", step.ms);
            }
        }
        let counted: Vec<&Simulated> = steps.iter().filter(|step| step.is_counted).collect();
        let part = 1.0 / f64::from(u32::try_from(counted.len()).unwrap());
        let mean_ms = counted.iter().fold(0.0, |sum, step| sum + part * step.ms);
        assert_eq!(mean_ms.to_bits(), report.strong[1].step_ms.to_bits());
        let shares: Vec<u32> = counted.last().unwrap().adapters.iter().map(|part| part.rows).collect();
        assert_eq!(shares, report.strong[1].shares);
    }

    #[test]
    fn adapters_on_the_processor_share_it() {
        let cpu = manyhands::internals::adapters::cpu::info();
        let software = Info { kind: Kind::Software, name: "SwiftShader".into(), ..cpu.clone() };
        let gpu = Info { kind: Kind::VirtualGpu, name: "a".into(), ..cpu.clone() };
        let other = Info { name: "b".into(), index: 1, ..gpu.clone() };
        assert!(share_device(&cpu, &software));
        assert!(share_device(&gpu, &Info { index: 4, ..gpu.clone() }));
        assert!(!share_device(&gpu, &other) && !share_device(&gpu, &cpu));
    }

    #[test]
    fn a_step_counts_adapters_as_the_page_does() {
        let worked = AdapterLog {
            adapter: 2,
            name: "a".into(),
            rows: 5,
            ms: 3.0,
            upload_ms: 1.0,
            compute_ms: 1.5,
            readback_ms: 0.5,
            wait_ms: 2.0,
            end_wait_ms: 4.0,
        };
        let log = StepLog {
            step: 1,
            epoch: 1,
            batch: 1,
            batches: 9,
            rows: 5,
            values: manyhands::logs::Values::default(),
            running: manyhands::logs::Values::default(),
            learning_rate: 0.1,
            gradient_norm: 1.0,
            is_applied: true,
            loss_scale: None,
            ms: 14.0,
            data_ms: 0.5,
            reduce_ms: 1.5,
            update_ms: 2.0,
            processes_ms: 0.0,
            samples_per_s: 1.0,
            adapters: vec![worked],
            processes: Vec::new(),
        };
        // The member at position 0 has left.
        let place = |at, id| Some(Place { at, id });
        let text = serde_json::to_value(Stepped::of(log, &[None, place(0, 4), place(1, 7)], 12.5)).unwrap();
        assert_eq!((&text["adapters"][0]["adapter"], &text["adapters"][0]["member"]), (&1.into(), &7.into()));
        assert_eq!((&text["adapters"][0]["exchange_ms"], &text["adapters"][0]["wait_ms"]), (&2.0.into(), &4.0.into()));
        // 14 - 0.5 - 1.5 - 2 are the adapters' part, of which 3 + 6 have names.
        assert_eq!(text["adapters"][0]["message_ms"], 1.0);
        assert_eq!((&text["batches"], &text["clock_ms"]), (&9.into(), &12.5.into()));
    }
}
