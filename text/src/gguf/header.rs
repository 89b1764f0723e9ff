//! Reads the header of a GGUF file: no length in it is believed before the file is known to be so long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use manyhands_engine::shown;
use manyhands_engine::shown::bytes as amount;

use super::{Value, refuse};
use crate::encoding::Encoding;
use crate::place::TensorPlace;
use crate::{Error, Result};

const MAGIC: [u8; 4] = *b"GGUF";
/// Longest header: the largest vocabularies of 2026 need some 10 MB.
const MOST_HEADER_BYTES: u64 = 256 << 20;
/// Most values of all arrays together: each takes 32 bytes here, and one at least in the file.
const MOST_VALUES: u64 = 1 << 22;
/// Most tensors; models of 400 billion weights have some thousands.
const MOST_TENSORS: u64 = 1 << 16;
/// Arrays in arrays.
const MOST_DEPTH: usize = 4;
const MOST_AXES: u32 = 4;
const DEFAULT_ALIGNMENT: u64 = 32;
const ALIGNMENT: &str = "general.alignment";

type Parts = (BTreeMap<String, Value>, BTreeMap<String, TensorPlace>);

/// Metadata and tensors of a file.
pub(super) fn read(path: &Path, file: &File) -> Result<Parts> {
    let len = file.metadata().map_err(|error| Error::reading(path, error))?.len();
    let mut header = Header { path, input: BufReader::new(file), at: 0, len, values: 0 };
    header.check_begin()?;
    let (n_tensors, n_keys) = (header.u64()?, header.u64()?);
    if n_tensors > MOST_TENSORS {
        return Err(header.refuse(format!("needs at most {MOST_TENSORS} tensors, but claims {n_tensors}")));
    }
    let metadata = header.metadata(n_keys)?;
    let tensors = (0..n_tensors).map(|_| header.tensor()).collect::<Result<Vec<_>>>()?;
    let data = header.data_begin(&metadata)?;
    let tensors = place(path, tensors, data, len)?;
    Ok((metadata, tensors))
}

/// A tensor whose place is counted from the end of the header.
struct Entry {
    name: String,
    shape: Vec<usize>,
    encoding: Encoding,
    offset: u64,
    bytes: usize,
}

/// Bytes of the header, counted.
struct Header<'a> {
    path: &'a Path,
    input: BufReader<&'a File>,
    at: u64,
    len: u64,
    /// Values of all arrays so far.
    values: u64,
}

