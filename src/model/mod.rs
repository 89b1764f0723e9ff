//! Models: graphs of layers with their weights, built in code or from TOML, saved and loaded.
//!
//! A model is plain data and does not depend on adapters. Layers and tensors have names, by which files and
//! [`Model::tensor`] find them: `dense/kernel`.

// Files: `build.rs`: graph, shapes, initial weights; `needed.rs`: layers that outputs need; `trainable.rs`: layers that training may
// change; `objective.rs`: losses and metrics a model is trained for; `compile.rs`: model to plan; `model_part.rs`: the passes of all nodes or
// of a stage (`model_part/pieces.rs`: logits of a vocabulary); `stages.rs`: a plan for each stage. As files: `config.rs` (TOML, JSON), `file.rs` (safetensors), `evaluation.rs` (losses
// and metrics in it), `export.rs` (ONNX), `own.rs` (users' kinds), `head.rs` (its first layers with others behind them), `pixels.rs` (a layer before them), `lora.rs` (trainable factors beside frozen kernels),
// `packed.rs` and `packing.rs` (frozen kernels in few bits). `summary.rs`: a table.

mod build;
pub(crate) mod compile;
mod config;
mod evaluation;
mod export;
pub(crate) mod file;
mod head;
mod lora;
mod model_part;
mod needed;
pub(crate) mod objective;
mod own;
mod packed;
mod packing;
mod pixels;
pub(crate) mod stages;
mod summary;
mod trainable;

pub(crate) use build::{BEST, OPTIMIZER};
pub(crate) use compile::{CLIP_CONTROL, PENALTIES};

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::layers::{Layer, Regularizers};
use crate::losses::Loss;
use crate::packed::{PackedFormat, Packing};
use crate::plan::{InputMask, Layout, PlacedTensor, PositionMask};
use crate::runtime;
use crate::schema::Schema;
use crate::shape::Shape;
use crate::size::F32_BYTES;

#[cfg(feature = "schema")]
pub use self::config::described_layers;
pub use build::{LayerRef, ModelBuilder, Sequential, TensorRef};
pub use config::{InputConfig, LayerConfig, ModelConfig};
pub use evaluation::Evaluation;
#[cfg(all(feature = "files", feature = "onnx"))]
pub use export::RawExport;
pub use objective::Objective;
pub use own::Own;
pub use stages::{Source, Stage};

/// An input of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Shape of a row.
    pub shape: Shape,
}

/// A layer under its name in the model.
#[derive(Clone, Debug)]
pub(crate) struct NamedLayer {
    /// Prefix of its parameters.
    pub name: String,
    /// The layer.
    pub layer: Arc<dyn Layer>,
    /// Whether training may change it.
    pub is_trainable: bool,
    /// Penalties of its parameters and outputs.
    pub regularizers: Regularizers,
    /// Formats of parameters that are kept packed, by their names within the layer.
    pub packed: BTreeMap<String, PackedFormat>,
}

impl NamedLayer {
    /// Whether the layer itself keeps one of its parameters as it is, such as a kernel beside which factors are trained.
    pub(crate) fn freezes(&self, parameter: &str) -> bool {
        self.layer.low_ranks().iter().any(|it| it.freezes(parameter))
    }

    /// Form of a parameter's blocks, if the layer keeps it packed.
    pub(crate) fn packing(&self, parameter: &str) -> Option<Packing> {
        let (format, axis) = (*self.packed.get(parameter)?, self.layer.block_axis(parameter)?);
        Some(Packing { format, axis })
    }

    /// Whether training may change one of its parameters.
    pub(crate) fn trains(&self, parameter: &str) -> bool {
        self.is_trainable && !self.freezes(parameter)
    }
}

/// One use of a layer. Tensors are numbered: the inputs first, then the node outputs, in order.
#[derive(Clone, Debug)]
pub(crate) struct GraphNode {
    /// Its name: that of the layer, with a number for further uses.
    pub name: String,
    /// Index of the layer.
    pub layer_idx: usize,
    /// Tensors it reads; all have smaller numbers.
    pub inputs: Vec<usize>,
    /// Whether it uses the layer in reverse.
    pub is_reversed: bool,
}

