//! Batches that the caller brings: do they train as those of a loader do, and is none lost or told twice?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::{Arc, Mutex};

use manyhands::adapters::Info;
use manyhands::data::{Batch, digits};
use manyhands::layers::{BatchNormalization, Dense, Flatten};
use manyhands::logs::StepLog;
use manyhands::scheduler::TrainingState;
use manyhands::{Compile, Fit, Loss, Optimizer, Placement, Sequential, Trainer};
use manyhands_engine::adapters::Request;

use crate::breakable::breakable;

const ROWS: usize = 64;
const STEPS: usize = 22;

fn trainer(n_adapters: usize) -> Trainer {
    let layers = Sequential::new([8, 8, 1]).add(Flatten::default()).add(BatchNormalization::new().synchronized());
    let model = layers.add(Dense::new(10)).build(3).unwrap();
    let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    Trainer::new(model, compile).unwrap().on(vec![Info::cpu(); n_adapters])
}

/// Two stages, each on an adapter of its own.
fn staged() -> Trainer {
    let layers = Sequential::new([8, 8, 1]).add(Flatten::default()).add_named("hidden", Dense::new(16));
    let model = layers.add_named("scores", Dense::new(10)).build(3).unwrap();
    let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    let placement = Placement::stages([(["..hidden"], [0]), (["scores"], [1])]);
    Trainer::new(model, compile).unwrap().on(vec![Info::cpu(); 2]).placement(placement)
}

fn batch(step: usize) -> Batch {
    let rows: Vec<usize> = (step * ROWS..(step + 1) * ROWS).collect();
    Batch::fetch(&digits::train().unwrap(), &rows).unwrap()
}

/// Trains on all batches, of which `ahead` are brought before the first is ended; `change` comes before each.
async fn train(trainer: &mut Trainer, ahead: usize, mut change: impl FnMut(usize)) -> Vec<StepLog> {
    let mut logs = Vec::new();
    for step in 0..STEPS {
        change(step);
        trainer.asynchronous().begin_on_batch(batch(step)).await.unwrap();
        if step + 1 >= ahead {
            logs.push(trainer.asynchronous().end_on_batch().await.unwrap());
        }
    }
    while logs.len() < STEPS {
        logs.push(trainer.asynchronous().end_on_batch().await.unwrap());
    }
    logs
}

async fn weights(trainer: &mut Trainer) -> Vec<f32> {
    let weights = &trainer.asynchronous().current_state().await.unwrap().weights;
    weights.parameters.iter().flatten().chain(&weights.statistics).copied().collect()
}

fn losses(logs: &[StepLog]) -> Vec<f64> {
    logs.iter().map(|log| log.values.get("loss").unwrap()).collect()
}

#[test]
fn batches_train_as_those_of_a_loader() {
    let mut by_loader = trainer(1);
    by_loader.fit(digits::train().unwrap(), &Fit::new(1).batch_size(ROWS).in_order().drop_remainder()).unwrap();
    let expected = pollster::block_on(weights(&mut by_loader));
    for (n_adapters, ahead) in [(1, 1), (1, 2), (1, 3)] {
        let mut trainer = trainer(n_adapters);
        let logs = pollster::block_on(train(&mut trainer, ahead, |_| ()));
        assert_eq!(logs.iter().map(|log| log.step).collect::<Vec<_>>(), (1..=STEPS as u64).collect::<Vec<_>>());
        assert_eq!(pollster::block_on(weights(&mut trainer)), expected, "{ahead} ahead");
    }
    let mut three = trainer(3);
    pollster::block_on(train(&mut three, 2, |_| ()));
    let differences = pollster::block_on(weights(&mut three)).into_iter().zip(expected).map(|(a, b)| (a - b).abs());
    assert!(differences.fold(0.0, f32::max) < 1e-4);
}

