//! The models that are measured, by name: the same in every bench, and in the programs that they are compared with.

use crate::error::{Error, Result};
use crate::layers::{
    Activation, Add, BatchNormalization, Conv2D, Dense, Flatten, GlobalAveragePooling2D, MaxPooling2D, Relu,
};
use crate::losses::Loss;
use crate::model::{Model, ModelBuilder, Sequential, TensorRef};
use crate::optimizers::Optimizer;
use crate::plan::{BatchStatistics, GradientCompression};

/// A model with all that a training step of it needs but data.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Layers and initial weights.
    pub model: Model,
    /// How it is trained.
    pub optimizer: Optimizer,
    /// Loss of its only output.
    pub loss: Loss,
    /// Classes that its labels count.
    pub classes: usize,
    /// Rows of a batch, if nothing else is said.
    pub batch_size: u32,
    /// What gradients are on their way to the host.
    pub gradient_compression: GradientCompression,
    /// Whose statistics batch normalization takes.
    pub batch_statistics: BatchStatistics,
}

type Build = fn() -> Result<Workload>;

/// Name and maker of each model.
static WORKLOADS: &[(&str, Build)] = &[
    ("mlp", mlp),
    ("cnn", cnn),
    ("small_cnn", small_cnn),
    ("resnet18", resnet18),
    ("vgg11", vgg11),
    ("make_parallel", make_parallel),
];

/// The names of all models.
pub fn names() -> impl Iterator<Item = &'static str> {
    WORKLOADS.iter().map(|(name, _)| *name)
}

/// The model of a name.
///
/// ```
/// let mlp = manyhands::bench::models::by_name("mlp")?;
/// assert_eq!((mlp.model.layout().n_parameters(), mlp.batch_size), (1_863_690, 256));
/// # Ok::<(), manyhands::Error>(())
/// ```
///
/// # Errors
/// If there is none.
pub fn by_name(name: &str) -> Result<Workload> {
    find(name)?()
}

/// Is there a model of a name? Builds none.
///
/// # Errors
/// If there is none.
pub fn check(name: &str) -> Result<()> {
    find(name).map(drop)
}

fn find(name: &str) -> Result<Build> {
    let found = WORKLOADS.iter().find(|(known, _)| *known == name);
    found.map(|(_, build)| *build).ok_or_else(|| {
        let known: Vec<&str> = names().collect();
        let help = format!("choose from {}", known.join(", "));
        Error::setting(format!("model `{name}`"), "is none that is measured", help)
    })
}

/// The perceptron 784-1024-1024-10: 1,863,690 parameters, batch 256, Adam.
///
/// # Errors
/// None: the layers fit.
pub fn mlp() -> Result<Workload> {
    let model = Sequential::new([28, 28, 1])
        .add(Flatten::default())
        .add(Dense::new(1024).activation(Activation::Relu))
        .add(Dense::new(1024).activation(Activation::Relu))
        .add(Dense::new(10))
        .build(0)?;
    Ok(Workload {
        name: "mlp",
        about: "MLP 784-1024-1024-10, Adam",
        model,
        optimizer: Optimizer::adam(1e-3),
        loss: Loss::SPARSE_CATEGORICAL_CROSSENTROPY,
        classes: 10,
        batch_size: 256,
        gradient_compression: GradientCompression::None,
        batch_statistics: BatchStatistics::default(),
    })
}

/// A network of convolutions for ten classes, trained with momentum.
fn convolutional(name: &'static str, about: &'static str, model: Model, batch_size: u32) -> Workload {
    Workload {
        name,
        about,
        model,
        optimizer: Optimizer::sgd(0.01, 0.9),
        loss: Loss::SPARSE_CATEGORICAL_CROSSENTROPY,
        classes: 10,
        batch_size,
        gradient_compression: GradientCompression::None,
        batch_statistics: BatchStatistics::default(),
    }
}

/// conv32 - BN - ReLU - conv64 - BN - ReLU - pool - dense128 - dense10 over 28 × 28 × 1, batch 64, SGD with momentum.
///
/// # Errors
/// None: the layers fit.
pub fn cnn() -> Result<Workload> {
    let model = Sequential::new([28, 28, 1])
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
        .build(0)?;
    Ok(convolutional("cnn", "CNN conv32-BN-conv64-BN-pool-dense128-dense10, SGD momentum", model, 64))
}

/// A small network for slow adapters: conv8 - BN - ReLU - pool - conv16 - BN - ReLU - pool - dense10, batch 128.
///
/// # Errors
/// None: the layers fit.
pub fn small_cnn() -> Result<Workload> {
    let model = Sequential::new([28, 28, 1])
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
        .build(0)?;
    Ok(convolutional("small_cnn", "small CNN conv8-BN-pool-conv16-BN-pool-dense10, SGD momentum", model, 128))
}

