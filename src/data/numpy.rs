//! Arrays of NumPy: one in a file (`.npy`), or several by name (`.npz`).
//!
//! | array | becomes |
//! | --- | --- |
//! | `x`, bytes of three axes or more | images: 0–255 as 0–1; `[rows, height, width]` gets one channel |
//! | `x`, other numbers | the input, unchanged |
//! | `x_2`, `x_3` and so on | further inputs |
//! | `y`, whole numbers, `[rows]` or `[rows, 1]` | labels, `[batch]` |
//! | `y`, other numbers | targets, unchanged; `[rows]` as `[batch, 1]` |
//!
//! Numbers are booleans, integers and floats of any size and byte order; objects are refused, since reading them would run code.
//! They become f32; a note names columns that lose what tells their rows apart, such as seconds since 1970. A model's file keeps which
//! inputs were images of bytes: other data in its place, and the reverse, are refused unless they are from 0 to 1.
//! Source: `numpy.lib.format`, versions 1 to 3.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use half::f16;
use ndarray::{ArrayD, IxDyn, ShapeBuilder};
use rawzip::{CompressionMethod, FileReader, ZipArchive, ZipArchiveEntryWayfinder};

use super::{ByteImages, DataPair, Dataset, InMemory, source};
use crate::schema::{ArrayRange, Format, Schema, few};
use crate::{Error, Result, Shape, shown};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Bytes that hold the head of every array that NumPy writes.
const HEAD: u64 = 1 << 16;
/// Bytes that one packed byte can become at most; source: RFC 1951.
const DEFLATE: u64 = 1032;
/// Steps of f32 between the least and the largest number of a column below which the column is coarse: 10 of 24 bits are left.
const FEW_STEPS: f64 = 1024.0;

/// Part of the range from 0 to 1 by which images may exceed it: so do those that were resized.
const EXCESS: f32 = 0.1;

/// A file with arrays, and the name of one of them in an `.npz`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayPlace<'a> {
    pub path: &'a Path,
    pub name: Option<&'a str>,
}

impl ArrayPlace<'_> {
    pub fn who(self) -> String {
        match self.name {
            Some(name) => format!("`{}`, array `{}`,", shown(self.path), shown(name)),
            None => format!("`{}`", shown(self.path)),
        }
    }

    fn fail(self, problem: impl Into<String>) -> Error {
        Error::data(self.who(), problem, "write it by `numpy.save` or `numpy.savez`, as an array of numbers")
    }

    /// A note of columns that lose digits.
    fn coarse(self, columns: &[usize]) -> Option<String> {
        let names: Vec<String> = columns.iter().map(usize::to_string).collect();
        let columns = if names.len() == 1 { "column" } else { "columns" };
        (!names.is_empty()).then(|| {
            format!(
                "{} has numbers that 32-bit floats hardly tell apart, in {columns} {}: subtract the mean of each column \
                 before saving",
                self.who(),
                few(&names)
            )
        })
    }
}

/// An array, row-major.
pub(super) struct NumpyArray {
    shape: Vec<usize>,
    values: ArrayValues,
    /// Names the columns that lose digits in f32.
    note: Option<String>,
}

enum ArrayValues {
    Bytes(Vec<u8>),
    /// Numbers of an integer type.
    Whole(Vec<f32>),
    Floats(Vec<f32>),
}

/// Type, order and shape of an array, as its head has them.
pub(super) struct ArrayHead {
    kind: u8,
    size: usize,
    is_big_endian: bool,
    is_fortran: bool,
    shape: Vec<usize>,
}

impl ArrayHead {
    /// A head of another format, whose elements are row-major.
    pub fn little_endian(kind: u8, size: usize, shape: Vec<usize>) -> Self {
        Self { kind, size, is_big_endian: false, is_fortran: false, shape }
    }