impl GraphNode {
    /// The layer as the node uses it.
    pub(crate) fn layer(&self, layers: &[NamedLayer]) -> Arc<dyn Layer> {
        let layer = &layers[self.layer_idx].layer;
        let reversed = if self.is_reversed { layer.reversed() } else { None };
        reversed.unwrap_or_else(|| layer.clone())
    }
}

/// Weights and moving statistics, flat, in the order of the layout. They are equal if their bits are.
#[derive(Debug, Default)]
pub struct Weights {
    /// Parameters by segment: trainable ones, then those of frozen layers. A packed parameter has words of 32 bits in the place of
    /// floats: such words may look like NaN.
    pub parameters: Vec<Vec<f32>>,
    /// Moving statistics.
    pub statistics: Vec<f32>,
}

impl Weights {
    /// Zeros for each tensor of a layout.
    fn zeros(layout: &Layout) -> Result<Self> {
        let parameters = layout.segments.iter().map(|len| zeros(*len)).collect::<Result<_>>()?;
        Ok(Self { parameters, statistics: zeros(layout.statistics_len)? })
    }

    /// Floats of a parameter, or words of its blocks.
    pub(crate) fn stored(&self, placed: &PlacedTensor) -> &[f32] {
        &self.parameters[placed.segment as usize][placed.range()]
    }
}

/// Zeros, or an error if memory does not suffice.
fn zeros(len: u64) -> Result<Vec<f32>> {
    let refuse = || {
        Error::model(
            "the model",
            format!("needs another {} MB for its weights, but the system has no more memory", (len >> 18) + 1),
            "make its layers smaller, or run it on a machine with more memory",
        )
    };
    if runtime::free_if_below(len.saturating_mul(F32_BYTES)).is_some() {
        return Err(refuse());
    }
    let len = usize::try_from(len).map_err(|_| refuse())?;
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| refuse())?;
    values.resize(len, 0.0);
    Ok(values)
}

impl PartialEq for Weights {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&Vec<f32>, &Vec<f32>)| {
            bytemuck::cast_slice::<f32, u32>(one) == bytemuck::cast_slice::<f32, u32>(other)
        };
        self.parameters.len() == other.parameters.len()
            && self.parameters.iter().zip(&other.parameters).all(same)
            && same((&self.statistics, &other.statistics))
    }
}

impl Clone for Weights {
    fn clone(&self) -> Self {
        Self { parameters: self.parameters.clone(), statistics: self.statistics.clone() }
    }

    /// Copies in place.
    fn clone_from(&mut self, source: &Self) {
        self.parameters.clone_from(&source.parameters);
        self.statistics.clone_from(&source.statistics);
    }
}

/// Mask that reaches an output: which of its positions count in its loss and metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OutputMask {
    /// Each position counts.
    None,
    /// A mask that an input alone decides.
    Input(InputMask),
    /// A mask of values that layers compute.
    Computed,
}

/// A graph of layers with its weights.
///
/// A layer may be used twice: its weights are then shared. Several inputs and outputs are possible. It does
/// not depend on adapters: the same model trains on one or on many.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) inputs: Vec<Input>,
    pub(crate) layers: Vec<NamedLayer>,
    pub(crate) nodes: Vec<GraphNode>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) output_masks: Vec<OutputMask>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) layout: Layout,
    pub(crate) schema: Schema,
    pub(crate) evaluation: Option<Evaluation>,
    /// Values of all parameters and statistics.
    pub weights: Weights,
}

impl Model {
    /// The inputs.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Name and shape of each output.
    pub fn outputs(&self) -> Vec<(&str, &Shape)> {
        self.outputs.iter().map(|tensor| (self.tensor_name(*tensor), &self.shapes[*tensor])).collect()
    }

