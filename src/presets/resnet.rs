//! Residual networks: He et al. 2015, arXiv:1512.03385.

use super::size::Size;
use crate::error::Result;
use crate::layers::{
    Add, BatchNormalization, Conv2D, Dense, GlobalAveragePooling2D, MaxPooling2D, Relu, ZeroPadding2D,
};
use crate::model::{Model, ModelBuilder, TensorRef};

/// Images with fewer pixels a side begin with a convolution of 3 × 3 without stride or pooling.
const SMALL: usize = 64;

/// Position of a block.
#[derive(Clone, Copy)]
enum BlockPlace {
    /// First block of a stage, with a stride.
    First(usize),
    /// Behind another of its stage.
    Later,
}

/// Adds a block of a number of channels.
type AddBlock = fn(&mut ModelBuilder, TensorRef, usize, BlockPlace) -> TensorRef;

/// ResNet-18: 11,689,512 parameters over 224 × 224 × 3 and 1000 classes, 11,173,962 over 32 × 32 × 3 and ten.
///
/// Images of fewer than 64 pixels a side begin as the paper's networks for CIFAR do: 3 × 3, no stride, no pooling. Strided
/// convolutions pad as `same` does: the zeros stand below and to the right.
///
/// # Errors
/// If the shape is no image.
pub fn resnet18(size: &Size) -> Result<Model> {
    let mut graph = ModelBuilder::new();
    let image = graph.input("input", size.input.clone());
    let stem = if is_small(size) { Conv2D::new(64, [3, 3]) } else { Conv2D::new(64, [7, 7]).strides([2, 2]) };
    let stem = normalized(&mut graph, image, stem);
    let mut last = graph.add(Relu::default(), &[stem]);
    if !is_small(size) {
        last = graph.add(MaxPooling2D::new([3, 3]).strides([2, 2]).same(), &[last]);
    }
    stages(graph, last, size, [2, 2, 2, 2], basic_block)
}

/// ResNet-50: 25,583,592 parameters over 224 × 224 × 3 and 1000 classes, as `keras.applications` has it.
///
/// Keras' convolutions have biases, and the stride is in the first of a block. Images of fewer than 64 pixels a side begin
/// with 3 × 3, no stride, no pooling.
///
/// # Errors
/// If the shape is no image.
pub fn resnet50(size: &Size) -> Result<Model> {
    let mut graph = ModelBuilder::new();
    let image = graph.input("input", size.input.clone());
    if is_small(size) {
        let stem = biased(&mut graph, image, Conv2D::new(64, [3, 3]).same());
        let last = graph.add(Relu::default(), &[stem]);
        return stages(graph, last, size, [3, 4, 6, 3], bottleneck);
    }
    // The zeros stand on all sides, those of `same` would not.
    let padded = graph.add(ZeroPadding2D { padding: [[3, 3]; 2] }, &[image]);
    let stem = biased(&mut graph, padded, Conv2D::new(64, [7, 7]).strides([2, 2]));
    let stem = graph.add(Relu::default(), &[stem]);
    let padded = graph.add(ZeroPadding2D { padding: [[1, 1]; 2] }, &[stem]);
    let last = graph.add(MaxPooling2D::new([3, 3]).strides([2, 2]), &[padded]);
    stages(graph, last, size, [3, 4, 6, 3], bottleneck)
}

fn is_small(size: &Size) -> bool {
    size.input.axes().iter().take(2).all(|pixels| *pixels < SMALL)
}

/// Four stages of blocks, of 64, 128, 256 and 512 channels, and a dense layer.
fn stages(
    mut graph: ModelBuilder,
    mut last: TensorRef,
    size: &Size,
    blocks: [usize; 4],
    block: AddBlock,
) -> Result<Model> {
    for ((n_blocks, channels), stride) in blocks.into_iter().zip([64, 128, 256, 512]).zip([1, 2, 2, 2]) {
        last = block(&mut graph, last, channels, BlockPlace::First(stride));
        for _ in 1..n_blocks {
            last = block(&mut graph, last, channels, BlockPlace::Later);
        }
    }
    let pooled = graph.add(GlobalAveragePooling2D::default(), &[last]);
    let logits = graph.add(Dense::new(size.outputs), &[pooled]);
    graph.build(&[logits], size.seed)
}

/// A convolution with `same` padding and without bias, and its batch normalization.
fn normalized(graph: &mut ModelBuilder, x: TensorRef, convolution: Conv2D) -> TensorRef {
    let convolved = graph.add(convolution.same().no_bias(), &[x]);
    graph.add(BatchNormalization::new(), &[convolved])
}

/// Two convolutions of 3 × 3 beside a shortcut, which is a projection of 1 × 1 where the block has a stride.
fn basic_block(graph: &mut ModelBuilder, x: TensorRef, channels: usize, place: BlockPlace) -> TensorRef {
    let stride = if let BlockPlace::First(stride) = place { stride } else { 1 };
    let first = normalized(graph, x, Conv2D::new(channels, [3, 3]).strides([stride; 2]));
    let first = graph.add(Relu::default(), &[first]);
    let second = normalized(graph, first, Conv2D::new(channels, [3, 3]));
    let shortcut = match stride {
        1 => x,
        _ => normalized(graph, x, Conv2D::new(channels, [1, 1]).strides([stride; 2])),
    };
    let sum = graph.add(Add::default(), &[second, shortcut]);
    graph.add(Relu::default(), &[sum])
}

/// A convolution with bias, and batch normalization, with the settings of `keras.applications`.
fn biased(graph: &mut ModelBuilder, x: TensorRef, convolution: Conv2D) -> TensorRef {
    let convolved = graph.add(convolution, &[x]);
    graph.add(BatchNormalization::new().epsilon(1.001e-5), &[convolved])
}

/// Convolutions of 1 × 1, 3 × 3 and 1 × 1, the last four times as wide, beside a shortcut, which is a projection where
/// the block begins a stage.
fn bottleneck(graph: &mut ModelBuilder, x: TensorRef, channels: usize, place: BlockPlace) -> TensorRef {
    let (stride, shortcut) = match place {
        BlockPlace::Later => (1, x),
        BlockPlace::First(stride) => (stride, biased(graph, x, Conv2D::new(4 * channels, [1, 1]).strides([stride; 2]))),
    };
    let mut branch = x;
    for convolution in [Conv2D::new(channels, [1, 1]).strides([stride; 2]), Conv2D::new(channels, [3, 3]).same()] {
        let inner = biased(graph, branch, convolution);
        branch = graph.add(Relu::default(), &[inner]);
    }
    let wide = biased(graph, branch, Conv2D::new(4 * channels, [1, 1]));
    let sum = graph.add(Add::default(), &[shortcut, wide]);
    graph.add(Relu::default(), &[sum])
}
