//! On an adapter that is alone the next step begins before this one is reported: does anybody notice?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manyhands::adapters::{Info, Kind};
use manyhands::callbacks::Callback;
use manyhands::data::{Batch, InMemory, digits};
use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten};
use manyhands::logs::StepLog;
use manyhands::{
    Checkpoint, Compile, Error, Existing, Fit, Loss, Model, NonFinite, Optimizer, Result, SaveSettings, Schedule,
    Sequential, Trainer,
};
use manyhands_engine::adapters::{self, Request};
use ndarray::Array;

use crate::breakable::breakable;

const EPOCHS: u64 = 2;

fn model() -> Model {
    Sequential::new([8, 8, 1])
        .add(Conv2D::new(4, [3, 3]))
        .add(BatchNormalization::new().momentum(0.9))
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(3)
        .unwrap()
}

fn compile() -> Compile {
    let schedule = Schedule::CosineDecay { decay_steps: 40, warmup_steps: 5, alpha: 0.1 };
    Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY).schedule(schedule)
}

fn trainer(info: &Info) -> Trainer {
    Trainer::new(model(), compile()).unwrap().on(vec![info.clone()])
}

fn fit() -> Fit {
    Fit::new(EPOCHS).batch_size(64)
}

/// The CPU adapter, and the first other one of the machine.
fn alone() -> Vec<Info> {
    let list = adapters::list();
    let other = list.into_iter().find(|info| info.kind != Kind::Cpu);
    std::iter::once(adapters::cpu::info()).chain(other).collect()
}

/// What steps said: number, batch, loss and learning rate.
type Steps = Vec<(u64, usize, f64, f32)>;

/// Notes what it is told, and does something at a step.
struct Watch<'a> {
    steps: Steps,
    at: u64,
    act: &'a mut dyn FnMut() -> Result<()>,
}

impl Callback for Watch<'_> {
    fn on_step(&mut self, log: &StepLog) -> Result<()> {
        self.steps.push((log.step, log.batch, log.values.get("loss").unwrap_or(f64::NAN), log.learning_rate));
        if log.step == self.at { (self.act)() } else { Ok(()) }
    }
}

/// Trains, with something done once at a step.
fn train(trainer: &mut Trainer, fit: &Fit, at: u64, act: &mut dyn FnMut() -> Result<()>) -> (Steps, Result<()>) {
    let mut watch = Watch { steps: Vec::new(), at, act };
    let result = trainer.fit_with(digits::train().unwrap(), fit, &mut [&mut watch]);
    (watch.steps, result.map(|_| ()))
}

fn bits(trainer: &Trainer) -> Vec<u32> {
    let weights = &trainer.model().weights;
    weights.parameters.iter().flatten().chain(&weights.statistics).map(|value| value.to_bits()).collect()
}

/// Trains step by step, each reported before the next begins.
fn one_by_one(info: &Info) -> (Steps, Vec<u32>) {
    let mut trainer = trainer(info);
    let steps = pollster::block_on(async {
        let mut session = trainer.asynchronous().session(digits::train().unwrap(), fit()).await.unwrap();
        let mut steps = Vec::new();
        for _ in 0..EPOCHS {
            while let Some(log) = session.step_async(&mut trainer).await.unwrap() {
                steps.push((log.step, log.batch, log.values.get("loss").unwrap_or(f64::NAN), log.learning_rate));
            }
            session.end_epoch_async(&mut trainer).await.unwrap();
        }
        steps
    });
    (steps, bits(&trainer))
}

#[test]
fn steps_and_weights_are_those_of_one_step_at_a_time() {
    for info in alone() {
        let (steps, weights) = one_by_one(&info);
        let mut ahead = trainer(&info);
        let (seen, result) = train(&mut ahead, &fit(), 0, &mut || Ok(()));
        result.unwrap();
        assert_eq!(seen, steps, "{}", info.name);
        assert_eq!(bits(&ahead), weights, "{}", info.name);
    }
}

