//! Single kernels at typical sizes, against the adapter's peak.

use std::fmt;

use serde::Serialize;

use super::machine::{HostCopy, Peaks, TimedCase, WorkAmount, peaks, probes, product, product_params};
use super::report::{BenchReport, Conditions, ms, table};
use super::rig::RigAdapter;
#[cfg(feature = "gpu")]
use manyhands_engine::adapters::gpu::{Checks, Direct, Launch};
use manyhands_engine::adapters::{Info, Kind};
use manyhands_engine::error::{Error, Result};
#[cfg(feature = "gpu")]
use manyhands_engine::kernels::cases::compare;
use manyhands_engine::kernels::cases::{Case, InputFill};
use manyhands_engine::kernels::product::{HALF_FACTORS, is_of_halves};
use manyhands_engine::kernels::{
    Call, Kernel, Tile, adam, attention, batch_norm, conv2d, dense, lanes, reduce,
    softmax_cross_entropy as cross_entropy,
};
use manyhands_engine::plan::{Command, Grid, Plan, Word, product_flops};
use manyhands_engine::runtime::system;
use manyhands_engine::table::percent;
use manyhands_engine::timing::median;

/// Kernels of some adapters.
#[derive(Clone, Debug, Serialize)]
pub struct Kernels {
    /// Results of each adapter.
    pub kernels: Vec<AdapterKernels>,
}

/// Kernels of an adapter.
#[derive(Clone, Debug, Serialize)]
pub struct AdapterKernels {
    /// Its name.
    pub name: String,
    /// Measured peaks of the adapter.
    pub peaks: Peaks,
    /// Each kernel.
    pub kernels: Vec<Timed>,
}

/// A kernel at a size.
#[derive(Clone, Debug, Serialize)]
pub struct Timed {
    /// Its name.
    pub kernel: String,
    /// Its size.
    pub size: String,
    /// Tile of a product, on a GPU.
    pub tile: Option<String>,
    /// Milliseconds, the median.
    pub ms: f64,
    /// Multiplications and additions in 10⁹ a second, of a product or convolution.
    pub gflop_per_s: Option<f64>,
    /// Bytes read and written in 10⁹ a second, of any other.
    pub gb_s: Option<f64>,
    /// Fraction of the adapter's peak, which is that of 32-bit floats. Above 1 if caches hold the data, if matrix units compute, or if
    /// the kernel updates in place: a copy also fetches what it overwrites.
    pub of_peak: f64,
}

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct KernelSettings {
    /// The adapters.
    pub adapters: Vec<Info>,
    /// Only kernels with this in their name; all if it is empty.
    pub only: String,
    /// Number of measurements of each kernel.
    pub rounds: u32,
    /// Milliseconds for an adapter: after them no further round begins.
    pub limit_ms: f64,
}

/// Measures kernels one by one on each adapter; all kernels of an adapter alternate.
///
/// `progress` is called at the start of each part.
///
/// # Errors
/// If no kernel has the name, or an adapter fails.
pub async fn measure(settings: &KernelSettings, mut progress: impl FnMut(&str)) -> Result<BenchReport<Kernels>> {
    let mut adapters = Vec::new();
    for info in &settings.adapters {
        adapters.push(measure_adapter(settings, info, &mut progress).await?);
    }
    let members: Vec<RigAdapter> = settings.adapters.iter().cloned().map(RigAdapter::from).collect();
    Ok(BenchReport {
        about: Conditions::new("kernels", &members, settings.rounds),
        measured: Kernels { kernels: adapters },
    })
}

