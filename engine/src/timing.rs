//! Numbers from times and counts: the median of some, how many of something a second, a part of a whole.

/// The median: the middle of some numbers, the mean of the two in the middle where their count is even, 0 of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The lower and the upper quartile: the medians of the lower and of the upper half of some numbers.
///
/// The middle one is in both halves where the count is odd; quartiles of none are 0. Source: Tukey 1977, the hinges.
pub fn quartiles(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len().div_ceil(2);
    [median(sorted[..half].iter().copied()), median(sorted[sorted.len() - half..].iter().copied())]
}

/// Rate per second of `count` things in `ms` milliseconds. Times below a microsecond count as one.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn per_second(count: u64, ms: f64) -> f64 {
    count as f64 * 1e3 / ms.max(1e-3)
}

/// A part of a whole; 0 of nothing is 0.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!((median([3.0, 1.0, 2.0]), median([4.0, 1.0, 2.0, 9.0]), median([])), (2.0, 3.0, 0.0));
    }

    #[test]
    fn half_of_the_numbers_lie_between_the_quartiles() {
        assert_eq!(quartiles([5.0, 1.0, 3.0, 2.0, 4.0]), [2.0, 4.0]);
        assert_eq!(quartiles([4.0, 1.0, 3.0, 2.0]), [1.5, 3.5]);
        assert_eq!((quartiles([7.0]), quartiles([])), ([7.0; 2], [0.0; 2]));
    }

    #[test]
    fn no_time_at_all_is_a_microsecond() {
        assert_eq!((per_second(3, 1500.0), per_second(2, 0.0)), (2.0, 2e6));
    }
}
