//! Measured peaks of a machine: the bandwidth of its memory, and arithmetic in registers.

use std::sync::Arc;

use serde::Serialize;

use manyhands_engine::adapters::{Info, Kind};
use manyhands_engine::kernels::cases::{Case, InputFill};
use manyhands_engine::kernels::{Call, Kernel, Library, Tile, Twin, add, dense};
use manyhands_engine::plan::Grid;
use manyhands_engine::runtime::{Runtime, system, threads};
use manyhands_engine::timing::median;

manyhands::params! {
    /// Number of elements.
    len: u32,
    /// Rounds of each chain, of four multiply-adds.
    rounds: u32,
}

const SOURCE: &str = include_str!("peak.wgsl");

/// `x [len]` → `y [len]`, 16 elements an invocation, as a large card takes few workgroups a microsecond; `len` is a multiple of 1024.
/// Grid: `Elements(len / 16)`.
pub static COPY: Kernel = kernel("copy", &["x"], &["y"], copy_twin, copy_cases);

/// `factors [2]` → `sums [len]`: twelve chains of fused multiply-adds. Grid: `Elements(len)`.
pub static CHAINS: Kernel = kernel("chains", &["factors"], &["sums"], chains_twin, chains_cases);

const fn kernel(
    entry: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    twin: Twin,
    cases: fn() -> Vec<Case>,
) -> Kernel {
    Kernel {
        stem: "peak",
        entry,
        source: SOURCE,
        uses: &[Library::Grid],
        params: Params::FIELDS,
        inputs,
        outputs,
        workgroup: 64,
        constants: &[],
        twin,
        fast: None,
        // A chain converges from any start, so earlier rounding does not matter; its end is a few units off.
        tolerance: 1e-5,
        cases,
    }
}

fn copy_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let len = call.params::<Params>().len as usize;
    outputs[0][..len].copy_from_slice(&call.inputs[0][..len]);
}

#[allow(clippy::cast_possible_truncation, reason = "results of kernels are f32")]
fn chains_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let Params { len, rounds } = call.params();
    let [m, c] = [0, 1].map(|idx: usize| f64::from(call.inputs[0][idx]));
    for (i, sum) in (0..len).zip(outputs[0].iter_mut()) {
        let chain = |chain| (0..4 * rounds).fold(f64::from(i % 64 + chain), |a, _| a.mul_add(m, c));
        *sum = (0..12).map(chain).sum::<f64>() as f32;
    }
}

fn copy_cases() -> Vec<Case> {
    [1024, 3072, 70 * 1024].map(copy_case).into()
}

fn chains_cases() -> Vec<Case> {
    vec![chains_case(1, 1), chains_case(65, 3), chains_case(257, 40)]
}

/// A copy of `len` elements.
fn copy_case(len: u32) -> Case {
    let elements = len as usize;
    Case::elements(format!("{len}"), Params { len, rounds: 0 }.words(), len / 16)
        .input(InputFill::Uniform(elements, -1.0, 1.0))
        .output(elements)
}

/// Chains of `len` invocations.
fn chains_case(len: u32, rounds: u32) -> Case {
    Case::elements(format!("{len} x {rounds}"), Params { len, rounds }.words(), len)
        .input(InputFill::Values(vec![0.5, 1.0]))
        .output(len as usize)
}

/// Operations of one invocation of [`CHAINS`] in a round: twelve chains of four multiply-adds.
const FLOPS_OF_ROUND: f64 = 96.0;

/// Elements that a copy moves: 64 MiB, read and written, exceed the caches.
const COPIED: u32 = 1 << 24;
/// Invocations and rounds of the chains: 6.4 GFLOP.
const CHAINED: [u32; 2] = [1 << 16, 1 << 10];

/// A case and its amount of work, to be timed in alternation with others.
pub(super) struct TimedCase {
    pub kernel: &'static Kernel,
    pub tile: Tile,
    pub case: Case,
    pub cost: WorkAmount,
}

/// Unit by which a kernel is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorkAmount {
    /// Multiplications and additions.
    Flops(f64),
    /// Bytes read and written.
    Bytes(f64),
}

impl WorkAmount {
    /// Rate in 10⁹ per second, for a time in milliseconds.
    pub fn rate(self, ms: f64) -> f64 {
        let (Self::Flops(amount) | Self::Bytes(amount)) = self;
        amount / ms / 1e6
    }
}

/// Measured peaks of an adapter.
#[derive(Clone, Debug, Serialize)]
pub struct Peaks {
    /// Bytes that a copy reads and writes, in 10⁹ a second.
    pub copy_gb_s: f64,
    /// Method of the copy.
    pub copied_by: &'static str,
    /// Multiplications and additions, in 10⁹ a second.
    pub gflop_per_s: f64,
    /// Method of the arithmetic.
    pub computed_by: &'static str,
}

