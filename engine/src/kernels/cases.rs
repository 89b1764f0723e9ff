//! The sizes at which each kernel is tested and measured: one table for tests, benches and the support matrix.

use std::borrow::Cow;

use rand::rand_core::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::activation_functions::Function;
use super::product::HALF_FACTORS;
use super::rounding::index;
use super::{Call, Kernel, Twin, lanes};
use crate::size::{Grid, Word};

/// Values of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum InputFill {
    /// Standard normal numbers.
    Normal(usize),
    /// Uniform in `[low, high)`.
    Uniform(usize, f32, f32),
    /// Whole numbers below a bound, as f32: class labels.
    Labels(usize, u32),
    /// These values.
    Values(Vec<f32>),
}

impl InputFill {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Normal(len) | Self::Uniform(len, ..) | Self::Labels(len, _) => *len,
            Self::Values(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, the same for the same seed.
    pub fn values(&self, seed: u64) -> Vec<f32> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        match self {
            Self::Normal(len) => (0..*len).map(|_| normal(&mut random)).collect(),
            Self::Uniform(len, low, high) => (0..*len).map(|_| low + (high - low) * unit(&mut random)).collect(),
            Self::Labels(len, classes) => (0..*len).map(|_| (unit(&mut random) * *classes as f32).floor()).collect(),
            Self::Values(values) => values.clone(),
        }
    }
}

/// Uniform in `[0, 1)`.
fn unit(random: &mut ChaCha8Rng) -> f32 {
    (random.next_u32() >> 8) as f32 / 16_777_216.0
}

/// Standard normal, by Box and Muller 1958.
fn normal(random: &mut ChaCha8Rng) -> f32 {
    let (u, v) = (1.0 - unit(random), unit(random));
    (-2.0 * u.ln()).sqrt() * (std::f32::consts::TAU * v).cos()
}

/// Makes numbers of what a kernel wrote.
pub type Reading = fn(&[f32]) -> Vec<f32>;

/// One call of a kernel.
#[derive(Clone, Debug)]
pub struct Case {
    /// Label of the case: `65 x 257`.
    pub label: String,
    /// The words of `Params`.
    pub params: Vec<u32>,
    /// `override` constants.
    pub constants: Vec<(&'static str, f64)>,
    /// Inputs.
    pub inputs: Vec<InputFill>,
    /// Values of the outputs before the call (outputs may be read and written).
    pub outputs: Vec<InputFill>,
    /// The grid.
    pub grid: Grid,
    /// Makes numbers of outputs that are not f32, to be compared.
    pub read_by: Option<Reading>,
}

impl Case {
    /// A case without constants and buffers; `elements` is the count of [`Grid::Elements`].
    pub fn elements(label: impl Into<String>, params: Vec<u32>, elements: u32) -> Self {
        Self::new(label, params, Grid::Elements(Word::U32(elements)))
    }

    /// A case of a kernel whose rows have [`lanes`] invocations each.
    pub fn rows(label: impl Into<String>, params: Vec<u32>, rows: u32, cols: u32) -> Self {
        let lanes = lanes(index(cols));
        Self::elements(label, params, rows * lanes).constant("LANES", f64::from(lanes))
    }

    /// A case without constants and buffers.
    pub fn new(label: impl Into<String>, params: Vec<u32>, grid: Grid) -> Self {
        let (constants, inputs, outputs) = (Vec::new(), Vec::new(), Vec::new());
        Self { label: label.into(), params, constants, inputs, outputs, grid, read_by: None }
    }

    /// Says what else is special about it.
    #[must_use]
    pub fn labelled(mut self, special: &str) -> Self {
        self.label = format!("{}, {special}", self.label);
        self
    }

    /// Compares what a function makes of the outputs, which are not f32.
    #[must_use]
    pub fn read_by(mut self, read: Reading) -> Self {
        self.read_by = Some(read);
        self
    }