#[test]
fn a_lost_adapter_costs_no_batch() {
    let mut whole = trainer(1);
    let expected = losses(&pollster::block_on(train(&mut whole, 2, |_| ())));
    for (at, ahead) in [(0, 1), (7, 1), (7, 2), (STEPS - 1, 2)] {
        let (opener, requests) = breakable();
        let mut broken = trainer(1).opener(opener);
        let lose = |step| {
            if step == at
                && let Some(adapter) = &*requests.lock().unwrap()
            {
                adapter.try_send(Request::Lose).unwrap();
            }
        };
        let logs = pollster::block_on(train(&mut broken, ahead, lose));
        assert_eq!(losses(&logs), expected, "lost at {at}, {ahead} ahead");
        assert_eq!(broken.progress().step, STEPS as u64);
        assert_eq!(pollster::block_on(weights(&mut broken)), pollster::block_on(weights(&mut whole)));
    }
}

#[test]
fn steps_of_a_lost_adapter_run_again_on_batches_that_are_made_again() {
    let mut whole = trainer(1);
    let expected = losses(&pollster::block_on(train(&mut whole, 1, |_| ())));
    let (opener, requests) = breakable();
    let mut broken = trainer(1).opener(opener);
    let remade = Arc::new(Mutex::new(Vec::new()));
    let logs: Vec<_> = (0..STEPS)
        .map(|step| {
            pollster::block_on(async {
                if step == 7
                    && let Some(adapter) = &*requests.lock().unwrap()
                {
                    adapter.try_send(Request::Lose).unwrap();
                }
                let note = remade.clone();
                let remake = move || {
                    note.lock().unwrap().push(step);
                    Ok(batch(step))
                };
                let checked = broken.batch_check().check(batch(step)).unwrap().remade_by(remake);
                broken.asynchronous().begin_checked_on_batch(checked).await.unwrap();
                broken.asynchronous().end_on_batch().await.unwrap()
            })
        })
        .collect();
    assert_eq!(losses(&logs), expected);
    assert_eq!(*remade.lock().unwrap(), (0..7).collect::<Vec<_>>(), "the batch that waits is held");
    assert_eq!(pollster::block_on(weights(&mut broken)), pollster::block_on(weights(&mut whole)));
}

#[test]
fn steps_that_nobody_has_asked_for_are_in_the_state() {
    pollster::block_on(async {
        let (mut one, mut other) = (trainer(1), trainer(1));
        for step in 0..2 {
            one.asynchronous().begin_on_batch(batch(step)).await.unwrap();
        }
        let early = weights(&mut one).await;
        let logs = [one.asynchronous().end_on_batch().await.unwrap(), one.asynchronous().end_on_batch().await.unwrap()];
        let expected = [
            other.asynchronous().train_on_batch(batch(0)).await.unwrap(),
            other.asynchronous().train_on_batch(batch(1)).await.unwrap(),
        ];
        assert_eq!(losses(&logs), losses(&expected));
        // A second step may have waited for the first, and is then no part of it.
        let later = weights(&mut one).await;
        assert_eq!(later, weights(&mut other).await);
        assert!(early == later || one.progress().step == 2);
    });
}

#[test]
fn a_state_of_another_trainer_goes_on() {
    pollster::block_on(async {
        let (mut one, mut other) = (trainer(1), trainer(1));
        for step in 0..5 {
            one.asynchronous().train_on_batch(batch(step)).await.unwrap();
        }
        let state = one.asynchronous().current_state().await.unwrap().clone();
        other.asynchronous().set_state(state, 5).await.unwrap();
        let logs = [
            one.asynchronous().train_on_batch(batch(5)).await.unwrap(),
            other.asynchronous().train_on_batch(batch(5)).await.unwrap(),
        ];
        assert_eq!(logs[0].values.get("loss"), logs[1].values.get("loss"));
        assert_eq!(weights(&mut one).await, weights(&mut other).await);
        let error = other.asynchronous().set_state(TrainingState::default(), 0).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "the new state needs the tensors of this model and optimizer, but has others\n  \
             help: begin with `TrainingState::new`, and fill it"
        );
    });
}

