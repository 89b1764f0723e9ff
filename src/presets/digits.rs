//! The networks of the digits in the program, 8 × 8 × 1: `manyhands train` and the browser demo train them.

use super::size::Size;
use crate::error::Result;
use crate::layers::{BatchNormalization, Conv2D, Dense, Dropout, Flatten, MaxPooling2D, Relu};
use crate::model::{Model, Sequential};

/// Shape of a digit.
pub const SHAPE: &[usize] = &[8, 8, 1];
/// Digits to tell apart.
pub const CLASSES: usize = 10;

/// conv16 - conv32 - pool - conv64 - dropout - dense10, with a batch normalization behind each convolution.
///
/// # Errors
/// If the image has fewer than 2 pixels a side.
pub fn cnn(size: &Size, norm: BatchNormalization) -> Result<Model> {
    three_convolutions(size, norm, [16, 32, 64])
}

/// conv64 - conv128 - pool - conv256 - dropout - dense10, with a batch normalization behind each convolution: sixteen times the
/// arithmetic of [`cnn`], so that a second adapter pays.
///
/// # Errors
/// If the image has fewer than 2 pixels a side.
pub fn wide_cnn(size: &Size, norm: BatchNormalization) -> Result<Model> {
    three_convolutions(size, norm, [64, 128, 256])
}

/// conv8 - pool - dense10, with a batch normalization behind the convolution.
///
/// # Errors
/// If the image has fewer than 2 pixels a side.
pub fn small_cnn(size: &Size, norm: BatchNormalization) -> Result<Model> {
    let pooled = block(Sequential::new(size.input.clone()), 8, norm).add(MaxPooling2D::new([2, 2]));
    pooled.add(Flatten::default()).add(Dense::new(size.outputs)).build(size.seed)
}

/// The batch normalization of both: its moving statistics follow within the few steps of a short run.
pub fn norm() -> BatchNormalization {
    BatchNormalization::new().momentum(0.9)
}

pub(super) fn default_cnn(size: &Size) -> Result<Model> {
    cnn(size, norm())
}

pub(super) fn default_small_cnn(size: &Size) -> Result<Model> {
    small_cnn(size, norm())
}

pub(super) fn default_wide_cnn(size: &Size) -> Result<Model> {
    wide_cnn(size, norm())
}

fn three_convolutions(size: &Size, norm: BatchNormalization, [first, second, third]: [usize; 3]) -> Result<Model> {
    let input = Sequential::new(size.input.clone());
    let pooled = block(block(input, first, norm), second, norm).add(MaxPooling2D::new([2, 2]));
    let body = block(pooled, third, norm).add(Flatten::default()).add(Dropout::new(0.4));
    body.add(Dense::new(size.outputs)).build(size.seed)
}

fn block(model: Sequential, filters: usize, norm: BatchNormalization) -> Sequential {
    model.add(Conv2D::new(filters, [3, 3]).same().no_bias()).add(norm).add(Relu::default())
}
