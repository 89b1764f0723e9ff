//! A language model's files, of either kind, as tensors with neutral names.

use std::path::Path;

use manyhands_engine::packed::PackedFormat;
use manyhands_engine::shown;

use crate::architecture::{Architecture, Family, ROTARY_FACTORS};
use crate::encoding::Encoding;
use crate::folder::Folder;
use crate::gguf::Gguf;
use crate::layout::{Planned, planned};
use crate::packed::{Formats, Packed};
use crate::place::TensorPlace;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Ends of names whose tensors are no part of the network: constants of old versions, and heads for other tasks.
const LEFT_OUT: [&str; 5] =
    [".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq", "embeddings.position_ids", OUTPUT];
/// Name of an output of its own in a folder.
const OUTPUT: &str = "lm_head.weight";
/// Starts of such names, in files of BERT.
const HEADS: [&str; 3] = ["cls.", "classifier.", "qa_outputs."];

/// A language model in a Hugging Face folder or a GGUF file: the network and its tensors, which are read one by one.
///
/// Tensors have the same names and shapes whatever the file: `embedding.embeddings` `[vocabulary, width]`,
/// `blocks.3.attention.query.kernel` `[heads · head_width, width]`, `norm.scale` `[width]`, and so on.
#[derive(Debug)]
pub struct ModelFiles {
    files: Files,
    architecture: Architecture,
    tensors: Vec<Found>,
    packed: Option<Packed>,
}

#[derive(Debug)]
enum Files {
    Folder(Folder),
    Gguf(Gguf),
}

/// A tensor of the network, and its name in the files.
#[derive(Debug)]
struct Found {
    planned: Planned,
    stored: String,
    encoding: Encoding,
}

impl ModelFiles {
    /// Opens a folder or a GGUF file, and finds each tensor of the network in it.
    ///
    /// # Errors
    /// If a file is damaged, the network is not known here, or a tensor is missing, of another shape, or not one of the network.
    pub fn open(path: &Path) -> Result<Self> {
        if let Some(help) = help_where_missing(path) {
            let error = Error::reading(path, std::io::ErrorKind::NotFound.into());
            return Err(Error::new(error.kind(), error.who(), error.problem(), help));
        }
        let (files, architecture) = if path.is_dir() {
            let folder = Folder::open(path)?;
            let architecture = folder.architecture().clone();
            (Files::Folder(folder), architecture)
        } else {
            let file = Gguf::open(path)?;
            let architecture = Architecture::from_gguf(&file)?;
            (Files::Gguf(file), architecture)
        };
        let mut tensors = Vec::new();
        for planned in planned(&architecture) {
            match files.find(&planned, architecture.family)? {
                Some((stored, encoding)) => tensors.push(Found { planned, stored, encoding }),
                None if planned.is_optional => {}
                None => return Err(files.lacks(&planned)),
            }
        }
        files.check_rest(&tensors)?;
        Ok(Self { files, architecture, tensors, packed: None })
    }

    /// Keeps kernels and the table of tokens in packed blocks in models that are made of these files. Such models are frozen there.
    ///
    /// All results have the same bits as those of the floats of these blocks.
    ///
    /// # Errors
    /// If no tensor can be packed so.
    pub fn packed(self, packed: Packed) -> Result<Self> {
        let files = Self { packed: Some(packed), ..self };
        if !files.formats().is_empty() {
            return Ok(files);
        }
        let who = files.files.who();
        Err(match packed {
            Packed::AsFile => Error::checkpoint(
                who,
                "needs weights in Q8_0, Q4_0 or Q4_1 to keep them as they are, but has none",
                "keep them in 8 or 4 bits: they are packed when they are read",
            ),
            Packed::Eight | Packed::Four => Error::checkpoint(
                who,
                "needs kernels with a multiple of 32 inputs to be packed, but has none",
                "keep them as floats",
            ),
        })
    }

    /// Whether weights are kept packed.
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    /// Bytes of the weights in memory, if they were kept so; `None` for floats.
    pub fn weight_bytes(&self, packed: Option<Packed>) -> u64 {
        let of = |found: &Found| {
            let shape = &found.planned.shape;
            let len = shape.iter().product::<usize>();
            let format = packed.and_then(|packed| found.format(packed));
            format.and_then(|format| format.bytes([len / shape[1], shape[1]])).unwrap_or(len * size_of::<f32>()) as u64
        };
        self.tensors.iter().map(of).sum()
    }

    /// Formats of the tensors that are kept packed.
    pub(crate) fn formats(&self) -> Formats {
        let Some(packed) = self.packed else { return Formats::new() };
        let format = |found: &Found| Some((found.planned.name.clone(), found.format(packed)?));
        self.tensors.iter().filter_map(format).collect()
    }

    /// The network.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// The open folder, if the model is one.
    pub fn folder(&self) -> Option<&Folder> {
        match &self.files {
            Files::Folder(folder) => Some(folder),
            Files::Gguf(_) => None,
        }
    }

    /// The open GGUF file, if the model is one.
    pub fn gguf(&self) -> Option<&Gguf> {
        match &self.files {
            Files::Folder(_) => None,
            Files::Gguf(file) => Some(file),
        }
    }

    /// Names of all tensors, with their shapes.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.tensors.iter().map(|found| (found.planned.name.as_str(), found.planned.shape.as_slice()))
    }

    /// All tensors, one after the other: a model that takes each at once never holds two copies of the weights.
    pub fn tensors(&self) -> impl Iterator<Item = Result<Tensor>> + '_ {
        self.tensors.iter().map(|found| self.files.read(found))
    }

    /// One tensor.
    ///
    /// # Errors
    /// If the network has none of this name, or the file can't be read.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let found = self.tensors.iter().find(|found| found.planned.name == name);
        let lacks = || {
            Error::checkpoint(
                self.files.who(),
                format!("lacks a tensor for `{}`", shown(name)),
                "take a name of `shapes`",
            )
        };
        self.files.read(found.ok_or_else(lacks)?)
    }
}