    /// Mask of each output of which some positions count in no loss.
    #[doc(hidden)]
    pub fn position_masks(&self, losses: &[Loss]) -> Vec<Option<PositionMask>> {
        let of_output = |((mask, output), loss): ((&OutputMask, &usize), &Loss)| {
            let input = match mask {
                OutputMask::Input(mask) => Some(*mask),
                OutputMask::None | OutputMask::Computed => None,
            };
            let ignored = loss.ignored_class();
            let positions = self.shapes[*output].positions();
            (input.is_some() || ignored.is_some()).then_some(PositionMask { input, ignored, positions })
        };
        self.output_masks.iter().zip(&self.outputs).zip(losses).map(of_output).collect()
    }

    /// Values of all parameters together, those of frozen layers included.
    pub fn n_parameters(&self) -> usize {
        self.layout.n_parameters()
    }

    /// Position of each parameter and statistic.
    #[doc(hidden)]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The values of a parameter or statistic by its name, `layer/tensor`; `None` for a parameter that is
    /// [packed](Self::packed).
    pub fn tensor(&self, name: &str) -> Option<&[f32]> {
        if let Some(idx) = self.layout.parameter(name) {
            let placed = &self.layout.parameters[idx];
            return placed.packing.is_none().then(|| self.weights.stored(placed));
        }
        let placed = &self.layout.statistics[self.layout.statistic(name)?];
        Some(&self.weights.statistics[placed.range()])
    }

    /// The values of a parameter or statistic by its name, to be changed; `None` for a parameter that is packed.
    pub fn tensor_mut(&mut self, name: &str) -> Option<&mut [f32]> {
        if let Some(idx) = self.layout.parameter(name) {
            let placed = &self.layout.parameters[idx];
            let values = &mut self.weights.parameters[placed.segment as usize];
            return placed.packing.is_none().then(|| &mut values[placed.range()]);
        }
        let placed = &self.layout.statistics[self.layout.statistic(name)?];
        Some(&mut self.weights.statistics[placed.range()])
    }

    /// Name, shape and values of each tensor: parameters that are not packed, then moving statistics.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[usize], &[f32])> {
        let parameters = self.layout.parameters.iter().filter(|placed| placed.packing.is_none());
        let parameters = parameters.map(|placed| (placed, self.weights.stored(placed)));
        let statistics = self.layout.statistics.iter().map(|placed| (placed, &self.weights.statistics[placed.range()]));
        parameters.chain(statistics).map(|(placed, values)| (placed.name.as_str(), placed.shape.as_slice(), values))
    }

    /// The layer to which a parameter or statistic belongs, by position.
    pub(crate) fn owners<'a>(&'a self, tensors: &'a [PlacedTensor]) -> impl Iterator<Item = (usize, &'a PlacedTensor)> {
        let names = self.layers.iter().enumerate().map(|(idx, layer)| (layer.name.as_str(), idx));
        let layers: HashMap<&str, usize> = names.collect();
        tensors.iter().filter_map(move |placed| {
            let (layer, _) = placed.name.split_once('/')?;
            Some((*layers.get(layer)?, placed))
        })
    }

    /// Whether any layer uses statistics of a batch. Then a shard should not be tiny.
    pub fn has_batch_statistics(&self) -> bool {
        let mut layers = self.nodes.iter().map(|node| &self.layers[node.layer_idx]);
        layers.any(|named| named.is_trainable && named.layer.has_batch_statistics())
    }

    /// Upper bound of the values of an input by which layers look up vectors.
    pub(crate) fn index_bound(&self, input: usize) -> Option<usize> {
        let readers = self.nodes.iter().filter(|node| node.inputs.first() == Some(&input));
        readers.filter_map(|node| node.layer(&self.layers).indices()).min()
    }

    /// Name of a tensor: an input's or a node's.
    pub(crate) fn tensor_name(&self, tensor: usize) -> &str {
        match tensor.checked_sub(self.inputs.len()) {
            None => &self.inputs[tensor].name,
            Some(node) => &self.nodes[node].name,
        }
    }

    /// Name of a node in messages: ``layer 3 `norm1` (BatchNormalization)``.
    pub(crate) fn who(layer_idx: usize, layer: &NamedLayer) -> String {
        format!("layer {layer_idx} `{}` ({})", layer.name, layer.layer.kind())
    }
}
