//! Builds a model: checks shapes, lays out and fills weights.

use std::collections::HashSet;

use litemap::LiteMap;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{GraphNode, Input, Model, NamedLayer, OutputMask, Weights, packing};
use crate::error::{Error, Result};
use crate::layers::{Built, ComputeMask, Concatenate, Configured, MaskUse, Maximum, Minimum, Parameter};
use crate::plan::{InputMask, Layout};
use crate::schema::Schema;
use crate::shape::Shape;

/// Largest number of elements of a row: keeps every index within 32 bits for batches of at least 8 rows.
const MAX_ROW: usize = 1 << 28;

/// Prefix of optimizer state in a checkpoint: no layer's name.
pub(crate) const OPTIMIZER: &str = "optimizer";
/// Prefix of the best weights so far in a checkpoint: no layer's name.
pub(crate) const BEST: &str = "best";

/// A tensor of a model that is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRef(pub(super) usize);

/// A layer of a model that is being built, to be used several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerRef(pub(super) usize);

/// Builds a graph of layers.
///
/// ```
/// use manyhands::{ModelBuilder, Shape, layers::{Add, Dense}};
/// # fn main() -> manyhands::Result<()> {
/// let mut graph = ModelBuilder::new();
/// let x = graph.input("x", [64]);
/// let shared = graph.layer("shared", Dense::new(64));
/// let once = graph.call(shared, &[x]);
/// let twice = graph.call(shared, &[once]);
/// let sum = graph.add(Add::default(), &[x, twice]);
/// let model = graph.build(&[sum], 0)?;
/// assert_eq!(model.n_parameters(), 64 * 64 + 64);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ModelBuilder {
    inputs: Vec<Input>,
    layers: Vec<NamedLayer>,
    /// Tensor numbers here count inputs and nodes in the order of their creation.
    nodes: Vec<GraphNode>,
    tensors: Vec<Made>,
    /// Names that were made of each stem.
    names: LiteMap<String, usize>,
    /// Number of uses of each layer.
    uses: Vec<usize>,
    /// Existing masks, made when a layer takes them.
    masks: Vec<SequenceMask>,
    /// The mask of each tensor.
    mask_of: Vec<Option<usize>>,
    /// Shapes of the first tensors, known since a layer took masks; none where a layer can't take its inputs.
    shapes: Vec<Option<Shape>>,
}

/// Mask of a sequence. Most are not made before a layer needs them.
#[derive(Clone, Debug)]
enum SequenceMask {
    /// Mask of a tensor: numbers that are not all the value.
    Of(usize, f32),
    /// Positions that count in any of these masks.
    Any(Vec<usize>),
    /// Positions that count in both masks.
    Both([usize; 2]),
    /// These masks, one behind the other.
    Joined(Vec<usize>),
    /// A tensor.
    Made(TensorRef),
}

/// Origin of an output's mask.
#[derive(Clone, Copy, Debug)]
enum MaskOrigin {
    /// An input, and its value of padding.
    Input(usize, f32),
    /// A layer.
    Computed,
}

/// A value that no number of a sequence has: with it all positions count.
const NO_VALUE: f32 = f32::MAX;

/// Direction in which a layer is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Reverse,
}

#[derive(Clone, Copy, Debug)]
enum Made {
    Input(usize),
    Node(usize),
}

impl Made {
    /// Its number among the tensors of a model: inputs first.
    fn number(self, n_inputs: usize) -> usize {
        match self {
            Self::Input(idx) => idx,
            Self::Node(idx) => n_inputs + idx,
        }
    }
}

/// Name of a layer's next use: the layer's own, then with a number.
pub(super) fn use_name(layer: &str, uses: &mut usize) -> String {
    *uses += 1;
    if *uses == 1 { layer.to_owned() } else { format!("{layer}:{}", *uses - 1) }
}

