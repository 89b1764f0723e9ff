// Activation functions and their slopes, chosen by `override ACTIVATION` when the pipeline is made.
//
//     0 none         y = x
//     1 relu         y = x < 0 ? 0 : x, so that a NaN is not hidden
//     2 leaky_relu   y = x > 0 ? x : SLOPE x
//     3 sigmoid      y = 1 / (1 + exp(-x))
//     4 tanh         y = tanh(x)
//     5 gelu         y = x / 2 (1 + erf(x / sqrt(2)))
//     6 gelu_tanh    y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
//
// Source    GELU: Hendrycks, Gimpel 2016, arXiv:1606.08415. erf: the rational function of Eigen and XLA.
// Twin      src/kernels/activation_functions.rs
// 1 to 4 find their slope from the output alone, so that no layer keeps its input; 5 and 6 need the input.

override ACTIVATION: u32 = 0u;
override SLOPE: f32 = 0.0;

fn activate(x: f32) -> f32 {
    switch ACTIVATION {
        case 1u: { return select(x, 0.0, x < 0.0); }
        case 2u: { return select(SLOPE * x, x, x > 0.0); }
        case 3u: { return sigmoid(x); }
        case 4u: { return bounded_tanh(x); }
        case 5u: { return 0.5 * x * (1.0 + erf(x * 0.70710678)); }
        case 6u: { return 0.5 * x * (1.0 + bounded_tanh(gelu_inner(x))); }
        default: { return x; }
    }
}

fn activate4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(activate(x.x), activate(x.y), activate(x.z), activate(x.w));
}

// dy/d_x of codes 0 to 4, from y. Zero at the kink, but for the leaky one, which has SLOPE >= 0 there.
fn activation_slope_from_output(y: f32) -> f32 {
    switch ACTIVATION {
        case 1u: { return select(0.0, 1.0, y > 0.0); }
        case 2u: { return select(SLOPE, 1.0, y > 0.0); }
        case 3u: { return y * (1.0 - y); }
        case 4u: { return 1.0 - y * y; }
        default: { return 1.0; }
    }
}

// dy/d_x of codes 5 and 6, from x.
fn activation_slope_from_input(x: f32) -> f32 {
    switch ACTIVATION {
        case 5u: {
            // The density is 0 in f32 past |x| = 13; the bound keeps x * x finite.
            let b = clamp(x, -15.0, 15.0);
            let slope = 0.5 * (1.0 + erf(x * 0.70710678)) + b * 0.3989422804 * exp(-0.5 * b * b);
            return select(slope, x, is_nan(x));
        }
        case 6u: {
            // Past |x| = 10 the tanh is 1 in f32 and the second term 0; the bound keeps x^3 finite.
            let b = clamp(x, -10.0, 10.0);
            let t = bounded_tanh(gelu_inner(b));
            let slope = 0.5 * (1.0 + t) + 0.5 * b * (1.0 - t * t) * 0.7978845608 * (1.0 + 0.134145 * b * b);
            return select(slope, x, is_nan(x));
        }
        default: { return 1.0; }
    }
}

// exp of a negative number only: no overflow at either end.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

// SwiftShader's tanh(90) is NaN; past 15 it is 1 in f32 anyway. Of a NaN, clamp() makes a number on some devices.
fn bounded_tanh(x: f32) -> f32 {
    return select(tanh(clamp(x, -15.0, 15.0)), x, is_nan(x));
}

// By bits: compilers fold x != x to false.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// Past |x| = 10 the tanh of this is 1 in f32; the bound keeps x^3 finite.
fn gelu_inner(x: f32) -> f32 {
    let b = clamp(x, -10.0, 10.0);
    return 0.7978845608 * (b + 0.044715 * b * b * b);
}

// erf as an odd rational function on [-4, 4], within 4e-7 of erf. Outside it is exactly 1 or -1, so that
// gelu(-100) is 0 and not -100 times a rounding error.
fn erf(argument: f32) -> f32 {
    let x = clamp(argument, -4.0, 4.0);
    let s = x * x;
    var p = -2.72614225801306e-10;
    p = p * s + 2.77068142495902e-08;
    p = p * s - 2.10102402082508e-06;
    p = p * s - 5.69250639462346e-05;
    p = p * s - 7.34990630326855e-04;
    p = p * s - 2.95459980854025e-03;
    p = p * s - 1.60960333262415e-02;
    var q = -1.45660718464996e-05;
    q = q * s - 2.13374055278905e-04;
    q = q * s - 1.68282697438203e-03;
    q = q * s - 7.37332916720468e-03;
    q = q * s - 1.42647390514189e-02;
    return select(x * p / q, sign(x), abs(x) >= 4.0);
}