impl Header<'_> {
    fn refuse(&self, problem: impl Into<String>) -> Error {
        refuse(self.path, problem)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.advance(N as u64)?;
        self.input.read_exact(&mut bytes).map_err(|error| Error::reading(self.path, error))?;
        Ok(bytes)
    }

    /// Counts bytes that are read next.
    fn advance(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.len - self.at {
            let problem = format!("needs {} more for its header, but ends after {}", amount(bytes), amount(self.len));
            return Err(self.refuse(problem));
        }
        self.at += bytes;
        if self.at > MOST_HEADER_BYTES {
            return Err(
                self.refuse(format!("needs a header of at most {}, but has a longer one", amount(MOST_HEADER_BYTES)))
            );
        }
        Ok(())
    }

    fn u32(&mut self) -> Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn check_begin(&mut self) -> Result<()> {
        let magic: [u8; 4] = if self.len < 8 { [0; 4] } else { self.bytes()? };
        if magic != MAGIC {
            return Err(self.refuse("needs to begin with `GGUF`, but begins with something else"));
        }
        match self.u32()? {
            2 | 3 => Ok(()),
            version if version.swap_bytes() <= 3 => {
                Err(self.refuse("needs little-endian numbers, but is made for a big-endian machine"))
            }
            version => Err(self.refuse(format!("needs to be GGUF of version 2 or 3, but is of version {version}"))),
        }
    }

    fn text(&mut self) -> Result<String> {
        let len = self.u64()?;
        self.advance(len)?;
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(len).read_to_end(&mut bytes);
        read.map_err(|error| Error::reading(self.path, error))?;
        String::from_utf8(bytes).map_err(|_| self.refuse("needs texts in UTF-8, but has one that is none"))
    }

    fn metadata(&mut self, count: u64) -> Result<BTreeMap<String, Value>> {
        let mut metadata = BTreeMap::new();
        for _ in 0..count {
            let key = self.text()?;
            let kind = self.u32()?;
            let value = self.value(kind, MOST_DEPTH)?;
            if metadata.contains_key(&key) {
                return Err(self.refuse(format!("needs each key once, but has `{}` twice", shown(&key))));
            }
            metadata.insert(key, value);
        }
        Ok(metadata)
    }

    /// A value of a kind, as the table of the format numbers them.
    fn value(&mut self, kind: u32, depth: usize) -> Result<Value> {
        Ok(match kind {
            0 => Value::Unsigned(self.bytes().map(u8::from_le_bytes)?.into()),
            1 => Value::Signed(self.bytes().map(i8::from_le_bytes)?.into()),
            2 => Value::Unsigned(self.bytes().map(u16::from_le_bytes)?.into()),
            3 => Value::Signed(self.bytes().map(i16::from_le_bytes)?.into()),
            4 => Value::Unsigned(self.u32()?.into()),
            5 => Value::Signed(self.bytes().map(i32::from_le_bytes)?.into()),
            6 => Value::Float(self.bytes().map(f32::from_le_bytes)?.into()),
            7 => Value::Bool(self.bytes::<1>()? != [0]),
            8 => Value::Text(self.text()?),
            9 if depth > 0 => self.array(depth)?,
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Signed(self.bytes().map(i64::from_le_bytes)?),
            12 => Value::Float(self.bytes().map(f64::from_le_bytes)?),
            9 => return Err(self.refuse("needs arrays that are not so deep in each other")),
            other => return Err(self.refuse(format!("has a value of kind {other}, which GGUF 3 does not know"))),
        })
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        let (kind, count) = (self.u32()?, self.u64()?);
        self.values = self.values.saturating_add(count);
        if self.values > MOST_VALUES {
            return Err(
                self.refuse(format!("needs at most {MOST_VALUES} values in arrays, but claims {}", self.values))
            );
        }
        (0..count).map(|_| self.value(kind, depth - 1)).collect::<Result<_>>().map(Value::Array)
    }

    fn tensor(&mut self) -> Result<Entry> {
        let name = self.text()?;
        let n_axes = self.u32()?;
        if n_axes > MOST_AXES {
            let problem = format!("needs at most {MOST_AXES} axes for the tensor `{}`, but has {n_axes}", shown(&name));
            return Err(self.refuse(problem));
        }
        let mut shape = (0..n_axes).map(|_| self.u64()).collect::<Result<Vec<_>>>()?;
        shape.reverse();
        let (kind, offset) = (self.u32()?, self.u64()?);
        let Some(encoding) = encoding(kind) else {
            let known = Encoding::ALL.map(Encoding::name).join(", ");
            let problem = format!("needs tensors of {known}, but `{}` is {}", shown(&name), kind_name(kind));
            return Err(Error::checkpoint(
                format!("`{}`", shown(self.path)),
                problem,
                "take a file of another quantization, such as Q8_0 or Q4_K_M",
            ));
        };
        let size = |sizes: &[u64]| -> Option<(Vec<usize>, usize)> {
            let shape = sizes.iter().map(|size| usize::try_from(*size)).collect::<Result<Vec<_>, _>>().ok()?;
            let row = shape.last().copied().unwrap_or(1);
            let elements = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size))?;
            let bytes = encoding.bytes(elements)?;
            row.is_multiple_of(encoding.block_len()).then_some((shape, bytes))
        };
        let Some((shape, bytes)) = size(&shape) else {
            let problem =
                format!("has a tensor `{}` whose shape {shape:?} is impossible in {}", shown(&name), encoding.name());
            return Err(self.refuse(problem));
        };
        Ok(Entry { name, shape, encoding, offset, bytes })
    }

    /// The first byte after the header: the next multiple of the alignment.
    fn data_begin(&self, metadata: &BTreeMap<String, Value>) -> Result<u64> {
        let alignment = match metadata.get(ALIGNMENT) {
            None => DEFAULT_ALIGNMENT,
            Some(Value::Unsigned(alignment)) if alignment.is_power_of_two() && *alignment <= 1 << 20 => *alignment,
            Some(_) => return Err(self.refuse(format!("needs a power of two under `{ALIGNMENT}`"))),
        };
        Ok(self.at.next_multiple_of(alignment))
    }
}

/// The encoding behind a number of the file.
fn encoding(kind: u32) -> Option<Encoding> {
    Some(match kind {
        0 => Encoding::F32,
        1 => Encoding::F16,
        2 => Encoding::Q4_0,
        3 => Encoding::Q4_1,
        6 => Encoding::Q5_0,
        7 => Encoding::Q5_1,
        8 => Encoding::Q8_0,
        12 => Encoding::Q4K,
        13 => Encoding::Q5K,
        14 => Encoding::Q6K,
        30 => Encoding::Bf16,
        _ => return None,
    })
}

/// Names of encodings that are not read.
fn kind_name(kind: u32) -> String {
    let name = match kind {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        20 => "IQ4_NL",
        23 => "IQ4_XS",
        28 => "F64",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return format!("of type {kind}"),
    };
    name.to_owned()
}

/// Tensors with their places in the file, which has to reach so far.
fn place(path: &Path, entries: Vec<Entry>, data: u64, len: u64) -> Result<BTreeMap<String, TensorPlace>> {
    let mut tensors = BTreeMap::new();
    for Entry { name, shape, encoding, offset, bytes } in entries {
        let begin = data.checked_add(offset);
        let Some(begin) = begin.filter(|begin| begin.checked_add(bytes as u64).is_some_and(|end| end <= len)) else {
            let problem = format!(
                "needs {} for the tensor `{}`, but ends after {}",
                amount(bytes as u64),
                shown(&name),
                amount(len)
            );
            return Err(refuse(path, problem));
        };
        if tensors.contains_key(&name) {
            return Err(refuse(path, format!("needs each tensor once, but has `{}` twice", shown(&name))));
        }
        tensors.insert(name, TensorPlace { shape, encoding, begin, bytes });
    }
    Ok(tensors)
}
