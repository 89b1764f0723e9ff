//! A graph of operators, before it is written.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::protobuf::Message;
use crate::shape::elements;

/// Version of the operators: those of ONNX 1.12, which onnxruntime reads from 1.12 on.
const OPSET: u64 = 17;
/// Version of the operators of a graph that takes strings apart: those of ONNX 1.15, which onnxruntime reads from 1.17 on.
const OPSET_OF_STRINGS: u64 = 20;
/// Version of the operators for machine learning that are not neural networks, of ONNX 1.12.
const ML_OPSET: u64 = 3;
const ML_DOMAIN: &str = "ai.onnx.ml";

/// Codes of types of values.
pub(crate) const FLOAT: i64 = 1;
pub(crate) const UINT8: i64 = 2;
pub(crate) const INT64: i64 = 7;
pub(crate) const STRING: i64 = 8;
pub(crate) const BOOL: i64 = 9;
pub(crate) const DOUBLE: i64 = 11;

/// A setting of an operator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// Several.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
    /// Several.
    Floats(Vec<f32>),
    /// A name.
    Text(&'static str),
    /// Several.
    Texts(Vec<&'static str>),
    /// A text that the data give.
    #[doc(hidden)]
    Name(String),
    /// Several.
    #[doc(hidden)]
    Names(Vec<String>),
    #[doc(hidden)]
    Graph(GraphBytes),
}

/// A graph within an operator, as its bytes.
#[derive(Clone, Debug)]
pub struct GraphBytes(Message);

impl Attribute {
    /// Sizes or axes.
    pub(crate) fn sizes(sizes: impl IntoIterator<Item = usize>) -> Self {
        Self::Ints(sizes.into_iter().map(signed).collect())
    }

    /// A size.
    pub(crate) fn size(size: usize) -> Self {
        Self::Int(signed(size))
    }

    /// `AttributeProto`.
    fn message(&self, name: &str) -> Message {
        let mut message = Message::default();
        message.bytes(1, name);
        let kind = match self {
            Self::Float(value) => {
                message.float(2, *value);
                1
            }
            Self::Int(value) => {
                message.signed(3, *value);
                2
            }
            Self::Text(text) => {
                message.bytes(4, text);
                3
            }
            Self::Name(name) => {
                message.bytes(4, name);
                3
            }
            Self::Names(names) => {
                names.iter().for_each(|name| message.bytes(9, name));
                8
            }
            Self::Graph(GraphBytes(graph)) => {
                message.message(6, graph);
                5
            }
            Self::Floats(values) => {
                values.iter().for_each(|value| message.float(7, *value));
                6
            }
            Self::Ints(values) => {
                values.iter().for_each(|value| message.signed(8, *value));
                7
            }
            Self::Texts(texts) => {
                texts.iter().for_each(|text| message.bytes(9, text));
                8
            }
        };
        message.integer(20, kind);
        message
    }
}

/// A size as ONNX takes it.
pub(crate) fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// `ValueInfoProto` of a type: rows of a shape, or something of a shape that is not told.
pub(super) fn value(name: &str, kind: i64, row: Option<&[usize]>) -> Message {
    let mut tensor = Message::default();
    tensor.signed(1, kind);
    if let Some(row) = row {
        let (mut shape, mut batch) = (Message::default(), Message::default());
        batch.bytes(2, "batch");
        shape.message(1, &batch);
        for size in row {
            let mut dim = Message::default();
            dim.integer(1, *size as u64);
            shape.message(1, &dim);
        }
        tensor.message(2, &shape);
    }
    let (mut kind, mut value) = (Message::default(), Message::default());
    kind.message(1, &tensor);
    value.bytes(1, name);
    value.message(2, &kind);
    value
}

/// An operator with its inputs and outputs by name. An input that is left out has no name.
#[derive(Debug)]
pub(crate) struct Operator {
    pub name: String,
    pub kind: &'static str,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub attributes: Vec<(&'static str, Attribute)>,
}

impl Operator {
    /// `NodeProto`.
    pub(super) fn message(&self) -> Message {
        let mut message = Message::default();
        self.inputs.iter().for_each(|input| message.bytes(1, input));
        self.outputs.iter().for_each(|output| message.bytes(2, output));
        message.bytes(3, &self.name);
        message.bytes(4, self.kind);
        if is_of_ml(self.kind) {
            message.bytes(7, ML_DOMAIN);
        }
        self.attributes.iter().for_each(|(name, value)| message.message(5, &value.message(name)));
        message
    }
}

/// Whether an operator is one of [`ML_DOMAIN`].
fn is_of_ml(kind: &str) -> bool {
    kind == "LabelEncoder"
}

/// Makes the values of a tensor of the file from those of a tensor of the model.
pub(crate) type Arrange = Box<dyn Fn(&[f32]) -> Vec<f32>>;

