// Activation functions and their slopes, chosen by `override ACTIVATION` when the pipeline is made.
//
//      0 none          y = x
//      1 relu          y = x < 0 ? 0 : x, so that a NaN is not hidden
//      2 leaky_relu    y = x > 0 ? x : SLOPE x
//      3 sigmoid       y = 1 / (1 + exp(-x))
//      4 tanh          y = tanh(x)
//      5 affine        y = SLOPE x + OFFSET
//      6 bounded_relu  y = x <= OFFSET ? SLOPE (x - OFFSET) : x, at most LIMIT where that is not negative
//      7 elu           y = x > 0 ? x : SLOPE (exp(x) - 1)
//      8 selu          y = 1.05070 (x > 0 ? x : 1.67326 (exp(x) - 1))
//      9 exponential   y = exp(x)
//     10 softplus      y = ln(1 + exp(x))
//     11 softsign      y = x / (1 + |x|)
//     12 hard_sigmoid  y = x / 6 + 1 / 2, between 0 and 1
//     13 gelu          y = x / 2 (1 + erf(x / sqrt(2)))
//     14 gelu_tanh     y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
//     15 silu          y = x sigmoid(x)
//     16 hard_silu     y = x hard_sigmoid(x)
//     17 mish          y = x tanh(softplus(x))
//     18 log           y = ln(x)
//     19 sqrt          y = sqrt(x)
//     20 reciprocal    y = 1 / x
//
// Source    GELU: Hendrycks, Gimpel 2016, arXiv:1606.08415. erf: the rational function of Eigen and XLA. The others:
//           src/kernels/activation_functions.rs.
// Twin      src/kernels/activation_functions.rs
// 1 to 12 find their slope from the output alone, so that no layer keeps its input; the others need the input.

override ACTIVATION: u32 = 0u;
override SLOPE: f32 = 0.0;
override OFFSET: f32 = 0.0;
override LIMIT: f32 = -1.0;

fn activate(x: f32) -> f32 {
    switch ACTIVATION {
        case 1u: { return sure_relu(x); }
        case 2u: { return select(sloped(x), x, x > 0.0); }
        case 3u: { return sigmoid(x); }
        case 4u: { return sure_tanh(x); }
        case 5u: { return sloped(x) + OFFSET; }
        case 6u: { return bounded_relu(x); }
        case 7u: { return select(-SLOPE * part_that_decays(abs(x)), x, x > 0.0); }
        case 8u: { return 1.0507009874 * select(-1.6732632424 * part_that_decays(abs(x)), x, x > 0.0); }
        case 9u: { return sure_exp(x); }
        case 10u: { return sure_relu(x) + log_of_more(exp(-abs(x))); }
        case 11u: { return x / (1.0 + abs(x)); }
        case 12u: { return hard_sigmoid(x); }
        case 13u: { return 0.5 * x * (1.0 + erf(x * 0.70710678)); }
        case 14u: { return 0.5 * x * (1.0 + sure_tanh(gelu_inner(x))); }
        case 15u: { return x * sigmoid(x); }
        case 16u: { return x * hard_sigmoid(x); }
        case 17u: { return x * tanh_of_softplus(x); }
        case 18u: { return select(log(x), no_number(x), x < 0.0 || is_nan(x)); }
        case 19u: { return sure_sqrt(x); }
        case 20u: { return 1.0 / x; }
        default: { return x; }
    }
}

// SLOPE x. Compilers know SLOPE, and fold 0 x to 0: that would hide a NaN.
fn sloped(x: f32) -> f32 {
    return select(SLOPE * x, x, SLOPE == 0.0 && is_nan(x));
}

fn activate4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(activate(x.x), activate(x.y), activate(x.z), activate(x.w));
}

// dy/d_x of codes 0 to 12, from y. Zero at the kinks, but for those with a SLOPE below 0, which they have at 0, too.
fn activation_slope_from_output(y: f32) -> f32 {
    switch ACTIVATION {
        case 1u: { return select(0.0, 1.0, y > 0.0); }
        case 2u: { return select(SLOPE, 1.0, y > 0.0); }
        case 3u: { return y * (1.0 - y); }
        case 4u: { return 1.0 - y * y; }
        case 5u: { return SLOPE; }
        case 6u: { return select(select(SLOPE, 1.0, y > 0.0), 0.0, LIMIT >= 0.0 && y >= LIMIT); }
        case 7u: { return select(y + SLOPE, 1.0, y > 0.0); }
        case 8u: { return select(y + 1.7580993408, 1.0507009874, y > 0.0); }
        case 9u: { return y; }
        case 10u: { return part_that_decays(y); }
        case 11u: { return (1.0 - abs(y)) * (1.0 - abs(y)); }
        case 12u: { return select(0.0, 0.16666667, y > 0.0 && y < 1.0); }
        default: { return 1.0; }
    }
}

