//! Mean and standard deviation of a few numbers.

/// Mean, and standard deviation with so many degrees of freedom less than there are numbers, as NumPy's `ddof`: 0 for that of all
/// numbers, 1 for that of a sample.
#[allow(clippy::cast_precision_loss, reason = "few numbers")]
pub fn mean_and_deviation(values: &[f64], ddof: usize) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / values.len().saturating_sub(ddof).max(1) as f64).sqrt())
}
