//! The only adapter is lost between training steps, where nobody waits for a gradient: what is kept?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manyhands::data::{Batch, BatchMut, ByteImages, Dataset, InMemory, digits};
use manyhands::layers::{BatchNormalization, Dense, Flatten};
use manyhands::logs::StepLog;
use manyhands::{Compile, Fit, History, Loss, Model, Optimizer, Result, Sequential, Session, Shape, Trainer};
use manyhands_engine::adapters::{self, Request};
use ndarray::{Array, ArrayD};

use crate::breakable::{Requests, breakable};

const ROWS: usize = 64;
/// Steps of an epoch.
const STEPS: u64 = 23;

fn model() -> Model {
    let layers = Sequential::new([8, 8, 1]).add(Flatten::default()).add(BatchNormalization::new().momentum(0.9));
    layers.add(Dense::new(10)).build(3).unwrap()
}

fn compile() -> Compile {
    Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY)
}

/// A trainer on the CPU adapter alone.
fn trainer() -> Trainer {
    Trainer::new(model(), compile()).unwrap().on(vec![adapters::cpu::info()])
}

/// A run after some steps that nothing disturbed.
async fn trained(n_steps: u64) -> (Trainer, Session) {
    let mut trainer = trainer();
    let mut session =
        trainer.asynchronous().session(digits::train().unwrap(), Fit::new(1).batch_size(ROWS)).await.unwrap();
    steps(&mut session, &mut trainer, n_steps).await;
    (trainer, session)
}

async fn steps(session: &mut Session, trainer: &mut Trainer, n_steps: u64) -> Vec<StepLog> {
    let mut logs = Vec::new();
    for _ in 0..n_steps {
        logs.push(session.step_async(trainer).await.unwrap().unwrap());
    }
    logs
}

async fn weights(trainer: &mut Trainer) -> Vec<f32> {
    let weights = &trainer.asynchronous().current_model().await.unwrap().weights;
    weights.parameters.iter().flatten().chain(&weights.statistics).copied().collect()
}

/// The outputs for the test digits, and the weights behind them, after some steps that nothing disturbs.
fn undisturbed(n_steps: u64) -> (ArrayD<f32>, Vec<f32>) {
    pollster::block_on(async {
        let (mut trainer, _) = trained(n_steps).await;
        let outputs = trainer.asynchronous().predict(Arc::new(digits::test().unwrap()), ROWS).await.unwrap();
        (outputs[0].clone(), weights(&mut trainer).await)
    })
}

fn lose(trainer: &mut Trainer) {
    trainer.scheduler().unwrap().handle(0).requests.try_send(Request::Lose).unwrap();
}

#[test]
fn a_prediction_goes_back_to_the_snapshot_and_so_does_training() {
    pollster::block_on(async {
        let (mut trainer, mut session) = trained(5).await;
        lose(&mut trainer);
        let outputs = trainer.asynchronous().predict(Arc::new(digits::test().unwrap()), ROWS).await.unwrap();
        assert_eq!(outputs[0], undisturbed(0).0);
        let again = steps(&mut session, &mut trainer, 7).await;
        assert_eq!(again.iter().map(|log| log.step).collect::<Vec<_>>(), (1..=7).collect::<Vec<_>>());
        assert_eq!(weights(&mut trainer).await, undisturbed(7).1);
    });
}

#[test]
fn weights_that_can_not_be_read_any_more_are_those_of_the_snapshot() {
    pollster::block_on(async {
        let (mut trainer, mut session) = trained(5).await;
        lose(&mut trainer);
        assert_eq!(weights(&mut trainer).await, undisturbed(0).1);
        assert_eq!(steps(&mut session, &mut trainer, 3).await[0].step, 1);
        assert_eq!(weights(&mut trainer).await, undisturbed(3).1);
    });
}

