//! A convolutional network with batch normalization learns to read handwritten digits.
//!
//!     cargo run --release --example 01_digits
//!
//! Trains on every GPU of the machine, or on the CPU where there is none. 1,437 images to train on and 360 to test
//! with are part of the crate.

#![allow(clippy::print_stdout, reason = "an example shows its numbers")]

use manyhands::data::digits;
use manyhands::layers::{BatchNormalization, Conv2D, Dense, Flatten, MaxPooling2D, Relu};
use manyhands::{Compile, Fit, Loss, Optimizer, Sequential, Trainer};

fn main() -> manyhands::Result<()> {
    let model = Sequential::new([8, 8, 1])
        .add(Conv2D::new(16, [3, 3]).same().no_bias())
        .add(BatchNormalization::new().momentum(0.9))
        .add(Relu::default())
        .add(Conv2D::new(32, [3, 3]).same().no_bias())
        .add(BatchNormalization::new().momentum(0.9))
        .add(Relu::default())
        .add(MaxPooling2D::new([2, 2]))
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(42)?;
    println!("{}", model.summary());

    let mut trainer = Trainer::new(model, Compile::new(Optimizer::adam(3e-3), Loss::SPARSE_CATEGORICAL_CROSSENTROPY))?;
    let history = trainer.fit(digits::train()?, &Fit::new(8).batch_size(64).validation(digits::test()?))?;

    for epoch in &history.epochs {
        println!("epoch {}  {}", epoch.epoch, epoch.values);
    }
    let test = trainer.evaluate(digits::test()?, 64)?;
    println!("on {} images never seen: {test}", 360);
    assert!(test.get("accuracy") > Some(0.97), "{test}");
    Ok(())
}
