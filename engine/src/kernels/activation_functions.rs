//! Activation functions: the one table of them, for twins in f64 and fast versions in f32.
//!
//! `lib/activation.wgsl` has the same functions by the same codes.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

use super::Call;
use super::rounding::single;
use super::vectors::widest;

pub use super::real::{Real, erf};

/// √(2/π), of the tanh form of GELU.
const SQRT_2_OVER_PI: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// Scale and alpha of SELU, from Klambauer et al. 2017, arXiv:1706.02515.
const SELU: [f64; 2] = [1.050_700_987_355_480_5, 1.673_263_242_354_377_2];

/// Names of the constants that choose a function and give it its numbers: every kernel that applies one lists them.
pub const CONSTANTS: [&str; 4] = ["ACTIVATION", "SLOPE", "OFFSET", "LIMIT"];

/// Functions that are numbers above 0 alone, or grow without limit towards it: what is rounded before them is enlarged.
pub const PARTIAL: [Activation; 3] = [Activation::Log, Activation::Sqrt, Activation::Reciprocal];

/// Makes of each line of the table a variant of [`Activation`], its code, and its value and slope for any float.
///
/// A line: name = code (what backward keeps), value from (numbers, x), slope from (numbers, what is kept).
macro_rules! functions {
    ($count:literal: $(
        $(#[$doc:meta])*
        $name:ident = $code:literal ($kept:ident),
        |$n:pat_param, $x:ident| $value:expr,
        |$m:pat_param, $saved:pat_param| $slope:expr;
    )*) => {
        /// An activation function; the discriminant is the shader's `ACTIVATION`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum Activation {
            $($(#[$doc])* $name = $code,)*
        }

        impl Activation {
            /// Every activation function, by code.
            pub const ALL: [Self; $count] = [$(Self::$name,)*];

            fn keeps(self) -> SlopeSource {
                match self {
                    $(Self::$name => SlopeSource::$kept,)*
                }
            }
        }

        impl Function {
            /// `y` at `x`.
            pub fn activate(self, x: f64) -> f64 {
                match self.activation {
                    $(Activation::$name => each::$name::value(self.numbers.double(), x),)*
                }
            }

            /// `dy/d_x`, from `x` where [`Activation::slope_needs_input`], otherwise from `y`.
            pub fn slope(self, saved: f64) -> f64 {
                match self.activation {
                    $(Activation::$name => each::$name::slope(self.numbers.double(), saved),)*
                }
            }

            /// [`activate`](Self::activate) in place and in f32.
            pub fn activate_all(self, values: &mut [f32]) {
                match self.activation {
                    $(Activation::$name => activate_all::<each::$name>(self.numbers, values),)*
                }
            }

            /// `d_x = dy f'` in f32, of as many elements as `d_x` has.
            pub fn scale_all(self, d_x: &mut [f32], dy: &[f32], saved: &[f32]) {
                match self.activation {
                    $(Activation::$name => scale_all::<each::$name>(self.numbers, d_x, dy, saved),)*
                }
            }
        }

        mod each {
            use super::*;

            $(
                pub(super) struct $name;

                impl Definition for $name {
                    #[inline(always)]
                    fn value<F: Real>($n: FunctionNumbers<F>, $x: F) -> F {
                        $value
                    }

                    #[inline(always)]
                    fn slope<F: Real>($m: FunctionNumbers<F>, $saved: F) -> F {
                        $slope
                    }
                }
            )*
        }
    };
}

functions! { 21:
    /// `y = x`
    #[default]
    None = 0 (Output), |_, x| x, |_, _| F::of(1.0);

    /// `y = max(x, 0)`
    Relu = 1 (Output),
    |_, x| if x < F::of(0.0) { F::of(0.0) } else { x },
    |_, y| if y > F::of(0.0) { F::of(1.0) } else { F::of(0.0) };

    /// `y = x` above 0, `slope x` below
    LeakyRelu = 2 (Output),
    |n, x| if x <= F::of(0.0) { n.slope * x } else { x },
    |n, y| if y <= F::of(0.0) { n.slope } else { F::of(1.0) };

    /// `y = 1 / (1 + exp(-x))`
    Sigmoid = 3 (Output), |_, x| sigmoid(x), |_, y| y * (F::of(1.0) - y);

    /// `y = tanh(x)`
    Tanh = 4 (Output), |_, x| x.tanh(), |_, y| F::of(1.0) - y * y;

    /// `y = slope x + offset`
    Affine = 5 (Output), |n, x| n.slope * x + n.offset, |n, _| n.slope;

    /// `y = x` above `offset`, but at most `limit` (if that is not negative); `slope (x - offset)` below
    BoundedRelu = 6 (Output),
    |n, x| bounded_relu(n, x),
    |n, y| if n.is_limited() && y >= n.limit {
        F::of(0.0)
    } else if y > F::of(0.0) {
        F::of(1.0)
    } else {
        n.slope
    };

    /// `y = x` above 0, `slope (exp(x) - 1)` below; Clevert et al. 2015, arXiv:1511.07289
    Elu = 7 (Output),
    |n, x| if x > F::of(0.0) { x } else { n.slope * x.exp_m1() },
    |n, y| if y > F::of(0.0) { F::of(1.0) } else { y + n.slope };

    /// ELU with the factors of Klambauer et al. 2017, arXiv:1706.02515
    Selu = 8 (Output),
    |_, x| F::of(SELU[0]) * if x > F::of(0.0) { x } else { F::of(SELU[1]) * x.exp_m1() },
    |_, y| if y > F::of(0.0) { F::of(SELU[0]) } else { y + F::of(SELU[0] * SELU[1]) };

    /// `y = exp(x)`
    Exponential = 9 (Output), |_, x| x.exp(), |_, y| y;

    /// `y = ln(1 + exp(x))`
    Softplus = 10 (Output), |_, x| softplus(x), |_, y| -(-y).exp_m1();

    /// `y = x / (1 + |x|)`
    Softsign = 11 (Output),
    |_, x| x / (F::of(1.0) + x.abs()),
    |_, y| { let rest = F::of(1.0) - y.abs(); rest * rest };

    /// `y = x / 6 + 1 / 2`, between 0 and 1
    HardSigmoid = 12 (Output),
    |_, x| hard_sigmoid(x),
    |_, y| if y > F::of(0.0) && y < F::of(1.0) { F::of(1.0 / 6.0) } else { F::of(0.0) };

    /// `y = x / 2 (1 + erf(x / √2))`; Hendrycks, Gimpel 2016, arXiv:1606.08415
    Gelu = 13 (Input),
    |_, x| F::of(0.5) * x * (F::of(1.0) + (x * F::of(FRAC_1_SQRT_2)).erf()),
    |_, x| gelu_slope(x);

    /// `y = x / 2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`, from the same paper
    GeluTanh = 14 (Input),
    |_, x| x * sigmoid(F::of(2.0) * gelu_inner(x)),
    |_, x| gelu_tanh_slope(x);

    /// `y = x / (1 + exp(-x))`; Elfwing et al. 2017, arXiv:1702.03118
    Silu = 15 (Input), |_, x| x * sigmoid(x), |_, x| sigmoid(x) + damped(x);

    /// `y = x` times the hard sigmoid of `x`; Howard et al. 2019, arXiv:1905.02244
    HardSilu = 16 (Input),
    |_, x| x * hard_sigmoid(x),
    |_, x| if x.abs() < F::of(3.0) { x / F::of(3.0) + F::of(0.5) } else { hard_sigmoid(x) };

    /// `y = x tanh(softplus(x))`; Misra 2019, arXiv:1908.08681
    Mish = 17 (Input),
    |_, x| x * tanh_of_softplus(x),
    |_, x| {
        let (t, b) = (tanh_of_softplus(x), x.clamp(-40.0, 40.0));
        t + b * (F::of(1.0) - t * t) * sigmoid(b)
    };

    /// `y = ln(x)`
    Log = 18 (Input), |_, x| x.ln(), |_, x| F::of(1.0) / x;

    /// `y = √x`
    Sqrt = 19 (Input), |_, x| x.sqrt(), |_, x| F::of(0.5) / x.sqrt();

    /// `y = 1 / x`
    Reciprocal = 20 (Input), |_, x| F::of(1.0) / x, |_, x| -(F::of(1.0) / (x * x));
}

/// Value from which backward computes a slope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlopeSource {
    Output,
    Input,
}

/// A function and its slope, for any float.
trait Definition {
    fn value<F: Real>(numbers: FunctionNumbers<F>, x: F) -> F;
    fn slope<F: Real>(numbers: FunctionNumbers<F>, saved: F) -> F;
}

impl Activation {
    /// The function of a code, as the constant `ACTIVATION` holds it; an unknown code is [`Activation::None`].
    pub fn of_code(code: f64) -> Self {
        Self::ALL.into_iter().find(|known| known.code().to_bits() == code.to_bits()).unwrap_or_default()
    }

    /// The code, as the constant `ACTIVATION` takes it.
    pub fn code(self) -> f64 {
        f64::from(self as u8)
    }

    /// Whether the backward pass must keep the input. If not, the output is enough.
    pub fn slope_needs_input(self) -> bool {
        self.keeps() == SlopeSource::Input
    }
}

/// Parameters of some functions, such as the slope of a leaky ReLU: see [`Activation`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionNumbers<F = f32> {
    /// A slope, such as that of the leaky ReLU below 0.
    pub slope: F,
    /// A threshold, or what is added.
    pub offset: F,
    /// The largest value; none if it is negative.
    pub limit: F,
}