    /// Reads the dictionary of a head: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
    fn parse(text: &str) -> Result<Self, String> {
        let value = |key: &str| {
            let rest = text.split_once(&format!("'{key}'")).and_then(|(_, rest)| rest.trim_start().strip_prefix(':'));
            rest.map(str::trim_start).ok_or_else(|| format!("has no `{key}` in its head"))
        };
        let descr = value("descr")?.strip_prefix('\'').and_then(|rest| rest.split_once('\'')).map(|(descr, _)| descr);
        let descr = descr.ok_or("needs one number for each element, but has records of several")?;
        let refuse = || format!("needs booleans, integers or floats, but has elements of type `{}`", shown(descr));
        let (order, kind) = descr.split_at_checked(1).ok_or_else(refuse)?;
        let (kind, size) = kind.split_at_checked(1).ok_or_else(refuse)?;
        let size: usize = size.parse().map_err(|_| refuse())?;
        let is_known = match kind {
            "b" => size == 1,
            "i" | "u" => matches!(size, 1 | 2 | 4 | 8),
            "f" => matches!(size, 2 | 4 | 8),
            _ => false,
        };
        if !is_known || !matches!(order, "<" | ">" | "|" | "=") {
            return Err(refuse());
        }
        let shape = value("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')')).map(|(shape, _)| shape);
        let axes = shape.ok_or("has no shape in its head")?.split(',').map(str::trim).filter(|axis| !axis.is_empty());
        let shape: Result<Vec<usize>, _> = axes.map(str::parse).collect();
        Ok(Self {
            kind: kind.as_bytes()[0],
            size,
            is_big_endian: order == ">",
            is_fortran: value("fortran_order")?.starts_with("True"),
            shape: shape.map_err(|_| "has no whole numbers as its shape")?,
        })
    }

    /// Bytes of all elements, unless they are too many to count.
    fn bytes(&self) -> Option<u64> {
        let count = self.shape.iter().try_fold(1_usize, |all, axis| all.checked_mul(*axis))?;
        u64::try_from(count.checked_mul(self.size)?).ok()
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "the bits that are there; those of a signed number are its own"
    )]
    fn element(&self, element: &[u8]) -> StoredElement {
        let mut bytes = [0; 8];
        bytes[..self.size].copy_from_slice(element);
        if self.is_big_endian {
            bytes[..self.size].reverse();
        }
        let bits = u64::from_le_bytes(bytes);
        let unused = 64 - 8 * self.size as u32;
        match (self.kind, self.size) {
            (b'f', 2) => StoredElement::Float(f16::from_bits(bits as u16).to_f64()),
            (b'f', 4) => StoredElement::Float(f32::from_bits(bits as u32).into()),
            (b'f', _) => StoredElement::Float(f64::from_bits(bits)),
            (b'i', _) => StoredElement::Signed(((bits << unused) as i64) >> unused),
            _ => StoredElement::Unsigned(bits),
        }
    }

    /// Columns of a table whose numbers are so large, and so close together, that f32 tells few of them apart.
    fn coarse_columns(&self, bytes: &[u8]) -> Vec<usize> {
        let (rows, columns) = match self.shape[..] {
            [rows] => (rows, 1),
            [rows, columns] => (rows, columns),
            _ => return Vec::new(),
        };
        // f32 holds every number of the smaller types.
        if bytes.is_empty() || self.size < 4 || (self.kind == b'f' && self.size == 4) {
            return Vec::new();
        }
        let mut ends = vec![[f64::INFINITY, f64::NEG_INFINITY]; columns];
        for (at, element) in bytes.chunks_exact(self.size).enumerate() {
            let [least, most] = &mut ends[if self.is_fortran { at / rows } else { at % columns }];
            let value = self.element(element).double();
            (*least, *most) = (least.min(value), most.max(value));
        }
        let is_coarse = |[least, most]: [f64; 2]| {
            let step = least.abs().max(most.abs()) * f64::from(f32::EPSILON);
            most > least && most - least < FEW_STEPS * step
        };
        (0..columns).filter(|column| is_coarse(ends[*column])).collect()
    }

    fn values(&self, bytes: Vec<u8>) -> ArrayValues {
        match self.kind {
            b'u' if self.size == 1 => ArrayValues::Bytes(self.row_major(bytes)),
            kind => {
                let elements = bytes.chunks_exact(self.size).map(|element| self.element(element).single());
                let numbers = self.row_major(elements.collect());
                if kind == b'f' { ArrayValues::Floats(numbers) } else { ArrayValues::Whole(numbers) }
            }
        }
    }

