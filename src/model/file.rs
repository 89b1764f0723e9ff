//! Model files: weights, architecture and moving statistics as one safetensors file.
//!
//! A file does not depend on adapters. Tensors are named `layer/tensor`; the architecture is stored in the metadata.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::evaluation::EvaluationRead;
use super::{BEST, Model, ModelConfig, OPTIMIZER, Own, Weights};
use crate::error::{Error, Result};
use crate::files::{self, FileKind};
use crate::packed::{BLOCK, PackedTensor, Packing};
use crate::plan::{Layout, PlacedTensor};
use crate::schema::Schema;

/// Key of the metadata under which the architecture is stored.
const MODEL_KEY: &str = "manyhands.model";
/// Key of the metadata for the meaning of the data.
const SCHEMA_KEY: &str = "manyhands.schema";
/// Key of the metadata under which losses and metrics are stored.
const EVALUATION_KEY: &str = "manyhands.evaluation";

/// Start of files of Keras: those that end in `.keras`, and in `.h5`.
const ZIP: &[u8] = b"PK\x03\x04";
const HDF5: &[u8] = b"\x89HDF\r\n";

/// A tensor on its way to a file.
pub(crate) struct Entered<'a> {
    pub(crate) name: String,
    pub(crate) shape: &'a [usize],
    pub(crate) values: &'a [f32],
    /// Form of its blocks, whose words the values are then.
    pub(crate) packing: Option<Packing>,
}

impl Entered<'_> {
    /// Its type in the file, its shape there, and its bytes: a packed tensor is the bytes of each line.
    fn in_file(&self) -> (Dtype, Cow<'_, [usize]>, usize) {
        let Some(packing) = self.packing else {
            return (Dtype::F32, Cow::Borrowed(self.shape), size_of_val(self.values));
        };
        let shape = packed_shape(packing, self.shape);
        let bytes = shape.iter().product();
        (Dtype::U8, Cow::Owned(shape), bytes)
    }
}

/// Shape of a packed tensor in a file: lines, and bytes of a line.
fn packed_shape(packing: Packing, shape: &[usize]) -> Vec<usize> {
    let [lines, line_len] = packing.lines(shape);
    vec![lines, line_len / BLOCK * packing.format.block_bytes()]
}

/// Parameters and statistics for a file, with a prefix before their names.
pub(crate) fn entered<'a>(layout: &'a Layout, weights: &'a Weights, prefix: &str) -> Vec<Entered<'a>> {
    let entered = |placed: &'a PlacedTensor, values: &'a [f32]| Entered {
        name: format!("{prefix}{}", placed.name),
        shape: &placed.shape,
        values: &values[placed.range()],
        packing: placed.packing,
    };
    let parameters = layout.parameters.iter();
    let parameters = parameters.map(|placed| entered(placed, &weights.parameters[placed.segment as usize]));
    parameters.chain(layout.statistics.iter().map(|placed| entered(placed, &weights.statistics))).collect()
}

/// Metadata of a file, in a fixed order: equal models give equal files.
pub(crate) type Metadata = BTreeMap<&'static str, String>;

/// The head of a file: metadata, and the position of each tensor after it.
struct FileHeader<'a> {
    metadata: &'a Metadata,
    tensors: &'a [Entered<'a>],
}

/// Position of a tensor.
#[derive(serde::Serialize)]
struct TensorPlace<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    data_offsets: (usize, usize),
}

impl Serialize for FileHeader<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("__metadata__", self.metadata)?;
        let mut begin = 0;
        for tensor in self.tensors {
            let (dtype, shape, bytes) = tensor.in_file();
            let end = begin + bytes;
            let place = TensorPlace { dtype, shape: &shape, data_offsets: (begin, end) };
            map.serialize_entry(&tensor.name, &place)?;
            begin = end;
        }
        map.end()
    }
}