/// ResNet-18 in its form for CIFAR, 32 × 32 × 3: 11,173,962 parameters, batch 64, SGD with momentum.
///
/// A stem of 3 × 3 without pooling; four stages of two basic blocks, of 64, 128, 256 and 512 channels; where a stage
/// halves the image, a projection of 1 × 1 goes beside its first block. Source: He et al. 2015, arXiv:1512.03385, in
/// the widths of its large form. Strided convolutions pad as `same` does: the zeros stand below and to the right.
///
/// # Errors
/// None: the layers fit.
pub fn resnet18() -> Result<Workload> {
    let mut graph = ModelBuilder::new();
    let image = graph.input("input", [32, 32, 3]);
    let stem = normalized(&mut graph, image, Conv2D::new(64, [3, 3]));
    let mut last = graph.add(Relu::default(), &[stem]);
    for (channels, stride) in [(64, 1), (128, 2), (256, 2), (512, 2)] {
        last = basic_block(&mut graph, last, channels, stride);
        last = basic_block(&mut graph, last, channels, 1);
    }
    let pooled = graph.add(GlobalAveragePooling2D::default(), &[last]);
    let logits = graph.add(Dense::new(10), &[pooled]);
    let model = graph.build(&[logits], 0)?;
    Ok(convolutional("resnet18", "ResNet-18 for 32 × 32 × 3, SGD momentum", model, 64))
}

/// A convolution with `same` padding and without bias, and its batch normalization.
pub(crate) fn normalized(graph: &mut ModelBuilder, x: TensorRef, convolution: Conv2D) -> TensorRef {
    let convolved = graph.add(convolution.same().no_bias(), &[x]);
    graph.add(BatchNormalization::new(), &[convolved])
}

/// Two convolutions of 3 × 3 beside a shortcut, which is a projection where the block has a stride.
pub(crate) fn basic_block(graph: &mut ModelBuilder, x: TensorRef, channels: usize, stride: usize) -> TensorRef {
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

/// VGG-11 over 32 × 32 × 3 with the classic head 4096-4096-10: 28,144,010 parameters, batch 64, SGD with momentum.
///
/// Two thirds of them belong to the head, which computes little: the gradients' way to the host counts. Source:
/// Simonyan, Zisserman 2014, arXiv:1409.1556, configuration A. Without dropout.
///
/// # Errors
/// None: the layers fit.
pub fn vgg11() -> Result<Workload> {
    let mut layers = Sequential::new([32, 32, 3]);
    for stage in [&[64][..], &[128], &[256, 256], &[512, 512], &[512, 512]] {
        for filters in stage {
            layers = layers.add(Conv2D::new(*filters, [3, 3]).same().activation(Activation::Relu));
        }
        layers = layers.add(MaxPooling2D::new([2, 2]));
    }
    let model = layers
        .add(Flatten::default())
        .add(Dense::new(4096).activation(Activation::Relu))
        .add(Dense::new(4096).activation(Activation::Relu))
        .add(Dense::new(10))
        .build(0)?;
    Ok(convolutional("vgg11", "VGG-11 for 32 × 32 × 3 with its head of 4096-4096-10, SGD momentum", model, 64))
}

/// The perceptron 8000-4000-2000-500-300-1 of Keras' `make_parallel`: 41,157,101 parameters, batch 256, SGD.
///
/// # Errors
/// None: the layers fit.
pub fn make_parallel() -> Result<Workload> {
    let hidden = [4000, 2000, 500, 300].map(|units| Dense::new(units).activation(Activation::Relu));
    let layers = hidden.into_iter().fold(Sequential::new([8000]), Sequential::add);
    Ok(Workload {
        name: "make_parallel",
        about: "MLP 8000-4000-2000-500-300-1 of Keras' make_parallel, SGD",
        model: layers.add(Dense::new(1)).build(0)?,
        optimizer: Optimizer::sgd(0.05, 0.0),
        loss: Loss::BINARY_CROSSENTROPY,
        classes: 2,
        batch_size: 256,
        gradient_compression: GradientCompression::None,
        batch_statistics: BatchStatistics::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ResNet-18 and `make_parallel` as the literature counts them, the others layer by layer.
    #[test]
    fn parameters_are_those_of_the_literature() {
        let expected = [
            ("mlp", 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10),
            ("cnn", 9 * 32 + 64 + 9 * 32 * 64 + 128 + 12 * 12 * 64 * 128 + 128 + 1290),
            ("small_cnn", 9 * 8 + 16 + 9 * 8 * 16 + 32 + 7 * 7 * 16 * 10 + 10),
            ("resnet18", 11_173_962),
            // Its nine million of convolutions, and 512 × 4096, 4096 × 4096, 4096 × 10 with their biases.
            ("vgg11", 9_220_480 + 2_101_248 + 16_781_312 + 40_970),
            ("make_parallel", 41_157_101),
        ];
        assert!(names().eq(expected.iter().map(|(name, _)| *name)));
        for (name, parameters) in expected {
            let workload = by_name(name).unwrap();
            assert_eq!((workload.name, workload.model.layout().n_parameters()), (name, parameters));
        }
    }

    #[test]
    fn an_unknown_model_is_refused() {
        let error = by_name("resnet50").err().unwrap().to_string();
        assert!(
            error.starts_with("model `resnet50` is none that is measured\n  help: choose from mlp, cnn"),
            "{error}"
        );
    }
}