impl Found {
    fn format(&self, packed: Packed) -> Option<PackedFormat> {
        packed.format(&self.planned.name, &self.planned.shape, self.encoding)
    }
}

impl Files {
    fn who(&self) -> String {
        match self {
            Self::Folder(folder) => format!("the folder `{}`", shown(folder.path())),
            Self::Gguf(file) => format!("`{}`", shown(file.path())),
        }
    }

    fn refuse(&self, problem: String) -> Error {
        Error::checkpoint(self.who(), problem, "take a model of a family that is supported, as it was published")
    }

    fn lacks(&self, planned: &Planned) -> Error {
        let name = match self {
            Self::Folder(_) => &planned.folder_name,
            Self::Gguf(_) => &planned.gguf_name,
        };
        self.refuse(format!("lacks the tensor `{name}`"))
    }

    fn place(&self, name: &str) -> Result<Option<&TensorPlace>> {
        match self {
            Self::Folder(folder) => folder.place(name),
            Self::Gguf(file) => Ok(file.tensors().get(name)),
        }
    }

    /// The name and the encoding of a tensor in the files, if it is there, with the shape that the network needs.
    fn find(&self, planned: &Planned, family: Family) -> Result<Option<(String, Encoding)>> {
        let (names, needed) = match self {
            Self::Folder(_) => (folder_names(&planned.folder_name, family), planned.folder_shape()),
            Self::Gguf(_) => (vec![planned.gguf_name.clone()], planned.gguf_shape()),
        };
        for name in names {
            let Some(place) = self.place(&name)? else { continue };
            if place.shape != needed {
                let problem = format!("needs the shape {needed:?} for the tensor `{name}`, but has {:?}", place.shape);
                return Err(self.refuse(problem));
            }
            return Ok(Some((name, place.encoding)));
        }
        Ok(None)
    }

    /// Refuses tensors that are not read: the network has a part that is not known here.
    fn check_rest(&self, tensors: &[Found]) -> Result<()> {
        let names: Vec<&str> = match self {
            Self::Folder(folder) => folder.names().collect(),
            Self::Gguf(file) => file.tensors().keys().map(String::as_str).collect(),
        };
        let read: std::collections::BTreeSet<&str> = tensors.iter().map(|found| found.stored.as_str()).collect();
        let is_left_out = |name: &str| {
            name == ROTARY_FACTORS
                || LEFT_OUT.iter().any(|end| name.ends_with(end))
                || HEADS.iter().any(|start| name.starts_with(start))
        };
        match names.into_iter().find(|name| !read.contains(name) && !is_left_out(name)) {
            Some(name) => Err(self.refuse(format!("has a tensor `{}`, which its network does not have", shown(name)))),
            None if read.contains(OUTPUT) => Ok(()),
            None => self.check_tied(tensors),
        }
    }

    /// Refuses an output in a folder whose settings tie it to the table of tokens, where both differ: transformers 5 then takes both, and
    /// transformers 4 the table alone.
    fn check_tied(&self, tensors: &[Found]) -> Result<()> {
        let Self::Folder(folder) = self else { return Ok(()) };
        let table = tensors.iter().find(|found| found.planned.name == "embedding.embeddings");
        let (Some(table), true) = (table, folder.names().any(|name| name == OUTPUT)) else { return Ok(()) };
        if folder.read(&table.stored)? == folder.read(OUTPUT)? {
            return Ok(());
        }
        let problem =
            format!("has a tensor `{OUTPUT}` that differs from its table of tokens, to which its settings tie it");
        let help = "if the model is to have both, set `tie_word_embeddings` in `config.json` to false; else take the tensor out";
        Err(Error::checkpoint(self.who(), problem, help))
    }

    fn read(&self, found: &Found) -> Result<Tensor> {
        let Found { planned, stored, .. } = found;
        let place = self.place(stored)?.ok_or_else(|| self.lacks(planned))?;
        let bytes = match self {
            Self::Folder(folder) => folder.read(stored)?,
            Self::Gguf(file) => file.read(place)?,
        };
        let tensor = Tensor { name: planned.name.clone(), shape: place.shape.clone(), encoding: place.encoding, bytes };
        Ok(match self {
            Self::Folder(_) => planned.of_folder(tensor),
            Self::Gguf(_) => planned.of_gguf(tensor),
        })
    }
}

/// Names that a tensor may have in a folder: with the prefix of the whole model, and without.
fn folder_names(name: &str, family: Family) -> Vec<String> {
    let bare = ["model.", "transformer."].iter().find_map(|prefix| name.strip_prefix(prefix));
    let other = match family {
        Family::Bert => Some(format!("bert.{name}")),
        _ => bare.map(ToOwned::to_owned),
    };
    [name.to_owned()].into_iter().chain(other).collect()
}

/// Help for the name of a model at Hugging Face, such as `HuggingFaceTB/SmolLM2-135M`, where a path is needed.
fn help_where_missing(path: &Path) -> Option<String> {
    let owner = path.parent().filter(|owner| owner.components().count() == 1 && !owner.exists())?;
    let is_name = path.is_relative()
        && path.extension().is_none_or(|extension| extension != "gguf" && extension != "safetensors");
    let name = path.file_name().filter(|_| is_name)?.to_string_lossy();
    Some(format!(
        "nothing is loaded from the internet: `hf download {}/{name} --local-dir {name}`, then name the folder `{name}`",
        shown(owner)
    ))
}