// dy/d_x of codes 13 to 20, from x.
fn activation_slope_from_input(x: f32) -> f32 {
    switch ACTIVATION {
        case 13u: {
            // The density is 0 in f32 past |x| = 13; the bound keeps x * x finite.
            let b = clamp(x, -15.0, 15.0);
            let slope = 0.5 * (1.0 + erf(x * 0.70710678)) + b * 0.3989422804 * exp(-0.5 * b * b);
            return select(slope, x, is_nan(x));
        }
        case 14u: {
            // Past |x| = 10 the tanh is 1 in f32 and the second term 0; the bound keeps x^3 finite.
            let b = clamp(x, -10.0, 10.0);
            let t = sure_tanh(gelu_inner(b));
            let slope = 0.5 * (1.0 + t) + 0.5 * b * (1.0 - t * t) * 0.7978845608 * (1.0 + 0.134145 * b * b);
            return select(slope, x, is_nan(x));
        }
        case 15u: {
            // x times the sigmoid's slope is 0 in f32 past |x| = 100; the bound keeps it from being infinity times 0.
            let b = clamp(x, -100.0, 100.0);
            let e = exp(-abs(b));
            let slope = sigmoid(b) + b * e / ((1.0 + e) * (1.0 + e));
            return select(slope, x, is_nan(x));
        }
        case 16u: { return select(hard_sigmoid(x), x / 3.0 + 0.5, abs(x) < 3.0); }
        case 17u: {
            // Past |x| = 40 the second term is 0.
            let b = clamp(x, -40.0, 40.0);
            let t = tanh_of_softplus(b);
            let slope = t + b * (1.0 - t * t) * sigmoid(b);
            return select(slope, x, is_nan(x));
        }
        case 18u: { return 1.0 / x; }
        case 19u: { return 0.5 / sure_sqrt(x); }
        case 20u: { return -1.0 / (x * x); }
        default: { return 1.0; }
    }
}

// exp of a negative number only: no overflow at either end.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

// ln(1 + e) for e from 0 to 1: where 1 + e would round most of a small e away, by the first terms of its series.
fn log_of_more(e: f32) -> f32 {
    return select(log(1.0 + e), e * (1.0 - e * (0.5 - e * (0.33333333 - e * (0.25 - e * 0.2)))), e < 0.03125);
}

// 1 - exp(-y), likewise.
fn part_that_decays(y: f32) -> f32 {
    return select(1.0 - sure_exp(-y), y * (1.0 - y * (0.5 - y * (0.16666667 - y * 0.041666667))), abs(y) < 0.03125);
}

// SwiftShader's exp() of a NaN is infinite.
fn sure_exp(x: f32) -> f32 {
    return select(exp(x), x, is_nan(x));
}

// By comparisons that a NaN fails, so that it comes out.
fn hard_sigmoid(x: f32) -> f32 {
    return select(select(x / 6.0 + 0.5, 0.0, x <= -3.0), 1.0, x >= 3.0);
}

// NVIDIA's driver makes max(x, 0) of a comparison, and that is 0 for a NaN.
fn sure_relu(x: f32) -> f32 {
    return select(select(x, 0.0, x < 0.0), x, is_nan(x));
}

fn bounded_relu(x: f32) -> f32 {
    // Without a SLOPE 0, also of minus infinity.
    let below = select(0.0, SLOPE * (x - OFFSET), SLOPE > 0.0);
    let above = select(x, LIMIT, LIMIT >= 0.0 && x > LIMIT);
    return select(select(above, below, x <= OFFSET), x, is_nan(x));
}

// w / (w + 2) with w = exp(x) (exp(x) + 2), in terms of exp(-|x|), which overflows nowhere.
fn tanh_of_softplus(x: f32) -> f32 {
    let e = exp(-abs(x));
    let w = select(e * e, 1.0, x > 0.0) + 2.0 * e;
    return w / (w + select(2.0, 2.0 * e * e, x > 0.0));
}

// From exp alone, of which WGSL promises more than of tanh: NVIDIA's tanh is off by up to 1e-5 on D3D (gpuweb#5206), and
// SwiftShader's tanh(90) is NaN. Below 0.3, where 1 - exp(-2x) would round much of x away, by a polynomial with the least error there.
// Within 3e-7 of x's own tanh, relative to it, where exp is exact.
fn sure_tanh(x: f32) -> f32 {
    let e = exp(-2.0 * abs(x));
    let far = (1.0 - e) / (1.0 + e);
    let z = x * x;
    let near = x + x * z * (-0.33333057 + z * (0.13314742 - z * 0.05035974));
    return select(select(select(far, -far, x < 0.0), near, abs(x) < 0.3), x, is_nan(x));
}

// A NaN in place of what WGSL leaves open.
fn no_number(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
}

fn sure_sqrt(x: f32) -> f32 {
    return select(sqrt(x), no_number(x), x < 0.0 || is_nan(x));
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