/// Micro-batches, whose gradients the only adapter adds, are updated there, too.
#[test]
fn steps_in_micro_batches_come_again_after_a_loss() {
    let run = async |is_lost: bool| {
        let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(3).unwrap();
        let mut trainer = Trainer::new(model, compile()).unwrap().on(vec![adapters::cpu::info()]);
        let fit = Fit::new(1).batch_size(ROWS).micro_batches(3);
        let mut session = trainer.asynchronous().session(digits::train().unwrap(), fit).await.unwrap();
        let before = if is_lost { 5 } else { 0 };
        steps(&mut session, &mut trainer, before).await;
        if is_lost {
            lose(&mut trainer);
        }
        let logs = steps(&mut session, &mut trainer, 7).await;
        assert_eq!(logs.iter().map(|log| log.step).collect::<Vec<_>>(), (1..=7).collect::<Vec<_>>());
        weights(&mut trainer).await
    };
    pollster::block_on(async { assert_eq!(run(true).await, run(false).await) });
}

#[test]
fn what_was_read_is_not_lost_with_the_adapter() {
    pollster::block_on(async {
        let (mut trainer, mut session) = trained(5).await;
        let before = weights(&mut trainer).await;
        lose(&mut trainer);
        let outputs = trainer.asynchronous().predict(Arc::new(digits::test().unwrap()), ROWS).await.unwrap();
        assert_eq!((&outputs[0], &before), (&undisturbed(5).0, &undisturbed(5).1));
        assert_eq!(steps(&mut session, &mut trainer, 1).await[0].step, 6);
    });
}

#[test]
fn the_settings_of_a_session_outlive_its_adapter() {
    pollster::block_on(async {
        let (mut trainer, mut session) = trained(10).await;
        session.set_batch_size(&mut trainer, 256).unwrap();
        steps(&mut session, &mut trainer, 1).await;
        trainer.set_learning_rate(1e-3);
        lose(&mut trainer);
        // From the beginning, but with the batch size and the rate of now.
        let rest = steps(&mut session, &mut trainer, 6).await;
        let seen: Vec<(u64, usize)> = rest.iter().map(|log| (log.step, log.rows)).collect();
        assert_eq!(seen, [(1, 256), (2, 256), (3, 256), (4, 256), (5, 256), (6, 157)]);
        assert!(rest.iter().all(|log| log.learning_rate == 1e-3));
        assert!(session.step_async(&mut trainer).await.unwrap().is_none());
    });
}

#[test]
fn a_batch_size_that_changes_at_rest_keeps_the_way_back() {
    pollster::block_on(async {
        let (mut trainer, mut session) = trained(5).await;
        session.set_batch_size(&mut trainer, 2 * ROWS).unwrap();
        lose(&mut trainer);
        let outputs = trainer.asynchronous().predict(Arc::new(digits::test().unwrap()), ROWS).await.unwrap();
        assert_eq!(outputs[0], undisturbed(0).0);
        // The loader stands at the fifth batch: the position is that of the weights all the same.
        session.set_batch_size(&mut trainer, ROWS).unwrap();
        steps(&mut session, &mut trainer, 7).await;
        assert_eq!(weights(&mut trainer).await, undisturbed(7).1);
    });
}

#[test]
fn an_epoch_whose_steps_come_again_does_not_end() {
    pollster::block_on(async {
        let (mut trainer, mut session) = trained(STEPS).await;
        lose(&mut trainer);
        let error = session.end_epoch_async(&mut trainer).await.unwrap_err().to_string();
        assert!(error.contains("trained again") && trainer.progress().epoch == 0, "{error}");
        assert_eq!(steps(&mut session, &mut trainer, STEPS).await[0].step, 1);
        assert!(session.step_async(&mut trainer).await.unwrap().is_none());
        assert_eq!(session.end_epoch_async(&mut trainer).await.unwrap().step, STEPS);
        assert_eq!(weights(&mut trainer).await, undisturbed(STEPS).1);
    });
}

