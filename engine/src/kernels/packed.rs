//! Floats of packed weights: of a part of a matrix, and of rows of a table by their index.

use half::f16;

use super::cases::{Case, InputFill};
use super::family::family;
use super::parallel;
use super::rounding::{class, index, single};
use super::{Call, Kernel};
use crate::packed::{BLOCK, PackedFormat};

crate::params! {
    /// Blocks of a line.
    line_blocks: u32,
    /// First line of the part; for [`GATHER`] the first row of the table that is bound.
    first_line: u32,
    /// Lines of the part, or rows that are bound.
    lines: u32,
    /// First block of the part in each line.
    first_block: u32,
    /// Blocks of the part in each line.
    blocks: u32,
    /// Distance of lines in `y`.
    line_stride: u32,
    /// Distance of a line's values in `y`: 1, or 1 is the distance of lines.
    value_stride: u32,
    /// Indices.
    positions: u32,
    /// Rows of the whole table.
    vocabulary: u32,
}

family!("packed", [Grid]);

/// A product of 11 and 8 bits is exact. The sum with a minimum is rounded once, fused or not.
const TOLERANCE: f32 = 0.0;

/// Constants of both kernels: bits of a number, 8 or 4, and the 16-bit floats before the numbers of a block, 1 or 2.
const CONSTANTS: [&str; 2] = ["BITS", "SCALES"];

/// The family.
pub static KERNELS: &[&Kernel] = &[&UNPACK, &GATHER];

/// `packed` → `y`: value `i` of line `l` of the part at `l line_stride + i value_stride`. Grid: `Elements(lines * blocks)`.
pub static UNPACK: Kernel =
    kernel("unpack", [&["packed"], &["y"], &CONSTANTS], (unpack_twin, unpack_fast), TOLERANCE, unpack_cases);

/// `packed [lines, line_blocks]`, `ids [positions]` → `rows [positions, 32 line_blocks]`: of the indices whose rows are bound; the
/// others stay.
///
/// Grid: `Elements(positions * line_blocks)`.
pub static GATHER: Kernel =
    kernel("gather", [&["packed", "ids"], &["rows"], &CONSTANTS], (gather_twin, gather_fast), TOLERANCE, gather_cases);

/// The constants of a format.
#[allow(clippy::cast_precision_loss, reason = "at most 8")]
pub fn constants(format: PackedFormat) -> [(&'static str, f64); 2] {
    let [bits, scales] = CONSTANTS;
    [(bits, format.bits() as f64), (scales, format.scales() as f64)]
}

/// The format of a call's constants.
fn format(call: &Call<'_>) -> PackedFormat {
    let is_of_call =
        |format: &PackedFormat| constants(*format).iter().all(|(name, value)| call.constant(name, 0.0) == *value);
    PackedFormat::ALL.into_iter().find(is_of_call).unwrap_or(PackedFormat::Q8_0)
}

/// Value `i` of block `block`, as the definition has it.
fn value(format: PackedFormat, packed: &[f32], block: usize, i: usize) -> f32 {
    let byte = |at: usize| {
        let [place, within] = [at / 4, at % 4];
        packed[place].to_bits().to_le_bytes()[within]
    };
    let start = block * format.block_bytes();
    let half = |at: usize| f16::from_le_bytes([byte(at), byte(at + 1)]).to_f64();
    let nibble =
        |first: usize| f64::from(if i < BLOCK / 2 { byte(first + i) % 16 } else { byte(first + i - BLOCK / 2) / 16 });
    single(match format {
        PackedFormat::Q8_0 => half(start) * f64::from(byte(start + 2 + i).cast_signed()),
        PackedFormat::Q4_0 => half(start) * (nibble(start + 2) - 8.0),
        PackedFormat::Q4_1 => half(start) * nibble(start + 4) + half(start + 2),
    })
}

fn unpack_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let (p, format) = (call.params::<Params>(), format(call));
    for (line, block) in (0..p.lines).flat_map(|line| (0..p.blocks).map(move |block| (line, block))) {
        let whole = index((p.first_line + line) * p.line_blocks + p.first_block + block);
        for i in 0..BLOCK {
            let at = index(line * p.line_stride) + (BLOCK * index(block) + i) * index(p.value_stride);
            outputs[0][at] = value(format, call.inputs[0], whole, i);
        }
    }
}

/// Blocks of packed words.
struct Blocks<'a> {
    format: PackedFormat,
    bytes: &'a [u8],
}

impl<'a> Blocks<'a> {
    fn of_call(call: &Call<'a>) -> Self {
        Self { format: format(call), bytes: bytemuck::cast_slice(call.inputs[0]) }
    }

    /// Unpacks a block.
    fn unpack(&self, block: usize, values: &mut [f32]) {
        let len = self.format.block_bytes();
        self.format.unpack_block(&self.bytes[block * len..][..len], values);
    }

    /// Unpacks neighbours.
    fn unpack_all(&self, first: usize, values: &mut [f32]) {
        values.chunks_exact_mut(BLOCK).zip(first..).for_each(|(values, block)| self.unpack(block, values));
    }
}

fn unpack_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let (p, packed) = (call.params::<Params>(), Blocks::of_call(call));
    let [line_blocks, first_line, lines] = [p.line_blocks, p.first_line, p.lines].map(index);
    let [first_block, blocks] = [p.first_block, p.blocks].map(index);
    let y = &mut outputs[0][..lines * blocks * BLOCK];
    let first = |line: usize| (first_line + line) * line_blocks + first_block;
    if p.line_stride != 1 {
        let row = blocks * BLOCK;
        return parallel::rows(y, row, |line, y| {
            y.chunks_exact_mut(row).zip(line..).for_each(|(y, line)| packed.unpack_all(first(line), y));
        });
    }
    let work = y.len();
    parallel::slabs(y, lines * BLOCK, work, |block, y| {
        let mut values = [0.0; BLOCK];
        for line in 0..lines {
            packed.unpack(first(line) + block, &mut values);
            y[line..].iter_mut().step_by(lines).zip(values).for_each(|(y, value)| *y = value);
        }
    });
}