/// Headers are filled up with blanks to a multiple of so many bytes.
const ALIGNMENT: usize = 8;
/// Longest header that readers of safetensors files take.
const MOST_HEADER_BYTES: usize = 100_000_000;
/// Bytes of a file without a header that are read, to tell what it is.
const BEGIN: u64 = 4096;
/// Values that are turned into bytes at once.
const CHUNK: usize = 1 << 16;

/// Writes a safetensors file tensor by tensor, floats first, in the order of their names: only the header is kept in memory.
///
/// # Errors
/// If the header is too long for readers, or `out` does not take it.
pub(crate) fn write_tensors(out: impl Write, mut tensors: Vec<Entered<'_>>, metadata: &Metadata) -> io::Result<()> {
    tensors.sort_by(|one, other| (one.packing.is_some(), &one.name).cmp(&(other.packing.is_some(), &other.name)));
    let mut header = serde_json::to_vec(&FileHeader { metadata, tensors: &tensors })?;
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    if header.len() > MOST_HEADER_BYTES {
        return Err(io::Error::other("the names of its tensors are too long for a safetensors file"));
    }
    let mut out = BufWriter::new(out);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for tensor in &tensors {
        let (.., mut left) = tensor.in_file();
        for values in tensor.values.chunks(CHUNK) {
            let bytes: Cow<'_, [u8]> = if cfg!(target_endian = "little") {
                Cow::Borrowed(bytemuck::cast_slice(values))
            } else {
                Cow::Owned(values.iter().flat_map(|value| value.to_le_bytes()).collect())
            };
            // The last word of packed blocks may not be full.
            let bytes = &bytes[..bytes.len().min(left)];
            out.write_all(bytes)?;
            left -= bytes.len();
        }
    }
    out.flush()
}

/// A value as metadata.
pub(crate) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| {
        Error::checkpoint(
            "the model",
            format!("can't be written: {error}"),
            "make the settings of your own layers serializable",
        )
    })
}

impl Model {
    /// Architecture, names and losses for a file.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        let mut metadata = Metadata::from([(MODEL_KEY, json(&self.config())?)]);
        if self.schema != Schema::default() {
            metadata.insert(SCHEMA_KEY, json(&self.schema)?);
        }
        if let Some(evaluation) = &self.evaluation {
            metadata.insert(EVALUATION_KEY, json(evaluation)?);
        }
        Ok(metadata)
    }

    /// Weights, architecture and moving statistics as the bytes of a safetensors file.
    ///
    /// # Errors
    /// If a layer's settings do not serialise.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let written = write_tensors(&mut bytes, entered(&self.layout, &self.weights, ""), &self.metadata()?);
        written.map_err(|error| {
            Error::checkpoint("the model", format!("can't be written: {error}"), "give its layers shorter names")
        })?;
        Ok(bytes)
    }

    /// Writes weights, architecture and moving statistics to a safetensors file, atomically. It replaces an existing
    /// model or checkpoint, but no other file.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let metadata = self.metadata()?;
        files::write(path.as_ref(), FileKind::Model, |out| {
            write_tensors(out, entered(&self.layout, &self.weights, ""), &metadata)
        })
    }

    /// Reads a model, from a model file or a checkpoint.
    ///
    /// # Errors
    /// If the file is not there, not whole, or not of this crate.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(path, Own::default())
    }

    /// Reads a model with layers of your own beside the crate's: a slice of entries, or an [`Own`].
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with<'a>(path: impl AsRef<Path>, own: impl Into<Own<'a>>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = read_whole(path)?;
        Self::from_bytes(&bytes, &crate::shown(path).to_string(), own)
    }

    /// Reads a model from the bytes of a file; `name` is for messages.
    ///
    /// # Errors
    /// If they are not whole, or not of this crate.
    pub fn from_bytes<'a>(bytes: &[u8], name: &str, own: impl Into<Own<'a>>) -> Result<Self> {
        FileReader::open(bytes, name)?.model(own.into())
    }
}