impl<F: Real> FunctionNumbers<F> {
    fn is_limited(self) -> bool {
        self.limit >= F::of(0.0)
    }
}

impl FunctionNumbers {
    /// Default values of the constants.
    pub const NONE: Self = Self { slope: 0.0, offset: 0.0, limit: -1.0 };

    fn double(self) -> FunctionNumbers<f64> {
        let Self { slope, offset, limit } = self;
        FunctionNumbers { slope: slope.into(), offset: offset.into(), limit: limit.into() }
    }
}

/// An activation function as a kernel takes it: with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Function {
    /// Applied function.
    pub activation: Activation,
    /// Its numbers.
    pub numbers: FunctionNumbers,
}

impl Function {
    /// A function that needs no number.
    pub const fn plain(activation: Activation) -> Self {
        Self { activation, numbers: FunctionNumbers::NONE }
    }

    /// A function that needs a slope alone.
    pub const fn sloped(activation: Activation, slope: f32) -> Self {
        Self { activation, numbers: FunctionNumbers { slope, ..FunctionNumbers::NONE } }
    }

    /// Each function with numbers that differ from those left out, for the cases of kernels; without those of
    /// [`PARTIAL`].
    pub fn examples() -> impl Iterator<Item = Self> {
        let numbers = FunctionNumbers { slope: 0.25, offset: 0.5, limit: 2.0 };
        let total = Activation::ALL.into_iter().filter(|activation| !PARTIAL.contains(activation));
        total.map(move |activation| Self { activation, numbers })
    }

