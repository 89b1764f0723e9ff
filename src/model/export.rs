//! A model for other programs: as an ONNX file.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::Model;
use super::file::json;
use crate::Shape;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, FileKind};
use crate::losses::Head;
use crate::onnx::{FLOAT, Form, Graph, GraphFrame, GraphValue, PRODUCER, ReadyFile, prepare};
#[cfg(all(feature = "files", feature = "onnx"))]
use crate::raw;
use crate::schema::Schema;
use crate::shown::{bytes, shown};

/// The one ending of files that are written.
const ONNX: &str = "onnx";

impl Model {
    /// Writes it for other programs, atomically: as ONNX, if the file's name ends in `.onnx`.
    ///
    /// The file computes what the model gives at inference: `onnxruntime` and others run it on batches of any number of rows, of
    /// 32-bit floats, `[batch, ...]` with channels last, as the model takes them; indices for an `Embedding` are floats, too.
    /// Where the loss takes logits, its outputs are logits. Layers that only training has are left out, and a layer that
    /// is used twice has its weights in the file once, low-rank factors are merged into their kernels, and packed
    /// weights are floats. The metadata hold the names of classes (`class_names`), how the rows
    /// were read (`preprocessing`), what makes probabilities of each output (`activations`), and all that the model file
    /// knows of the data (`manyhands.schema`).
    ///
    /// # Errors
    /// If the name ends otherwise, a layer of your own has no [ONNX form](crate::layers::Layer::onnx), the file would be larger
    /// than 2 GiB, the most that ONNX can hold, or it can't be written. It replaces another such file of this program, but
    /// nothing else.
    pub fn export(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = onnx_path(path.as_ref())?;
        let model = self.plain()?;
        let (graph, frame) = model.onnx()?;
        model.write_onnx(path, &graph, &frame)
    }

    /// Whether [`export_raw`](Self::export_raw) can write it: it was trained on a table or on pictures in files.
    #[cfg(all(feature = "files", feature = "onnx"))]
    pub fn has_raw_form(&self) -> bool {
        raw::is_raw(&self.schema, &self.named_inputs())
    }

    /// Writes it for other programs as [`export`](Self::export) does, with its data's own rows as inputs and with the answers of
    /// `manyhands predict` as outputs.
    ///
    /// | input | type | |
    /// | --- | --- | --- |
    /// | a column of numbers, or of categories that are all numbers | `double`, `[batch, 1]` | NaN where the field is missing |
    /// | a column of other categories, of yes and no, of dates | `string`, `[batch, 1]` | the table's field; missing ones as in the table |
    /// | pictures | `uint8`, `[batch, height, width, channels]` | of the size that training had |
    /// | texts | `float`, `[batch, tokens]` | numbers of tokens, as `export` has them: ONNX has no operator that splits them so |
    ///
    /// A column's input has the column's name. Outputs of classes are `label`, a string, and `probabilities`, a number for each
    /// class; of several yes and no, `probabilities`; of numbers, `values`. Names of several outputs begin with the output's
    /// own, as `price_values`. A row that the reader of tables would refuse gets an empty label and NaN.
    /// Strings need `LabelEncoder` of `ai.onnx.ml`, and dates opset 20 in place of 17.
    ///
    /// # Errors
    /// As `export` has them; if the model has no [raw form](Self::has_raw_form); and if dates have a form that no operator can read.
    #[cfg(all(feature = "files", feature = "onnx"))]
    pub fn export_raw(&self, path: impl AsRef<Path>) -> Result<RawExport> {
        let path = onnx_path(path.as_ref())?;
        if !self.has_raw_form() {
            return Err(Error::model(
                "the model",
                "needs to be trained on a table or on pictures in files, so that its rows can be its inputs in ONNX",
                "`export` writes it with encoded inputs",
            ));
        }
        let model = self.plain()?;
        let (graph, frame) = model.raw_onnx()?;
        model.write_onnx(path, &graph, &frame)?;
        let names = |values: Vec<GraphValue>| values.into_iter().map(|value| value.name).collect();
        let encoded = raw::encoded(&self.schema, &self.named_inputs()).into_iter().map(str::to_owned).collect();
        Ok(RawExport { inputs: names(frame.inputs), outputs: names(frame.outputs), encoded })
    }

