//! Does any split, any finishing order, any fault give the weights of one adapter? In virtual time, with real sums.

#![allow(clippy::unwrap_used, reason = "a test stands outside the engine: it panics")]

mod accumulation;
mod stages;

use std::sync::Arc;

use manyhands::adapters::Info;
use manyhands::data::Batch;
use manyhands::layers::{Activation, BatchNormalization, Conv2D, Dense, Dropout, Flatten, MaxPooling2D};
use manyhands::model::Objective;
use manyhands::optimizers::Adam;
use manyhands::scheduler::{Builder, Scheduler, Step, TrainingState};
use manyhands::simulator::{AdapterSpec, Slowdown};
use manyhands::simulator::{FaultKind, InjectedFault, Trigger, World};
use manyhands::{Loss, Model, ModelBuilder, Optimizer, Result, Sequential, SplitMode};
use manyhands_engine::adapters::cpu::Interpreter;
use manyhands_engine::adapters::{self, Opener};
use manyhands_engine::plan::{Command, Pass, Role, Scalars};
use manyhands_engine::runtime::{Native, Runtime};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::close::assert_close;

/// What the tested models have in them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Family {
    Dropout,
    Convolution,
    NormOfShard,
    NormOfBatch,
    SharedLayerTwoOutputs,
}

const FAMILIES: [Family; 5] =
    [Family::Dropout, Family::Convolution, Family::NormOfShard, Family::NormOfBatch, Family::SharedLayerTwoOutputs];

const CLASSES: usize = 3;

fn norm(family: Family) -> BatchNormalization {
    let norm = BatchNormalization::new().momentum(0.7);
    if family == Family::NormOfBatch { norm.synchronized() } else { norm }
}

fn model(family: Family, width: usize) -> Model {
    let tanh = |units: usize| Dense::new(units).activation(Activation::Tanh);
    let start = Sequential::new([4, 4, 1]);
    match family {
        Family::Dropout => {
            start.add(Flatten::default()).add(tanh(width)).add(Dropout::new(0.3)).add(Dense::new(CLASSES))
        }
        Family::Convolution => start
            .add(Conv2D::new(width, [3, 3]).same().activation(Activation::Tanh))
            .add(MaxPooling2D::new([2, 2]))
            .add(Flatten::default())
            .add(Dense::new(CLASSES)),
        Family::NormOfShard | Family::NormOfBatch => start
            .add(Conv2D::new(width, [2, 2]).no_bias())
            .add(norm(family))
            .add(Flatten::default())
            .add(tanh(width + 1))
            .add(norm(family))
            .add(Dense::new(CLASSES)),
        Family::SharedLayerTwoOutputs => return two_outputs(width),
    }
    .build(5)
    .unwrap()
}

fn two_outputs(width: usize) -> Model {
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [4, 4, 1]);
    let flat = graph.add(Flatten::default(), &[x]);
    let first = graph.add(Dense::new(width), &[flat]);
    let shared = graph.layer("shared", Dense::new(width).activation(Activation::Tanh));
    let once = graph.call(shared, &[first]);
    let twice = graph.call(shared, &[once]);
    let classes = graph.add(Dense::new(CLASSES), &[twice]);
    let values = graph.add(Dense::new(2), &[once]);
    graph.build(&[classes, values], 5).unwrap()
}

/// One run, from the model to what befalls the adapters.
#[derive(Clone, Debug)]
struct Case {
    family: Family,
    width: usize,
    rows: usize,
    steps: u64,
    adapters: Vec<AdapterSpec>,
    split: SplitMode,
    accumulation_steps: u32,
    capacity: u32,
    is_weighted: bool,
    optimizer: Optimizer,
    clip_norm: f32,
    seed: u64,
    /// The stage of each node and of each adapter, if the model is divided.
    division: Option<(Vec<usize>, Vec<usize>)>,
}

impl Case {
    fn model(&self) -> Model {
        model(self.family, self.width)
    }