#[test]
fn an_adapter_that_is_lost_when_a_larger_batch_comes_is_replaced() {
    pollster::block_on(async {
        let (mut trainer, mut session) = trained(5).await;
        weights(&mut trainer).await;
        lose(&mut trainer);
        let outputs = trainer.asynchronous().predict(Arc::new(digits::test().unwrap()), 4 * ROWS).await.unwrap();
        assert_eq!(outputs[0], undisturbed(5).0);
        assert_eq!(steps(&mut session, &mut trainer, 1).await[0].step, 6);
    });
}

#[test]
fn an_export_is_a_copy_to_go_back_to() {
    pollster::block_on(async {
        let (mut trainer, mut session) = trained(5).await;
        weights(&mut trainer).await;
        lose(&mut trainer);
        assert_eq!(steps(&mut session, &mut trainer, 2).await[0].step, 6);
        assert_eq!(weights(&mut trainer).await, undisturbed(7).1);
    });
}

/// Data whose first row takes an adapter away when it is asked for.
struct Trap {
    images: ByteImages,
    requests: Requests,
    is_set: AtomicBool,
}

impl Dataset for Trap {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.images.input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.images.target_shapes()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        if let Some(requests) = &*self.requests.lock().unwrap()
            && rows[0] == 0
            && self.is_set.swap(false, Ordering::Relaxed)
        {
            requests.try_send(Request::Lose).unwrap();
        }
        self.images.fetch(rows, batch)
    }
}

fn validated(is_set: bool) -> (History, Vec<f32>) {
    let (opener, requests) = breakable();
    let trap = Trap { images: digits::test().unwrap(), requests, is_set: AtomicBool::new(is_set) };
    let mut trainer = trainer().opener(opener);
    let fit = Fit::new(2).batch_size(ROWS).validation(trap);
    let history = trainer.fit(digits::train().unwrap(), &fit).unwrap();
    assert_eq!(trainer.progress().step, 2 * STEPS);
    (history, pollster::block_on(weights(&mut trainer)))
}

#[test]
fn validation_loses_nothing() {
    let (calm, calm_weights) = validated(false);
    let (disturbed, disturbed_weights) = validated(true);
    let of = |history: &History, epoch: usize, name| history.epochs[epoch].values.get(name).unwrap();
    assert_eq!(of(&calm, 0, "val_loss"), of(&disturbed, 0, "val_loss"));
    assert!((of(&calm, 1, "loss") - of(&disturbed, 1, "loss")).abs() < 1e-4);
    let most = calm_weights.iter().zip(&disturbed_weights).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(most < 1e-4, "weights differ by {most}");
}

/// Digits, the first row of whose third batch is too large to compute with.
fn spoilt() -> InMemory {
    let rows: Vec<usize> = (0..4 * ROWS).collect();
    let batch = Batch::fetch(&digits::train().unwrap(), &rows).unwrap();
    let mut images = batch.inputs[0].to_vec();
    images[2 * ROWS * 64..][..64].fill(3e38);
    let images = Array::from_shape_vec((rows.len(), 8, 8, 1), images).unwrap();
    InMemory::new(images, Array::from(batch.targets[0].to_vec())).unwrap()
}

#[test]
fn a_session_stands_at_the_step_that_failed() {
    for n_adapters in [1, 2] {
        let mut trainer = Trainer::new(model(), compile()).unwrap().on(vec![adapters::cpu::info(); n_adapters]);
        pollster::block_on(async {
            let fit = Fit::new(1).batch_size(ROWS).in_order();
            let mut session = trainer.asynchronous().session(spoilt(), fit).await.unwrap();
            steps(&mut session, &mut trainer, 2).await;
            for _ in 0..2 {
                let error = session.step_async(&mut trainer).await.unwrap_err().to_string();
                assert!(error.starts_with("training step 3 "), "{error}");
                assert_eq!((trainer.progress().step, trainer.progress().batch), (2, 2));
            }
        });
    }
}