async fn measure_adapter(
    settings: &KernelSettings,
    info: &Info,
    progress: &mut impl FnMut(&str),
) -> Result<AdapterKernels> {
    let mut wanted = benched(info);
    wanted.retain(|probe| probe.kernel.name().contains(&settings.only));
    if wanted.is_empty() {
        return Err(unknown(&settings.only, info));
    }
    let mut bench = Bench::open(info).await?;
    wanted.retain(|probe| bench.is_able(probe));
    let of_peaks = probes(info);
    let all: Vec<&TimedCase> = of_peaks.iter().chain(&wanted).collect();
    let (mut times, mut host) = (vec![Vec::new(); all.len()], HostCopy::default());
    let begin_ms = system().now_ms();
    for round in 0..settings.rounds {
        if round > 0 && system().now_ms() - begin_ms > settings.limit_ms {
            break;
        }
        progress(&format!("{}: round {} of {}", info.name, round + 1, settings.rounds));
        for (probe, times) in all.iter().zip(&mut times) {
            times.push(bench.time(probe).await?);
        }
        if info.kind == Kind::Cpu {
            host.turn();
        }
    }
    let timed: Vec<(WorkAmount, f64)> =
        all.iter().zip(times).map(|(probe, times)| (probe.cost, median(times))).collect();
    let (of_peaks, of_wanted) = timed.split_at(of_peaks.len());
    // Matrix units multiply 16-bit factors faster than the peak of 32-bit floats.
    let singles = wanted.iter().zip(of_wanted).filter(|(probe, _)| !is_of_halves(&probe.case.constants));
    let products = singles.map(|(_, timed)| timed).filter(|(cost, _)| matches!(cost, WorkAmount::Flops(_)));
    let fastest = products.map(|(cost, ms)| cost.rate(*ms)).fold(0.0, f64::max);
    let peaks = peaks(info, &host, of_peaks, fastest);
    let kernels = wanted.iter().zip(of_wanted).map(|(probe, (_, ms))| Timed::new(info, probe, *ms, &peaks)).collect();
    Ok(AdapterKernels { name: info.name.clone(), peaks, kernels })
}

fn unknown(only: &str, info: &Info) -> Error {
    let mut names: Vec<String> = benched(info).iter().map(|probe| probe.kernel.name()).collect();
    names.dedup();
    let help = format!("choose from {}", names.join(", "));
    Error::setting(format!("kernel `{only}`"), "is not measured by this bench", help)
}

impl Timed {
    fn new(info: &Info, probe: &TimedCase, ms: f64, peaks: &Peaks) -> Self {
        let rate = probe.cost.rate(ms);
        let (gflop_per_s, gb_s, peak) = match probe.cost {
            WorkAmount::Flops(_) => (Some(rate), None, peaks.gflop_per_s),
            WorkAmount::Bytes(_) => (None, Some(rate), peaks.copy_gb_s),
        };
        let is_cut = probe.kernel.is_tiled() && info.kind != Kind::Cpu;
        let tile = is_cut.then(|| name(probe.tile));
        let (kernel, size) = (probe.kernel.name(), probe.case.label.clone());
        Self { kernel, size, tile, ms, gflop_per_s, gb_s, of_peak: rate / peak }
    }
}

/// Elements of a case by which a kernel is checked.
#[cfg(feature = "gpu")]
const CHECKED: usize = 1 << 14;

/// Kernels that a device ran beside their twins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Number of kernels that were tried.
    pub kernels: usize,
    /// Number of those to be tried.
    pub of: usize,
    /// Number of their cases, each with every tile that can compute it.
    pub cases: usize,
    /// Names of those with another result than their twins, with the tile of a product.
    pub wrong: Vec<String>,
}

/// The kernels of a plan, each once.
pub fn of_plan(plan: &Plan) -> Vec<&'static Kernel> {
    let mut kernels: Vec<&'static Kernel> = Vec::new();
    for command in plan.passes.values().flatten() {
        if let Command::Dispatch(dispatch) = command
            && !kernels.iter().any(|kernel| std::ptr::eq(*kernel, dispatch.kernel))
        {
            kernels.push(dispatch.kernel);
        }
    }
    kernels
}

/// Checks every kernel of the crate, as far as the time lasts.
///
/// # Errors
/// If the adapter gives no device.
pub async fn check_all(info: &Info, limit_ms: f64) -> Result<Checked> {
    check(info, manyhands_engine::kernels::all().collect(), limit_ms).await
}