    /// Elements in the order in which the last axis changes first.
    fn row_major<T: Clone>(&self, elements: Vec<T>) -> Vec<T> {
        if !self.is_fortran {
            return elements;
        }
        match ArrayD::from_shape_vec(IxDyn(&self.shape).f(), elements.clone()) {
            Ok(array) => array.iter().cloned().collect(),
            Err(_) => elements,
        }
    }
}

/// An element as it is stored.
#[derive(Clone, Copy)]
enum StoredElement {
    Float(f64),
    Signed(i64),
    Unsigned(u64),
}

impl StoredElement {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "the nearest f32 is meant")]
    fn single(self) -> f32 {
        match self {
            Self::Float(value) => value as f32,
            Self::Signed(value) => value as f32,
            Self::Unsigned(value) => value as f32,
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "the nearest f64 is meant")]
    fn double(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Signed(value) => value as f64,
            Self::Unsigned(value) => value as f64,
        }
    }
}

/// Reads an array from a file that takes so many bytes, packed or not.
fn read(place: ArrayPlace<'_>, mut file: impl Read, stored: u64, is_packed: bool) -> Result<NumpyArray> {
    let cut_short = || place.fail("is cut short");
    let reading = |source| Error::reading(place.path, source);
    let mut begin = Vec::new();
    file.by_ref().take(HEAD).read_to_end(&mut begin).map_err(reading)?;
    let rest = begin.strip_prefix(MAGIC).ok_or_else(|| place.fail("needs to be an array of NumPy, but is none"))?;
    let (head_at, len) = match *rest {
        [1, _, low, high, ..] => (10, usize::from(low) | usize::from(high) << 8),
        [2 | 3, _, a, b, c, d, ..] => (12, usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX)),
        [] | [1..=3, ..] => return Err(cut_short()),
        [version, ..] => return Err(place.fail(format!("is of version {version}, which is not known"))),
    };
    let data_at = len.saturating_add(head_at);
    let head = begin.get(head_at..data_at).ok_or_else(cut_short)?;
    let head = ArrayHead::parse(&String::from_utf8_lossy(head)).map_err(|problem| place.fail(problem))?;
    let most = if is_packed { stored.saturating_mul(DEFLATE) } else { stored };
    let needed = head.bytes().filter(|bytes| *bytes <= most).ok_or_else(cut_short)?;
    let mut bytes = begin.split_off(data_at);
    let missing = usize::try_from(needed).unwrap_or(usize::MAX).saturating_sub(bytes.len());
    bytes.try_reserve_exact(missing).map_err(|_| super::no_memory(&place.who()))?;
    file.take(missing as u64).read_to_end(&mut bytes).map_err(reading)?;
    if (bytes.len() as u64) < needed {
        return Err(cut_short());
    }
    bytes.truncate(usize::try_from(needed).unwrap_or(usize::MAX));
    Ok(NumpyArray::new(place, head, bytes))
}

/// Whether a path names several arrays.
fn is_npz(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz"))
}

/// The array of an `.npy` file.
fn read_npy(path: &Path) -> Result<NumpyArray> {
    let file = source::open(path)?;
    let stored = file.metadata().map_err(|source| Error::reading(path, source))?.len();
    read(ArrayPlace { path, name: None }, file, stored, false)
}

/// A file with arrays by name.
pub(super) trait ArrayFile {
    fn path(&self) -> &Path;

    /// Names of the arrays.
    fn names(&self) -> &[String];

    fn read(&self, name: &str) -> Result<NumpyArray>;

    /// Rows to train on and, where the file has them, to test with.
    fn pair(&self, names: [Option<&str>; 4]) -> Result<DataPair> {
        let who = format!("`{}`", shown(self.path()));
        let [x_train, y_train, x_test, y_test] = names;
        let (x, y) = (self.needed(x_train, &["x_train", "x"])?, self.needed(y_train, &["y_train", "y"])?);
        let train = self.rows(&who, x, Some(y))?;
        let test = match (x_test.or_else(|| self.first(&["x_test"])), y_test.or_else(|| self.first(&["y_test"]))) {
            (None, None) => None,
            (x, y) => {
                let (x, y) = (self.needed(x, &["x_test"])?, self.needed(y, &["y_test"])?);
                Some(self.rows(&who, x, Some(y))?)
            }
        };
        DataPair::new(train, test)
    }