    fn objective(&self) -> Objective {
        let mut losses = vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY];
        if self.family == Family::SharedLayerTwoOutputs {
            losses.push(Loss::MEAN_SQUARED_ERROR);
        }
        Objective { clip_norm: self.clip_norm, ..Objective::new(losses, self.optimizer.clone()) }
    }

    fn numbers(&self, step: u64) -> Step {
        let loss_scales = self.loss_scales();
        Step { step, seed: RUN_SEED, learning_rate: LEARNING_RATE, loss_scales, ..Step::default() }
    }

    fn batch(&self, step: u64) -> Batch {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(step + 100);
        let mut values = |len: usize| -> Arc<[f32]> { (0..len).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let inputs = vec![values(self.rows * 16)];
        let classes = values(self.rows).iter().map(|value| ((value + 1.0) * 1.499).floor()).collect();
        let mut targets = vec![classes];
        if self.family == Family::SharedLayerTwoOutputs {
            targets.push(values(self.rows * 2));
        }
        let weights = values(self.rows).iter().map(|value| value.abs()).collect();
        Batch { rows: self.rows, inputs, targets, sample_weights: self.is_weighted.then_some(weights) }
    }

    #[allow(clippy::cast_precision_loss, reason = "batches are small")]
    fn loss_scales(&self) -> Vec<f32> {
        vec![1.0 / self.rows as f32, 0.5 / self.rows as f32][..self.objective().losses.len()].to_vec()
    }

    /// The rig of a run; adapters, opener and runtime are to be set.
    fn rig<'a>(&self, model: &'a Model, objective: &'a Objective) -> Builder<'a> {
        let builder = Scheduler::builder(model, objective).split(self.split.clone()).capacity(self.capacity);
        let builder = builder.micro_batches(self.accumulation_steps);
        match self.division.clone() {
            Some((nodes, adapters)) => builder.stages(nodes, adapters),
            None => builder,
        }
    }

    /// Are batch statistics those of the shards, and more than one shard possible?
    fn depends_on_split(&self) -> bool {
        let one =
            matches!(&self.split, SplitMode::Fixed(parts) if parts.iter().filter(|part| **part > 0.0).count() == 1);
        let is_whole = self.accumulation_steps == 1 && self.capacity as usize >= self.rows;
        let is_disturbed = self.adapters.iter().any(|adapter| !adapter.faults.is_empty() || adapter.max_rows.is_some());
        self.family == Family::NormOfShard && !(is_whole && !is_disturbed && (one || self.adapters.len() == 1))
    }
}

const LEARNING_RATE: f32 = 0.05;
const RUN_SEED: u32 = 11;

/// What a run gave.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// By step, by output: loss and score of each row.
    reports: Vec<Vec<Vec<f32>>>,
    norms: Vec<f32>,
    /// Rows of each adapter, by step.
    rows: Vec<u32>,
    state: TrainingState,
}

async fn train(case: &Case, opener: Opener, runtime: Arc<dyn Runtime>, adapters: Vec<Info>) -> Result<Outcome> {
    let (model, objective) = (case.model(), case.objective());
    let rig = case.rig(&model, &objective).adapters(adapters).opener(opener).runtime(runtime);
    let mut scheduler = rig.open().await?;
    let state = scheduler.state().clone();
    let mut outcome = Outcome { reports: Vec::new(), norms: Vec::new(), rows: Vec::new(), state };
    for step in 0..case.steps {
        let report = scheduler.train(&case.batch(step), &case.numbers(step)).await?;
        assert!(report.is_applied, "step {step} was not applied");
        // In stages, each row is computed once in each.
        let n_stages = case.division.as_ref().map_or(1, |(nodes, _)| nodes.iter().max().map_or(1, |last| last + 1));
        let n_stages = u32::try_from(n_stages).unwrap();
        let rows: u32 = report.shards.iter().map(|shard| shard.rows).sum();
        outcome.rows.push(rows / n_stages);
        outcome.norms.push(report.gradient_norm);
        outcome.reports.push(report.reports);
        if case.division.is_none() {
            check_replicas(&mut scheduler, step).await?;
        }
    }
    outcome.state = scheduler.sync().await?.clone();
    Ok(outcome)
}

/// All adapters that take part hold the bits of the host's state.
async fn check_replicas(scheduler: &mut Scheduler, step: u64) -> Result<()> {
    let state = scheduler.sync().await?.clone();
    for (adapter_idx, is_there) in scheduler.active().into_iter().enumerate() {
        for (role, wanted) in
            [(Role::Parameters(0), &state.weights.parameters[0]), (Role::Statistics, &state.weights.statistics)]
        {
            // One that was lost since the step can't be read; the next step finds that out.
            let Some(got) = scheduler.read(adapter_idx, role).await.ok().filter(|_| is_there) else { continue };
            assert!(got.iter().all(|value| value.is_finite()), "{role:?} of {adapter_idx} is not finite: step {step}");
            assert!(is_same(&got, wanted), "{role:?} of adapter {adapter_idx} differs after step {step}");
        }
    }
    Ok(())
}

fn is_same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Virtual time within which every run must end, whatever happens: ten hours.
const LIMIT_MS: f64 = 36e6;

