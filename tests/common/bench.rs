//! A workbench for models: plans run on the CPU adapter's machine or through the scheduler, and gradients are
//! compared with difference quotients.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stands outside the engine: it panics")]

use std::sync::Arc;

use manyhands::data::Batch;
use manyhands::model::Objective;
use manyhands::scheduler::{Scheduler, Step, StepReport, TrainingState};
use manyhands::{CpuFallback, Loss, Model, Optimizer, SplitMode};
use manyhands_engine::adapters::cpu::{self, Interpreter};
use manyhands_engine::kernels::cases::InputFill;
use manyhands_engine::plan::{BufferId, Combine, Command, Exchange, Pass, Plan, Role, Scalars, When};

/// Normal numbers, the same for the same seed.
pub fn normal(len: usize, seed: u64) -> Vec<f32> {
    InputFill::Normal(len).values(seed)
}

/// Numbers that differ by 0.07 or more and stay 0.035 away from 0, in an order of no pattern: no step of a difference
/// quotient (2/64) meets a kink of ReLU, and none changes which value of a window is the largest.
#[allow(clippy::cast_precision_loss, reason = "a few hundred values")]
pub fn spread(len: usize, seed: u64) -> Vec<f32> {
    let mut order: Vec<usize> = (0..len).collect();
    let keys = normal(len, seed);
    order.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]));
    let middle = len as f32 / 2.0;
    order.into_iter().map(|place| 0.07 * (place as f32 + 0.5 - middle.floor())).collect()
}

/// A model, its plan for mean squared errors and gradient descent at rate 1, and the numbers of a run.
pub struct Bench {
    pub model: Model,
    pub objective: Objective,
    pub plan: Arc<Plan>,
    pub batch: Batch,
    pub scalars: Scalars,
    /// Parts in which each adapter computes its rows.
    pub accumulation_steps: u32,
}

impl Bench {
    /// A bench for a batch. Each output's loss counts by `1 / (rows * positions)`.
    pub fn new(model: Model, losses: Vec<Loss>, batch: Batch) -> Self {
        let objective = Objective::new(losses, Optimizer::sgd(1.0, 0.0));
        let plan = Arc::new(model.plan(&objective).unwrap());
        let rows = u32::try_from(batch.rows).unwrap();
        let scale = |positions: usize| 1.0 / (batch.rows.max(1) * positions) as f32;
        let loss_scales = model.outputs().iter().map(|(_, shape)| scale(shape.positions())).collect();
        let hyper = objective.optimizer.hyper(1.0, 1);
        let scalars = Scalars { rows, batch_rows: rows, seed: 5, step: 3, loss_scales, hyper, ..Scalars::default() };
        Self { model, objective, plan, batch, scalars, accumulation_steps: 1 }
    }

    /// A bench of mean squared errors against normal numbers, for inputs that are normal numbers.
    pub fn of_normals(model: Model, rows: usize) -> Self {
        let values = |len: usize, seed: u64| Arc::from(normal(rows * len, seed));
        let inputs = (1..).zip(model.inputs()).map(|(seed, input)| values(input.shape.len(), seed)).collect();
        let targets = (11..).zip(model.outputs()).map(|(seed, (_, shape))| values(shape.len(), seed)).collect();
        let batch = Batch { rows, inputs, targets, sample_weights: None };
        let losses = vec![Loss::MEAN_SQUARED_ERROR; model.outputs().len()];
        Self::new(model, losses, batch)
    }

    /// The CPU adapter's memory with the weights and the batch in it.
    pub fn machine(&self) -> Interpreter {
        let mut machine = Interpreter::new(self.plan.clone(), self.scalars.rows);
        for (segment, values) in (0..).zip(&self.model.weights.parameters) {
            machine.write(Role::Parameters(segment), 0, values);
        }
        machine.write(Role::Statistics, 0, &self.model.weights.statistics);
        (0..).zip(&self.batch.inputs).for_each(|(idx, values)| machine.write(Role::Input(idx), 0, values));
        (0..).zip(&self.batch.targets).for_each(|(idx, values)| machine.write(Role::Target(idx), 0, values));
        let ones = vec![1.0; self.batch.rows];
        let weights = self.batch.sample_weights.as_deref().unwrap_or(&ones);
        (0..).zip(&self.batch.targets).for_each(|(idx, _)| machine.write(Role::SampleWeight(idx), 0, weights));
        machine
    }