#[test]
fn a_batch_that_does_not_fit_is_refused_and_costs_nothing() {
    let mut trainer = trainer(1);
    let refused = |trainer: &mut Trainer, batch: Batch| trainer.train_on_batch(batch).unwrap_err().to_string();
    let good = batch(0);
    let short = Batch { inputs: vec![good.inputs[0][1..].into()], ..good.clone() };
    assert_eq!(
        refused(&mut trainer, short),
        "input `input` needs 64 values for each of 64 rows, but the batch has 4095 in all\n  \
         help: reshape the data, or change the model's input or last layer to fit it"
    );
    let labels = Batch { targets: vec![vec![10.0; ROWS].into()], ..good.clone() };
    assert_eq!(
        refused(&mut trainer, labels),
        "target 0 needs labels from 0 to 9, but row 0 has label 10\n  \
         help: labels count from 0; give the last layer as many units as there are classes, now 10"
    );
    let mut values = good.inputs[0].to_vec();
    values[65] = f32::NAN;
    let text = refused(&mut trainer, Batch { inputs: vec![values.into()], ..good.clone() });
    assert!(text.starts_with("input 0 needs finite numbers, but row 1, column 1 holds NaN"), "{text}");
    assert_eq!(trainer.train_on_batch(good.clone()).unwrap().step, 1);
    assert_eq!(
        pollster::block_on(trainer.asynchronous().end_on_batch()).unwrap_err().to_string(),
        "a training step to end needs a batch in flight, but there is none\n  help: call `begin_on_batch` first"
    );
    let loss = trainer.test_on_batch(&good).unwrap().get("loss").unwrap();
    assert!(loss.is_finite() && trainer.predict_on_batch(&good).unwrap()[0].len() == ROWS * 10);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a thread that reads batches, as the binding of Python has")]
fn a_batch_that_a_thread_has_checked_trains_as_others() {
    pollster::block_on(async {
        let (mut one, mut other) = (trainer(1), trainer(1));
        let check = one.batch_check();
        let labels = Batch { targets: vec![vec![10.0; ROWS].into()], ..batch(0) };
        let error = check.check(labels).unwrap_err().to_string();
        assert!(error.starts_with("target 0 needs labels from 0 to 9, but row 0 has label 10"), "{error}");
        let checked =
            std::thread::spawn(move || (0..3).map(|step| check.check(batch(step)).unwrap()).collect::<Vec<_>>());
        for (step, batch_of_step) in checked.join().unwrap().into_iter().enumerate() {
            one.asynchronous().begin_checked_on_batch(batch_of_step).await.unwrap();
            one.asynchronous().end_on_batch().await.unwrap();
            other.asynchronous().train_on_batch(batch(step)).await.unwrap();
        }
        assert_eq!(weights(&mut one).await, weights(&mut other).await);
        let smaller = Sequential::new([4]).add(Dense::new(10)).build(0).unwrap();
        let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        let mut smaller = Trainer::new(smaller, compile).unwrap().on(vec![Info::cpu()]);
        let foreign = one.batch_check().check(batch(0)).unwrap();
        let error = smaller.asynchronous().begin_checked_on_batch(foreign).await.unwrap_err().to_string();
        assert!(error.starts_with("input `input` needs 4 values for each of 64 rows"), "{error}");
    });
}

/// Evaluation and prediction in between run on the adapters that are open for training.
#[test]
fn batches_go_through_stages_in_micro_batches() {
    let mut by_loader = staged();
    let fit = Fit::new(1).batch_size(ROWS).in_order().drop_remainder().micro_batches(4);
    by_loader.fit(digits::train().unwrap(), &fit).unwrap();
    let mut brought = staged().micro_batches(4);
    pollster::block_on(async {
        let before = brought.asynchronous().test_on_batch(&batch(0)).await.unwrap();
        let logs = train(&mut brought, 2, |_| ()).await;
        assert!((before.get("loss").unwrap() - losses(&logs)[0]).abs() < 1e-6, "{before:?}");
        assert_eq!(weights(&mut brought).await, weights(&mut by_loader).await);
        let outputs = brought.asynchronous().predict_on_batch(&batch(1)).await.unwrap();
        assert_eq!(outputs, by_loader.asynchronous().predict_on_batch(&batch(1)).await.unwrap());
    });
}