/// `RMSNormalization` to `rms_normalization`, as Keras names layers.
fn snake(kind: &str) -> String {
    let letters: Vec<char> = kind.chars().collect();
    let is_lower = |at: usize| letters.get(at).is_some_and(char::is_ascii_lowercase);
    let mut name = String::new();
    for (at, letter) in letters.iter().enumerate() {
        if at > 0 && letter.is_ascii_uppercase() && (is_lower(at - 1) || is_lower(at + 1)) {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

impl ModelBuilder {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input; `shape` is that of a row.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>) -> TensorRef {
        self.inputs.push(Input { name: name.into(), shape: shape.into() });
        self.tensors.push(Made::Input(self.inputs.len() - 1));
        self.mask_of.push(None);
        TensorRef(self.tensors.len() - 1)
    }

    /// Adds a layer without using it yet.
    pub fn layer(&mut self, name: &str, layer: impl Into<Configured>) -> LayerRef {
        self.shared_layer(Some(name), layer.into())
    }

    pub(super) fn shared_layer(&mut self, name: Option<&str>, layer: Configured) -> LayerRef {
        let Configured { layer, is_trainable, regularizers, packed } = layer;
        let name = name.map_or_else(|| self.unique(&snake(layer.kind())), str::to_owned);
        self.layers.push(NamedLayer { name, layer, is_trainable, regularizers, packed });
        self.uses.push(0);
        LayerRef(self.layers.len() - 1)
    }

    /// Freezes a layer: see [`Model::freeze`].
    pub fn freeze(&mut self, layer: LayerRef) {
        self.layers[layer.0].is_trainable = false;
    }

    /// Uses a layer. One that takes a mask gets that of its first input, if it has one, behind its inputs.
    pub fn call(&mut self, layer: LayerRef, inputs: &[TensorRef]) -> TensorRef {
        self.call_node(layer, inputs, Direction::Forward)
    }

    /// Uses a layer in reverse, such as a [`ReversibleEmbedding`](crate::layers::ReversibleEmbedding) that was used before.
    pub fn call_reversed(&mut self, layer: LayerRef, inputs: &[TensorRef]) -> TensorRef {
        self.call_node(layer, inputs, Direction::Reverse)
    }

    pub(super) fn call_node(&mut self, layer: LayerRef, inputs: &[TensorRef], direction: Direction) -> TensorRef {
        let is_reversed = direction == Direction::Reverse;
        let mut node = GraphNode { name: String::new(), layer_idx: layer.0, inputs: Vec::new(), is_reversed };
        let masking = node.layer(&self.layers).masking();
        let mut inputs: Vec<usize> = inputs.iter().map(|tensor| tensor.0).collect();
        let first = inputs.first().copied();
        let mask = match (masking, first) {
            (MaskUse::Drops, _) | (_, None) => None,
            (MaskUse::Passes, Some(first)) => self.mask_of[first],
            (MaskUse::Makes { value }, Some(first)) => Some(self.add_mask(SequenceMask::Of(first, value))),
            (MaskUse::Takes { behind }, Some(_)) => self.take_mask(&mut inputs, behind),
            (MaskUse::Ends { behind }, Some(_)) => {
                self.take_mask(&mut inputs, behind);
                None
            }
            (MaskUse::Merges, Some(_)) => self.merged_mask(&inputs),
            (MaskUse::Joins, Some(_)) => self.joined_mask(&inputs),
            (MaskUse::Attends, Some(_)) => self.take_masks(&mut inputs),
        };
        (node.name, node.inputs) = (use_name(&self.layers[layer.0].name, &mut self.uses[layer.0]), inputs);
        self.mask_of.push(mask);
        self.tensors.push(Made::Node(self.nodes.len()));
        self.nodes.push(node);
        TensorRef(self.tensors.len() - 1)
    }

    /// Adds the mask of the first input behind so many, unless it is given. Returns the mask.
    fn take_mask(&mut self, inputs: &mut Vec<usize>, behind: usize) -> Option<usize> {
        if let Some(given) = inputs.get(behind).filter(|_| inputs.len() == behind + 1) {
            return Some(self.add_mask(SequenceMask::Made(TensorRef(*given))));
        }
        let mask = self.mask_of[inputs[0]]?;
        if inputs.len() == behind {
            inputs.push(self.mask(mask).0);
        }
        Some(mask)
    }

    /// Adds the masks of query, value and key to them, unless some are given. Returns the query's.
    fn take_masks(&mut self, inputs: &mut Vec<usize>) -> Option<usize> {
        let n_sequences = inputs.iter().take_while(|input| !self.is_mask(**input)).count();
        match (&inputs[n_sequences..], n_sequences) {
            (&[], _) => {}
            (&[given], 1) | (&[given, _], _) => return Some(self.add_mask(SequenceMask::Made(TensorRef(given)))),
            _ => return None,
        }
        let of = |at: usize| inputs.get(at).and_then(|input| self.mask_of[*input]);
        let (query, value) = (of(0), of(1));
        let key = of(2).filter(|_| inputs.get(1) != inputs.get(2));
        let keys = match (value, key) {
            (Some(value), Some(key)) if value != key => Some(self.add_mask(SequenceMask::Both([value, key]))),
            (value, key) => value.or(key),
        };
        let keys = match (query, keys) {
            (Some(_), None) if n_sequences > 1 => Some(self.add_mask(SequenceMask::Of(inputs[1], NO_VALUE))),
            _ => keys,
        };
        for mask in [query, keys].into_iter().flatten() {
            inputs.push(self.mask(mask).0);
        }
        query
    }

    /// Whether a tensor is no sequence, but a number for each position of one.
    fn is_mask(&mut self, tensor: usize) -> bool {
        for made in &self.tensors[self.shapes.len()..] {
            let shape = match *made {
                Made::Input(idx) => Some(self.inputs[idx].shape.clone()),
                Made::Node(idx) => {
                    let node = &self.nodes[idx];
                    let inputs: Option<Vec<Shape>> =
                        node.inputs.iter().map(|input| self.shapes[*input].clone()).collect();
                    inputs.and_then(|inputs| Some(node.layer(&self.layers).build(&inputs).ok()?.output))
                }
            };
            self.shapes.push(shape);
        }
        self.shapes[tensor].as_ref().is_some_and(|shape| shape.rank() == 1)
    }

    /// The mask of what is made of several inputs, element by element: of their masks, if all have one.
    fn merged_mask(&mut self, inputs: &[usize]) -> Option<usize> {
        let masks = inputs.iter().map(|input| self.mask_of[*input]).collect::<Option<Vec<usize>>>()?;
        let mut different = masks.clone();
        different.sort_unstable();
        different.dedup();
        match different[..] {
            [one] => Some(one),
            _ => Some(self.add_mask(SequenceMask::Any(different))),
        }
    }

    /// The mask of inputs one behind the other; all positions of one without a mask count.
    fn joined_mask(&mut self, inputs: &[usize]) -> Option<usize> {
        if inputs.iter().all(|input| self.mask_of[*input].is_none()) {
            return None;
        }
        let of = |input: &usize| (self.mask_of[*input], *input);
        let masks: Vec<(Option<usize>, usize)> = inputs.iter().map(of).collect();
        let masks = masks.into_iter();
        let masks = masks
            .map(|(mask, input)| mask.unwrap_or_else(|| self.add_mask(SequenceMask::Of(input, NO_VALUE))))
            .collect();
        Some(self.add_mask(SequenceMask::Joined(masks)))
    }

    fn add_mask(&mut self, mask: SequenceMask) -> usize {
        self.masks.push(mask);
        self.masks.len() - 1
    }

    /// The mask of an output.
    fn found_mask(&self, output: TensorRef) -> Option<MaskOrigin> {
        let tensor = match self.masks[self.mask_of[output.0]?] {
            SequenceMask::Of(tensor, value) => return Some(self.found_input(tensor, value)),
            SequenceMask::Made(tensor) => tensor.0,
            SequenceMask::Any(_) | SequenceMask::Both(_) | SequenceMask::Joined(_) => {
                return Some(MaskOrigin::Computed);
            }
        };
        let Made::Node(idx) = self.tensors[tensor] else { return Some(self.found_input(tensor, 0.0)) };
        let node = &self.nodes[idx];
        let layer = &self.layers[node.layer_idx].layer;
        match layer.kind() {
            "ComputeMask" => {
                #[allow(clippy::cast_possible_truncation, reason = "the setting is an f32")]
                let value =
                    layer.config().get("mask_value").and_then(serde_json::Value::as_f64).map_or(0.0, |it| it as f32);
                Some(self.found_input(node.inputs[0], value))
            }
            "Concatenate" | "Maximum" | "Minimum" => Some(MaskOrigin::Computed),
            // Another tensor that the caller named is a mask for that layer alone.
            _ => None,
        }
    }

    fn found_input(&self, tensor: usize, value: f32) -> MaskOrigin {
        match self.tensors[tensor] {
            Made::Input(input) => MaskOrigin::Input(input, value),
            Made::Node(_) => MaskOrigin::Computed,
        }
    }

    /// A mask as a tensor.
    fn mask(&mut self, mask: usize) -> TensorRef {
        let made = match self.masks[mask].clone() {
            SequenceMask::Made(tensor) => return tensor,
            SequenceMask::Of(tensor, value) => self.add(ComputeMask { mask_value: value }, &[TensorRef(tensor)]),
            SequenceMask::Any(masks) => {
                let masks = self.all_masks(&masks);
                self.add(Maximum::default(), &masks)
            }
            SequenceMask::Both(masks) => {
                let masks = self.all_masks(&masks);
                self.add(Minimum::default(), &masks)
            }
            SequenceMask::Joined(masks) => {
                let masks = self.all_masks(&masks);
                self.add(Concatenate { axis: 1 }, &masks)
            }
        };
        self.masks[mask] = SequenceMask::Made(made);
        made
    }

    fn all_masks(&mut self, masks: &[usize]) -> Vec<TensorRef> {
        masks.iter().map(|mask| self.mask(*mask)).collect()
    }

    /// Adds a layer under a generated name, and uses it.
    pub fn add(&mut self, layer: impl Into<Configured>, inputs: &[TensorRef]) -> TensorRef {
        let layer = self.shared_layer(None, layer.into());
        self.call(layer, inputs)
    }

    /// Adds a layer under a name, and uses it.
    pub fn add_named(&mut self, name: &str, layer: impl Into<Configured>, inputs: &[TensorRef]) -> TensorRef {
        let layer = self.layer(name, layer);
        self.call(layer, inputs)
    }

    /// Name of the node that makes a tensor.
    pub(super) fn node_name(&self, tensor: TensorRef) -> String {
        match self.tensors[tensor.0] {
            Made::Input(idx) => self.inputs[idx].name.clone(),
            Made::Node(idx) => self.nodes[idx].name.clone(),
        }
    }

    /// Name of a layer.
    pub(super) fn layer_name(&self, layer: LayerRef) -> String {
        self.layers[layer.0].name.clone()
    }

    fn unique(&mut self, stem: &str) -> String {
        let count = self.names.entry(stem.to_owned()).or_insert(0);
        *count += 1;
        if *count == 1 { stem.to_owned() } else { format!("{stem}_{}", *count - 1) }
    }

    /// Checks all shapes, places all parameters, and fills them from the seed.
    ///
    /// Layers that no output needs are checked, and then left out, as Keras' `Model(inputs, outputs)` does: they take
    /// no memory and no time, and a file of the model does not name them. [`Model::summary`] does.
    ///
    /// # Errors
    /// If a layer can't take its inputs, two things have one name, there is no output, or memory does not suffice for
    /// the weights.
    pub fn build(self, outputs: &[TensorRef], seed: u64) -> Result<Model> {
        self.finish(outputs, Some(seed))
    }

    /// [`build`](Self::build); without a seed, parameters are 0.
    pub(super) fn finish(self, outputs: &[TensorRef], seed: Option<u64>) -> Result<Model> {
        self.check(outputs)?;
        let n_inputs = self.inputs.len();
        let masks: Vec<Option<MaskOrigin>> = outputs.iter().map(|output| self.found_mask(*output)).collect();
        let renumbered: Vec<usize> = self.tensors.iter().map(|made| made.number(n_inputs)).collect();
        let mut nodes = self.nodes;
        for tensor in nodes.iter_mut().flat_map(|node| &mut node.inputs) {
            *tensor = renumbered[*tensor];
        }
        let mut model = Model {
            nodes,
            schema: Schema::default(),
            evaluation: None,
            outputs: outputs.iter().map(|tensor| renumbered[tensor.0]).collect(),
            output_masks: Vec::new(),
            shapes: self.inputs.iter().map(|input| input.shape.clone()).collect(),
            inputs: self.inputs,
            layers: self.layers,
            layout: Layout::default(),
            weights: Weights::default(),
        };
        let built = model.infer()?;
        model.output_masks =
            model.outputs.iter().zip(masks).map(|(output, mask)| model.mask_of(*output, mask)).collect();
        model.leave_out_unneeded();
        model.place(&built)?;
        model.fill(&built, seed)?;
        Ok(model)
    }

    fn check(&self, outputs: &[TensorRef]) -> Result<()> {
        let mut names = HashSet::new();
        let all = self.inputs.iter().map(|input| &input.name).chain(self.layers.iter().map(|layer| &layer.name));
        for name in all {
            if name.is_empty() || name.contains(['/', ':']) || !names.insert(name) {
                return Err(Error::model(
                    format!("name `{name}`"),
                    "needs to be unique and without `/` or `:`, but is not",
                    "give each input and layer a name of its own; to use one layer twice, make it once and call it twice",
                ));
            }
        }
        if let Some(layer) = self.layers.iter().find(|layer| [OPTIMIZER, BEST].contains(&layer.name.as_str())) {
            return Err(Error::model(
                format!("layer `{}`", layer.name),
                "needs another name: checkpoints keep their own tensors under this one",
                format!("`{OPTIMIZER}` and `{BEST}` are reserved"),
            ));
        }
        if let Some(input) = self.inputs.iter().find(|input| input.shape.len() == 0 || input.shape.len() > MAX_ROW) {
            return Err(Error::model(
                format!("input `{}`", input.name),
                format!("needs between 1 and {MAX_ROW} elements a row, but has shape {}", input.shape),
                "leave the batch axis out of the shape, and let every other axis be at least 1",
            ));
        }
        if outputs.is_empty() || self.inputs.is_empty() {
            return Err(Error::model(
                "model",
                "needs at least one input and one output",
                "name them when you build it",
            ));
        }
        Ok(())
    }
}

impl Model {
    /// The mask of an output whose positions are those of the mask.
    fn mask_of(&self, output: usize, found: Option<MaskOrigin>) -> OutputMask {
        let positions = self.shapes[output].positions();
        match found {
            None => OutputMask::None,
            Some(MaskOrigin::Computed) => OutputMask::Computed,
            Some(MaskOrigin::Input(input, value)) => match self.shapes[input].axes().first() {
                Some(time) if *time == positions => OutputMask::Input(InputMask { input, value, positions }),
                // Its axes are not those of the mask.
                _ => OutputMask::None,
            },
        }
    }

    /// Shapes of all tensors, and the parameters of each layer.
    fn infer(&mut self) -> Result<Vec<Option<Built>>> {
        let mut layers: Vec<Option<Built>> = vec![None; self.layers.len()];
        for node_idx in 0..self.nodes.len() {
            let layer_idx = self.nodes[node_idx].layer_idx;
            let built = self.infer_node(node_idx, layers[layer_idx].as_ref())?;
            self.shapes.push(built.output.clone());
            layers[layer_idx] = Some(built);
        }
        Ok(layers)
    }

    /// Tensors of a node, checked against an earlier use of its layer.
    fn infer_node(&self, node_idx: usize, first: Option<&Built>) -> Result<Built> {
        let node = &self.nodes[node_idx];
        let named = &self.layers[node.layer_idx];
        let who = || Self::who(node.layer_idx, named);
        self.check_direction(node, first)?;
        let inputs: Vec<Shape> = node.inputs.iter().map(|tensor| self.shapes[*tensor].clone()).collect();
        let checked = node.layer(&self.layers).build(&inputs).and_then(|built| {
            named.regularizers.check(&built)?;
            packing::check(named, &built)?;
            Ok(built)
        });
        let built = checked.map_err(|problem| {
            let before = node.inputs.iter().map(|tensor| format!("`{}`", self.tensor_name(*tensor)));
            let help = format!("{}; its input comes from {}", problem.help, before.collect::<Vec<_>>().join(", "));
            Error::model(who(), problem.problem, help)
        })?;
        let differs = |first: &&Built| first.parameters != built.parameters || first.statistics != built.statistics;
        if let Some(first) = first.filter(differs) {
            return Err(Error::model(
                who(),
                format!("needs inputs of the same width at each use, but {} does not fit {}", inputs[0], first.output),
                "give all inputs of a shared layer the same last axis, or use two layers",
            ));
        }
        if built.output.len() == 0 || built.output.len() > MAX_ROW {
            return Err(Error::model(
                who(),
                format!("needs an output of 1 to {MAX_ROW} elements a row, but it would be {}", built.output),
                "make the layer smaller",
            ));
        }
        Ok(built)
    }

    /// Checks that a node that uses a layer in reverse may do so.
    fn check_direction(&self, node: &GraphNode, first: Option<&Built>) -> Result<()> {
        let named = &self.layers[node.layer_idx];
        let (problem, help) = match (node.is_reversed, named.layer.reversed(), first) {
            (false, ..) | (true, Some(_), Some(_)) => return Ok(()),
            (true, None, _) => {
                ("needs to be a layer that goes both ways, but has only one", "`ReversibleEmbedding` goes both ways")
            }
            (true, Some(_), None) => (
                "needs a first use that is not in reverse, but has none",
                "set `reverse` of the layer itself if it is used in reverse alone",
            ),
        };
        Err(Error::model(Self::who(node.layer_idx, named), problem, help))
    }

    /// Each layer that is used, in the order of first use.
    fn layers_in_use<'a>(&'a self, built: &'a [Option<Built>]) -> impl Iterator<Item = (&'a NamedLayer, &'a Built)> {
        let mut seen = vec![false; built.len()];
        let first_uses = self.nodes.iter().filter(move |node| !std::mem::replace(&mut seen[node.layer_idx], true));
        first_uses.filter_map(|node| Some((&self.layers[node.layer_idx], built[node.layer_idx].as_ref()?)))
    }

    /// Infers shapes, places parameters and fills them again, after layers were replaced.
    pub(super) fn rebuild(&mut self, seed: u64) -> Result<()> {
        self.shapes.truncate(self.inputs.len());
        let built = self.infer()?;
        self.place(&built)?;
        self.fill(&built, Some(seed))
    }

    fn place(&mut self, built: &[Option<Built>]) -> Result<()> {
        let mut layout = Layout::default();
        for (named, built) in self.layers_in_use(built) {
            for parameter in built.parameters.iter().filter(|it| named.trains(it.name)) {
                layout.add_parameter(parameter_name(named, parameter), parameter.shape.clone())?;
            }
        }
        for (named, built) in self.layers_in_use(built) {
            for parameter in built.parameters.iter().filter(|it| !named.trains(it.name)) {
                let packing = named.packing(parameter.name);
                layout.add_frozen(parameter_name(named, parameter), parameter.shape.clone(), packing)?;
            }
        }
        for (named, built) in self.layers_in_use(built) {
            for statistic in &built.statistics {
                layout.add_statistic(format!("{}/{}", named.name, statistic.name), statistic.shape.clone())?;
            }
        }
        self.layout = layout;
        Ok(())
    }

    fn fill(&mut self, built: &[Option<Built>], seed: Option<u64>) -> Result<()> {
        let mut weights = Weights::zeros(&self.layout)?;
        let parameters = self.layers_in_use(built);
        let parameters = parameters.flat_map(|(named, built)| built.parameters.iter().map(move |it| (named, it)));
        for (stream, (named, parameter)) in (0..).zip(parameters) {
            let Some(seed) = seed else { break };
            let Some(idx) = self.layout.parameter(&parameter_name(named, parameter)) else { continue };
            let placed = &self.layout.parameters[idx];
            // A stream of its own, so that a parameter's values do not depend on the sizes of those before it, nor on
            // which layers are frozen.
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            let values = &mut weights.parameters[placed.segment as usize][placed.range()];
            packing::fill(placed, values, |floats| parameter.initializer.fill(&parameter.shape, &mut rng, floats))?;
        }
        let statistics = self.layers_in_use(built).flat_map(|(_, built)| &built.statistics);
        for (placed, statistic) in self.layout.statistics.iter().zip(statistics) {
            statistic.initial.fill(&mut weights.statistics[placed.range()]);
        }
        self.weights = weights;
        Ok(())
    }
}

/// Name of a parameter: `layer/tensor`.
fn parameter_name(named: &NamedLayer, parameter: &Parameter) -> String {
    format!("{}/{}", named.name, parameter.name)
}

/// A chain of layers: sugar over [`ModelBuilder`].
///
/// ```
/// use manyhands::{Sequential, layers::{Dense, Flatten}};
/// # fn main() -> manyhands::Result<()> {
/// let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
/// assert_eq!(model.outputs()[0].1.to_string(), "[batch, 10]");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sequential {
    graph: ModelBuilder,
    last: TensorRef,
}