fn simulated(case: &Case) -> Result<Outcome> {
    let mut world = World::seeded(case.adapters.clone(), case.seed);
    let (opener, runtime, adapters) = (world.opener(), world.runtime(), world.adapters());
    world.run(LIMIT_MS, train(case, opener, runtime, adapters))?
}

/// A run by the kernels' twins alone: all rows at once, no scheduler, the update as the device has it.
fn reference(case: &Case) -> Outcome {
    let (model, objective) = (case.model(), case.objective());
    let plan = Arc::new(model.plan(&objective).unwrap());
    let rows = u32::try_from(case.rows).unwrap();
    let mut machine = Interpreter::new(plan.clone(), rows);
    machine.write(Role::Parameters(0), 0, &model.weights.parameters[0]);
    machine.write(Role::Statistics, 0, &model.weights.statistics);
    let state = TrainingState::new(model.weights.clone(), model.layout(), &objective.optimizer);
    let mut outcome = Outcome { reports: Vec::new(), norms: Vec::new(), rows: Vec::new(), state };
    for step in 0..case.steps {
        let hyper = objective.optimizer.hyper(LEARNING_RATE, step + 1);
        let loss_scales = case.loss_scales();
        let step = u32::try_from(step).unwrap();
        let numbers = Scalars { rows, batch_rows: rows, seed: RUN_SEED, step, ..Scalars::default() };
        let scalars = Scalars { loss_scales, hyper, ..numbers };
        feed(&mut machine, &case.batch(u64::from(step)));
        run(&mut machine, Pass::Train, &scalars);
        outcome.reports.push(machine.results(Pass::Train, rows));
        outcome.norms.push(global_norm(machine.read(Role::Gradients(0))));
        outcome.rows.push(rows);
        run(&mut machine, Pass::Update, &scalars);
    }
    outcome.state.weights.parameters[0] = machine.read(Role::Parameters(0)).to_vec();
    outcome.state.weights.statistics = machine.read(Role::Statistics).to_vec();
    for kind in 0..outcome.state.optimizer.len() {
        outcome.state.optimizer[kind][0] = machine.read(Role::State(u32::try_from(kind).unwrap(), 0)).to_vec();
    }
    outcome
}

fn feed(machine: &mut Interpreter, batch: &Batch) {
    machine.write(Role::Input(0), 0, &batch.inputs[0]);
    for (output, target) in (0..).zip(&batch.targets) {
        machine.write(Role::Target(output), 0, target);
        let weights = batch.sample_weights.clone().unwrap_or_else(|| vec![1.0; batch.rows].into());
        machine.write(Role::SampleWeight(output), 0, &weights);
    }
}