/// The row of the bound part that an index means, if it is there.
fn row(p: &Params, id: f32) -> Option<usize> {
    class(id, index(p.vocabulary)).checked_sub(index(p.first_line)).filter(|row| *row < index(p.lines))
}

fn gather_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let (p, format) = (call.params::<Params>(), format(call));
    let cols = BLOCK * index(p.line_blocks);
    for (at, y) in outputs[0].iter_mut().enumerate().take(index(p.positions) * cols) {
        if let Some(row) = row(&p, call.inputs[1][at / cols]) {
            *y = value(format, call.inputs[0], (row * cols + at % cols) / BLOCK, at % BLOCK);
        }
    }
}

fn gather_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let (p, packed, ids) = (call.params::<Params>(), Blocks::of_call(call), call.inputs[1]);
    let (line_blocks, positions) = (index(p.line_blocks), index(p.positions));
    let cols = BLOCK * line_blocks;
    parallel::rows(&mut outputs[0][..positions * cols], cols, |first, y| {
        for (y, id) in y.chunks_exact_mut(cols).zip(&ids[first..]) {
            if let Some(row) = row(&p, *id) {
                packed.unpack_all(row * line_blocks, y);
            }
        }
    });
}

/// Words of so many blocks with any numbers and scales below 2, subnormal ones among them.
fn words(format: PackedFormat, blocks: u32) -> InputFill {
    let len = index(blocks) * format.block_bytes();
    let any = InputFill::Labels(len, 256).values(3);
    let mut bytes: Vec<u8> = any.iter().map(|value| u8::try_from(class(*value, 256)).unwrap_or(0)).collect();
    let blocks = bytes.chunks_exact_mut(format.block_bytes());
    blocks.for_each(|block| (0..format.scales()).for_each(|idx| block[2 * idx + 1] &= 0xbf));
    bytes.resize(len.next_multiple_of(size_of::<f32>()), 0);
    InputFill::Values(bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

/// Lines, and blocks of a line; first line and lines, first block and blocks of the part.
const SIZES: [[[u32; 2]; 3]; 7] = [
    [[1, 1], [0, 1], [0, 1]],
    [[63, 2], [0, 63], [0, 2]],
    [[65, 3], [0, 65], [0, 3]],
    [[7, 5], [2, 3], [1, 3]],
    [[257, 4], [64, 193], [2, 2]],
    [[2, 1], [0, 0], [0, 1]],
    [[300, 64], [0, 300], [0, 64]],
];

fn case(label: String, format: PackedFormat, p: &Params, elements: u32, all_blocks: u32) -> Case {
    let case = Case::elements(label, p.words(), elements).labelled(format.name());
    let case = constants(format).into_iter().fold(case, |case, (name, value)| case.constant(name, value));
    case.input(words(format, all_blocks))
}

fn unpack_cases() -> Vec<Case> {
    let each = |format: PackedFormat, across: u32, sizes: [[u32; 2]; 3]| {
        let [[all, line_blocks], [first_line, lines], [first_block, blocks]] = sizes;
        let (line_stride, value_stride) = if across == 1 { (1, lines) } else { (32 * blocks, 1) };
        let (positions, vocabulary) = (0, 1);
        let p = Params {
            line_blocks,
            first_line,
            lines,
            first_block,
            blocks,
            line_stride,
            value_stride,
            positions,
            vocabulary,
        };
        let label = format!("{lines} of {all} x {blocks} of {line_blocks}, strides {line_stride}, {value_stride}");
        case(label, format, &p, lines * blocks, all * line_blocks).output(index(32 * lines * blocks))
    };
    let formats = PackedFormat::ALL.into_iter();
    formats.flat_map(|format| [0, 1].map(|across| SIZES.map(|sizes| each(format, across, sizes)))).flatten().collect()
}

/// Positions, blocks of a row, rows of the table, first row and rows that are bound.
const TABLES: [[u32; 5]; 6] = [
    [1, 1, 1, 0, 1],
    [63, 2, 7, 0, 7],
    [65, 3, 64, 21, 32],
    [257, 1, 40, 0, 40],
    [0, 2, 5, 0, 5],
    [2100, 18, 1000, 300, 700],
];

fn gather_cases() -> Vec<Case> {
    let each = |format: PackedFormat, [positions, line_blocks, vocabulary, first_line, lines]: [u32; 5]| {
        let (first_block, blocks, line_stride, value_stride) = (0, line_blocks, 32 * line_blocks, 1);
        let p = Params {
            line_blocks,
            first_line,
            lines,
            first_block,
            blocks,
            line_stride,
            value_stride,
            positions,
            vocabulary,
        };
        let mut ids = InputFill::Labels(index(positions), vocabulary).values(5);
        ids.iter_mut().skip(3).step_by(97).for_each(|id| *id = 1e9);
        ids.iter_mut().skip(4).step_by(89).for_each(|id| *id = -3.0);
        let label = format!("{positions} x {line_blocks} blocks of {lines} from {first_line} of {vocabulary}");
        let case = case(label, format, &p, positions * line_blocks, lines * line_blocks);
        case.input(InputFill::Values(ids)).output(index(32 * positions * line_blocks))
    };
    let formats = PackedFormat::ALL.into_iter();
    formats.flat_map(|format| TABLES.map(|table| each(format, table))).collect()
}
