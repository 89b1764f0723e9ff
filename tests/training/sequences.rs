//! Do recurrent layers train as in Keras, on any adapters, also where a sequence is longer than a submission?

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use manyhands::data::InMemory;
use manyhands::layers::{Dense, Embedding, Gru, Lstm};
use manyhands::{Compile, Fit, Loss, Model, Optimizer, Sequential, SplitMode, Trainer};
use ndarray::Array;

use crate::close::assert_close;
use crate::keras::{check_golden, on, rigs};

#[test]
fn ten_steps_with_masks_are_those_of_keras() {
    check_golden("recurrent");
}

#[test]
fn ten_steps_of_a_transformer_with_masks_are_those_of_keras() {
    check_golden("transformer");
}

/// Steps of a sequence whose dispatches, two and more each, are above the 1,024 of a submission.
const LONG: usize = 700;

fn long() -> Model {
    let graph = Sequential::new([LONG]).add(Embedding::new(30, 4).mask_zero()).add(Lstm::new(5).return_sequences());
    graph.add(Gru::new(4)).add(Dense::new(3)).build(3).unwrap()
}

/// Rows of different lengths, and of three classes.
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn rows() -> InMemory {
    let id = |(row, step): (usize, usize)| if step % (row + 2) == 0 { 0.0 } else { ((row * 7 + step * 5) % 30) as f32 };
    InMemory::new(Array::from_shape_fn((12, LONG), id), Array::from_shape_fn(12, |row| (row % 3) as f32)).unwrap()
}

#[test]
fn a_sequence_longer_than_a_submission_trains_alike_everywhere() {
    let weights = |rig: &str| {
        let compile = Compile::new(Optimizer::sgd(0.5, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
        let mut trainer = Trainer::new(long(), compile).unwrap().on(on(rig)).split(SplitMode::Even);
        trainer.fit(rows(), &Fit::new(2).batch_size(6).in_order()).unwrap();
        trainer.model().weights.parameters.concat()
    };
    let needed = weights("cpu");
    assert_ne!(needed, long().weights.parameters.concat(), "training moves the weights");
    for rig in rigs().into_iter().skip(1) {
        assert_close(&format!("weights after four steps on {rig}"), &weights(&rig), &needed, 1e-4);
    }
}