    /// Some of the [examples](Self::examples), each number in one of them at least: where a case takes long.
    pub fn few_examples() -> impl Iterator<Item = Self> {
        let few =
            [Activation::Relu, Activation::Sigmoid, Activation::BoundedRelu, Activation::Elu, Activation::Softplus];
        Self::examples().filter(move |function| few.contains(&function.activation))
    }

    /// Reads the function from the constants of a call.
    pub fn of_call(call: &Call<'_>) -> Self {
        let [activation, slope, offset, limit] = CONSTANTS;
        let number = |name, default: f32| single(call.constant(name, default.into()));
        let none = FunctionNumbers::NONE;
        let numbers = FunctionNumbers {
            slope: number(slope, none.slope),
            offset: number(offset, none.offset),
            limit: number(limit, none.limit),
        };
        Self { activation: Activation::of_code(call.constant(activation, 0.0)), numbers }
    }

    /// Values of the `override` constants that choose it.
    pub fn constants(self) -> impl Iterator<Item = (&'static str, f64)> {
        let [activation, names @ ..] = CONSTANTS;
        let of = |FunctionNumbers { slope, offset, limit }: FunctionNumbers| [slope, offset, limit];
        let numbers = names.into_iter().zip(of(self.numbers)).zip(of(FunctionNumbers::NONE));
        let set = numbers.filter(|((_, number), none)| number.to_bits() != none.to_bits());
        std::iter::once((activation, self.activation.code()))
            .chain(set.map(|((name, number), _)| (name, f64::from(number))))
    }
}