#[test]
fn a_run_that_is_stopped_has_told_all_its_steps_and_goes_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    for info in alone() {
        let (steps, weights) = one_by_one(&info);
        let path = folder.path().join("run.safetensors");
        let save = SaveSettings::new(path).every_steps(4).existing(Existing::Overwrite);
        let stop = Arc::new(AtomicBool::new(false));
        let fit = fit().save_with(save.clone()).stop(stop.clone());
        let mut stopped = trainer(&info);
        let (seen, result) = train(&mut stopped, &fit, 6, &mut || {
            stop.store(true, Ordering::Relaxed);
            Ok(())
        });
        result.unwrap();
        assert!(matches!(seen.len(), 6 | 7), "{} steps", seen.len());
        assert_eq!((seen.as_slice(), stopped.progress().step), (&steps[..seen.len()], seen.len() as u64));
        stop.store(false, Ordering::Relaxed);
        let mut resumed = trainer(&info);
        resumed.resume(Checkpoint::load(&save.path).unwrap()).unwrap();
        let (rest, result) = train(&mut resumed, &fit, 0, &mut || Ok(()));
        result.unwrap();
        assert_eq!([seen, rest].concat(), steps, "{}", info.name);
        assert_eq!(bits(&resumed), weights, "{}", info.name);
    }
}

#[test]
fn after_an_error_of_a_callback_position_and_weights_are_one() {
    for info in alone() {
        let (_, weights) = one_by_one(&info);
        let mut trainer = trainer(&info);
        let (seen, result) =
            train(&mut trainer, &fit(), 5, &mut || Err(Error::setting("a test", "stops here", "none")));
        assert!(result.is_err() && seen.len() == 5);
        // What was under way counts.
        let (rest, result) = train(&mut trainer, &fit(), 0, &mut || Ok(()));
        result.unwrap();
        assert!(matches!(rest[0].0, 6 | 7), "goes on with step {}", rest[0].0);
        assert_eq!(bits(&trainer), weights, "{}", info.name);
    }
}

/// The first digits, one row of which is too large to compute with.
fn spoilt(row: usize) -> InMemory {
    let rows: Vec<usize> = (0..640).collect();
    let batch = Batch::fetch(&digits::train().unwrap(), &rows).unwrap();
    let mut images = batch.inputs[0].to_vec();
    images[row * 64..][..64].fill(3e38);
    let images = Array::from_shape_vec((rows.len(), 8, 8, 1), images).unwrap();
    InMemory::new(images, Array::from(batch.targets[0].to_vec())).unwrap()
}

#[test]
fn a_step_that_is_not_finite_is_named_though_the_next_is_under_way() {
    for info in alone() {
        let fit = Fit::new(1).batch_size(64).in_order();
        let run = |non_finite| {
            let compile = compile().non_finite(non_finite);
            let mut trainer = Trainer::new(model(), compile).unwrap().on(vec![info.clone()]);
            let mut watch = Watch { steps: Vec::new(), at: 0, act: &mut || Ok(()) };
            let result = trainer.fit_with(spoilt(3 * 64 + 7), &fit, &mut [&mut watch]);
            (watch.steps, result, trainer)
        };
        let (_, result, skipping) = run(NonFinite::Skip);
        result.unwrap();
        let (steps, result, mut stopped) = run(NonFinite::Stop);
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("training step 4 on adapter 0") && steps.len() == 3, "{error}");
        // The step that was under way counts, and so does the one before it.
        assert_eq!((stopped.progress().step, stopped.progress().batch), (5, 5));
        stopped.fit(spoilt(3 * 64 + 7), &fit).unwrap();
        assert_eq!(bits(&stopped), bits(&skipping), "{}", info.name);
        let (steps, result, _) = run(NonFinite::Skip);
        result.unwrap();
        let spoilt: Vec<u64> = steps.iter().filter(|step| !step.2.is_finite()).map(|step| step.0).collect();
        assert_eq!((steps.len(), spoilt), (10, vec![4]), "{}", info.name);
    }
}

#[test]
fn a_lost_device_is_replaced_from_the_snapshot_with_a_step_under_way() {
    let info = adapters::cpu::info();
    let (steps, weights) = one_by_one(&info);
    let (opener, requests) = breakable();
    let (mut trainer, mut is_lost) = (trainer(&info).opener(opener), false);
    let (seen, result) = train(&mut trainer, &fit(), 9, &mut || {
        if !std::mem::replace(&mut is_lost, true) {
            requests.lock().unwrap().as_ref().unwrap().try_send(Request::Lose).unwrap();
        }
        Ok(())
    });
    result.unwrap();
    // From the snapshot at the epoch's beginning the steps are trained, and told, again.
    let again = seen.iter().skip(1).position(|step| step.0 == 1).unwrap() + 1;
    assert!(matches!(again, 9 | 10), "{again} steps before the loss was noticed");
    assert_eq!(seen[..again], steps[..again]);
    assert_eq!(seen[again..], steps);
    assert_eq!(bits(&trainer), weights);
}
