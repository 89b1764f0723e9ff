//! Models by name: the one set that command, benches, simulator, browser demo and your own programs choose from.
//!
//! ```
//! use manyhands::presets;
//! # fn main() -> manyhands::Result<()> {
//! let resnet = presets::find("resnet18")?;
//! assert_eq!(resnet.build(0)?.n_parameters(), 11_689_512);
//! // ResNet for small images and ten classes: its first convolution is smaller then.
//! let small = resnet.build_for([32, 32, 3], 10, 0)?;
//! assert_eq!(small.n_parameters(), 11_173_962);
//! # Ok(())
//! # }
//! ```

// Files: one for each family of networks; `size.rs`: the shape and outputs that they are built for.

mod convnext;
pub(crate) mod convolutional;
pub mod digits;
mod mobile;
pub(crate) mod perceptrons;
mod recurrent;
mod resnet;
pub(crate) mod size;
mod text;

pub use convolutional::{cnn6, vgg};
pub use perceptrons::mlp;
pub use size::Size;
pub use text::gpt;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::names;
use crate::shape::Shape;

use self::convnext::convnext_tiny;
use self::convolutional::{cnn, small_cnn, vgg11, vgg16};
use self::mobile::{efficientnet_b0, mobilenet_v2};
use self::perceptrons::make_parallel;
use self::recurrent::lstm;
use self::resnet::{resnet18, resnet50};
use self::text::{char_lstm, gpt_mini};

/// A model that has a name.
#[derive(Debug)]
pub struct Preset {
    /// Its name, in `snake_case`.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Shape of a row, where no other is asked for.
    pub input: &'static [usize],
    /// Width of its output, where no other is asked for: the number of classes.
    pub outputs: usize,
    /// Shape of a row and width of the output that `bench` and `simulate` use. Networks for `ImageNet` get smaller pictures of ten
    /// classes there.
    pub measured: (&'static [usize], usize),
    make: fn(&Size) -> Result<Model>,
}

impl Preset {
    /// The model in its usual size. Initial weights depend on the seed alone.
    ///
    /// # Errors
    /// None: the layers fit.
    pub fn build(&self, seed: u64) -> Result<Model> {
        self.build_for(self.input, self.outputs, seed)
    }

    /// The model in the size that `bench` measures and `simulate` predicts.
    ///
    /// # Errors
    /// None: the layers fit.
    pub fn build_measured(&self, seed: u64) -> Result<Model> {
        let (input, outputs) = self.measured;
        self.build_for(input, outputs, seed)
    }

