//! Compares numbers that rounding sets apart.

#![allow(dead_code, reason = "each test file uses a part of it")]

/// Each number differs by at most `tolerance · (1 + |wanted|)`: relative for large numbers, absolute for small ones.
#[track_caller]
pub fn assert_close<T: Copy + Into<f64>>(what: &str, got: &[T], wanted: &[T], tolerance: impl Into<f64>) {
    assert_within(what, got, wanted, 1.0, tolerance.into());
}

/// Each number differs by at most `tolerance · |wanted|`.
#[track_caller]
pub fn assert_relative<T: Copy + Into<f64>>(what: &str, got: &[T], wanted: &[T], tolerance: impl Into<f64>) {
    assert_within(what, got, wanted, 0.0, tolerance.into());
}

#[track_caller]
fn assert_within<T: Copy + Into<f64>>(what: &str, got: &[T], wanted: &[T], least: f64, tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}: number of values");
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let (got, wanted): (f64, f64) = ((*got).into(), (*wanted).into());
        let is_close = (got - wanted).abs() <= tolerance * (least + wanted.abs());
        assert!(is_close, "{what}[{at}] is {got}, needs {wanted} within {tolerance}");
    }
}