    /// Runs a pass to its end.
    pub fn run(&self, machine: &mut Interpreter, pass: Pass) {
        self.run_with(machine, pass, |_, _| None);
    }

    /// Runs a pass; where `upstream` gives values for an output, they take the place of its loss's gradient.
    pub fn run_with(&self, machine: &mut Interpreter, pass: Pass, upstream: impl Fn(&str, usize) -> Option<Vec<f32>>) {
        for command in self.plan.commands(pass) {
            let Command::Dispatch(dispatch) = command else { continue };
            machine.dispatch(dispatch, &self.scalars);
            let is_loss = matches!(self.plan.get(dispatch.outputs[0].buffer).role, Role::Report(_));
            if let Some(output) = dispatch.node.strip_prefix("loss:").filter(|_| is_loss && pass == Pass::Train) {
                let gradient = dispatch.outputs[1];
                let len = usize::try_from(gradient.len.at(self.scalars.rows)).unwrap();
                if let Some(values) = upstream(output, len) {
                    machine.view_mut(gradient, self.scalars.rows).copy_from_slice(&values);
                }
            }
        }
    }

    /// The values of the outputs as `pass` computes them: what the loss (or the copy to the result) reads.
    pub fn outputs(&self, pass: Pass) -> Vec<Vec<f32>> {
        let mut machine = self.machine();
        let mut outputs = Vec::new();
        for command in self.plan.commands(pass) {
            let Command::Dispatch(dispatch) = command else { continue };
            let is_end = |buffer: BufferId| matches!(self.plan.get(buffer).role, Role::Output(_) | Role::Report(_));
            if dispatch.outputs.first().is_some_and(|view| is_end(view.buffer)) {
                outputs.push(machine.view(dispatch.inputs[0], self.scalars.rows).to_vec());
            }
            machine.dispatch(dispatch, &self.scalars);
        }
        outputs
    }

    /// The whole batch's loss in the training pass: the sum of all rows' losses, in f64.
    pub fn loss(&self) -> f64 {
        let mut machine = self.machine();
        self.run(&mut machine, Pass::Train);
        let losses = (0..).zip(&self.scalars.loss_scales).map(|(output, scale)| {
            let report = machine.read(Role::Report(output));
            report.iter().step_by(2).map(|loss| f64::from(*loss)).sum::<f64>() * f64::from(*scale)
        });
        losses.sum()
    }