/// Origin of a tensor's values.
pub(crate) enum TensorValues {
    /// A tensor of the model, unchanged.
    Same(String),
    /// A tensor of the model in another order, computed when it is written: one at a time.
    Arranged(String, Arrange),
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
    Ints(Vec<i64>),
    Names(Vec<String>),
}

impl TensorValues {
    fn kind(&self) -> i64 {
        match self {
            Self::Same(_) | Self::Arranged(..) | Self::Floats(_) => FLOAT,
            Self::Doubles(_) => DOUBLE,
            Self::Ints(_) => INT64,
            Self::Names(_) => STRING,
        }
    }
}

impl fmt::Debug for TensorValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(name) => write!(f, "Same({name})"),
            Self::Arranged(name, _) => write!(f, "Arranged({name})"),
            Self::Floats(values) => write!(f, "{values:?}"),
            Self::Doubles(values) => write!(f, "{values:?}"),
            Self::Ints(values) => write!(f, "{values:?}"),
            Self::Names(values) => write!(f, "{values:?}"),
        }
    }
}

/// A tensor that is stored in the file.
#[derive(Debug)]
pub(crate) struct StoredTensor {
    pub name: String,
    pub dims: Vec<usize>,
    pub values: TensorValues,
}

impl StoredTensor {
    /// Bytes of its values that follow the head.
    pub(super) fn n_bytes(&self) -> u64 {
        let size = match self.values.kind() {
            // Their head holds them.
            STRING => 0,
            FLOAT => size_of::<f32>(),
            _ => size_of::<i64>(),
        };
        (elements(&self.dims) as u64).saturating_mul(size as u64)
    }

    /// `TensorProto` up to its values.
    pub(super) fn head(&self) -> Message {
        let mut head = Message::default();
        self.dims.iter().for_each(|size| head.integer(1, *size as u64));
        head.signed(2, self.values.kind());
        if let TensorValues::Names(names) = &self.values {
            names.iter().for_each(|name| head.bytes(6, name));
            head.bytes(8, &self.name);
            return head;
        }
        head.bytes(8, &self.name);
        head.begin_bytes(9, self.n_bytes());
        head
    }
}

/// Order of the axes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Channels last, as the model has them.
    Last,
    /// Channels first, as convolutions of ONNX take them.
    First,
}

impl Order {
    /// Sizes or numbers of a row's axes in this order.
    pub fn axes_of(self, row: &[usize]) -> Vec<usize> {
        match (self, row.split_last()) {
            (Self::First, Some((channels, others))) => std::iter::once(channels).chain(others).copied().collect(),
            _ => row.to_vec(),
        }
    }
}

/// Operators and stored tensors of a model.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub operators: Vec<Operator>,
    pub initializers: Vec<StoredTensor>,
    /// Names of the values of each tensor of the model, by [`Order`]; the first one is that which was written.
    pub(super) known: Vec<Vec<(Order, String)>>,
    /// Shapes of the model's parameters and statistics.
    pub(super) stored: HashMap<String, Vec<usize>>,
    /// Names that exist.
    names: HashSet<String>,
    /// Names of outputs, which exist, too.
    outputs: HashSet<String>,
    /// Numbers that operators share, by their dims, bits and type.
    constants: HashMap<(Vec<usize>, Vec<u64>, i64), String>,
    /// Arranged tensors of the model, by tensor and arrangement.
    arranged: HashMap<(String, String), String>,
    /// Whether an operator takes strings apart.
    pub(super) splits_strings: bool,
    /// Whether an operator is one of [`ML_DOMAIN`].
    uses_ml: bool,
}

/// Name, code of the type, and shape of a row of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GraphValue {
    pub name: String,
    pub kind: i64,
    pub row: Vec<usize>,
}

