//! The models that are measured: the same in every bench.

#![allow(clippy::unwrap_used, dead_code, reason = "a bench that fails may panic, and need not use every model")]

use manyhands::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten, MaxPooling2D, Relu};
use manyhands::{Model, Sequential};

/// The perceptron 784-1024-1024-10.
pub fn mlp() -> Model {
    Sequential::new([28, 28, 1])
        .add(Flatten::default())
        .add(Dense::new(1024).activation(Activation::Relu))
        .add(Dense::new(1024).activation(Activation::Relu))
        .add(Dense::new(10))
        .build(0)
        .unwrap()
}

/// conv32 - BN - ReLU - conv64 - BN - ReLU - pool - dense128 - dense10, over 28 × 28 × 1.
pub fn cnn() -> Model {
    Sequential::new([28, 28, 1])
        .add(Conv2D::new(32, [3, 3]).no_bias())
        .add(BatchNormalization::new())
        .add(Relu::default())
        .add(Conv2D::new(64, [3, 3]).no_bias())
        .add(BatchNormalization::new())
        .add(Relu::default())
        .add(MaxPooling2D::new([2, 2]))
        .add(Flatten::default())
        .add(Dense::new(128).activation(Activation::Relu))
        .add(Dense::new(10))
        .build(0)
        .unwrap()
}

/// A small CNN with batch-norm for slow adapters: conv8 - BN - ReLU - pool - conv16 - BN - ReLU - pool - dense10.
pub fn small_cnn() -> Model {
    Sequential::new([28, 28, 1])
        .add(Conv2D::new(8, [3, 3]).same().no_bias())
        .add(BatchNormalization::new())
        .add(Relu::default())
        .add(MaxPooling2D::new([2, 2]))
        .add(Conv2D::new(16, [3, 3]).same().no_bias())
        .add(BatchNormalization::new())
        .add(Relu::default())
        .add(MaxPooling2D::new([2, 2]))
        .add(Flatten::default())
        .add(Dense::new(10))
        .build(0)
        .unwrap()
}
