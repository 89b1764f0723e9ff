// Losses that are a mean over columns of a function of prediction and target, with the gradient, in one go.
//
//     report[r]   = (w * mean over c of f(y, t), score);  gradient[r] = f'(y, t) / cols * w * scale
//     0 squared        (y - t)^2                            score: mean of |y - t|
//     1 absolute       |y - t|, of slope 0 where y = t      score: the same
//     2 huber          e^2 / 2 where |e = y - t| <= delta, else delta (|e| - delta / 2)
//     3 log_cosh       ln cosh(y - t)
//     4 poisson        y - t ln(y + 1e-7)
//     5 kl_divergence  sum, not mean, of t ln(t / y), both between 1e-7 and 1
//     6 hinge          max(1 - s y, 0), s = -1 where t = 0, else t     score: share of columns where y > 0 just as t > 1/2
//     7 squared_hinge  its square
//     8 binary         max(y, 0) - y q + ln(1 + exp(-|y|)), q = t (1 - smoothing) + smoothing / 2
//     9 binary_focal   b m^gamma * the same with |y| at most 16.118, for which 1e-7 < sigmoid(y) < 1 - 1e-7;
//                      m = q (1 - sigmoid(y)) + (1 - q) sigmoid(y),  b = q positive + (1 - q) negative
//
// Source    Keras 3 losses of these names, cross-entropies with from_logits; Lin et al. 2017, arXiv:1708.02002. Where
//           a maximum or a bound has two slopes, the half of both, as on JAX.
// Shapes    predictions, targets, gradient [rows, cols]; report [rows, 2]; w = sample_weights [rows / positions],
//           that of r / positions. A row of weight 0 gives 0, whatever it holds.
// Grid      LANES invocations for each row, 64 / LANES rows to a workgroup.
// Accuracy  within 2e-5 of the twin, relative to 1 + |loss|, up to 4096 columns.
// Twin      src/kernels/pointwise_loss.rs, fn forward_twin.
// Uses      lib/grid.wgsl, lib/reduce.wgsl

struct Params {
    rows: u32,
    cols: u32,
    positions: u32,
    scale: f32,
    smoothing: f32,
    delta: f32,
    gamma: f32,
    positive: f32,
    negative: f32,
}

override LOSS: u32 = 0u;
override LANES: u32 = 16u;

const EPSILON: f32 = 1e-7;
// Logit of 1 - EPSILON.
const FARTHEST: f32 = 16.118095;
const LN_2: f32 = 0.6931472;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> predictions: array<f32>;
@group(0) @binding(2) var<storage, read> targets: array<f32>;
@group(0) @binding(3) var<storage, read> sample_weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> report: array<f32>;
@group(0) @binding(5) var<storage, read_write> gradient: array<f32>;

// By bits: compilers fold x != x to false.
fn is_no_number(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
}

// 1 above 0, and a half at 0.
fn gate(value: f32) -> f32 {
    return select(select(0.0, 0.5, value == 0.0), 1.0, value > 0.0);
}

// A value and its slope.
fn entropy(z: f32, q: f32) -> vec2<f32> {
    let e = exp(-abs(z));
    let sigmoid = select(e, 1.0, z >= 0.0) / (1.0 + e);
    return vec2<f32>(max(z, 0.0) - z * q + log(1.0 + e), sigmoid - q);
}

fn focal(z: f32, q: f32) -> vec2<f32> {
    let e = exp(-abs(z));
    let yes = select(e, 1.0, z >= 0.0) / (1.0 + e);
    let no = select(1.0, e, z >= 0.0) / (1.0 + e);
    // Above 0, so that its power is a number.
    let missed = max(q * no + (1.0 - q) * yes, 1e-37);
    let factor = (q * params.positive + (1.0 - q) * params.negative) * pow(missed, params.gamma);
    let bounded = entropy(clamp(z, -FARTHEST, FARTHEST), q).x;
    let inner = select(0.0, yes - q, abs(z) < FARTHEST);
    let outer = params.gamma * (1.0 - 2.0 * q) * bounded * (yes * no / missed);
    return factor * vec2<f32>(bounded, inner + outer);
}

fn log_cosh(e: f32) -> vec2<f32> {
    let small = exp(-2.0 * abs(e));
    return vec2<f32>(abs(e) + log(1.0 + small) - LN_2, sign(e) * (1.0 - small) / (1.0 + small));
}

fn divergence(y: f32, t: f32) -> vec2<f32> {
    let p = clamp(y, EPSILON, 1.0);
    let q = clamp(t, EPSILON, 1.0);
    return vec2<f32>(q * log(q / p), -q / p * gate(y - EPSILON) * gate(1.0 - y));
}

fn hinge(y: f32, t: f32) -> vec2<f32> {
    let s = select(t, -1.0, t == 0.0);
    let margin = 1.0 - s * y;
    return vec2<f32>(max(margin, 0.0), -s * gate(margin));
}

fn of_column(y: f32, t: f32) -> vec2<f32> {
    let e = y - t;
    let q = t * (1.0 - params.smoothing) + 0.5 * params.smoothing;
    switch LOSS {
        case 0u: { return vec2<f32>(e * e, 2.0 * e); }
        case 1u: { return vec2<f32>(abs(e), sign(e)); }
        case 2u: {
            let bent = params.delta * (abs(e) - 0.5 * params.delta);
            return vec2<f32>(select(bent, 0.5 * e * e, abs(e) <= params.delta), clamp(e, -params.delta, params.delta));
        }
        case 3u: { return log_cosh(e); }
        case 4u: { return vec2<f32>(y - t * log(y + EPSILON), 1.0 - t / (y + EPSILON)); }
        case 5u: { return divergence(y, t); }
        case 6u: { return hinge(y, t); }
        case 7u: {
            let plain = hinge(y, t);
            return vec2<f32>(plain.x * plain.x, 2.0 * plain.x * plain.y);
        }
        case 8u: { return entropy(y, q); }
        default: { return focal(y, q); }
    }
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = element_index(workgroup, workgroups, lane, 64u);
    let start = i % LANES;
    // No early return: every lane meets the barriers. A row past the end has no columns.
    let live = i / LANES < params.rows;
    let row = select(0u, i / LANES, live);
    let cols = select(0u, params.cols, live);
    let base = row * params.cols;
    let weight = sample_weights[row / params.positions];
    let count = select(f32(params.cols), 1.0, LOSS == 5u);
    let step = weight * params.scale / count;

    var loss = 0.0;
    var score = 0.0;
    for (var col = start; col < cols; col += LANES) {
        let y = predictions[base + col];
        let t = targets[base + col];
        // A maximum or a bound would hide what is no number.
        let at = select(of_column(y, t), vec2<f32>(y, y), is_no_number(y));
        loss += at.x;
        let hit = select(0.0, 1.0, (y > 0.0) == (t > 0.5));
        score += select(abs(y - t), hit, LOSS >= 6u);
        gradient[base + col] = select(at.y * step, 0.0, weight == 0.0);
    }
    let sums = lanes_sum4(vec4<f32>(loss, score, 0.0, 0.0), lane, LANES);
    if live && start == 0u {
        report[2u * row] = select(sums.x / count * weight, 0.0, weight == 0.0);
        report[2u * row + 1u] = sums.y / f32(params.cols);
    }
}