    /// Adds a constant.
    #[must_use]
    pub fn constant(mut self, name: &'static str, value: f64) -> Self {
        self.constants.push((name, value));
        self
    }

    /// Adds the constants of an activation function.
    #[must_use]
    pub fn function(mut self, function: Function) -> Self {
        self.constants.extend(function.constants());
        self
    }

    /// Lets a product round its factors.
    #[must_use]
    pub fn halves(self) -> Self {
        self.constant(HALF_FACTORS, 1.0).labelled("halves")
    }

    /// Adds an input.
    #[must_use]
    pub fn input(mut self, fill: InputFill) -> Self {
        self.inputs.push(fill);
        self
    }

    /// Adds an output of `len` elements that hold something else before.
    #[must_use]
    pub fn output(self, len: usize) -> Self {
        self.in_place(InputFill::Uniform(len, 90.0, 100.0))
    }

    /// Adds an output that the kernel reads, too.
    #[must_use]
    pub fn in_place(mut self, fill: InputFill) -> Self {
        self.outputs.push(fill);
        self
    }

    /// The values of the inputs.
    pub fn input_values(&self) -> Vec<Vec<f32>> {
        (1..).zip(&self.inputs).map(|(seed, fill)| fill.values(seed)).collect()
    }

    /// The values of the outputs before the call.
    pub fn output_values(&self) -> Vec<Vec<f32>> {
        (101..).zip(&self.outputs).map(|(seed, fill)| fill.values(seed)).collect()
    }

    /// Compared values of an output.
    fn readable<'a>(&self, values: &'a [f32]) -> Cow<'a, [f32]> {
        self.read_by.map_or(Cow::Borrowed(values), |read| Cow::Owned(read(values)))
    }

    /// The outputs after a twin or fast version ran.
    pub fn run(&self, twin: Twin) -> Vec<Vec<f32>> {
        let inputs = self.input_values();
        let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        let mut outputs = self.output_values();
        let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        twin(&Call { params: &self.params, constants: &self.constants, inputs: &inputs }, &mut slices);
        outputs
    }
}

/// Compares outputs with those of the twin, within the kernel's tolerance.
///
/// # Errors
/// The first element that differs by more than `tolerance * (1 + |twin|)`, or is finite on one side only.
pub fn compare(kernel: &Kernel, case: &Case, got: &[Vec<f32>], twin: &[Vec<f32>]) -> Result<(), String> {
    compare_within(kernel.tolerance, kernel, case, got, twin)
}

/// Compares outputs with those of the twin, within another tolerance.
///
/// # Errors
/// As [`compare`].
pub fn compare_within(
    tolerance: f32,
    kernel: &Kernel,
    case: &Case,
    got: &[Vec<f32>],
    twin: &[Vec<f32>],
) -> Result<(), String> {
    for (name, (got, twin)) in kernel.outputs.iter().zip(got.iter().zip(twin)) {
        let (got, twin) = (case.readable(got), case.readable(twin));
        for (at, (a, b)) in got.iter().zip(twin.iter()).enumerate() {
            let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            let close = b.is_finite() && (a - b).abs() <= tolerance * (1.0 + b.abs());
            if !same && !close {
                let label = &case.label;
                return Err(format!("{kernel:?}, {label}: {name}[{at}] is {a}, its twin {b}, tolerance {tolerance}"));
            }
        }
    }
    Ok(())
}

/// Compares the fast version of a kernel with its twin over all its cases.
///
/// # Errors
/// The first difference, or that there is no fast version.
#[cfg(not(target_arch = "wasm32"))]
pub fn check_fast(kernel: &Kernel) -> Result<(), String> {
    let fast = kernel.fast.ok_or_else(|| format!("{kernel:?} has no fast version"))?;
    (kernel.cases)().iter().try_for_each(|case| compare(kernel, case, &case.run(fast), &case.run(kernel.twin)))
}
