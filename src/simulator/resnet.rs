//! Residual networks: He et al. 2015, arXiv:1512.03385. Strided convolutions pad as `same` does.

use crate::bench::models::{basic_block, normalized};
use crate::error::Result;
use crate::layers::{Add, Conv2D, Dense, GlobalAveragePooling2D, MaxPooling2D, Padding, Relu};
use crate::model::{Model, ModelBuilder, TensorRef};

/// Where a block stands.
#[derive(Clone, Copy)]
enum Place {
    /// At the beginning of a stage, with a stride.
    First(usize),
    /// Behind another of its stage.
    Later,
}

/// Adds a block of a number of channels.
type Block = fn(&mut ModelBuilder, TensorRef, usize, Place) -> TensorRef;

/// ResNet-18 over 224 × 224 × 3: 11,689,512 parameters.
pub(super) fn resnet18() -> Result<Model> {
    large([2, 2, 2, 2], |graph, x, channels, place| {
        let stride = if let Place::First(stride) = place { stride } else { 1 };
        basic_block(graph, x, channels, stride)
    })
}

/// ResNet-50 over 224 × 224 × 3: 25,557,032 parameters.
pub(super) fn resnet50() -> Result<Model> {
    large([3, 4, 6, 3], bottleneck)
}

/// The form for `ImageNet`: a stem of 7 × 7 and pooling, four stages of blocks, 1000 classes.
fn large(blocks: [usize; 4], block: Block) -> Result<Model> {
    let mut graph = ModelBuilder::new();
    let image = graph.input("input", [224, 224, 3]);
    let stem = normalized(&mut graph, image, Conv2D::new(64, [7, 7]).strides([2, 2]));
    let stem = graph.add(Relu::default(), &[stem]);
    let pooling = MaxPooling2D { strides: Some([2, 2]), padding: Padding::Same, ..MaxPooling2D::new([3, 3]) };
    let mut last = graph.add(pooling, &[stem]);
    for ((n_blocks, channels), stride) in blocks.into_iter().zip([64, 128, 256, 512]).zip([1, 2, 2, 2]) {
        last = block(&mut graph, last, channels, Place::First(stride));
        for _ in 1..n_blocks {
            last = block(&mut graph, last, channels, Place::Later);
        }
    }
    let pooled = graph.add(GlobalAveragePooling2D::default(), &[last]);
    let logits = graph.add(Dense::new(1000), &[pooled]);
    graph.build(&[logits], 0)
}

/// Convolutions of 1 × 1, 3 × 3 and 1 × 1, the last four times as wide, beside a shortcut, which is a projection where
/// the block begins a stage.
fn bottleneck(graph: &mut ModelBuilder, x: TensorRef, channels: usize, place: Place) -> TensorRef {
    let (stride, shortcut) = match place {
        Place::Later => (1, x),
        Place::First(stride) => (stride, normalized(graph, x, Conv2D::new(4 * channels, [1, 1]).strides([stride; 2]))),
    };
    let mut branch = x;
    for convolution in [Conv2D::new(channels, [1, 1]), Conv2D::new(channels, [3, 3]).strides([stride; 2])] {
        let inner = normalized(graph, branch, convolution);
        branch = graph.add(Relu::default(), &[inner]);
    }
    let wide = normalized(graph, branch, Conv2D::new(4 * channels, [1, 1]));
    let sum = graph.add(Add::default(), &[wide, shortcut]);
    graph.add(Relu::default(), &[sum])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of PyTorch's `torchvision.models`.
    #[test]
    fn parameters_are_those_of_the_literature() {
        assert_eq!(resnet18().unwrap().layout().n_parameters(), 11_689_512);
        assert_eq!(resnet50().unwrap().layout().n_parameters(), 25_557_032);
    }
}
