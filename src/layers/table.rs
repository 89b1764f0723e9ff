//! The table of layers that can be read from a file by name.

use super::{
    ActivationLayer, Add, AveragePooling2D, BatchNormalization, Concatenate, Conv2D, Dense, Dropout, Entry, Flatten,
    Gelu, GlobalAveragePooling2D, LeakyRelu, MaxPooling2D, Relu, Reshape, Sigmoid, Softmax, Tanh, entry,
};

/// Every layer of the crate.
pub static LAYERS: &[Entry] = &[
    entry::<ActivationLayer>("Activation"),
    entry::<Add>("Add"),
    entry::<AveragePooling2D>("AveragePooling2D"),
    entry::<BatchNormalization>("BatchNormalization"),
    entry::<Concatenate>("Concatenate"),
    entry::<Conv2D>("Conv2D"),
    entry::<Dense>("Dense"),
    entry::<Dropout>("Dropout"),
    entry::<Flatten>("Flatten"),
    entry::<Gelu>("GELU"),
    entry::<GlobalAveragePooling2D>("GlobalAveragePooling2D"),
    entry::<LeakyRelu>("LeakyReLU"),
    entry::<MaxPooling2D>("MaxPooling2D"),
    entry::<Relu>("ReLU"),
    entry::<Reshape>("Reshape"),
    entry::<Sigmoid>("Sigmoid"),
    entry::<Softmax>("Softmax"),
    entry::<Tanh>("Tanh"),
];