fn run(machine: &mut Interpreter, pass: Pass, scalars: &Scalars) {
    for command in machine.plan().commands(pass) {
        if let Command::Dispatch(dispatch) = command {
            machine.dispatch(dispatch, scalars);
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a norm is compared as f32")]
fn global_norm(gradients: &[f32]) -> f32 {
    gradients.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt() as f32
}

/// Rounding of sums in another order, through some steps.
const TOLERANCE: f64 = 2e-4;

fn assert_as_one_adapter(case: &Case, got: &Outcome) {
    let rows = u32::try_from(case.rows).unwrap();
    assert!(got.rows.iter().all(|step| *step == rows), "rows of the steps: {:?}, not {rows}", got.rows);
    for values in got.reports.iter().flatten() {
        assert!(values.iter().all(|value| value.is_finite()), "a loss is not finite");
        assert_eq!(values.len(), 2 * case.rows, "a row is missing, or there twice");
    }
    if case.depends_on_split() {
        return;
    }
    let wanted = reference(case);
    // Two classes with almost the same prediction may change places by rounding: in one row of a run, by one place, or by half of one
    // where one side has them equal.
    let mut changes = 1;
    for (step, (got, wanted)) in got.reports.iter().zip(&wanted.reports).enumerate() {
        for (got, wanted) in got.iter().zip(wanted) {
            let mut got = got.clone();
            for (got, wanted) in got.iter_mut().zip(wanted).skip(1).step_by(2) {
                if changes > 0 && [0.5, 1.0].contains(&(*got - wanted).abs()) {
                    changes -= 1;
                    *got = *wanted;
                }
            }
            assert_close(&format!("losses of step {step}"), &got, wanted, TOLERANCE);
        }
    }
    assert_close("norms", &got.norms, &wanted.norms, TOLERANCE);
    assert_close("parameters", &got.state.weights.parameters[0], &wanted.state.weights.parameters[0], TOLERANCE);
    assert_close("statistics", &got.state.weights.statistics, &wanted.state.weights.statistics, TOLERANCE);
    for (got, wanted) in got.state.optimizer.iter().zip(&wanted.state.optimizer) {
        assert_close("optimizer state", &got[0], &wanted[0], TOLERANCE);
    }
}

fn spec() -> impl Strategy<Value = AdapterSpec> {
    let link = prop::option::of(1e-5..1e-3);
    (0.0..30.0, 0.001..20.0, 0.0..0.3, link, 0.0..2.0).prop_map(|(fixed_ms, per_row_ms, jitter, gb_s, latency_ms)| {
        AdapterSpec {
            jitter,
            upload_gb_s: gb_s,
            download_gb_s: gb_s,
            latency_ms,
            ..AdapterSpec::new("sim", fixed_ms, per_row_ms)
        }
    })
}

fn fault(is_out_of_memory_possible: bool) -> impl Strategy<Value = InjectedFault> {
    let number = 0..9_u64;
    let at = prop_oneof![
        (0.1..20_000.0).prop_map(|ms| Trigger::Time { ms }),
        (number.clone(), 0.0..=1.0).prop_map(|(number, progress)| Trigger::Run { number, progress }),
        (1..4_u64).prop_map(|number| Trigger::Load { number }),
    ];
    let pause = (1.0..30_000.0).prop_map(|ms| FaultKind::Pause { ms });
    let last = if is_out_of_memory_possible { FaultKind::OutOfMemory } else { FaultKind::Lost };
    let what = prop_oneof![Just(FaultKind::Lost), Just(FaultKind::Hang), pause, Just(last)];
    (at, what).prop_map(|(at, what)| InjectedFault { at, what })
}

fn split(n_adapters: usize, rows: usize, steps: u64) -> impl Strategy<Value = SplitMode> {
    let parts = prop::collection::vec(0..4_u32, n_adapters);
    let usable = parts.clone().prop_filter("some part", |parts| parts.iter().sum::<u32>() > 0);
    let one =
        (0..n_adapters).prop_map(move |only| (0..n_adapters).map(|idx| f64::from(u8::from(idx == only))).collect());
    let cuts = prop::collection::vec(prop::collection::vec(0..=rows, n_adapters - 1), usize::try_from(steps).unwrap());
    let recorded = cuts.prop_map(move |cuts| cuts.into_iter().map(|cuts| between(cuts, rows)).collect::<Vec<_>>());
    prop_oneof![
        Just(SplitMode::Learned),
        Just(SplitMode::Even),
        usable.prop_map(|parts| SplitMode::Fixed(parts.into_iter().map(f64::from).collect())),
        one.prop_map(SplitMode::Fixed),
        recorded.prop_map(|steps| SplitMode::Recorded(Arc::new(steps))),
    ]
}

/// Shares between cuts of `0..rows`.
fn between(mut cuts: Vec<usize>, rows: usize) -> Vec<u32> {
    cuts.sort_unstable();
    cuts.insert(0, 0);
    cuts.push(rows);
    cuts.windows(2).map(|pair| u32::try_from(pair[1] - pair[0]).unwrap()).collect()
}

fn optimizer() -> impl Strategy<Value = Optimizer> {
    // A large epsilon: else rounding errors of gradients near 0 become whole steps.
    let adam = Optimizer::from(Adam {
        learning_rate: LEARNING_RATE,
        beta_1: 0.9,
        beta_2: 0.99,
        epsilon: 0.1,
        ..Adam::default()
    });
    prop_oneof![Just(Optimizer::sgd(LEARNING_RATE, 0.0)), Just(Optimizer::sgd(LEARNING_RATE, 0.9)), Just(adam)]
}

/// Any run. With `faults`, each adapter may meet up to two.
fn case(faults: usize) -> impl Strategy<Value = Case> {
    let family = prop::sample::select(FAMILIES.as_slice());
    let sizes = (family, 1..6_usize, 1..40_usize, 1..5_u64, 1..5_usize);
    sizes.prop_flat_map(move |(family, width, rows, steps, n_adapters)| {
        let is_coupled = family == Family::NormOfBatch;
        let adapters = prop::collection::vec(spec(), n_adapters);
        let faults = prop::collection::vec(prop::collection::vec(fault(!is_coupled), 0..=faults), n_adapters);
        let parts = if is_coupled { 1..2_u32 } else { 1..4_u32 };
        let capacity = if is_coupled { rows..rows + 1 } else { 1..rows + 1 };
        let loss = (any::<bool>(), optimizer(), prop_oneof![Just(0.0_f32), Just(0.2)]);
        (adapters, faults, split(n_adapters, rows, steps), parts, capacity, loss, any::<u64>()).prop_map(
            move |(mut adapters, faults, split, accumulation_steps, capacity, loss, seed)| {
                adapters.iter_mut().zip(faults).for_each(|(adapter, faults)| adapter.faults = faults);
                if n_adapters == 1 && (accumulation_steps == 1 || family != Family::NormOfShard) {
                    // A rig of one adapter updates on it: its loss, or a failed update (after the parts of each step), is
                    // the trainer's to mend.
                    let parts = u64::from(accumulation_steps).min(rows as u64);
                    adapters[0].faults.retain(|fault| {
                        let is_training = |number: u64| number % (parts + 1) < parts;
                        let is_training = matches!(fault.at, Trigger::Run { number, .. } if is_training(number));
                        is_training && fault.what == FaultKind::OutOfMemory
                    });
                }
                let (is_weighted, optimizer, clip_norm) = loss;
                let capacity = if n_adapters == 1 { rows } else { capacity };
                let capacity = u32::try_from(capacity).unwrap();
                Case {
                    family,
                    width,
                    rows,
                    steps,
                    adapters,
                    split,
                    accumulation_steps,
                    capacity,
                    is_weighted,
                    optimizer,
                    clip_norm,
                    seed,
                    division: None,
                }
            },
        )
    })
}

fn check(cases: u32, strategy: impl Strategy<Value = Case>, test: impl Fn(&Case)) {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
    TestRunner::new(config)
        .run(&strategy, |case| {
            test(&case);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

fn is_as_one_adapter(case: &Case) {
    assert_as_one_adapter(case, &simulated(case).unwrap());
}

/// Other speeds, other links, other noise: another finishing order.
fn order_does_not_matter(case: &Case) {
    if case.split == SplitMode::Learned {
        return;
    }
    let mut other = case.clone();
    other.adapters.reverse();
    other.seed = case.seed;
    for adapter in &mut other.adapters {
        adapter.per_row_ms = adapter.per_row_ms.map(|ms| 7.0 / ms.max(0.1));
        adapter.slowdowns.push(Slowdown { from_ms: 5.0, to_ms: 50.0, factor: 9.0 });
    }
    assert!(simulated(case).unwrap() == simulated(&other).unwrap(), "some bits differ");
}

#[test]
fn nobody_counts_as_silent_while_it_waits_for_the_slowest() {
    let slow = AdapterSpec::new("slow", 0.0, 5_000.0);
    let case = Case {
        family: Family::NormOfBatch,
        width: 3,
        rows: 16,
        steps: 3,
        adapters: vec![AdapterSpec::new("fast", 0.0, 0.01), slow],
        split: SplitMode::Even,
        accumulation_steps: 1,
        capacity: 16,
        is_weighted: false,
        optimizer: Optimizer::sgd(0.1, 0.0),
        clip_norm: 0.0,
        seed: 1,
        division: None,
    };
    let mut world = World::seeded(case.adapters.clone(), case.seed);
    let (opener, runtime, adapters) = (world.opener(), world.runtime(), world.adapters());
    let steps = async {
        let (model, objective) = (case.model(), case.objective());
        let rig = case.rig(&model, &objective).adapters(adapters).opener(opener).runtime(runtime);
        let mut scheduler = rig.open().await?;
        for step in 0..case.steps {
            scheduler.train(&case.batch(step), &case.numbers(step)).await?;
            assert!(scheduler.active().iter().all(|is_there| *is_there), "lost after step {step}");
        }
        Ok(())
    };
    let done: Result<Result<()>> = world.run(LIMIT_MS, steps);
    done.unwrap().unwrap();
}

#[test]
fn any_split_gives_the_weights_of_one_adapter() {
    check(3_000, case(0), is_as_one_adapter);
}

#[test]
fn the_finishing_order_changes_no_bit() {
    check(1_500, case(0), order_does_not_matter);
}

#[test]
fn any_troubles_give_the_weights_of_one_adapter() {
    check(6_000, case(2), is_as_one_adapter);
}

#[test]
#[ignore = "ten minutes: ten times the cases of the tests above"]
fn many_more_cases() {
    check(30_000, case(0), is_as_one_adapter);
    check(15_000, case(0), order_does_not_matter);
    check(60_000, case(3), is_as_one_adapter);
}

#[test]
fn real_cpu_adapters_give_the_weights_of_one_adapter() {
    check(200, case(0), |case| {
        let infos = vec![adapters::cpu::info(); case.adapters.len()];
        let outcome = pollster::block_on(train(case, Arc::new(adapters::open), Arc::new(Native), infos)).unwrap();
        assert_as_one_adapter(case, &outcome);
    });
}
