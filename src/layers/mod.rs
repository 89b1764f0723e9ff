//! The layers that a model is made of, under Keras' names and with its defaults.
//!
//! Each is a plain struct of settings. [`Sequential`](crate::Sequential) and [`ModelBuilder`](crate::ModelBuilder) put them
//! together, and a settings file names them by `type`. A table in each layer's documentation gives the shapes of its
//! tensors; *Across adapters* says what splitting a batch changes. One of your own implements [`Layer`]: see
//! [`extend`](crate::extend).

// Files: one for each layer or group of similar layers: shapes, parameters, recording, ONNX. `table.rs`: `LAYERS`, the one table;
// `configured.rs`: what every layer can have beside its own settings; `builders.rs`, `values.rs`, `axes.rs`: settings of several layers;
// `gradient_sums.rs`, `linear.rs`, `logits.rs`, `lora.rs`, `packed.rs`, `windows.rs`: recordings of several layers; `recurrent_onnx.rs`: recurrent layers as ONNX.

mod activation;
mod attention;
mod attention_heads;
mod axes;
mod batch_norm;
mod bidirectional;
mod builders;
mod concatenate;
mod configured;
mod conv2d;
mod conv2d_transpose;
mod dense;
mod depthwise_conv2d;
mod dot_product_attention;
mod dropout;
mod embedding;
mod flatten;
mod gradient_sums;
mod group_norm;
mod group_query_attention;
mod initializer;
mod layer_norm;
mod layer_scale;
mod linear;
mod logits;
mod lora;
mod mask;
mod merge;
mod multi_head_attention;
mod noise;
mod normalization;
mod one_dimensional;
mod packed;
mod pooling;
mod positions;
mod prelu;
mod recurrence;
mod recurrent_layers;
mod recurrent_onnx;
mod regularizer;
mod remap;
mod rescaling;
mod reshape;
mod reversible_embedding;
mod rotary_embedding;
mod separable_conv2d;
mod softmax;
pub(crate) mod table;
mod up_sampling;
mod values;
mod windows;

use std::fmt;
use std::sync::Arc;

use serde::de::{self, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::kernels::activation_functions::Function;
use crate::onnx::Form;
use crate::packed::BlockAxis;
use crate::plan::Recorder;
use crate::reading;
use crate::shape::Shape;

pub use crate::error::Problem;
pub use activation::{Activation, ActivationLayer, Elu, Gelu, LeakyRelu, Relu, Sigmoid, Tanh};
pub use axes::Axes;
pub use batch_norm::BatchNormalization;
pub use bidirectional::{Bidirectional, MergeMode, RecurrentLayer};
pub use concatenate::Concatenate;
pub(crate) use configured::Regularizers;
pub use configured::{Configure, Configured};
pub use conv2d::Conv2D;
pub use conv2d_transpose::Conv2DTranspose;
pub use dense::Dense;
pub use depthwise_conv2d::DepthwiseConv2D;
pub use dot_product_attention::DotProductAttention;
pub use dropout::{Dropout, SpatialDropout2D, StochasticDepth};
pub use embedding::Embedding;
pub use flatten::Flatten;
pub use group_norm::GroupNormalization;
pub use group_query_attention::GroupQueryAttention;
pub use initializer::{Constant, Initializer};
pub use layer_norm::{LayerNormalization, RmsNormalization};
pub use layer_scale::LayerScale;
pub use lora::{Lora, LowRank};
pub use mask::{ComputeMask, MaskUse, Masking};
pub use merge::{Add, Average, Maximum, Minimum, Multiply, Subtract};
pub use multi_head_attention::MultiHeadAttention;
pub use noise::{GaussianDropout, GaussianNoise};
pub use normalization::Normalization;
pub use one_dimensional::{
    AveragePooling1D, Conv1D, Cropping1D, GlobalAveragePooling1D, GlobalMaxPooling1D, MaxPooling1D, Padding1D,
    UpSampling1D, ZeroPadding1D,
};
pub use pooling::{AveragePooling2D, GlobalAveragePooling2D, GlobalMaxPooling2D, MaxPooling2D};
pub use positions::{PositionEmbedding, SinePositionEncoding};
pub use prelu::Prelu;
pub use recurrent_layers::{Gru, Lstm, SimpleRnn};
pub use regularizer::Regularizer;
pub use remap::{Cropping2D, Permute, RepeatVector, ZeroPadding2D};
pub use rescaling::Rescaling;
pub use reshape::Reshape;
pub use reversible_embedding::ReversibleEmbedding;
pub use rotary_embedding::RotaryEmbedding;
pub use separable_conv2d::SeparableConv2D;
pub use softmax::Softmax;
pub use table::LAYERS;
pub use up_sampling::{Interpolation, UpSampling2D};
pub use values::Values;
pub use windows::Padding;

/// A trainable tensor of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name within the layer, as in Keras: `kernel`, `bias`, `gamma`.
    pub name: &'static str,
    /// Shape.
    pub shape: Vec<usize>,
    /// Initial values.
    pub initializer: Initializer,
}