/// Runs kernels on a device, by their cases of small size, and compares the results with those of their twins. The CPU
/// adapter runs the twins, so that it has nothing to check. No further kernel begins after `limit_ms` milliseconds.
///
/// # Errors
/// If the adapter gives no device.
#[cfg(feature = "gpu")]
pub async fn check(info: &Info, kernels: Vec<&'static Kernel>, limit_ms: f64) -> Result<Checked> {
    if info.kind == Kind::Cpu {
        return Ok(Checked::default());
    }
    let mut checked = Checked { of: kernels.len(), ..Checked::default() };
    let (runtime, mut device) = (system(), Direct::open(info, Checks::Checked, system()).await?);
    let begin_ms = runtime.now_ms();
    for kernel in kernels {
        if runtime.now_ms() - begin_ms > limit_ms {
            break;
        }
        checked.kernels += 1;
        for tile in if kernel.is_tiled() { &Tile::ALL[..] } else { &[Tile::Registers] } {
            let able =
                |case: &Case| device.is_able(*tile) && tile.is_able(case.grid, &case.constants) && is_small(case);
            let cases: Vec<Case> = (kernel.cases)().into_iter().filter(able).collect();
            let mut is_right = true;
            for case in cases {
                checked.cases += 1;
                is_right &= self::is_right(&mut device, kernel, *tile, &case).await;
            }
            if !is_right {
                let of_tile = if kernel.is_tiled() { format!(" ({})", name(*tile)) } else { String::new() };
                checked.wrong.push(kernel.name() + &of_tile);
            }
        }
    }
    Ok(checked)
}

/// Whether a case is quick on any device.
#[cfg(feature = "gpu")]
fn is_small(case: &Case) -> bool {
    case.input_values().iter().chain(&case.output_values()).map(Vec::len).sum::<usize>() <= CHECKED
}

/// Whether a device computes a case as its twin does.
#[cfg(feature = "gpu")]
async fn is_right(device: &mut Direct, kernel: &'static Kernel, tile: Tile, case: &Case) -> bool {
    let (inputs, outputs) = (case.input_values(), case.output_values());
    let got = device.run(Launch::of(kernel, tile, case, (&inputs, &outputs))).await;
    got.is_ok_and(|got| compare(kernel, case, &got, &case.run(kernel.twin)).is_ok())
}

/// Without devices every kernel is a twin.
///
/// # Errors
/// None.
#[cfg(not(feature = "gpu"))]
pub async fn check(_info: &Info, _kernels: Vec<&'static Kernel>, _limit_ms: f64) -> Result<Checked> {
    Ok(Checked::default())
}

/// Name of a tile.
fn name(tile: Tile) -> String {
    format!("{tile:?}").to_lowercase()
}

/// Approximate time of one measurement's dispatches: long against the wait for a submission.
const LONG_MS: f64 = 40.0;
/// Dispatches of one measurement, at most.
const MOST: u32 = 500;

/// An adapter on which kernels are timed.
enum Bench {
    Host,
    #[cfg(feature = "gpu")]
    Device(Box<Direct>),
}

impl Bench {
    #[cfg(feature = "gpu")]
    async fn open(info: &Info) -> Result<Self> {
        match info.kind {
            Kind::Cpu => Ok(Self::Host),
            _ => Ok(Self::Device(Box::new(Direct::open(info, Checks::from_environment(), system()).await?))),
        }
    }

    #[cfg(not(feature = "gpu"))]
    async fn open(_info: &Info) -> Result<Self> {
        Ok(Self::Host)
    }

    /// Whether the adapter can compute a product with this tile.
    #[cfg_attr(not(feature = "gpu"), expect(unused_variables, reason = "the host cuts no product into tiles"))]
    fn is_able(&self, probe: &TimedCase) -> bool {
        match self {
            Self::Host => true,
            #[cfg(feature = "gpu")]
            Self::Device(device) => !probe.kernel.is_tiled() || device.is_able(probe.tile),
        }
    }