    /// The model for rows of another shape and another number of classes.
    ///
    /// # Errors
    /// If a layer does not fit the shape, such as a pooling window an image of one pixel.
    pub fn build_for(&self, input: impl Into<Shape>, outputs: usize, seed: u64) -> Result<Model> {
        (self.make)(&Size { input: input.into(), outputs, seed })
    }
}

/// Pictures of `ImageNet`.
const IMAGENET: &[usize] = &[224, 224, 3];

/// All models that have a name.
pub static PRESETS: &[Preset] = &[
    preset("mlp", "MLP 784-1024-1024-10: 1.9 million parameters", &[28, 28, 1], 10, mlp),
    preset("cnn", "CNN conv32-BN-conv64-BN-pool-dense128-dense10: 1.2 million parameters", &[28, 28, 1], 10, cnn),
    preset("small_cnn", "CNN conv8-BN-pool-conv16-BN-pool-dense10, for slow adapters", &[28, 28, 1], 10, small_cnn),
    preset("cnn6", "six convolutions with batch normalization: 0.3 million parameters", &[32, 32, 3], 10, cnn6),
    preset("digits_cnn", "three convolutions with batch-norm", digits::SHAPE, digits::CLASSES, digits::default_cnn),
    preset(
        "digits_small_cnn",
        "one convolution with batch-norm",
        digits::SHAPE,
        digits::CLASSES,
        digits::default_small_cnn,
    ),
    preset(
        "digits_wide_cnn",
        "three wide convolutions with batch-norm",
        digits::SHAPE,
        digits::CLASSES,
        digits::default_wide_cnn,
    ),
    preset("resnet18", "ResNet-18: 12 million parameters, 20 batch normalizations", IMAGENET, 1000, resnet18)
        .measured(&[32, 32, 3], 10),
    preset("resnet50", "ResNet-50: 26 million parameters, 53 batch normalizations", IMAGENET, 1000, resnet50)
        .measured(&[64, 64, 3], 10),
    preset(
        "mobilenet_v2",
        "MobileNetV2: 3.5 million parameters, 52 batch normalizations",
        IMAGENET,
        1000,
        mobilenet_v2,
    )
    .measured(&[64, 64, 3], 10),
    preset("efficientnet_b0", "EfficientNetB0: 5.3 million parameters, pixels to 255", IMAGENET, 1000, efficientnet_b0),
    preset("convnext_tiny", "ConvNeXtTiny: 29 million parameters, pixels to 255", IMAGENET, 1000, convnext_tiny),
    preset("vgg", "VGG-16's convolutions with batch-norm and one dense layer", IMAGENET, 1000, vgg),
    preset("vgg16", "VGG-16 with its head of 4096-4096: 69 million parameters", &[128, 128, 3], 1000, vgg16),
    preset("vgg11", "VGG-11 with its head of 4096-4096: 28 million parameters", &[32, 32, 3], 10, vgg11),
    preset("lstm", "LSTM of 64 units over 140 steps of 256 values", &[140, 256], 10, lstm),
    preset("make_parallel", "MLP 8000-4000-2000-500-300-1 of Keras' make_parallel", &[8000], 1, make_parallel),
    preset("char_lstm", "two LSTMs of 128 on characters: 0.2 million parameters", &[128], 96, char_lstm),
    preset("gpt_mini", "transformer of 4 blocks and 128 features on characters: 0.8 million", &[128], 96, gpt_mini),
];

const fn preset(
    name: &'static str,
    about: &'static str,
    input: &'static [usize],
    outputs: usize,
    make: fn(&Size) -> Result<Model>,
) -> Preset {
    Preset { name, about, input, outputs, measured: (input, outputs), make }
}

impl Preset {
    const fn measured(self, input: &'static [usize], outputs: usize) -> Self {
        Self { measured: (input, outputs), ..self }
    }
}

/// The model of a name, in any writing of it: `ResNet18` is `resnet18`.
///
/// # Errors
/// If none has it; the help names the nearest.
pub fn find(name: &str) -> Result<&'static Preset> {
    let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    let found = names::known(name, &known).and_then(|name| PRESETS.iter().find(|preset| preset.name == name));
    found.ok_or_else(|| {
        Error::setting(
            "the name of a model",
            format!("needs to be known, but is `{}`", crate::shown(name)),
            names::help(name, "the models are", &known),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of parameters: from the literature if it has them, else added layer by layer.
    #[test]
    fn parameters_are_those_of_the_literature() {
        let expected = [
            ("mlp", 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10),
            ("cnn", 9 * 32 + 64 + 9 * 32 * 64 + 128 + 12 * 12 * 64 * 128 + 128 + 1290),
            ("small_cnn", 9 * 8 + 16 + 9 * 8 * 16 + 32 + 7 * 7 * 16 * 10 + 10),
            ("cnn6", 9 * (3 * 32 + 32 * 32 + 32 * 64 + 64 * 64 + 64 * 128 + 128 * 128) + 4 * 224 + 4 * 4 * 1280 + 10),
            ("digits_cnn", 9 * (16 + 16 * 32 + 32 * 64) + 2 * 112 + 4 * 4 * 64 * 10 + 10),
            ("digits_small_cnn", 9 * 8 + 16 + 4 * 4 * 8 * 10 + 10),
            ("digits_wide_cnn", 9 * (64 + 64 * 128 + 128 * 256) + 2 * (64 + 128 + 256) + 4 * 4 * 256 * 10 + 10),
            // As PyTorch's `torchvision.models` counts them.
            ("resnet18", 11_689_512),
            // The trainable ones of `keras.applications`.
            ("resnet50", 25_583_592),
            ("mobilenet_v2", 3_504_872),
            ("efficientnet_b0", 5_288_548),
            ("convnext_tiny", 28_589_128),
            // torchvision's `vgg16_bn.features`, and a dense layer without the two of 4096.
            ("vgg", 14_723_136 - 4_224 + 513_000),
            ("vgg16", 69_151_528),
            // Its nine million of convolutions, and 512 × 4096, 4096 × 4096, 4096 × 10 with their biases.
            ("vgg11", 9_220_480 + 2_101_248 + 16_781_312 + 40_970),
            ("lstm", 4 * 64 * (256 + 64 + 1) + 64 * 10 + 10),
            ("make_parallel", 41_157_101),
            ("char_lstm", 96 * 64 + 4 * 128 * (64 + 128 + 1) + 4 * 128 * (128 + 128 + 1) + 129 * 96),
            // As Keras' `count_params`: embeddings, positions, blocks of two norms, four projections and two layers; norm, head.
            ("gpt_mini", 96 * 128 + 128 * 128 + 4 * (512 + 4 * 129 * 128 + 129 * 512 + 513 * 128) + 256 + 129 * 96),
        ];
        assert!(PRESETS.iter().map(|preset| preset.name).eq(expected.iter().map(|(name, _)| *name)));
        for (name, parameters) in expected {
            let model = find(name).unwrap().build(0).unwrap();
            assert_eq!((name, model.n_parameters()), (name, parameters));
        }
    }

    #[test]
    fn sizes_may_be_others() {
        let small = find("resnet18").unwrap().build_for([32, 32, 3], 10, 0).unwrap();
        assert_eq!(small.n_parameters(), 11_173_962);
        let error = find("small_cnn").unwrap().build_for([1, 1, 1], 10, 0).unwrap_err().to_string();
        assert!(error.contains("MaxPooling2D"), "{error}");
    }

    #[test]
    fn an_unknown_model_is_refused() {
        let error = find("resnet81").err().unwrap().to_string();
        let expected = "the name of a model needs to be known, but is `resnet81`\n  help: ";
        assert!(error.starts_with(expected) && error.contains("did you mean `resnet18`?"), "{error}");
        assert_eq!(find("ResNet-18").unwrap().name, "resnet18");
    }
}