    /// Rows without targets.
    fn inputs(&self) -> Result<Arc<dyn Dataset>> {
        let name = self.first(&["x", "x_test"]).map(String::from).or_else(|| self.only());
        let name = name.ok_or_else(|| self.lacks("an array `x` or `x_test`, or a single one"))?;
        self.rows(&format!("`{}`", shown(self.path())), &name, None)
    }

    /// Rows of an input and perhaps a target, with the inputs after the first: `x_2` and `x_3` of `x`.
    fn rows(&self, who: &str, x: &str, y: Option<&str>) -> Result<Arc<dyn Dataset>> {
        let y = y.map(|y| self.read(y)).transpose()?;
        let further = (2..).map(|number| format!("{x}_{number}")).take_while(|name| self.names().contains(name));
        let further = further.map(|name| self.read(&name)).collect::<Result<Vec<NumpyArray>>>()?;
        dataset(who, self.read(x)?, further, y)
    }

    /// The first of these names that the file has.
    fn first<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        names.iter().copied().find(|name| self.names().iter().any(|known| known == name))
    }

    /// The array of this name, or the first of the others that the file has.
    fn needed<'n>(&self, name: Option<&'n str>, others: &[&'n str]) -> Result<&'n str> {
        let found = name.map_or_else(|| self.first(others), |name| self.first(&[name]));
        let names: Vec<String> =
            name.as_ref().map_or(others, std::slice::from_ref).iter().map(|name| format!("`{name}`")).collect();
        found.ok_or_else(|| self.lacks(&format!("an array {}", names.join(" or "))))
    }

    /// The name of the only array.
    fn only(&self) -> Option<String> {
        if let [name] = self.names() { Some(name.clone()) } else { None }
    }

    /// Error if an array is not there.
    fn lacks(&self, needed: &str) -> Error {
        Error::data(
            format!("`{}`", shown(self.path())),
            format!("needs {needed}, but has the arrays {}", few(self.names())),
            "name the arrays in `[data]`: `x_train`, `y_train`, `x_test`, `y_test`",
        )
    }
}

/// Arrays of an `.npz` file, by name.
struct Npz<'a> {
    path: &'a Path,
    /// Bytes of the file.
    bytes: u64,
    archive: ZipArchive<FileReader>,
    /// Names of the arrays.
    names: Vec<String>,
    /// Their places in the archive.
    entries: Vec<ArchiveEntry>,
}

#[derive(Clone, Copy)]
struct ArchiveEntry {
    place: ZipArchiveEntryWayfinder,
    method: CompressionMethod,
    is_encrypted: bool,
}

impl<'a> Npz<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let file = source::open(path)?;
        let place = ArrayPlace { path, name: None };
        Self::list(path, file).map_err(|error| place.fail(format!("is not a whole `.npz` file: {error}")))
    }

    fn list(path: &'a Path, file: File) -> Result<Self, rawzip::Error> {
        let bytes = file.metadata()?.len();
        let mut buffer = vec![0; rawzip::RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::from_file(file, &mut buffer)?;
        let (mut names, mut found) = (Vec::new(), Vec::new());
        let mut entries = archive.entries(&mut buffer);
        while let Some(entry) = entries.next_entry()? {
            let stored_path = entry.file_path();
            let name = std::str::from_utf8(stored_path.as_ref()).ok().and_then(|name| name.strip_suffix(".npy"));
            if let Some(name) = name {
                names.push(name.to_owned());
                let (method, is_encrypted) = (entry.compression_method(), entry.flags().is_encrypted());
                found.push(ArchiveEntry { place: entry.wayfinder(), method, is_encrypted });
            }
        }
        Ok(Self { path, bytes, archive, names, entries: found })
    }
}