    /// Milliseconds of a kernel: the mean of as many calls as take some time.
    async fn time(&mut self, probe: &TimedCase) -> Result<f64> {
        let (inputs, outputs) = (probe.case.input_values(), probe.case.output_values());
        match self {
            Self::Host => Ok(time_on_host(probe, &inputs, outputs)),
            #[cfg(feature = "gpu")]
            Self::Device(device) => {
                let launch = Launch::of(probe.kernel, probe.tile, &probe.case, (&inputs, &outputs));
                let once_ms = device.time(launch, 1).await?;
                match repeats(once_ms) {
                    1 => Ok(once_ms),
                    repeats => device.time(launch, repeats).await,
                }
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn repeats(once_ms: f64) -> u32 {
    (LONG_MS / once_ms.max(1e-6)).ceil().clamp(1.0, f64::from(MOST)) as u32
}

fn time_on_host(probe: &TimedCase, inputs: &[Vec<f32>], mut outputs: Vec<Vec<f32>>) -> f64 {
    let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    let call = Call { params: &probe.case.params, constants: &probe.case.constants, inputs: &inputs };
    let (runtime, run) = (system(), probe.kernel.fast.unwrap_or(probe.kernel.twin));
    let mut time = |repeats: u32| {
        let begin_ms = runtime.now_ms();
        (0..repeats).for_each(|_| run(&call, &mut outputs));
        (runtime.now_ms() - begin_ms) / f64::from(repeats)
    };
    // The first call may have to allocate memory.
    time(1);
    let once_ms = time(1);
    match repeats(once_ms) {
        1 => once_ms,
        repeats => time(repeats),
    }
}

/// Probes of an adapter: every tile that can compute a product, on a GPU.
fn benched(info: &Info) -> Vec<TimedCase> {
    let mut probes = Vec::new();
    for (kernel, case, bytes) in kernels(info) {
        let tiles: Vec<Tile> = match info.kind {
            Kind::Cpu => vec![Tile::Registers],
            _ => kernel.tiles().iter().copied().filter(|tile| tile.is_able(case.grid, &case.constants)).collect(),
        };
        let cost =
            product_flops(kernel, &case.params, &case.constants).map_or(WorkAmount::Bytes(bytes), WorkAmount::Flops);
        probes.extend(tiles.into_iter().map(|tile| TimedCase { kernel, tile, case: case.clone(), cost }));
    }
    probes
}

/// Side of the product that is measured only on real GPUs: it takes seconds on others.
const LARGE: u32 = 4096;

/// Kernels with their sizes, and the bytes that each reads and writes.
fn kernels(info: &Info) -> Vec<(&'static Kernel, Case, f64)> {
    let sizes = [[1024; 3], [256, 1024, 784], [LARGE; 3]];
    let is_card = info.kind.is_gpu();
    let n_sizes = if is_card { 3 } else { 2 };
    let mut kernels: Vec<(&'static Kernel, Case, f64)> =
        sizes[..n_sizes].iter().map(|sizes| (&dense::FORWARD, product(*sizes), 0.0)).collect();
    // With factors of 16 bits, which a card's matrix units multiply.
    let halves = |side: u32| product([side; 3]).constant(HALF_FACTORS, 1.0).labelled("16-bit factors");
    kernels.extend([1024, LARGE].iter().filter(|_| is_card).map(|side| (&dense::FORWARD, halves(*side), 0.0)));
    kernels.extend(dense_gradients(1024));
    // The second convolution of the CNN, and one of the first stage of ResNet-18.
    kernels.extend(convolutions(convolution(64, [26, 32], [24, 64], 0)));
    kernels.extend(convolutions(convolution(32, [32, 64], [32, 64], 1)));
    // Its batch normalization.
    kernels.extend(normalizations(64 * 24 * 24, 64));
    kernels.push(softmax(4096, 1000));
    // The heads of a block of `gpt_mini`, and some of the usual 64 numbers.
    kernels.extend(attentions(16, 4, 128, 32));
    kernels.extend(attentions(4, 4, 256, 64));
    // The parameters of the MLP, and 16 million.
    kernels.extend([1_863_690, 1 << 24].map(update));
    kernels
}

fn len(sizes: &[u32]) -> usize {
    sizes.iter().map(|size| *size as usize).product()
}

fn normal_like(len: usize) -> InputFill {
    InputFill::Uniform(len, -1.0, 1.0)
}

/// Both gradients of a product of square matrices.
fn dense_gradients(side: u32) -> [(&'static Kernel, Case, f64); 2] {
    let (params, values) = (product_params([side; 3]), len(&[side, side]));
    let case = || {
        let case = Case::new(format!("{side} x {side} x {side}"), params.words(), params.record().grid());
        case.input(normal_like(values)).input(normal_like(values)).output(values)
    };
    [(&dense::BACKWARD_INPUT, case(), 0.0), (&dense::BACKWARD_WEIGHTS, case(), 0.0)]
}

/// A convolution of 3 × 3 over square images, from `[side, channels]` to the same.
fn convolution(rows: u32, [in_side, in_c]: [u32; 2], [out_side, out_c]: [u32; 2], padding: u32) -> conv2d::Params {
    let pixels = len(&[rows, out_side, out_side]);
    conv2d::Params {
        rows,
        in_h: in_side,
        in_w: in_side,
        in_c,
        out_h: out_side,
        out_w: out_side,
        out_c,
        k_h: 3,
        k_w: 3,
        stride_h: 1,
        stride_w: 1,
        pad_top: padding,
        pad_left: padding,
        splits: conv2d::splits(len(&[3, 3, in_c]), out_c as usize, pixels),
    }
}

fn convolutions(sizes: conv2d::Params) -> [(&'static Kernel, Case, f64); 3] {
    let whole = conv2d::Params { splits: 1, ..sizes };
    let (plain, rows) = (conv2d::ConvForm::PLAIN, |factor| Word::U32(sizes.rows * factor));
    let x = len(&[sizes.rows, sizes.in_h, sizes.in_w, sizes.in_c]);
    let w = len(&[sizes.k_h, sizes.k_w, sizes.in_c, sizes.out_c]);
    let y = len(&[sizes.rows, sizes.out_h, sizes.out_w, sizes.out_c]);
    let case = |params: conv2d::Params, grid: Grid, inputs: [usize; 2], output: usize| {
        let label =
            format!("{} x {} x {} x {}, 3 x 3 x {}", sizes.rows, sizes.in_h, sizes.in_w, sizes.in_c, sizes.out_c);
        let [a, b] = inputs.map(normal_like);
        Case::new(label, params.words(), grid).input(a).input(b).output(output)
    };
    let (bias, partials) = (sizes.out_c as usize, sizes.splits as usize * w);
    [
        (&conv2d::FORWARD, case(whole, whole.forward_grid(plain, rows), [x, w], y).input(normal_like(bias)), 0.0),
        (
            &conv2d::BACKWARD_INPUT,
            case(whole, whole.backward_input_grid(plain, rows), [y, w], x).input(normal_like(bias)),
            0.0,
        ),
        (&conv2d::BACKWARD_WEIGHTS, case(sizes, sizes.backward_weights_grid(plain, rows), [x, y], partials), 0.0),
    ]
}

#[allow(clippy::cast_possible_truncation, reason = "slabs are few")]
fn normalizations(pixels: u32, channels: u32) -> [(&'static Kernel, Case, f64); 4] {
    let (splits, c) = (reduce::splits(channels as usize), channels as usize);
    let params = batch_norm::Params {
        pixels,
        channels,
        count: pixels,
        epsilon: 1e-3,
        momentum: 0.99,
        splits: splits as u32,
        correction: 0,
    };
    let values = len(&[pixels, channels]);
    let case = |elements: u32| Case::elements(format!("{pixels} x {channels}"), params.words(), elements);
    let (x, few, partials) = (|| normal_like(values), || InputFill::Uniform(2 * c, 1.0, 2.0), splits * 2 * c);
    let sums = params.splits * channels;
    let all = pixels.div_ceil(batch_norm::PIXELS) * channels;
    let pass = 4.0 * f64::from(pixels) * f64::from(channels);
    [
        (&batch_norm::STATISTICS, case(sums).input(x()).output(partials), pass),
        (&batch_norm::FORWARD, case(all).input(x()).input(few()).input(few()).input(few()).output(values), 2.0 * pass),
        (&batch_norm::BACKWARD_SUMS, case(sums).input(x()).input(x()).input(few()).output(partials), 2.0 * pass),
        (
            &batch_norm::BACKWARD_INPUT,
            case(all).input(x()).input(x()).input(few()).input(few()).input(few()).output(values),
            3.0 * pass,
        ),
    ]
}

/// Causal attention of sequences to themselves, in heads of `dim` numbers; the hidden half is counted.
fn attentions(rows: u32, heads: u32, positions: u32, dim: u32) -> [(&'static Kernel, Case, f64); 3] {
    let params = attention::Params {
        rows,
        heads,
        key_heads: heads,
        queries: positions,
        keys: positions,
        dim,
        value_dim: dim,
        scale: 0.2,
        first_row: 0,
        seed: 0,
        step: 0,
        node: 0,
        rate: 0.0,
    };
    let (values, queries) = (len(&[rows, positions, heads, dim]), len(&[rows, positions, heads]));
    let record = params.record();
    let case = |grid: Grid| {
        let case = Case::new(format!("{rows} x {positions} x {heads} x {dim}"), params.words(), grid);
        let case = case.constant("CAUSAL", 1.0).input(normal_like(values)).input(normal_like(values));
        // The mask is not read.
        case.input(normal_like(values)).input(normal_like(4))
    };
    let backward =
        |grid| case(grid).input(normal_like(values)).input(InputFill::Uniform(2 * queries, 4.0, 5.0)).output(values);
    [
        (&attention::FORWARD, case(record.forward_grid()).input(normal_like(4)).output(values).output(queries), 0.0),
        (&attention::BACKWARD_QUERIES, backward(record.backward_queries_grid()), 0.0),
        (&attention::BACKWARD_KEYS, backward(record.backward_keys_grid()).output(values), 0.0),
    ]
}

fn softmax(rows: u32, cols: u32) -> (&'static Kernel, Case, f64) {
    let params = cross_entropy::Params { rows, cols, positions: 1, scale: 1.0, smoothing: 0.0 };
    let lanes = lanes(cols as usize);
    let case = Case::elements(format!("{rows} x {cols}"), params.words(), rows * lanes)
        .constant("LANES", f64::from(lanes))
        .input(normal_like(len(&[rows, cols])))
        .input(InputFill::Labels(rows as usize, cols))
        .input(InputFill::Uniform(rows as usize, 1.0, 1.0))
        .output(2 * rows as usize)
        .output(len(&[rows, cols]));
    (&cross_entropy::FORWARD, case, 8.0 * f64::from(rows) * f64::from(cols))
}

fn update(elements: u32) -> (&'static Kernel, Case, f64) {
    let params = adam::Params {
        len: elements,
        learning_rate: 1e-6,
        beta_1: 0.9,
        beta_2: 0.999,
        epsilon: 1e-7,
        correction_1: 0.1,
        correction_2: 1e-3,
        weight_decay: 0.0,
        l2_decay: 0.0,
    };
    let values = || InputFill::Uniform(elements as usize, 0.0, 1.0);
    let case = Case::elements(format!("{elements}"), params.words(), elements.div_ceil(4))
        .input(values())
        .input(InputFill::Values(vec![1.0, 1.0, 1.0, 0.0]))
        .in_place(values())
        .in_place(values())
        .in_place(values());
    // The gradient is read; parameter and both moments are read and written.
    (&adam::UPDATE, case, 28.0 * f64::from(elements))
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for adapter in &self.kernels {
            let Peaks { copy_gb_s, copied_by, gflop_per_s, computed_by } = &adapter.peaks;
            writeln!(f, "\n{}: a copy by {copied_by} reads and writes {copy_gb_s:.1} GB/s;", adapter.name)?;
            writeln!(f, "the peak of arithmetic is that of {computed_by}, {gflop_per_s:.1} GFLOP/s.\n")?;
            let header = ["kernel", "size", "tile", "ms", "GFLOP/s", "GB/s", "of the peak"];
            table(&header, 3, adapter.kernels.iter().map(Timed::row)).fmt(f)?;
            writeln!(f)?;
        }
        write!(
            f,
            "\nMedians. Above 100 % of a copy: caches hold the data, or the kernel updates in place, where a copy also fetches \
             what it overwrites."
        )
    }
}

impl Timed {
    fn row(&self) -> Vec<String> {
        let rate = |rate: Option<f64>| rate.map_or(String::new(), |rate| format!("{rate:.1}"));
        vec![
            self.kernel.clone(),
            self.size.clone(),
            self.tile.clone().unwrap_or_default(),
            ms(self.ms),
            rate(self.gflop_per_s),
            rate(self.gb_s),
            percent(self.of_peak),
        ]
    }
}
