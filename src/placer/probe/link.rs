//! Speed of an adapter's link, from transfers of known size.

/// Transfers that were timed: bytes and milliseconds.
#[derive(Default)]
pub(super) struct Moved {
    pub up: Vec<(f64, f64)>,
    pub down: Vec<(f64, f64)>,
}

/// Milliseconds of a transfer whatever its bytes, and 10⁹ bytes a second, from timed ones; no speed if bytes cost nothing.
pub(super) fn fit(moved: &[(f64, f64)]) -> (f64, Option<f64>) {
    let count = moved.iter().fold(0.0, |count, _| count + 1.0);
    if count < 2.0 {
        return (0.0, None);
    }
    let mean = |of: fn(&(f64, f64)) -> f64| moved.iter().map(of).sum::<f64>() / count;
    let (bytes, ms) = (mean(|it| it.0), mean(|it| it.1));
    let spread: f64 = moved.iter().map(|it| (it.0 - bytes).powi(2)).sum();
    let slope = moved.iter().map(|it| (it.0 - bytes) * (it.1 - ms)).sum::<f64>() / spread.max(1.0);
    let slope = if bytes > 0.0 { slope.clamp(0.0, ms / bytes) } else { 0.0 };
    let latency_ms = (ms - slope * bytes).max(0.0);
    (latency_ms, (slope > 0.0).then(|| 1.0 / (slope * 1e6)))
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn a_link_is_a_latency_and_a_speed() {
        let moved: Vec<(f64, f64)> = [1e6, 2e6, 8e6].iter().map(|bytes| (*bytes, 0.5 + bytes / 2e6)).collect();
        let (latency_ms, gb_s) = fit(&moved);
        assert!((latency_ms - 0.5).abs() < 1e-9 && (gb_s.unwrap() - 2.0).abs() < 1e-9, "{latency_ms} {gb_s:?}");
        assert_eq!(fit(&[(4.0, 0.0), (8.0, 0.0)]), (0.0, None), "a link that costs nothing");
    }
}