impl ArrayFile for Npz<'_> {
    fn path(&self) -> &Path {
        self.path
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn read(&self, name: &str) -> Result<NumpyArray> {
        let place = ArrayPlace { path: self.path, name: Some(name) };
        let refuse = |problem: String| place.fail(format!("can't be unpacked: {problem}"));
        // Of equal names the last holds, as in Python's `zipfile`.
        let at = self.names.iter().rposition(|known| known == name);
        let entry = at.map(|at| self.entries[at]).ok_or_else(|| refuse("the archive lacks it".into()))?;
        if entry.is_encrypted {
            return Err(refuse("it is encrypted".into()));
        }
        let stored = entry.place.compressed_size_hint().min(self.bytes);
        let packed = self.archive.get_entry(entry.place).map_err(|error| refuse(error.to_string()))?;
        match entry.method {
            CompressionMethod::STORE => read(place, packed.verifying_reader(packed.reader()), stored, false),
            CompressionMethod::DEFLATE => {
                read(place, packed.verifying_reader(DeflateDecoder::new(packed.reader())), stored, true)
            }
            method => Err(refuse(format!("it is packed by method {}, which is not known", method.as_u16()))),
        }
    }
}

/// Inputs and targets of two `.npy` files.
///
/// # Errors
///
/// When a file is no array of numbers, not whole, or the numbers of rows differ.
pub fn open_pair(x: &Path, y: &Path) -> Result<Arc<dyn Dataset>> {
    dataset(&format!("`{}`", shown(y)), read_npy(x)?, Vec::new(), Some(read_npy(y)?))
}

/// Rows to train on and, where the file has them, to test with. `names` are those of the arrays `x_train`, `y_train`, `x_test`
/// and `y_test`, where they are others.
///
/// # Errors
///
/// When the file is no `.npz`, lacks an array, or an array is none of numbers, numbers of rows or shapes differ.
pub fn open_npz(path: &Path, names: [Option<&str>; 4]) -> Result<DataPair> {
    Npz::open(path)?.pair(names)
}

/// Rows without targets: an `.npy` file, or of an `.npz` file `x`, `x_test` or its only array.
///
/// # Errors
///
/// When the file is no array of numbers, or is not whole.
pub fn open_inputs(path: &Path) -> Result<Arc<dyn Dataset>> {
    if is_npz(path) {
        Npz::open(path)?.inputs()
    } else {
        dataset(&format!("`{}`", shown(path)), read_npy(path)?, Vec::new(), None)
    }
}

/// Refuses arrays, named by their file, that are not read as those of this schema: bytes of images are divided by 255, other numbers are
/// not.
pub(super) fn check_like(file: &Path, trained: &Schema, arrays: &dyn Dataset) -> Result<()> {
    let (Format::Numpy { values: trained }, Format::Numpy { values }) = (&trained.format, arrays.schema().format)
    else {
        return Ok(());
    };
    for (at, ranges) in trained.iter().copied().zip(values).enumerate() {
        let (problem, help) = match ranges {
            (ArrayRange::Bytes, ArrayRange::Any) => (
                "needs images as bytes, as the training data had, or as numbers from 0 to 1, but has other numbers",
                "save them as bytes (`x.astype(\"uint8\")`), or divide those from 0 to 255 by 255",
            ),
            (ArrayRange::Any, ArrayRange::Bytes) => (
                "needs numbers of the range of the training data, but has bytes of images, which are read from 0 to 1",
                "save them in the type and range of the training data (`x.astype(\"float32\")`)",
            ),
            _ => continue,
        };
        return Err(Error::data(format!("`{}`, input {at},", shown(file)), problem, help));
    }
    Ok(())
}

/// Rows of arrays, the first input and those after it; `who` names them in errors.
fn dataset(who: &str, x: NumpyArray, further: Vec<NumpyArray>, y: Option<NumpyArray>) -> Result<Arc<dyn Dataset>> {
    let values = [&x].into_iter().chain(&further).map(NumpyArray::range).collect();
    let schema = Schema { format: Format::Numpy { values }, ..Schema::default() };
    let arrays = [&x].into_iter().chain(&further).chain(&y);
    let notes: Vec<String> = arrays.filter_map(|array| array.note.clone()).collect();
    let Some(rows) = x.shape.first().copied() else {
        return Err(Error::data(who, "needs rows, but is a single number", "the first axis of an array is the row"));
    };
    let y = y.map(|y| y.target(who, rows)).transpose()?;
    // Labels of pictures; nothing for other targets.
    let labels = y.as_ref().map(|(shape, values)| bytes_of(shape, values));
    if x.is_pictures() && further.is_empty() && labels != Some(None) {
        let (shape, pixels) = (Shape::new(x.axes()), x.values.bytes());
        let pictures = match labels.flatten() {
            Some(labels) => ByteImages::new(shape, pixels, labels, u8::MAX)?,
            None => ByteImages::without_labels(shape, pixels, u8::MAX)?,
        };
        return Ok(Arc::new(pictures.with_schema(schema)));
    }
    let mut data = InMemory::without_targets(x.input(who)?)?;
    for array in further {
        data = data.with_input(array.input(who)?)?;
    }
    if let Some((axes, values)) = y {
        data = data.with_target(shaped(who, [&[rows], axes.as_slice()].concat(), values)?)?;
    }
    Ok(Arc::new(data.with_schema(schema).with_notes(notes)))
}

