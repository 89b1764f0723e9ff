//! Training steps of a model, as the trainer makes them.

use manyhands::SplitMode;
use manyhands::adapters::Info;
use manyhands::data::Batch;
use manyhands::scheduler::{DataWait, Finished, NextStep, Scheduler, Step, StepSource};
use manyhands_bench::rig::{BenchRig, RigAdapter};
use manyhands_bench::workloads::{self, Workload};
use manyhands_engine::adapters::gpu::tiles_tried;
use manyhands_engine::runtime::{Native, Runtime};

use crate::{Turn, Work, smollm2};

/// A model in training, on one batch.
pub struct Training {
    scheduler: Scheduler,
    parameters: usize,
    batch: Batch,
    rate: f32,
    step: u64,
}

/// Rows that no training would learn from: the same in every program of the comparison.
fn batch(task: &Workload, rows: usize) -> Batch {
    let row: usize = task.model.inputs().iter().map(|input| input.shape.len()).sum();
    let of_pattern = |i: usize| i * 7919 % 251;
    if task.is_text() {
        let characters = |offset| (0..rows * row).map(|i| whole(of_pattern(i + offset) % task.classes)).collect();
        return Batch { rows, inputs: vec![characters(0)], targets: vec![characters(1)], sample_weights: None };
    }
    let inputs: Vec<f32> = (0..rows * row).map(|i| whole(of_pattern(i)) / 251.0).collect();
    let targets: Vec<f32> = (0..rows).map(|row| whole(row % task.classes)).collect();
    Batch { rows, inputs: vec![inputs.into()], targets: vec![targets.into()], sample_weights: None }
}

fn whole(value: usize) -> f32 {
    f32::from(u8::try_from(value).unwrap())
}

/// Parameters of a model in the other programs.
fn parameters_elsewhere(name: &str) -> usize {
    match name {
        "mlp" => 1_863_690,
        "cnn" => 1_199_978,
        "resnet18" => 11_173_962,
        "resnet50" => 23_555_082,
        "mobilenet_v2" => 2_236_682,
        "lstm" => 82_826,
        "gpt_mini" => 834_400,
        "make_parallel" => 41_157_101,
        "smollm2" => 2_442_240,
        "smollm2_small" => 325_632,
        other => panic!("the other programs have no model `{other}`"),
    }
}

impl Training {
    pub fn new(name: &str, adapters: &[Info], rows: u32) -> Self {
        let task = smollm2::workload(name).unwrap_or_else(|| workloads::by_name(name).unwrap());
        let parameters = task.model.n_trainable();
        assert_eq!(parameters, parameters_elsewhere(name), "parameters of `{name}`, here and in the other programs");
        let batch = batch(&task, usize::try_from(rows).unwrap());
        let rate = task.optimizer.learning_rate();
        let members: Vec<RigAdapter> = adapters.iter().cloned().map(RigAdapter::from).collect();
        let rig = pollster::block_on(BenchRig::open(&task, &members, SplitMode::Learned, rows)).unwrap();
        Self { scheduler: rig.scheduler, parameters, batch, rate, step: 0 }
    }

    /// The part of a label in the mean.
    fn scale(&self) -> f32 {
        1.0 / f32::from(u16::try_from(self.batch.targets[0].len()).unwrap())
    }

    /// Mean loss of a step that has ended.
    fn loss(&self, finished: Finished) -> f64 {
        let Finished::Step(finished) = finished else { panic!("the adapter was lost") };
        let report = finished.report;
        assert!(report.is_applied, "step {} was not applied", finished.step.step);
        let losses = report.reports[0].iter().step_by(2);
        losses.map(|loss| f64::from(*loss)).sum::<f64>() * f64::from(self.scale())
    }
}

/// The steps of a turn, all on the same batch.
struct Same<'a> {
    batch: &'a Batch,
    step: Step,
    /// Steps that have not begun.
    left: u32,
}

impl StepSource for Same<'_> {
    async fn next(&mut self, _: usize) -> manyhands::Result<Option<NextStep>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let next = NextStep::whole(self.batch.clone(), self.step.clone(), DataWait::default())?;
        (self.step.step, self.left) = (self.step.step + 1, left);
        Ok(Some(next))
    }
}

impl Work for Training {
    fn turn(&mut self, steps: u32) -> Turn {
        let begin_ms = Native.now_ms();
        let loss_scales = vec![self.scale()];
        let step = Step { step: self.step, learning_rate: self.rate, loss_scales, ..Step::default() };
        let mut left = Same { batch: &self.batch, step, left: steps };
        let mut value = f64::NAN;
        while let Some(finished) = pollster::block_on(self.scheduler.advance(&mut left)).unwrap() {
            value = self.loss(finished);
        }
        self.step = left.step.step;
        Turn { ms: Native.now_ms() - begin_ms, value }
    }

    /// Trains until the adapters try no more tiles: they do so in steps like any other, once those have settled.
    fn tune(&mut self) -> String {
        let (mut n_steps, mut n_still, mut tried) = (0, 0, tiles_tried());
        while n_still < STILL && n_steps < LONGEST {
            self.turn(1);
            n_still = if tiles_tried() == tried { n_still + 1 } else { 0 };
            (n_steps, tried) = (n_steps + 1, tiles_tried());
        }
        if tried == 0 { String::new() } else { format!("{tried} tiles tried in {n_steps} steps") }
    }

    fn parameters(&self) -> usize {
        self.parameters
    }
}

/// Steps in a row without a trial, behind which there will be none.
const STILL: u32 = 6;
/// Steps that tuning may take.
const LONGEST: u32 = 500;
