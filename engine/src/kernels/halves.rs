//! Values as 16-bit floats with a factor for each block, for the way to the host.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use super::cases::{Case, InputFill};
use super::rounding::{float, index};
use super::text::wgsl;
use super::{Call, Kernel, Library, parallel};

crate::params! {
    /// Number of blocks.
    blocks: u32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&PACK];

/// Values that share a factor. A flat buffer's views begin and end between blocks ([`ALIGN`](crate::plan::ALIGN)).
pub const BLOCK: usize = 64;

/// Words in which a block's halves stand, two in each.
const PAIRS: usize = BLOCK / 2;

/// `x [blocks, 64]` → `packed [blocks * 33]`: the halves in pairs, then a factor for each block.
///
/// Grid: `Elements(blocks)`.
pub static PACK: Kernel = Kernel {
    stem: "halves",
    entry: "pack",
    source: wgsl!("halves"),
    uses: &[Library::Grid],
    params: Params::FIELDS,
    inputs: &["x"],
    outputs: &["packed"],
    workgroup: 64,
    constants: &[],
    twin: pack_twin,
    fast: Some(pack_fast),
    // WGSL leaves the direction of rounding to the device: one unit of 10 bits.
    tolerance: 1e-3,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

/// Words that [`PACK`] writes for a number of values.
pub const fn packed_len(len: usize) -> usize {
    let blocks = len.div_ceil(BLOCK);
    blocks * PAIRS + blocks
}

/// Packs values on the host. Their number is a multiple of [`BLOCK`].
pub fn pack(values: &[f32]) -> Vec<f32> {
    let params = Params { blocks: u32::try_from(values.len() / BLOCK).unwrap_or(u32::MAX) }.words();
    let mut packed = vec![0.0; packed_len(values.len())];
    pack_fast(&Call { params: &params, constants: &[], inputs: &[values] }, &mut [&mut packed]);
    packed
}

/// A part of what [`PACK`] wrote.
#[derive(Clone, Copy, Debug)]
pub struct Halves<'a> {
    pairs: &'a [f32],
    factors: &'a [f32],
}

impl<'a> Halves<'a> {
    /// All of it.
    pub fn new(packed: &'a [f32]) -> Self {
        let blocks = packed.len() / (PAIRS + 1);
        let (pairs, factors) = packed.split_at(blocks * PAIRS);
        Self { pairs, factors }
    }

    /// Number of its blocks.
    pub fn blocks(self) -> usize {
        self.factors.len()
    }

    /// Calls `f(first, values)` for each block of a range of values, which begins between blocks; `first` counts from its
    /// start.
    pub fn for_each(self, range: std::ops::Range<usize>, mut f: impl FnMut(usize, &[f32; BLOCK])) {
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK).min(self.factors.len());
        let pairs = self.pairs[blocks.start * PAIRS..blocks.end * PAIRS].chunks_exact(PAIRS);
        let mut values = [0.0; BLOCK];
        for ((pairs, factor), first) in pairs.zip(&self.factors[blocks]).zip((0..).step_by(BLOCK)) {
            halves_of(pairs, &mut values);
            values.iter_mut().for_each(|value| *value *= factor);
            f(first, &values);
        }
    }
}

/// The 16-bit floats of pairs, as f32.
fn halves_of(pairs: &[f32], values: &mut [f32]) {
    let bits: &[u16] = bytemuck::cast_slice(pairs);
    bits.reinterpret_cast::<f16>().convert_to_f32_slice(values);
}

/// Biased exponent of a block's factor; `None` if it holds what is not finite.
fn factor_exponent(block: &[f32]) -> Option<u32> {
    let largest = block.iter().fold(0, |largest, value| largest.max(value.to_bits() & 0x7fff_ffff));
    let exponent = largest >> 23;
    (exponent < 255).then(|| exponent.max(15) - 14)
}

fn pack_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let blocks = index(call.params::<Params>().blocks);
    let (pairs, factors) = outputs[0].split_at_mut(blocks * PAIRS);
    let rows = pairs.chunks_exact_mut(PAIRS).zip(factors).take(blocks);
    for ((pairs, factor), block) in rows.zip(call.inputs[0].chunks_exact(BLOCK)) {
        *factor = factor_exponent(block).map_or(f32::NAN, |exponent| f32::from_bits(exponent << 23));
        for (pair, values) in pairs.iter_mut().zip(block.chunks_exact(2)) {
            let half = |value: f32| match factor.is_nan() {
                true => 0,
                false => u32::from(f16::from_f64(f64::from(value) / f64::from(*factor)).to_bits()),
            };
            *pair = f32::from_bits(half(values[0]) | half(values[1]) << 16);
        }
    }
}

fn pack_fast(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let blocks = index(call.params::<Params>().blocks);
    let (pairs, factors) = outputs[0][..blocks * (PAIRS + 1)].split_at_mut(blocks * PAIRS);
    parallel::row_pairs((factors, 1), (pairs, PAIRS), |row, factor, pairs| {
        factor[0] = pack_block(&call.inputs[0][row * BLOCK..][..BLOCK], pairs);
    });
}

