//! Chains of convolutions.

use super::size::Size;
use crate::error::Result;
use crate::layers::{
    Activation, BatchNormalization, Conv2D, Dense, Flatten, GlobalAveragePooling2D, MaxPooling2D, Relu,
};
use crate::model::{Model, Sequential};

/// conv32 - BN - ReLU - conv64 - BN - ReLU - pool - dense128 - dense10, without padding.
///
/// # Errors
/// If the image has fewer than 6 pixels a side.
pub fn cnn(size: &Size) -> Result<Model> {
    Sequential::new(size.input.clone())
        .add(Conv2D::new(32, [3, 3]).no_bias())
        .add(BatchNormalization::new())
        .add(Relu::default())
        .add(Conv2D::new(64, [3, 3]).no_bias())
        .add(BatchNormalization::new())
        .add(Relu::default())
        .add(MaxPooling2D::new([2, 2]))
        .add(Flatten::default())
        .add(Dense::new(128).activation(Activation::Relu))
        .add(Dense::new(size.outputs))
        .build(size.seed)
}

/// conv8 - BN - ReLU - pool - conv16 - BN - ReLU - pool - dense10.
///
/// # Errors
/// If the image has fewer than 4 pixels a side.
pub fn small_cnn(size: &Size) -> Result<Model> {
    let blocks = blocks(size, &[(1, 8), (1, 16)]);
    blocks.add(Flatten::default()).add(Dense::new(size.outputs)).build(size.seed)
}

/// Three blocks of two convolutions and a pooling layer, of 32, 64 and 128 channels: much arithmetic for its size.
///
/// # Errors
/// If the image has fewer than 8 pixels a side.
pub fn cnn6(size: &Size) -> Result<Model> {
    let blocks = blocks(size, &[(2, 32), (2, 64), (2, 128)]);
    blocks.add(Flatten::default()).add(Dense::new(size.outputs)).build(size.seed)
}

/// The 13 convolutions of VGG-16 with batch normalization, and one dense layer at the end: 15 million parameters.
///
/// Source: Simonyan, Zisserman 2014, arXiv:1409.1556, configuration D, without its head.
///
/// # Errors
/// If the image has fewer than 32 pixels a side.
pub fn vgg(size: &Size) -> Result<Model> {
    let blocks = blocks(size, &[(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)]);
    blocks.add(GlobalAveragePooling2D::default()).add(Dense::new(size.outputs)).build(size.seed)
}

/// VGG-11 with the classic head 4096-4096: 28,144,010 parameters over 32 × 32 × 3, for ten classes.
///
/// Two thirds of them belong to the head, which computes little: the gradients' way to the host counts. Source:
/// Simonyan, Zisserman 2014, arXiv:1409.1556, configuration A. Without dropout.
///
/// # Errors
/// If the image has fewer than 32 pixels a side.
pub fn vgg11(size: &Size) -> Result<Model> {
    plain(size, &[&[64], &[128], &[256, 256], &[512, 512], &[512, 512]])
}

/// VGG-16 with its head of 4096-4096: 69,151,528 parameters over 128 × 128 × 3 and 1000 classes, as `keras.applications`
/// has it. Without batch normalization and dropout.
///
/// Source: Simonyan, Zisserman 2014, arXiv:1409.1556, configuration D.
///
/// # Errors
/// If the image has fewer than 32 pixels a side, or 160 or more: the weights of the first dense layer are larger than a
/// binding then.
pub fn vgg16(size: &Size) -> Result<Model> {
    plain(size, &[&[64, 64], &[128, 128], &[256; 3], &[512; 3], &[512; 3]])
}

/// Blocks of convolutions of 3 × 3 with ReLU, of these numbers of channels, a pooling layer behind each, and the head.
fn plain(size: &Size, stages: &[&[usize]]) -> Result<Model> {
    let mut layers = Sequential::new(size.input.clone());
    for stage in stages {
        for filters in *stage {
            layers = layers.add(Conv2D::new(*filters, [3, 3]).same().activation(Activation::Relu));
        }
        layers = layers.add(MaxPooling2D::new([2, 2]));
    }
    layers
        .add(Flatten::default())
        .add(Dense::new(4096).activation(Activation::Relu))
        .add(Dense::new(4096).activation(Activation::Relu))
        .add(Dense::new(size.outputs))
        .build(size.seed)
}

/// Blocks of convolutions of 3 × 3 with batch normalization and ReLU, and a pooling layer behind each: how many, and of
/// how many channels.
fn blocks(size: &Size, blocks: &[(usize, usize)]) -> Sequential {
    let mut model = Sequential::new(size.input.clone());
    for (n_layers, filters) in blocks {
        for _ in 0..*n_layers {
            let convolution = Conv2D::new(*filters, [3, 3]).same().no_bias();
            model = model.add(convolution).add(BatchNormalization::new()).add(Relu::default());
        }
        model = model.add(MaxPooling2D::new([2, 2]));
    }
    model
}