/// Probes of an adapter's peaks: those of bandwidth, then those of arithmetic.
pub(super) fn probes(info: &Info) -> Vec<TimedCase> {
    let probe = |kernel, case, cost| TimedCase { kernel, tile: Tile::Registers, case, cost };
    if info.kind == Kind::Cpu {
        return [512, 1024].map(|n| probe(&dense::FORWARD, product([n; 3]), product_cost([n; 3]))).into();
    }
    let bytes = WorkAmount::Bytes(8.0 * f64::from(COPIED));
    let fours = Case { params: vec![COPIED], grid: Grid::Elements((COPIED / 4).into()), ..copy_case(COPIED) };
    let [len, rounds] = CHAINED;
    let flops = WorkAmount::Flops(f64::from(len) * f64::from(rounds) * FLOPS_OF_ROUND);
    vec![
        probe(&add::COPY, fours, bytes),
        probe(&COPY, copy_case(COPIED), bytes),
        probe(&CHAINS, chains_case(len, rounds), flops),
    ]
}

/// The peaks from the median times of [`probes`], and the fastest product that was measured beside them.
pub(super) fn peaks(info: &Info, host: &HostCopy, timed: &[(WorkAmount, f64)], product_gflop_per_s: f64) -> Peaks {
    let best = |is_wanted: fn(WorkAmount) -> bool| {
        timed.iter().filter(|(cost, _)| is_wanted(*cost)).map(|(cost, ms)| cost.rate(*ms)).fold(0.0, f64::max)
    };
    let arithmetic = best(|cost| matches!(cost, WorkAmount::Flops(_)));
    let computed_by = match info.kind {
        Kind::Cpu => "the fastest product, on all threads",
        _ if product_gflop_per_s > arithmetic => "the fastest product, which is faster than chains of multiply-adds",
        _ => "chains of fused multiply-adds in registers",
    };
    let (copy_gb_s, copied_by) = match info.kind {
        Kind::Cpu => (host.gb_s(), "all threads"),
        _ => (best(|cost| matches!(cost, WorkAmount::Bytes(_))), "a kernel"),
    };
    Peaks { copy_gb_s, copied_by, gflop_per_s: arithmetic.max(product_gflop_per_s), computed_by }
}

/// A product `[m, n, k]` through [`dense::FORWARD`].
pub(super) fn product([m, n, k]: [u32; 3]) -> Case {
    let params = product_params([m, n, k]);
    let len = |rows: u32, columns: u32| rows as usize * columns as usize;
    Case::new(format!("{m} x {n} x {k}"), params.words(), params.record().grid())
        .input(InputFill::Uniform(len(m, k), -1.0, 1.0))
        .input(InputFill::Uniform(len(k, n), -1.0, 1.0))
        .input(InputFill::Uniform(len(1, n), -1.0, 1.0))
        .output(len(m, n))
}

/// A product `[m, n, k]` without gaps.
pub(super) fn product_params([m, n, k]: [u32; 3]) -> dense::Params {
    dense::Params { m, n, k, a_offset: 0, a_stride: k, b_offset: 0, b_stride: n, y_offset: 0, y_stride: n, splits: 1 }
}

fn product_cost(sizes: [u32; 3]) -> WorkAmount {
    WorkAmount::Flops(2.0 * sizes.map(f64::from).iter().product::<f64>())
}

/// Elements that one task copies.
const CHUNK: usize = 1 << 16;

/// A copy within the host's memory, by all threads.
pub struct HostCopy {
    from: Vec<f32>,
    to: Vec<f32>,
    times: Vec<f64>,
}

impl Default for HostCopy {
    fn default() -> Self {
        // Not zeros, so that the system gives the memory now.
        let values = |value: f32| vec![value; COPIED as usize];
        Self { from: values(1.0), to: values(2.0), times: Vec::new() }
    }
}

impl HostCopy {
    /// Copies once.
    pub fn turn(&mut self) {
        let (runtime, from): (Arc<dyn Runtime>, &[f32]) = (system(), &self.from);
        let begin_ms = runtime.now_ms();
        threads::chunks(&mut self.to, CHUNK, |idx, chunk| {
            chunk.copy_from_slice(&from[idx * CHUNK..][..chunk.len()]);
        });
        std::hint::black_box(&mut self.to);
        self.times.push(runtime.now_ms() - begin_ms);
    }

    /// Bytes read and written in 10⁹ a second, the median of all turns.
    pub fn gb_s(&self) -> f64 {
        WorkAmount::Bytes(8.0 * f64::from(COPIED)).rate(median(self.times.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With m = 1/2 and c = 1, every chain ends at 2.
    #[test]
    fn chains_end_at_their_fixed_point() {
        let sums = chains_case(65, 40).run(chains_twin).remove(0);
        assert!(sums.iter().all(|sum| (sum - 24.0).abs() < 1e-5), "{sums:?}");
        // One round from 0: 1, 1.5, 1.75, 1.875; the other chains start 1 to 11 above, of which a sixteenth is left.
        let first = chains_case(1, 1).run(chains_twin)[0][0];
        assert!((first - (12.0 * 1.875 + 66.0 / 16.0)).abs() < 1e-5, "{first}");
    }
}
