//! Networks of inverted residual blocks: a wide depthwise convolution between narrow ones of 1 × 1.

use super::size::Size;
use crate::error::Result;
use crate::layers::{
    Activation, ActivationLayer, Add, BatchNormalization, Conv2D, Dense, DepthwiseConv2D, Dropout,
    GlobalAveragePooling2D, Multiply, Normalization, Rescaling, StochasticDepth,
};
use crate::model::{Model, ModelBuilder, TensorRef};

/// `MobileNetV2`: 3,504,872 parameters over 224 × 224 × 3 and 1000 classes, as `keras.applications` has it.
///
/// Source: Sandler et al. 2018, arXiv:1801.04381. Keras' padding before a stride is that of `same`.
///
/// # Errors
/// If the shape is no image.
pub fn mobilenet_v2(size: &Size) -> Result<Model> {
    let mut graph = ModelBuilder::new();
    let image = graph.input("input", size.input.clone());
    let family = Family { activation: Activation::Relu6, momentum: 0.999, squeezes: false };
    let mut x = family.normalized(&mut graph, image, Conv2D::new(32, [3, 3]).strides([2, 2]).same());
    let mut channels = 32;
    for (expansion, filters, blocks, stride) in
        [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    {
        for place in 0..blocks {
            let stride = if place == 0 { stride } else { 1 };
            let block = Block { channels, expansion, filters, side: 3, stride, drop_rate: 0.0 };
            x = family.block(&mut graph, x, &block);
            channels = filters;
        }
    }
    let x = family.normalized(&mut graph, x, Conv2D::new(1280, [1, 1]));
    let pooled = graph.add(GlobalAveragePooling2D::default(), &[x]);
    let logits = graph.add(Dense::new(size.outputs), &[pooled]);
    graph.build(&[logits], size.seed)
}

/// `EfficientNetB0`: 5,288,548 parameters over 224 × 224 × 3 and 1000 classes, as `keras.applications` has it.
///
/// It takes pixels from 0 to 255: its first layers divide them, and normalize them once they are adapted. Source:
/// Tan, Le 2019, arXiv:1905.11946.
///
/// # Errors
/// If the shape is no image.
pub fn efficientnet_b0(size: &Size) -> Result<Model> {
    /// Part of the rows that the last block drops; the first drops none.
    const DROP_CONNECT_RATE: f32 = 0.2;
    let stages = [
        (1, 16, 1, 3, 1),
        (6, 24, 2, 3, 2),
        (6, 40, 2, 5, 2),
        (6, 80, 3, 3, 2),
        (6, 112, 3, 5, 1),
        (6, 192, 4, 5, 2),
        (6, 320, 1, 3, 1),
    ];
    let mut graph = ModelBuilder::new();
    let image = graph.input("input", size.input.clone());
    let scaled = graph.add(Rescaling { scale: (1.0 / 255.0).into(), offset: 0.0.into() }, &[image]);
    let scaled = graph.add(Normalization::default(), &[scaled]);
    let family = Family { activation: Activation::Silu, momentum: 0.99, squeezes: true };
    let mut x = family.normalized(&mut graph, scaled, Conv2D::new(32, [3, 3]).strides([2, 2]).same());
    let n_blocks: u8 = stages.iter().map(|(_, _, blocks, ..)| blocks).sum();
    let (mut channels, mut block_idx) = (32, 0_u8);
    for (expansion, filters, blocks, side, stride) in stages {
        for place in 0..blocks {
            let stride = if place == 0 { stride } else { 1 };
            let drop_rate = DROP_CONNECT_RATE * f32::from(block_idx) / f32::from(n_blocks);
            x = family.block(&mut graph, x, &Block { channels, expansion, filters, side, stride, drop_rate });
            (channels, block_idx) = (filters, block_idx + 1);
        }
    }
    let x = family.normalized(&mut graph, x, Conv2D::new(1280, [1, 1]));
    let pooled = graph.add(GlobalAveragePooling2D::default(), &[x]);
    let dropped = graph.add(Dropout::new(0.2), &[pooled]);
    let logits = graph.add(Dense::new(size.outputs), &[dropped]);
    graph.build(&[logits], size.seed)
}

/// Settings of all blocks of a network.
struct Family {
    activation: Activation,
    /// Part of the old moving statistics that stays.
    momentum: f32,
    /// Whether blocks weigh their channels: Hu et al. 2017, arXiv:1709.01507.
    squeezes: bool,
}

/// A block.
struct Block {
    /// Channels of its input.
    channels: usize,
    /// Factor of the channels between its convolutions of 1 × 1.
    expansion: usize,
    /// Channels of its output.
    filters: usize,
    /// Side of its window.
    side: usize,
    stride: usize,
    /// Part of the rows that leave the block out in training, where it has a shortcut.
    drop_rate: f32,
}

impl Family {
    fn norm(&self) -> BatchNormalization {
        BatchNormalization::new().momentum(self.momentum)
    }

    /// A convolution without bias, batch normalization, and the activation.
    fn normalized(&self, graph: &mut ModelBuilder, x: TensorRef, convolution: Conv2D) -> TensorRef {
        let convolved = graph.add(convolution.no_bias(), &[x]);
        self.activated(graph, convolved)
    }

    fn activated(&self, graph: &mut ModelBuilder, x: TensorRef) -> TensorRef {
        let normalized = graph.add(self.norm(), &[x]);
        graph.add(ActivationLayer { activation: self.activation }, &[normalized])
    }

    fn block(&self, graph: &mut ModelBuilder, x: TensorRef, block: &Block) -> TensorRef {
        let wide = match block.expansion {
            1 => x,
            expansion => self.normalized(graph, x, Conv2D::new(expansion * block.channels, [1, 1])),
        };
        let depthwise = DepthwiseConv2D::new([block.side; 2]).strides([block.stride; 2]).same().no_bias();
        let convolved = graph.add(depthwise, &[wide]);
        let mut y = self.activated(graph, convolved);
        if self.squeezes {
            y = self.squeezed(graph, y, block);
        }
        let narrow = graph.add(Conv2D::new(block.filters, [1, 1]).no_bias(), &[y]);
        let mut narrow = graph.add(self.norm(), &[narrow]);
        if block.stride > 1 || block.channels != block.filters {
            return narrow;
        }
        if block.drop_rate > 0.0 {
            narrow = graph.add(StochasticDepth { drop_path_rate: block.drop_rate }, &[narrow]);
        }
        graph.add(Add::default(), &[narrow, x])
    }

    /// Weighs each channel by a function of the means of all: a quarter of the block's channels between two layers.
    fn squeezed(&self, graph: &mut ModelBuilder, x: TensorRef, block: &Block) -> TensorRef {
        let means = graph.add(GlobalAveragePooling2D { keepdims: true }, &[x]);
        let few = Conv2D::new((block.channels / 4).max(1), [1, 1]).activation(self.activation);
        let few = graph.add(few, &[means]);
        let all = Conv2D::new(block.channels * block.expansion, [1, 1]).activation(Activation::Sigmoid);
        let weights = graph.add(all, &[few]);
        graph.add(Multiply::default(), &[x, weights])
    }
}