    /// The bytes of the file that [`export`](Self::export) writes.
    ///
    /// # Errors
    /// As `export` has them.
    pub fn to_onnx(&self) -> Result<Vec<u8>> {
        let model = self.plain()?;
        let (graph, frame) = model.onnx()?;
        let mut bytes = Vec::new();
        let written = ready(&graph, &frame)?.write(&mut bytes, |name| model.tensor(name));
        written.map_err(|error: io::Error| {
            Error::model("the model", format!("can't be written: {error}"), "this is a defect of manyhands")
        })?;
        Ok(bytes)
    }

    fn write_onnx(&self, path: &Path, graph: &Graph, frame: &GraphFrame) -> Result<()> {
        let ready = ready(graph, frame)?;
        files::write(path, FileKind::Onnx, |out| ready.write(out, |name| self.tensor(name)))
    }

    fn named_inputs(&self) -> Vec<(&str, &Shape)> {
        self.inputs.iter().map(|input| (input.name.as_str(), &input.shape)).collect()
    }

    /// The graph that takes and gives what the model does.
    fn onnx(&self) -> Result<(Graph, GraphFrame)> {
        self.check_exportable()?;
        let inputs: Vec<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
        let mut graph = Graph::new(&inputs, self.tensors().map(|(name, shape, _)| (name, shape)));
        self.write_nodes(&mut graph)?;
        let outputs = self.name_outputs(&mut graph);
        let mut texts = self.texts(&outputs)?;
        let note = self.schema.facts().encoding;
        if !note.is_empty() {
            texts.insert("preprocessing".into(), note);
        }
        if let Some(evaluation) = &self.evaluation {
            let of = |head| match head {
                Head::Softmax => "softmax",
                Head::Sigmoid => "sigmoid",
                Head::Values => "linear",
            };
            let heads = outputs.iter().zip(&evaluation.losses);
            let heads: Map<String, Value> = heads.map(|(name, loss)| (name.clone(), of(loss.head()).into())).collect();
            texts.insert("activations".into(), json(&heads)?);
        }
        let value =
            |name: &str, row: &Shape| GraphValue { name: name.to_owned(), kind: FLOAT, row: row.axes().to_vec() };
        let rows = self.outputs.iter().map(|tensor| &self.shapes[*tensor]);
        let frame = GraphFrame {
            inputs: self.named_inputs().into_iter().map(|(name, shape)| value(name, shape)).collect(),
            outputs: outputs.iter().zip(rows).map(|(name, shape)| value(name, shape)).collect(),
            texts,
        };
        Ok((graph, frame))
    }

    /// The graph that takes rows of the data, and gives what `manyhands predict` writes.
    #[cfg(all(feature = "files", feature = "onnx"))]
    fn raw_onnx(&self) -> Result<(Graph, GraphFrame)> {
        self.check_exportable()?;
        let mut graph = Graph::new(&[], self.tensors().map(|(name, shape, _)| (name, shape)));
        let raw::RawInputs { inputs, unreadable } = raw::begin(&mut graph, &self.schema, &self.named_inputs())?;
        self.write_nodes(&mut graph)?;
        let mut outputs = Vec::new();
        for (at, tensor) in self.outputs.iter().enumerate() {
            let (name, shape) = (self.tensor_name(*tensor), &self.shapes[*tensor]);
            let losses = self.evaluation.as_ref().map(|evaluation| &evaluation.losses);
            let answer = raw::Answer {
                name,
                prefix: if self.outputs.len() == 1 { String::new() } else { format!("{name}_") },
                value: self.last_axes(&mut graph, *tensor),
                shape,
                head: losses.and_then(|losses| losses.get(at)).map(crate::Loss::head),
                field: self.schema.targets.get(at),
            };
            outputs.extend(raw::answer(&mut graph, &answer, unreadable.as_ref()));
        }
        let names: Vec<String> = self.outputs.iter().map(|tensor| self.tensor_name(*tensor).to_owned()).collect();
        let mut texts = self.texts(&names)?;
        texts.insert("preprocessing".into(), raw::NOTE.into());
        Ok((graph, GraphFrame { inputs, outputs, texts }))
    }