/// Shape of a row of a target, without the rows, and all values.
type TargetArray = (Vec<usize>, Vec<f32>);

fn shaped(who: &str, shape: Vec<usize>, values: Vec<f32>) -> Result<ArrayD<f32>> {
    ArrayD::from_shape_vec(shape, values)
        .map_err(|error| Error::data(who, format!("can't become an array: {error}"), "please report this"))
}

/// Labels that are bytes.
fn bytes_of(shape: &[usize], values: &[f32]) -> Option<Vec<u8>> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number from 0 to 255")]
    let byte = |value: &f32| ((0.0..=255.0).contains(value) && value.fract() == 0.0).then_some(*value as u8);
    if shape.is_empty() { values.iter().map(byte).collect() } else { None }
}

impl ArrayValues {
    /// The bytes; nothing of other numbers.
    fn bytes(self) -> Vec<u8> {
        if let Self::Bytes(bytes) = self { bytes } else { Vec::new() }
    }

    fn numbers(self) -> Vec<f32> {
        match self {
            Self::Bytes(bytes) => bytes.into_iter().map(f32::from).collect(),
            Self::Whole(numbers) | Self::Floats(numbers) => numbers,
        }
    }
}

impl NumpyArray {
    /// The array of a head and the bytes of all its elements.
    pub fn new(place: ArrayPlace<'_>, head: ArrayHead, bytes: Vec<u8>) -> Self {
        let note = place.coarse(&head.coarse_columns(&bytes));
        let values = head.values(bytes);
        Self { shape: head.shape, values, note }
    }

    /// Whether these are bytes of three axes or more.
    fn is_pictures(&self) -> bool {
        self.shape.len() >= 3 && matches!(self.values, ArrayValues::Bytes(_))
    }

    fn range(&self) -> ArrayRange {
        let is_unit = |values: &[f32]| values.iter().all(|value| (-EXCESS..=1.0 + EXCESS).contains(value));
        match &self.values {
            ArrayValues::Bytes(_) if self.is_pictures() => ArrayRange::Bytes,
            ArrayValues::Whole(values) | ArrayValues::Floats(values) if self.shape.len() >= 3 && is_unit(values) => {
                ArrayRange::Unit
            }
            _ => ArrayRange::Any,
        }
    }

    /// Shape of an input's row: of pictures with their channels.
    fn axes(&self) -> Vec<usize> {
        match &self.shape[1.min(self.shape.len())..] {
            [] => vec![1],
            [height, width] if self.is_pictures() => vec![*height, *width, 1],
            axes => axes.to_vec(),
        }
    }

    /// The array as an input, bytes of pictures from 0 to 1.
    fn input(self, who: &str) -> Result<ArrayD<f32>> {
        let rows = self.shape.first().copied().unwrap_or(1);
        let (shape, is_pictures) = ([&[rows], self.axes().as_slice()].concat(), self.is_pictures());
        let mut values = self.values.numbers();
        if is_pictures {
            values.iter_mut().for_each(|value| *value /= 255.0);
        }
        shaped(who, shape, values)
    }

    fn target(self, who: &str, rows: usize) -> Result<TargetArray> {
        if self.shape.first() != Some(&rows) {
            return Err(Error::data(
                who,
                format!("needs a target for each of {rows} rows, but `y` has shape {:?}", self.shape),
                "the first axis of both arrays is the row",
            ));
        }
        let is_whole = !matches!(self.values, ArrayValues::Floats(_));
        let axes = match &self.shape[1..] {
            [] | [1] if is_whole => Vec::new(),
            [] => vec![1],
            axes => axes.to_vec(),
        };
        Ok((axes, self.values.numbers()))
    }
}
