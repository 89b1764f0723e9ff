//! `ConvNeXt`: Liu et al. 2022, arXiv:2201.03545.

use super::size::Size;
use crate::error::Result;
use crate::layers::{
    Activation, Add, Conv2D, Dense, GlobalAveragePooling2D, LayerNormalization, LayerScale, Normalization, Values,
};
use crate::model::{Model, ModelBuilder, TensorRef};

/// Mean and standard deviation of `ImageNet`'s pixels, from 0 to 255.
const MEAN: [f32; 3] = [0.485 * 255.0, 0.456 * 255.0, 0.406 * 255.0];
const DEVIATION: [f32; 3] = [0.229 * 255.0, 0.224 * 255.0, 0.225 * 255.0];

/// `ConvNeXtTiny`: 28,589,128 parameters over 224 × 224 × 3 and 1000 classes, as `keras.applications` has it.
///
/// It takes pixels from 0 to 255: its first layer normalizes them by mean and deviation of `ImageNet`, where they have three
/// channels. Without stochastic depth, as in Keras.
///
/// # Errors
/// If the image has fewer than 32 pixels a side.
pub fn convnext_tiny(size: &Size) -> Result<Model> {
    let mut graph = ModelBuilder::new();
    let mut x = graph.input("input", size.input.clone());
    if size.input.axes().last() == Some(&MEAN.len()) {
        let (mean, variance) = (MEAN.to_vec(), DEVIATION.map(|deviation| deviation * deviation).to_vec());
        let given = |values| Some(Values::Each(values));
        x = graph.add(Normalization { mean: given(mean), variance: given(variance), ..Normalization::default() }, &[x]);
    }
    for (stage, (blocks, channels)) in [(3, 96), (3, 192), (9, 384), (3, 768)].into_iter().enumerate() {
        x = if stage == 0 {
            let patches = graph.add(Conv2D::new(channels, [4, 4]).strides([4, 4]), &[x]);
            graph.add(norm(), &[patches])
        } else {
            let normalized = graph.add(norm(), &[x]);
            graph.add(Conv2D::new(channels, [2, 2]).strides([2, 2]), &[normalized])
        };
        for _ in 0..blocks {
            x = block(&mut graph, x, channels);
        }
    }
    let pooled = graph.add(GlobalAveragePooling2D::default(), &[x]);
    let pooled = graph.add(norm(), &[pooled]);
    let logits = graph.add(Dense::new(size.outputs), &[pooled]);
    graph.build(&[logits], size.seed)
}

fn norm() -> LayerNormalization {
    LayerNormalization { epsilon: 1e-6, ..LayerNormalization::new() }
}

/// A depthwise convolution of 7 × 7 and two dense layers beside a shortcut.
fn block(graph: &mut ModelBuilder, x: TensorRef, channels: usize) -> TensorRef {
    let wide = graph.add(Conv2D::new(channels, [7, 7]).same().groups(channels), &[x]);
    let wide = graph.add(norm(), &[wide]);
    let wide = graph.add(Dense::new(4 * channels).activation(Activation::Gelu), &[wide]);
    let narrow = graph.add(Dense::new(channels), &[wide]);
    let narrow = graph.add(LayerScale::new(channels), &[narrow]);
    graph.add(Add::default(), &[x, narrow])
}