    fn check_exportable(&self) -> Result<()> {
        if cfg!(feature = "onnx") {
            return self.check_finite();
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            "the model",
            "can't be written as ONNX: this program was built without the feature `onnx`",
            "save it as a safetensors file, or build with that feature",
        ))
    }

    fn write_nodes(&self, graph: &mut Graph) -> Result<()> {
        for (idx, node) in self.nodes.iter().enumerate() {
            let named = &self.layers[node.layer_idx];
            let inputs = node.inputs.iter().map(|tensor| (*tensor, self.shapes[*tensor].clone())).collect();
            let output = self.shapes[self.inputs.len() + idx].clone();
            let mut form = Form::new(graph, [&node.name, &named.name], inputs, output);
            let written = node.layer(&self.layers).onnx(&mut form);
            let refuse = |problem: String, help: String| Error::model(Self::who(node.layer_idx, named), problem, help);
            written.map_err(|it| refuse(it.problem, it.help))?;
            if !form.end() {
                return Err(refuse(
                    "needs an output in ONNX, but names none".into(),
                    "call `Form::output` at the end of `Layer::onnx`".into(),
                ));
            }
        }
        Ok(())
    }

    /// Lets outputs have the names of the model's, channels last; gives the names.
    fn name_outputs(&self, graph: &mut Graph) -> Vec<String> {
        let named = self.outputs.iter().map(|tensor| {
            let value = self.last_axes(graph, *tensor);
            graph.name_output(value.name(), self.tensor_name(*tensor))
        });
        named.collect()
    }

    /// The value of a tensor, channels last.
    fn last_axes(&self, graph: &mut Graph, tensor: usize) -> crate::onnx::Value {
        let (name, shape) = (self.tensor_name(tensor), self.shapes[tensor].clone());
        Form::new(graph, [name, name], vec![(tensor, shape.clone())], shape).input(0)
    }

    /// Texts about the model, by key, for the file's metadata.
    fn texts(&self, outputs: &[String]) -> Result<BTreeMap<String, String>> {
        let mut texts = BTreeMap::new();
        let mut add = |key: &str, text: String| texts.insert(key.to_owned(), text);
        if self.schema != Schema::default() {
            add("manyhands.schema", json(&self.schema)?);
        }
        let classes: HashMap<&str, &[String]> = outputs
            .iter()
            .enumerate()
            .map(|(at, name)| (name.as_str(), self.schema.classes(at)))
            .filter(|(_, classes)| !classes.is_empty())
            .collect();
        match outputs {
            [one] => {
                if let Some(classes) = classes.get(one.as_str()) {
                    add("class_names", json(classes)?);
                }
            }
            _ if classes.is_empty() => {}
            _ => {
                let by_output: BTreeMap<_, _> = classes.into_iter().collect();
                add("class_names", json(&by_output)?);
            }
        }
        Ok(texts)
    }
}

/// Names of what a file takes and gives that was written by [`Model::export_raw`].
#[cfg(all(feature = "files", feature = "onnx"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawExport {
    /// The inputs, in order.
    pub inputs: Vec<String>,
    /// The outputs, in order.
    pub outputs: Vec<String>,
    /// Inputs that are numbers of tokens.
    pub encoded: Vec<String>,
}

/// A path of an ONNX file.
fn onnx_path(path: &Path) -> Result<&Path> {
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(ONNX)) {
        return Ok(path);
    }
    Err(Error::setting(
        format!("the file `{}`", shown(path)),
        format!("needs a name that ends in `.{ONNX}`, which is the only format"),
        "ONNX is read by onnxruntime, OpenVINO, TensorRT and browsers",
    ))
}

fn ready<'a>(graph: &'a Graph, frame: &GraphFrame) -> Result<ReadyFile<'a>> {
    prepare(graph, PRODUCER, frame).map_err(|[n_bytes, most]| {
        Error::model(
            "the model",
            format!("needs an ONNX file of {}, but such files have at most {}", bytes(n_bytes), bytes(most)),
            "export a smaller model; the safetensors file has no such limit",
        )
    })
}