impl Graph {
    /// A graph without operators, of a model with these inputs, parameters and statistics.
    pub fn new<'m>(inputs: &[&str], stored: impl Iterator<Item = (&'m str, &'m [usize])>) -> Self {
        let known = inputs.iter().map(|name| vec![(Order::Last, (*name).to_owned())]).collect();
        let stored = stored.map(|(name, shape)| (name.to_owned(), shape.to_vec())).collect();
        let names = inputs.iter().map(|name| (*name).to_owned()).collect();
        Self { known, stored, names, ..Self::default() }
    }

    /// Lets the next tensor of the model be a value of the graph, channels last.
    pub fn know(&mut self, value: &str) {
        self.known.push(vec![(Order::Last, value.to_owned())]);
    }

    /// Operator sets and their versions.
    pub(super) fn opsets(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let standard = if self.splits_strings { OPSET_OF_STRINGS } else { OPSET };
        std::iter::once(("", standard)).chain(self.uses_ml.then_some((ML_DOMAIN, ML_OPSET)))
    }

    /// A name like this one that does not exist yet.
    pub fn unique(&mut self, stem: &str) -> String {
        let mut name = stem.to_owned();
        for number in 1_usize.. {
            if self.names.insert(name.clone()) {
                break;
            }
            name = format!("{stem}_{number}");
        }
        name
    }

    /// A tensor of numbers; equal ones are stored once. Names of layers have no `/`, so that this one is nobody else's.
    fn constant(&mut self, dims: Vec<usize>, bits: Vec<u64>, values: TensorValues) -> String {
        let key = (dims.clone(), bits, values.kind());
        if let Some(known) = self.constants.get(&key) {
            return known.clone();
        }
        let name = self.unique("/constant");
        self.initializers.push(StoredTensor { name: name.clone(), dims, values });
        self.constants.insert(key, name.clone());
        name
    }

    pub(super) fn floats(&mut self, dims: &[usize], values: &[f32]) -> String {
        let bits = values.iter().map(|value| value.to_bits().into()).collect();
        self.constant(dims.to_vec(), bits, TensorValues::Floats(values.to_vec()))
    }

    pub(super) fn doubles(&mut self, values: &[f64]) -> String {
        let bits = values.iter().map(|value| value.to_bits()).collect();
        self.constant(vec![values.len()], bits, TensorValues::Doubles(values.to_vec()))
    }

    pub(super) fn ints(&mut self, dims: &[usize], values: &[i64]) -> String {
        let bits = values.iter().map(|value| value.cast_unsigned()).collect();
        self.constant(dims.to_vec(), bits, TensorValues::Ints(values.to_vec()))
    }

    pub(super) fn names(&mut self, names: Vec<String>) -> String {
        let name = self.unique("/constant");
        let (dims, values) = (vec![names.len()], TensorValues::Names(names));
        self.initializers.push(StoredTensor { name: name.clone(), dims, values });
        name
    }

    /// A tensor of the model under its own name, or with a number behind it if it is stored in another arrangement, too.
    pub(super) fn store(&mut self, tensor: &str, arrangement: &str, dims: Vec<usize>, values: TensorValues) -> String {
        let key = (tensor.to_owned(), format!("{arrangement} {dims:?}"));
        if let Some(known) = self.arranged.get(&key) {
            return known.clone();
        }
        let name = self.unique(tensor);
        self.initializers.push(StoredTensor { name: name.clone(), dims, values });
        self.arranged.insert(key, name.clone());
        name
    }

    /// Adds an operator; gives the names of its outputs.
    pub(super) fn operator(
        &mut self,
        stem: &str,
        kind: &'static str,
        mut inputs: Vec<String>,
        mut attributes: Vec<(&'static str, Attribute)>,
        n_outputs: usize,
    ) -> Vec<String> {
        self.splits_strings |= kind == "StringSplit";
        self.uses_ml |= is_of_ml(kind);
        // From opset 18 on, these axes are an input. Whatever takes strings apart comes before the layers.
        let axes = attributes.iter().position(|(name, _)| self.splits_strings && *name == "axes");
        if let Some((_, Attribute::Ints(axes))) = axes.map(|at| attributes.remove(at)) {
            inputs.push(self.ints(&[axes.len()], &axes));
        }
        let name = self.unique(&format!("/{stem}/{kind}"));
        let output = |at: usize| if at == 0 { name.clone() } else { format!("{name}:{at}") };
        let outputs: Vec<String> = (0..n_outputs).map(output).collect();
        self.operators.push(Operator { name, kind, inputs, outputs: outputs.clone(), attributes });
        outputs
    }

    /// Makes an attribute of the operators that were added since there were `first`.
    pub(super) fn cut(&mut self, first: usize, name: &str, inputs: &[String], outputs: &[String]) -> Attribute {
        let mut graph = Message::default();
        self.operators.drain(first..).for_each(|operator| graph.message(1, &operator.message()));
        graph.bytes(2, name);
        inputs.iter().for_each(|name| graph.message(11, &value(name, FLOAT, None)));
        outputs.iter().for_each(|name| graph.message(12, &value(name, FLOAT, None)));
        Attribute::Graph(GraphBytes(graph))
    }

    /// Lets a value be an output of the graph, under this name or one like it; gives the name.
    pub fn name_output(&mut self, value: &str, name: &str) -> String {
        let is_made = self.operators.iter().any(|operator| operator.outputs.iter().any(|output| output == value));
        let name = self.unique(name);
        if is_made && !self.outputs.contains(value) {
            let all = self.operators.iter_mut().flat_map(|it| it.inputs.iter_mut().chain(&mut it.outputs));
            let known = self.known.iter_mut().flatten().map(|(_, known)| known);
            all.chain(known).filter(|known| *known == value).for_each(|known| known.clone_from(&name));
        } else {
            // An input of the model, or another output.
            self.operators.push(Operator {
                name: format!("/{name}/Identity"),
                kind: "Identity",
                inputs: vec![value.to_owned()],
                outputs: vec![name.clone()],
                attributes: Vec::new(),
            });
        }
        self.outputs.insert(name.clone());
        name
    }
}