widest! {
    fn activate_all<D: Definition>(numbers: FunctionNumbers, values: &mut [f32]) {
        for x in values {
            *x = D::value(numbers, *x);
        }
    }
}

widest! {
    fn scale_all<D: Definition>(numbers: FunctionNumbers, d_x: &mut [f32], dy: &[f32], saved: &[f32]) {
        for (d_x, (dy, saved)) in d_x.iter_mut().zip(dy.iter().zip(saved)) {
            *d_x = dy * D::slope(numbers, *saved);
        }
    }
}

#[inline(always)]
fn sigmoid<F: Real>(x: F) -> F {
    F::of(1.0) / (F::of(1.0) + (-x).exp())
}

/// `x` times the slope of the sigmoid at `x`. Past the bounds it is 0 in f32.
#[inline(always)]
fn damped<F: Real>(x: F) -> F {
    let b = x.clamp(-100.0, 100.0);
    let e = (-b.abs()).exp();
    b * e / ((F::of(1.0) + e) * (F::of(1.0) + e))
}

#[inline(always)]
fn hard_sigmoid<F: Real>(x: F) -> F {
    (x / F::of(6.0) + F::of(0.5)).clamp(0.0, 1.0)
}

#[inline(always)]
fn bounded_relu<F: Real>(n: FunctionNumbers<F>, x: F) -> F {
    if x <= n.offset {
        // Without a slope 0, also of minus infinity.
        if n.slope > F::of(0.0) { n.slope * (x - n.offset) } else { F::of(0.0) }
    } else if n.is_limited() && x > n.limit {
        n.limit
    } else {
        x
    }
}

/// `ln(1 + exp(x))`, which overflows nowhere.
#[inline(always)]
fn softplus<F: Real>(x: F) -> F {
    let above = if x < F::of(0.0) { F::of(0.0) } else { x };
    above + (-x.abs()).exp().ln_1p()
}

/// `w / (w + 2)` with `w = exp(x) (exp(x) + 2)`, in terms of `exp(-|x|)`, which overflows nowhere.
#[inline(always)]
fn tanh_of_softplus<F: Real>(x: F) -> F {
    let e = (-x.abs()).exp();
    let (small, square) = (F::of(2.0) * e, e * e);
    if x > F::of(0.0) {
        (F::of(1.0) + small) / (F::of(1.0) + small + F::of(2.0) * square)
    } else {
        (square + small) / (square + small + F::of(2.0))
    }
}

#[inline(always)]
fn gelu_inner<F: Real>(x: F) -> F {
    F::of(SQRT_2_OVER_PI) * (x + F::of(0.044_715) * x * x * x)
}

/// The bounds keep `x²` finite; past them the density is 0.
#[inline(always)]
fn gelu_slope<F: Real>(x: F) -> F {
    let b = x.clamp(-15.0, 15.0);
    let density = F::of(1.0 / (2.0 * PI).sqrt()) * (F::of(-0.5) * b * b).exp();
    F::of(0.5) * (F::of(1.0) + (x * F::of(FRAC_1_SQRT_2)).erf()) + b * density
}

