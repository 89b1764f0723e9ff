//! A model for other programs: as an ONNX file.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::Model;
use super::file::json;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, FileKind};
use crate::losses::Head;
use crate::onnx::{Form, Graph, GraphFrame, PRODUCER, ReadyFile, prepare};
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
        let path = path.as_ref();
        if !path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(ONNX)) {
            return Err(Error::setting(
                format!("the file `{}`", shown(path)),
                format!("needs a name that ends in `.{ONNX}`, which is the only format"),
                "ONNX is read by onnxruntime, OpenVINO, TensorRT and browsers",
            ));
        }
        let model = self.plain()?;
        model.with_onnx(|ready| files::write(path, FileKind::Onnx, |out| ready.write(out, |name| model.tensor(name))))
    }

    /// The bytes of the file that [`export`](Self::export) writes.
    ///
    /// # Errors
    /// As `export` has them.
    pub fn to_onnx(&self) -> Result<Vec<u8>> {
        let model = self.plain()?;
        model.with_onnx(|ready| {
            let mut bytes = Vec::new();
            let written = ready.write(&mut bytes, |name| model.tensor(name));
            written.map_err(|error: io::Error| {
                Error::model("the model", format!("can't be written: {error}"), "this is a defect of manyhands")
            })?;
            Ok(bytes)
        })
    }

    fn with_onnx<T>(&self, write: impl FnOnce(&ReadyFile<'_>) -> Result<T>) -> Result<T> {
        if !cfg!(feature = "onnx") {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the model",
                "can't be written as ONNX: this program was built without the feature `onnx`",
                "save it as a safetensors file, or build with that feature",
            ));
        }
        self.check_finite()?;
        let inputs: Vec<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
        let mut graph = Graph::new(&inputs, self.tensors().map(|(name, shape, _)| (name, shape)));
        self.write_nodes(&mut graph)?;
        let outputs = self.name_outputs(&mut graph);
        let shapes = self.outputs.iter().map(|tensor| self.shapes[*tensor].axes());
        let about = GraphFrame {
            inputs: self.inputs.iter().map(|input| (input.name.as_str(), input.shape.axes())).collect(),
            outputs: outputs.iter().map(String::as_str).zip(shapes).collect(),
            texts: self.texts(&outputs)?,
        };
        let ready = prepare(&graph, PRODUCER, &about).map_err(|[n_bytes, most]| {
            Error::model(
                "the model",
                format!("needs an ONNX file of {}, but such files have at most {}", bytes(n_bytes), bytes(most)),
                "export a smaller model; the safetensors file has no such limit",
            )
        })?;
        write(&ready)
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
            let (name, shape) = (self.tensor_name(*tensor), self.shapes[*tensor].clone());
            let value = Form::new(graph, [name, name], vec![(*tensor, shape.clone())], shape).input(0);
            graph.name_output(value.name(), name)
        });
        named.collect()
    }

    /// Texts about the model, by key, for the file's metadata.
    fn texts(&self, outputs: &[String]) -> Result<BTreeMap<String, String>> {
        let mut texts = BTreeMap::new();
        let mut add = |key: &str, text: String| texts.insert(key.to_owned(), text);
        if self.schema != Schema::default() {
            add("manyhands.schema", json(&self.schema)?);
        }
        let note = self.schema.facts().encoding;
        if !note.is_empty() {
            add("preprocessing", note);
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
        if let Some(evaluation) = &self.evaluation {
            let of = |head| match head {
                Head::Softmax => "softmax",
                Head::Sigmoid => "sigmoid",
                Head::Values => "linear",
            };
            let heads = outputs.iter().zip(&evaluation.losses);
            let heads: Map<String, Value> = heads.map(|(name, loss)| (name.clone(), of(loss.head()).into())).collect();
            add("activations", json(&heads)?);
        }
        Ok(texts)
    }
}