/// A tensor of a layer that no gradient moves: training moves it by what it sees, or it is fixed.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistic {
    /// Name within the layer: `moving_mean`.
    pub name: &'static str,
    /// Shape.
    pub shape: Vec<usize>,
    /// Initial value of every element, or of each.
    pub initial: Values,
}

/// Output shape and tensors of a layer for given input shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// Shape of the output.
    pub output: Shape,
    /// Trainable tensors.
    pub parameters: Vec<Parameter>,
    /// Moving statistics.
    pub statistics: Vec<Statistic>,
}

impl Built {
    /// A layer without parameters.
    pub fn plain(output: Shape) -> Self {
        Self { output, parameters: Vec::new(), statistics: Vec::new() }
    }
}

/// One kind of layer with its settings. Plain data: it holds no weights and no device object.
pub trait Layer: fmt::Debug + Send + Sync {
    /// Name of the kind, as in Keras: `Dense`.
    fn kind(&self) -> &'static str;

    /// The settings, as they stand in a file.
    fn config(&self) -> Value;

    /// Output shape and parameters for inputs of these shapes.
    ///
    /// # Errors
    /// If the layer can't take such inputs.
    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem>;

    /// The function of each element that this layer is, if it is nothing else: the layer before may apply it.
    #[doc(hidden)]
    fn function(&self) -> Option<Function> {
        None
    }

    /// Whether [`forward`](Self::forward) applies [`Recorder::fused`] to the output, if there is one.
    ///
    /// Backward gets the gradient before the function; so its derivative must follow from the function's output alone.
    #[doc(hidden)]
    fn can_fuse(&self) -> bool {
        false
    }

    /// Whether it uses statistics of the rows of a batch. Then a shard should not be tiny.
    fn has_batch_statistics(&self) -> bool {
        false
    }

    /// For a layer with the statistics `mean` and `variance` that are adapted to the data before training: which of them
    /// each element of a row belongs to.
    fn adapted(&self, _input: &Shape) -> Option<Vec<usize>> {
        None
    }

    /// Below which whole number every value of the input lies, for a layer that looks vectors up by index.
    fn indices(&self) -> Option<usize> {
        None
    }

    /// Frozen kernels, with the trainable factors of low rank that stand beside them.
    #[doc(hidden)]
    fn low_ranks(&self) -> Vec<LowRank> {
        Vec::new()
    }

    /// The layer with factors of low rank beside its kernels, or without; `None` if it can have none.
    #[doc(hidden)]
    fn with_lora(&self, _lora: Option<Lora>) -> Option<Arc<dyn Layer>> {
        None
    }

    /// Axis along which blocks of a parameter lie if it is kept packed while it is frozen; `None` if the layer reads floats alone.
    #[doc(hidden)]
    fn block_axis(&self, _parameter: &str) -> Option<BlockAxis> {
        None
    }

    /// Whether each position of the output is the same function of that position of the only input, so that it may be computed for some
    /// positions after the others.
    #[doc(hidden)]
    fn is_by_position(&self) -> bool {
        false
    }

    /// The layer as it computes in reverse, with the same parameters; `None` if it can't.
    #[doc(hidden)]
    fn reversed(&self) -> Option<Arc<dyn Layer>> {
        None
    }

    /// Use of the mask of its input.
    fn masking(&self) -> MaskUse {
        MaskUse::Drops
    }