/// Packs a block and gives its factor.
fn pack_block(block: &[f32], pairs: &mut [f32]) -> f32 {
    let Some(exponent) = factor_exponent(block) else {
        pairs.fill(0.0);
        return f32::NAN;
    };
    let shrink = f32::from_bits((254 - exponent) << 23);
    let mut scaled = [0.0; BLOCK];
    scaled.iter_mut().zip(block).for_each(|(scaled, value)| *scaled = value * shrink);
    let bits: &mut [u16] = bytemuck::cast_slice_mut(pairs);
    bits.reinterpret_cast_mut::<f16>().convert_from_f32_slice(&scaled);
    f32::from_bits(exponent << 23)
}

/// Halves as numbers, and the exponents of factors: what a test can compare.
fn readable(packed: &[f32]) -> Vec<f32> {
    let Halves { pairs, factors } = Halves::new(packed);
    let mut values = vec![0.0; 2 * pairs.len()];
    halves_of(pairs, &mut values);
    let exponents = factors.iter().map(|factor| if factor.is_nan() { f32::NAN } else { factor.log2() });
    values.into_iter().chain(exponents).collect()
}

fn cases() -> Vec<Case> {
    let case = |label: String, fill: InputFill| {
        let blocks = fill.len() / BLOCK;
        let params = Params { blocks: u32::try_from(blocks).unwrap_or_default() };
        Case::elements(label, params.words(), params.blocks)
            .input(fill)
            .output(packed_len(blocks * BLOCK))
            .read_by(readable)
    };
    let of = |label: &str, value: fn(usize) -> f32| {
        case(label.into(), InputFill::Values((0..4 * BLOCK).map(value).collect()))
    };
    let mut cases: Vec<Case> =
        [1, 63, 64, 65, 1025].map(|blocks| case(format!("{blocks} blocks"), InputFill::Normal(blocks * BLOCK))).into();
    cases.extend([
        of("zeros", |_| 0.0),
        of("from tiny to huge, by block", |at| [1e-37, 3e-12, 7e11, 3.4e38][at / BLOCK] * (float(at % 7) - 3.0) / 3.0),
        of("from tiny to huge, in each block", |at| (float(at % BLOCK) - 40.0).exp2()),
        of("below normal numbers", |at| f32::from_bits(u32::try_from(at % BLOCK).unwrap_or_default())),
        of("at a power of two", |at| [2.0, 1.999_999_9, -4.0, -3.999_999_8][at % 4]),
        of("not finite in two blocks of four", |at| match at {
            5 => f32::NAN,
            130 => f32::NEG_INFINITY,
            _ => float(at),
        }),
    ]);
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(x: &[f32]) -> Vec<f32> {
        let mut back = vec![9.0; x.len()];
        let packed = pack(x);
        Halves::new(&packed).for_each(0..x.len(), |first, values| back[first..first + BLOCK].copy_from_slice(values));
        back
    }

    #[test]
    fn values_come_back_within_two_to_the_minus_eleven() {
        for scale in [1e-30f32, 1e-8, 1.0, 1e6, 1e30] {
            let x: Vec<f32> =
                (0..4 * BLOCK).map(|at| scale * (float(at) * 0.37).sin() * (float(at % 9)).exp2()).collect();
            for (x, back) in x.iter().zip(there_and_back(&x)) {
                assert!((x - back).abs() <= x.abs() * 2f32.powi(-11), "{x} came back as {back}");
            }
        }
    }

    #[test]
    fn small_numbers_of_a_block_lose_little_of_its_largest() {
        let x: Vec<f32> = (0..BLOCK).map(|at| 1e20 * (-float(at)).exp2()).collect();
        for (x, back) in x.iter().zip(there_and_back(&x)) {
            assert!(
                (x - back).abs() <= (x.abs() * 2f32.powi(-11)).max(1e20 * 2f32.powi(-39)),
                "{x} came back as {back}"
            );
        }
    }

    #[test]
    fn what_is_not_finite_spoils_its_block_only() {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1.0; 3 * BLOCK];
            x[BLOCK + 7] = wrong;
            let back = there_and_back(&x);
            assert!(back[BLOCK..2 * BLOCK].iter().all(|value| value.is_nan()));
            assert!(back[..BLOCK].iter().chain(&back[2 * BLOCK..]).all(|value| *value == 1.0));
        }
    }

    #[test]
    fn a_range_is_read_from_the_middle() {
        let x: Vec<f32> = (0..4 * BLOCK).map(float).collect();
        let (packed, mut seen) = (pack(&x), Vec::new());
        Halves::new(&packed).for_each(BLOCK..3 * BLOCK, |first, values| seen.push((first, values[0])));
        assert_eq!(seen, [(0, 64.0), (BLOCK, 128.0)]);
    }
}
