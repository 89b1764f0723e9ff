//! Hugging Face folders: `config.json`, and weights in one or several safetensors files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use manyhands_engine::{files, shown};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde::Deserialize;

use crate::architecture::Architecture;
use crate::encoding::Encoding;
use crate::place::{OpenFile, TensorPlace};
use crate::{Error, Result, Tensor};

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Longest header that readers of safetensors files take.
const MOST_HEADER_BYTES: u64 = 100_000_000;
/// Most shards: Llama 405B has 191.
const MOST_SHARDS: usize = 1 << 12;

/// An open folder with a model.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    architecture: Architecture,
    shards: Vec<OpenFile>,
    tensors: BTreeMap<String, Stored>,
}

/// A tensor of a shard. Integers, such as tables of positions, have no encoding.
#[derive(Clone, Debug)]
struct Stored {
    shard: usize,
    place: Result<TensorPlace, Dtype>,
}

impl Stored {
    fn place(&self, name: &str, path: &Path) -> Result<&TensorPlace> {
        self.place.as_ref().map_err(|kind| {
            let problem = format!("needs floats of 16 or 32 bits in the tensor `{}`, but has {kind:?}", shown(name));
            let help = "save the model in another type: `model.half().save_pretrained(folder)`";
            Error::checkpoint(format!("`{}`", shown(path)), problem, help)
        })
    }
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Help for a folder that holds something else than a model.
fn help_where_missing(path: &Path, config: &Path) -> Option<&'static str> {
    let is_adapter = path.join("adapter_config.json").exists();
    (!config.exists()).then_some(if is_adapter {
        "the folder holds an adapter: name the model that it was trained for"
    } else {
        "name the folder of a model, as `save_pretrained` of transformers writes it, or a GGUF file"
    })
}

impl Folder {
    /// Opens a folder and reads its headers. Tensors stay in their files.
    ///
    /// # Errors
    /// If a file is missing or damaged, or `config.json` describes a network that is not known here.
    pub fn open(path: &Path) -> Result<Self> {
        let config = path.join("config.json");
        let text = files::read_text(&config).map_err(|error| match help_where_missing(path, &config) {
            Some(help) => Error::new(error.kind(), error.who(), error.problem(), help),
            None => error,
        })?;
        let architecture = Architecture::from_config(&config, &text)?;
        let index = path.join(INDEX);
        let (shards, tensors) = if index.exists() { open_shards(path, &index)? } else { open_single(path)? };
        Ok(Self { path: path.to_owned(), architecture, shards, tensors })
    }

    /// The path under which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The network.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Place of a tensor, if the folder has it.
    ///
    /// # Errors
    /// If its elements are no floats of 16 or 32 bits.
    pub fn place(&self, name: &str) -> Result<Option<&TensorPlace>> {
        let Some(stored) = self.tensors.get(name) else { return Ok(None) };
        stored.place(name, self.shards[stored.shard].path()).map(Some)
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    /// As [`place`](Self::place), or if the folder lacks it, or it can't be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let lacks = || {
            Error::checkpoint(
                format!("`{}`", shown(&self.path)),
                format!("lacks the tensor `{}`", shown(name)),
                "take the folder as it was published",
            )
        };
        let place = self.place(name)?.ok_or_else(lacks)?;
        self.shards[self.tensors[name].shard].read(place)
    }
}

/// All tensors of one safetensors file.
pub(crate) fn read_tensors(path: &Path) -> Result<Vec<Tensor>> {
    let (file, tensors) = open_shard(path, 0)?;
    let read = |(name, stored): (String, Stored)| {
        let place = stored.place(&name, path)?;
        Ok(Tensor { shape: place.shape.clone(), encoding: place.encoding, bytes: file.read(place)?, name })
    };
    tensors.into_iter().map(read).collect()
}

type Opened = (Vec<OpenFile>, BTreeMap<String, Stored>);

fn open_single(folder: &Path) -> Result<Opened> {
    let path = folder.join(WEIGHTS);
    if !path.exists() {
        let problem = format!("needs weights in `{WEIGHTS}` or `{INDEX}`, but has neither");
        let help = "save the model as safetensors: `model.save_pretrained(folder)` of transformers does";
        return Err(Error::checkpoint(format!("the folder `{}`", shown(folder)), problem, help));
    }
    let (file, tensors) = open_shard(&path, 0)?;
    Ok((vec![file], tensors.into_iter().collect()))
}

