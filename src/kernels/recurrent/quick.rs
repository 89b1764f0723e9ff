//! Sigmoid and hyperbolic tangent that compilers turn into vectors: no calls, no branches.

/// `tanh(x)` in place, within 5e-7: the rational function of Eigen and XLA.
#[allow(clippy::excessive_precision, reason = "the coefficients as their source has them")]
pub(super) fn tanh(values: &mut [f32]) {
    for value in values {
        // A NaN stays one.
        let x = value.clamp(-7.905_311, 7.905_311);
        let square = x * x;
        let mut above = -2.760_768_4e-16;
        for coefficient in [2.000_188e-13, -8.604_672e-11, 5.122_297e-8, 1.485_722_4e-5, 6.372_619_3e-4, 4.893_524_6e-3]
        {
            above = above * square + coefficient;
        }
        let mut below = 1.198_258_4e-6;
        for coefficient in [1.185_347e-4, 2.268_434_6e-3, 4.893_525_2e-3] {
            below = below * square + coefficient;
        }
        *value = x * above / below;
    }
}

/// `1 / (1 + exp(-x))` in place, within 3e-7: half of one plus the tangent of half of `x`.
pub(super) fn sigmoid(values: &mut [f32]) {
    values.iter_mut().for_each(|x| *x *= 0.5);
    tanh(values);
    values.iter_mut().for_each(|t| *t = 0.5 + 0.5 * *t);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_within_a_few_roundings() {
        let points: Vec<f32> = (-40_000_i32..=40_000).map(|i| i as f32 * 1e-3).collect();
        let (mut tangents, mut sigmoids) = (points.clone(), points.clone());
        tanh(&mut tangents);
        sigmoid(&mut sigmoids);
        for ((x, tangent), sigmoid) in points.iter().zip(&tangents).zip(&sigmoids) {
            let x = f64::from(*x);
            assert!((f64::from(*tangent) - x.tanh()).abs() < 5e-7, "tanh({x}) is not {tangent}");
            assert!((f64::from(*sigmoid) - 1.0 / (1.0 + (-x).exp())).abs() < 3e-7, "sigmoid({x}) is not {sigmoid}");
        }
        let mut odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        tanh(&mut odd);
        assert!(odd[0].is_nan() && (odd[1] - 1.0).abs() < 5e-7 && (odd[2] + 1.0).abs() < 5e-7);
    }
}