/// By `(1 + tanh(u)) / 2 = sigmoid(2 u)`. The bounds keep `x³` finite; past them the sigmoid is 0 or 1.
#[inline(always)]
fn gelu_tanh_slope<F: Real>(x: F) -> F {
    let b = x.clamp(-10.0, 10.0);
    let s = sigmoid(F::of(2.0) * gelu_inner(b));
    let inner_slope = F::of(SQRT_2_OVER_PI) * (F::of(1.0) + F::of(3.0 * 0.044_715) * b * b);
    s + F::of(2.0) * b * s * (F::of(1.0) - s) * inner_slope
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_functions() {
        for function in Function::examples() {
            for x in [-20.0, -3.2, -0.7, 0.4, 1.3, 5.0, 20.0] {
                let h = 1e-6;
                let f = |x: f64| function.activate(x);
                let measured = (f(x + h) - f(x - h)) / (2.0 * h);
                let told = function.slope(if function.activation.slope_needs_input() { x } else { f(x) });
                let scale = 1.0 + measured.abs();
                assert!((measured - told).abs() < 1e-8 * scale, "{function:?} at {x}: {measured} {told}");
            }
        }
    }

    #[test]
    fn slopes_above_0_are_those_of_the_functions() {
        for function in PARTIAL.map(Function::plain) {
            for x in [0.3, 0.7, 1.0, 4.5, 20.0] {
                let h = 1e-6;
                let measured = (function.activate(x + h) - function.activate(x - h)) / (2.0 * h);
                assert!((measured - function.slope(x)).abs() < 1e-8 * (1.0 + measured.abs()), "{function:?} at {x}");
                let mut values = [single(x)];
                function.activate_all(&mut values);
                assert!((f64::from(values[0]) - function.activate(x)).abs() < 1e-6 * (1.0 + x), "{function:?} at {x}");
            }
        }
    }

    /// Backward reads the output, so a value beside a kink passes its gradient where forward passed the value.
    #[test]
    fn beside_a_kink_backward_is_on_the_side_of_forward() {
        let relu6 = Function {
            activation: Activation::BoundedRelu,
            numbers: FunctionNumbers { slope: 0.0, offset: 0.0, limit: 6.0 },
        };
        for (function, end) in [(relu6, 6.0), (Function::plain(Activation::Relu), f32::INFINITY)] {
            let kinks = [-f32::MIN_POSITIVE, -0.0, 0.0, f32::MIN_POSITIVE, 6.0_f32.next_down(), 6.0, 6.0_f32.next_up()];
            let mut y = kinks;
            function.activate_all(&mut y);
            let mut slopes = [0.5; 7];
            function.scale_all(&mut slopes, &[1.0; 7], &y);
            // At the kink itself the slope is 0, as in Keras and PyTorch.
            assert_eq!(slopes, kinks.map(|x| f32::from(u8::from(x > 0.0 && x < end))), "{function:?}");
        }
    }

    #[test]
    fn f32_agrees_with_f64_and_keeps_nan() {
        for function in Function::examples() {
            let points: Vec<f32> = (-320i16..=320).map(|i| f32::from(i) * 0.25).collect();
            let mut values = points.clone();
            function.activate_all(&mut values);
            for (x, y) in points.iter().zip(&values) {
                let expected = function.activate(f64::from(*x));
                assert!((f64::from(*y) - expected).abs() <= 1e-6 * (1.0 + expected.abs()), "{function:?} {x} {y}");
            }
            let (mut slopes, ones) = (vec![0.0; points.len()], vec![1.0; points.len()]);
            function.scale_all(&mut slopes, &ones, &points);
            for (x, slope) in points.iter().zip(&slopes) {
                let expected = function.slope(f64::from(*x));
                let close = (f64::from(*slope) - expected).abs() <= 1e-6 * (1.0 + expected.abs());
                assert!(close || !slope.is_finite(), "{function:?} {x} {slope} {expected}");
            }
            let mut nan = [f32::NAN];
            function.activate_all(&mut nan);
            assert!(nan[0].is_nan() && function.activate(f64::NAN).is_nan(), "{function:?}");
        }
    }

    #[test]
    fn far_from_zero_all_is_finite() {
        for function in Function::examples().filter(|function| function.activation.slope_needs_input()) {
            for x in [-3e38_f64, -1e4, 1e4, 3e38] {
                let mut values = [single(x)];
                function.activate_all(&mut values);
                let [y, slope] = [function.activate(x), function.slope(x)];
                assert!(values[0].is_finite() && y.is_finite() && slope.is_finite(), "{function:?} {x} {y} {slope}");
            }
        }
    }

    #[test]
    fn constants_give_the_function_back() {
        let bounded = FunctionNumbers { limit: 6.0, ..FunctionNumbers::NONE };
        let bounded = Function { activation: Activation::BoundedRelu, numbers: bounded };
        for function in Function::examples().chain([bounded, Function::plain(Activation::Relu)]) {
            let constants: Vec<_> = function.constants().collect();
            assert_eq!(Function::of_call(&Call { params: &[], constants: &constants, inputs: &[] }), function);
        }
        assert_eq!(bounded.constants().collect::<Vec<_>>(), [("ACTIVATION", 6.0), ("LIMIT", 6.0)]);
    }
}