impl Sequential {
    /// Starts with an input `input`; `shape` is that of a row.
    pub fn new(shape: impl Into<Shape>) -> Self {
        let mut graph = ModelBuilder::new();
        let last = graph.input("input", shape);
        Self { graph, last }
    }

    /// Adds a layer behind the last one.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "the name that Keras gives it")]
    pub fn add(mut self, layer: impl Into<Configured>) -> Self {
        self.last = self.graph.add(layer, &[self.last]);
        self
    }

    /// Adds a named layer after the last one.
    #[must_use]
    pub fn add_named(mut self, name: &str, layer: impl Into<Configured>) -> Self {
        self.last = self.graph.add_named(name, layer, &[self.last]);
        self
    }

    /// Freezes the layers so far: see [`Model::freeze`].
    #[must_use]
    pub fn freeze(mut self) -> Self {
        self.graph.layers.iter_mut().for_each(|named| named.is_trainable = false);
        self
    }

    /// Builds the model: see [`ModelBuilder::build`].
    ///
    /// # Errors
    /// If a layer can't take its input.
    pub fn build(self, seed: u64) -> Result<Model> {
        self.graph.build(&[self.last], seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_keras() {
        for (kind, name) in [
            ("BatchNormalization", "batch_normalization"),
            ("Conv2DTranspose", "conv2d_transpose"),
            ("GELU", "gelu"),
            ("LeakyReLU", "leaky_re_lu"),
            ("MaxPooling2D", "max_pooling2d"),
            ("PReLU", "p_re_lu"),
            ("RMSNormalization", "rms_normalization"),
            ("ReLU", "re_lu"),
        ] {
            assert_eq!(snake(kind), name);
        }
    }
}