fn open_shards(folder: &Path, index: &Path) -> Result<Opened> {
    let refuse = |problem: String| {
        Error::checkpoint(format!("`{}`", shown(index)), problem, "take all files of the folder as they were published")
    };
    let read: Index = serde_json::from_str(&files::read_text(index)?)
        .map_err(|error| refuse(format!("needs a `weight_map` of names to files, but: {error}")))?;
    let names: BTreeSet<&String> = read.weight_map.values().collect();
    if names.len() > MOST_SHARDS {
        return Err(refuse(format!("needs at most {MOST_SHARDS} files, but names {}", names.len())));
    }
    let (mut shards, mut tensors) = (Vec::new(), BTreeMap::new());
    for name in names {
        let is_beside = Path::new(name).file_name().is_some_and(|file| file == name.as_str()) && !name.contains('\\');
        if !is_beside {
            return Err(refuse(format!("needs files of its own folder, but names `{}`", shown(name))));
        }
        let path = folder.join(name);
        if !path.exists() {
            return Err(refuse(format!("names the file `{}`, which is not there", shown(name))));
        }
        let (file, found) = open_shard(&path, shards.len())?;
        for (tensor, place) in found.into_iter().filter(|(tensor, _)| read.weight_map.get(tensor) == Some(name)) {
            tensors.insert(tensor, place);
        }
        shards.push(file);
    }
    if let Some((tensor, file)) = read.weight_map.iter().find(|(tensor, _)| !tensors.contains_key(*tensor)) {
        return Err(refuse(format!("promises the tensor `{}` in `{}`, which lacks it", shown(tensor), shown(file))));
    }
    Ok((shards, tensors))
}

fn open_shard(path: &Path, shard: usize) -> Result<(OpenFile, Vec<(String, Stored)>)> {
    let (file, (begin, metadata)) = OpenFile::open(path, |file| read_header(path, file))?;
    let tensors = metadata.tensors().into_iter().map(|(name, info)| {
        let (first, end) = info.data_offsets;
        let place = |encoding| TensorPlace {
            shape: info.shape.clone(),
            encoding,
            begin: begin + first as u64,
            bytes: end - first,
        };
        (name, Stored { shard, place: encoding(info.dtype).map(place) })
    });
    Ok((file, tensors.collect()))
}

/// First byte after the header, and the header, which has to account for each byte of the file.
fn read_header(path: &Path, mut file: &File) -> Result<(u64, Metadata)> {
    let reading = |error| Error::reading(path, error);
    let refuse = |problem: String| {
        Error::checkpoint(
            format!("`{}`", shown(path)),
            format!("needs to be a whole safetensors file, but {problem}"),
            "load the file again: it is damaged, or was not loaded to its end",
        )
    };
    let len = file.metadata().map_err(reading)?.len();
    let mut bytes = [0; 8];
    if len < 8 {
        return Err(refuse(format!("has {len} bytes")));
    }
    file.read_exact(&mut bytes).map_err(reading)?;
    let header_len = u64::from_le_bytes(bytes);
    if header_len > MOST_HEADER_BYTES.min(len - 8) {
        return Err(refuse(format!("claims a header of {header_len} bytes")));
    }
    let mut header = Vec::new();
    file.take(header_len).read_to_end(&mut header).map_err(reading)?;
    let metadata: Metadata =
        serde_json::from_slice(&header).map_err(|error| refuse(format!("its header is not: {error}")))?;
    let needed = (8 + header_len).checked_add(metadata.data_len() as u64);
    if needed != Some(len) {
        return Err(refuse(format!("has {len} bytes instead of {}", needed.unwrap_or(u64::MAX))));
    }
    Ok((8 + header_len, metadata))
}

fn encoding(kind: Dtype) -> Result<Encoding, Dtype> {
    match kind {
        Dtype::F32 => Ok(Encoding::F32),
        Dtype::F16 => Ok(Encoding::F16),
        Dtype::BF16 => Ok(Encoding::Bf16),
        other => Err(other),
    }
}