/// The bytes of a model file. Of a file whose header can't be there, only the beginning is read: it tells what is wrong.
pub(crate) fn read_whole(path: &Path) -> Result<Vec<u8>> {
    let mut file = files::open(path)?;
    let reading = |error| Error::reading(path, error);
    let len = file.metadata().map_err(reading)?.len();
    let mut begin = Vec::new();
    (&mut file).take(BEGIN).read_to_end(&mut begin).map_err(reading)?;
    let header = begin.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    // A header has at least its braces.
    let has_header = header > 1 && header <= MOST_HEADER_BYTES as u64 && header < len;
    if has_header { files::read(path, u64::MAX) } else { Ok(begin) }
}

/// An open file: its tensors and its metadata.
pub(crate) struct FileReader<'a> {
    name: &'a str,
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

/// Whether bytes are text: the length of a header, with which a safetensors file begins, has zeros.
fn is_text(bytes: &[u8]) -> bool {
    let begin = bytes.get(..8).unwrap_or_default();
    !begin.is_empty() && begin.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

impl<'a> FileReader<'a> {
    /// Reads the header; `name` is for messages.
    pub(crate) fn open(bytes: &'a [u8], name: &'a str) -> Result<Self> {
        if is_text(bytes) {
            let help =
                "a model file is what `manyhands train run.toml --save model.safetensors` or `Model::save` wrote";
            return Err(Error::checkpoint(format!("`{name}`"), "needs to be a safetensors file, but is text", help));
        }
        let help = if bytes.starts_with(ZIP) || bytes.starts_with(HDF5) {
            "if it is a model of Keras, make a model file of it: `pip install manyhands_ml[keras]`, `manyhands-ml convert \
             model.keras model.safetensors`"
        } else {
            "it may be cut off, or another program's; nothing was loaded"
        };
        let refuse = |error: safetensors::SafeTensorError| {
            let problem = format!("needs to be a whole safetensors file, but is not: {error}");
            Error::checkpoint(format!("`{name}`"), problem, help)
        };
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(refuse)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(refuse)?;
        Ok(Self { name, tensors, metadata: metadata.metadata().clone().unwrap_or_default() })
    }

    /// An error of this file.
    pub(crate) fn refuse(&self, problem: &str, help: &str) -> Error {
        Error::checkpoint(format!("`{}`", self.name), problem, help)
    }

    /// The value of a key of the metadata, or its error.
    pub(crate) fn metadata<T: serde::de::DeserializeOwned>(&self, key: &str) -> std::result::Result<T, String> {
        let text = self.metadata.get(key).ok_or_else(|| format!("needs metadata `{key}`, but has none"))?;
        serde_json::from_str(text).map_err(|error| format!("has metadata `{key}` that can't be read: {error}"))
    }

    /// The model, with its weights.
    pub(crate) fn model(&self, own: Own<'_>) -> Result<Model> {
        let config: ModelConfig = self.metadata(MODEL_KEY).map_err(|problem| {
            self.refuse(&problem, "only files that manyhands wrote hold an architecture; nothing was loaded")
        })?;
        let mut model = config.finish(own.layers, None)?;
        let weights = self.weights(&model, "")?;
        self.check_no_more(&model)?;
        model.weights = weights;
        if self.metadata.contains_key(SCHEMA_KEY) {
            let help = "the file is damaged or was edited; nothing was loaded";
            model.schema = self.metadata(SCHEMA_KEY).map_err(|problem| self.refuse(&problem, help))?;
        }
        if self.metadata.contains_key(EVALUATION_KEY) {
            let help = "the file is damaged or was edited; nothing was loaded";
            let read: EvaluationRead = self.metadata(EVALUATION_KEY).map_err(|problem| self.refuse(&problem, help))?;
            let name = self.name;
            // A loss of another program does not prevent a prediction.
            let unknown = |problem| log::info!("`{name}` was trained with a loss that can't be read: {problem}");
            model.evaluation = read.evaluation(own).map_err(unknown).ok();
        }
        Ok(model)
    }

    /// Names of all tensors.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.tensors.names()
    }

    /// Parameters and statistics under a prefix.
    pub(crate) fn weights(&self, model: &Model, prefix: &str) -> Result<Weights> {
        let mut weights = model.weights.clone();
        for placed in &model.layout().parameters {
            let values = &mut weights.parameters[placed.segment as usize][placed.range()];
            self.read(&format!("{prefix}{}", placed.name), placed, values)?;
        }
        for placed in &model.layout().statistics {
            self.read(&format!("{prefix}{}", placed.name), placed, &mut weights.statistics[placed.range()])?;
        }
        Ok(weights)
    }

    /// The values of one tensor.
    pub(crate) fn read(&self, name: &str, placed: &PlacedTensor, values: &mut [f32]) -> Result<()> {
        let refuse = |problem: String| {
            let help = "the file belongs to another model, or is damaged; nothing was loaded";
            Error::checkpoint(format!("`{}`, tensor `{name}`,", self.name), problem, help)
        };
        let tensor = self.tensors.tensor(name).map_err(|_| refuse("is missing".into()))?;
        let (needed, needed_shape) = match placed.packing {
            None => (Dtype::F32, placed.shape.clone()),
            Some(packing) => (Dtype::U8, packed_shape(packing, &placed.shape)),
        };
        if tensor.dtype() != needed || tensor.shape() != needed_shape {
            let (dtype, shape) = (tensor.dtype(), tensor.shape());
            let needed = format!("needs {needed:?} of shape {needed_shape:?}");
            return Err(refuse(format!("{needed}, but is {dtype:?} of shape {shape:?}")));
        }
        if let Some(packing) = placed.packing {
            let read = PackedTensor::new(packing.format, packing.lines(&placed.shape), tensor.data().to_vec());
            read.map_err(|error| refuse(error.problem().to_owned()))?.put_words(values);
            return Ok(());
        }
        for (value, bytes) in values.iter_mut().zip(tensor.data().as_chunks::<4>().0) {
            *value = f32::from_le_bytes(*bytes);
        }
        Ok(())
    }

    fn check_no_more(&self, model: &Model) -> Result<()> {
        let layout = model.layout();
        // Files of earlier versions hold the weights of layers that no output needs.
        let left_out: HashSet<&str> = model.left_out().map(|layer| layer.name.as_str()).collect();
        let is_known = |name: &str| {
            layout.parameter(name).or(layout.statistic(name)).is_some()
                || name
                    .split_once('/')
                    .is_some_and(|(prefix, _)| [OPTIMIZER, BEST].contains(&prefix) || left_out.contains(prefix))
        };
        match self.names().iter().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(Error::checkpoint(
                format!("`{}`, tensor `{name}`,", self.name),
                "belongs to no layer of the file's own architecture",
                "the file is damaged or was edited; nothing was loaded",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    #[test]
    fn files_are_those_of_the_safetensors_crate() {
        let (a, b) = ([1.0_f32, -0.5, f32::MAX], [2.0_f32]);
        let tensor = |name: &str, shape, values| Entered { name: name.into(), shape, values, packing: None };
        let metadata = Metadata::from([(MODEL_KEY, "{\"x\": \"ö\"}".to_owned())]);
        let mut bytes = Vec::new();
        write_tensors(&mut bytes, vec![tensor("z/b", &[1], &b), tensor("a/\"k", &[3, 1], &a)], &metadata).unwrap();
        let views = [("z/b", vec![1], &b[..]), ("a/\"k", vec![3, 1], &a[..])].map(|(name, shape, values)| {
            (name, TensorView::new(Dtype::F32, shape, bytemuck::cast_slice(values)).unwrap())
        });
        let metadata = metadata.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
        assert!(bytes == safetensors::serialize(views, Some(metadata)).unwrap());
    }
}