    /// Records the output from the inputs.
    fn forward(&self, rec: &mut Recorder<'_>);

    /// Records the gradients of inputs and parameters from that of the output.
    fn backward(&self, rec: &mut Recorder<'_>);

    /// Writes itself as operators of ONNX, for [`Model::export`](crate::Model::export): what it computes at inference.
    ///
    /// # Errors
    /// If ONNX has no operators for it.
    fn onnx(&self, _form: &mut Form<'_>) -> Result<(), Problem> {
        Err(Problem::new("needs an ONNX form, but has none", "write one: implement `Layer::onnx` for it"))
    }
}

/// A kind of layer that can be read from a file.
pub type Entry = crate::kind::Entry<dyn Layer>;

/// The entry of a layer that derives `Deserialize`.
pub const fn entry<L: Layer + serde::de::DeserializeOwned + 'static>(kind: &'static str) -> Entry {
    Entry { kind, from_config: |config| Ok(Arc::new(reading::read::<L>(&config.into())?)) }
}

/// The settings of a layer as JSON. Settings are plain structs, which always serialise.
pub fn to_config<L: serde::Serialize>(layer: &L) -> Value {
    serde_json::to_value(layer).unwrap_or(Value::Null)
}

/// Result of [`Layer::build`] after an earlier call with the same arguments has succeeded.
fn as_built<T>(found: Result<T, Problem>) -> T {
    found.unwrap_or_else(|problem| unreachable!("{}", problem.problem))
}

/// The bias of a layer that may have one.
fn bias(use_bias: bool, units: usize) -> Option<Parameter> {
    use_bias.then(|| Parameter { name: "bias", shape: vec![units], initializer: Initializer::Zeros })
}

/// Default of settings that are on unless switched off.
fn yes() -> bool {
    true
}

/// Whether a setting has that default.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// Whether a number that is 0 unless set is left out of a file.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(value: &f32) -> bool {
    *value == 0.0
}

/// Height and width: `[3, 5]`, or `3` for both.
fn pair<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[usize; 2], D::Error> {
    struct Pair;
    impl<'de> Visitor<'de> for Pair {
        type Value = [usize; 2];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a pair")
        }

        fn visit_u64<E: de::Error>(self, both: u64) -> Result<[usize; 2], E> {
            let too_large = |_| E::invalid_value(Unexpected::Unsigned(both), &self);
            usize::try_from(both).map(|both| [both, both]).map_err(too_large)
        }

        fn visit_i64<E: de::Error>(self, both: i64) -> Result<[usize; 2], E> {
            let negative = |_| E::invalid_value(Unexpected::Signed(both), &self);
            u64::try_from(both).map_err(negative).and_then(|both| self.visit_u64(both))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<[usize; 2], A::Error> {
            let mut read = Vec::new();
            while let Some(value) = values.next_element()? {
                read.push(value);
            }
            <[usize; 2]>::try_from(read).map_err(|read| de::Error::invalid_length(read.len(), &self))
        }
    }
    deserializer.deserialize_any(Pair)
}

/// Reads a pair, or one number for both, of a setting that may be left out.
fn optional_pair<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[usize; 2]>, D::Error> {
    Ok(Option::<BothWays>::deserialize(deserializer)?.map(|pair| pair.0))
}

/// Value that [`pair`] reads.
#[derive(Deserialize)]
struct BothWays(#[serde(deserialize_with = "pair")] [usize; 2]);

/// The one input of a layer that takes one.
fn only(inputs: &[Shape]) -> Result<&Shape, Problem> {
    match inputs {
        [shape] => Ok(shape),
        _ => Err(Problem::new(
            format!("needs one input, but got {}", inputs.len()),
            "merge the inputs first, with `Add` or `Concatenate`",
        )),
    }
}

/// The one input of a layer that looks at its channels, the last axis.
fn with_channels(inputs: &[Shape]) -> Result<&Shape, Problem> {
    let input = only(inputs)?;
    if input.rank() > 0 {
        return Ok(input);
    }
    Err(Problem::new(format!("needs an input with channels, but got {input}"), "give each row an axis"))
}

/// Height, width and channels of an image.
fn image(inputs: &[Shape]) -> Result<[usize; 3], Problem> {
    match only(inputs)?.axes() {
        &[height, width, channels] => Ok([height, width, channels]),
        _ => Err(Problem::new(
            format!("needs an input [batch, height, width, channels], but got {}", inputs[0]),
            "give images channels last; a grey image has one channel: [batch, height, width, 1]. `Reshape` adds an axis",
        )),
    }
}