    /// The gradient of a parameter from a machine that has run the training pass.
    pub fn gradient<'m>(&self, machine: &'m Interpreter, name: &str) -> &'m [f32] {
        let layout = self.model.layout();
        let idx = layout.parameter(name).unwrap_or_else(|| panic!("there is no parameter `{name}`"));
        let placed = &layout.parameters[idx];
        &machine.read(Role::Gradients(placed.segment))[placed.range()]
    }

    /// Names of all trainable parameters.
    pub fn parameters(&self) -> Vec<String> {
        self.model.layout().trainable().iter().map(|placed| placed.name.clone()).collect()
    }

    /// Compares the gradient of `value` in `gradients` with its difference quotient, element by element (at most
    /// `most` of each parameter, spread evenly).
    ///
    /// The quotient is that of four points, (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, with h = 1/64: its own error
    /// is of the order h⁴ f⁗, about 1e-7. Rounding of the f32 values leaves about 6e-8 · n / h, some 1e-5: the
    /// tolerance of 2e-4, relative to 1 + |gradient|, is far above both and far below any wrong term.
    pub fn check_quotients(&mut self, gradients: &[(String, Vec<f32>)], most: usize, value: impl Fn(&Self) -> f64) {
        const H: f32 = 1.0 / 64.0;
        const TOLERANCE: f64 = 2e-4;
        for (name, told) in gradients {
            for at in (0..told.len()).step_by(told.len().div_ceil(most)) {
                let old = self.model.tensor(name).unwrap()[at];
                let mut shifted = |steps: f32| {
                    let new = old + steps * H;
                    self.model.tensor_mut(name).unwrap()[at] = new;
                    (value(self), f64::from(new))
                };
                let [(a, _), (b, down), (c, up), (d, _)] = [-2.0, -1.0, 1.0, 2.0].map(&mut shifted);
                self.model.tensor_mut(name).unwrap()[at] = old;
                let measured = (8.0 * (c - b) - (d - a)) / (6.0 * (up - down));
                let told = f64::from(told[at]);
                let is_close = (measured - told).abs() <= TOLERANCE * (1.0 + measured.abs());
                assert!(is_close, "gradient of `{name}`[{at}] is {told}, its difference quotient {measured}");
            }
        }
    }

    /// Compares the gradients of the loss with difference quotients.
    pub fn check_loss_gradients(&mut self) {
        let mut machine = self.machine();
        self.run(&mut machine, Pass::Train);
        let gradients: Vec<_> =
            self.parameters().into_iter().map(|name| (name.clone(), self.gradient(&machine, &name).to_vec())).collect();
        self.check_quotients(&gradients, 24, Self::loss);
    }

    /// One training step through the scheduler, on `n_adapters` CPU adapters: what it reports, and the state after.
    pub fn step(&self, n_adapters: usize, split: SplitMode) -> (StepReport, TrainingState) {
        pollster::block_on(async {
            let mut scheduler = self.open(n_adapters, split).await;
            let step = Step {
                step: u64::from(self.scalars.step),
                seed: self.scalars.seed,
                learning_rate: 1.0,
                loss_scales: self.scalars.loss_scales.clone(),
                ..Step::default()
            };
            let report = scheduler.train(&self.batch, &step).await.unwrap();
            let state = scheduler.sync().await.unwrap().clone();
            (report, state)
        })
    }

    /// A scheduler of CPU adapters with the plan and the weights.
    pub async fn open(&self, n_adapters: usize, split: SplitMode) -> Scheduler {
        let builder = Scheduler::builder(&self.model, &self.objective).adapters(vec![cpu::info(); n_adapters]);
        let builder = builder.split(split).capacity(self.scalars.rows).micro_batches(self.accumulation_steps);
        builder.cpu_fallback(CpuFallback::Refused).open().await.unwrap()
    }

    /// The bench with the first rows of its batch alone.
    pub fn first_rows(&self, rows: usize) -> Self {
        Self::new(self.model.clone(), self.objective.losses.clone(), self.batch.shard(0..rows))
    }

    /// Every gradient element belongs to exactly one exchange before the update, but for padding and frozen parameters,
    /// which belong to none.
    pub fn check_exchanges(&self) {
        let layout = self.model.layout();
        let mut times: Vec<Vec<u32>> =
            layout.segments.iter().map(|len| vec![0; usize::try_from(*len).unwrap()]).collect();
        for command in self.plan.commands(Pass::Train) {
            let Command::Exchange(Exchange { view, combine: Combine::Sum, when: When::Update, .. }) = command else {
                continue;
            };
            let Role::Gradients(segment) = self.plan.get(view.buffer).role else {
                panic!("a sum before the update is no gradient")
            };
            let start = usize::try_from(view.offset).unwrap();
            let end = start + usize::try_from(view.len.fixed).unwrap();
            times[segment as usize][start..end].iter_mut().for_each(|times| *times += 1);
        }
        for (idx, placed) in layout.parameters.iter().enumerate() {
            let (times, needed) =
                (&times[placed.segment as usize][placed.range()], u32::from(layout.is_trainable(idx)));
            assert!(times.iter().all(|times| *times == needed), "`{}` is not exchanged {needed} times", placed.name);
        }
    }
}
