//! Conversions that a twin needs, each with the bound that makes it safe.

/// Up to this one, f32 tells each whole number from its neighbours: more indices or labels would be taken for each other.
pub const MOST_WHOLE: usize = 1 << 24;

/// The nearest f32: twins sum in f64 and store f32.
#[allow(clippy::cast_possible_truncation, reason = "rounding to f32 is what it is for; too large becomes infinite")]
pub fn single(value: f64) -> f32 {
    value as f32
}

/// The value, or 0 for a subnormal one. Moments of weights without gradients decay to subnormal numbers, and CPUs compute several
/// times slower with these.
#[inline(always)]
pub(crate) fn normal(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE { 0.0 } else { value }
}

/// A count as f64, exact up to 2^53.
pub(crate) fn double(count: usize) -> f64 {
    count as f64
}

/// A count as f32, as WGSL's `f32(count)` gives it: exact up to 2^24, rounded above.
pub fn float(count: usize) -> f32 {
    count as f32
}

/// A class label as an index below `classes`. Labels are checked before a run; this only keeps a wrong one in bounds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, then it is bounded")]
pub(crate) fn class(label: f32, classes: usize) -> usize {
    (label as usize).min(classes.saturating_sub(1))
}

/// A `u32` word as an index.
pub(crate) fn index(word: u32) -> usize {
    word as usize
}

/// The smallest whole number that is not below a positive `value`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(crate) fn ceiling(value: f32) -> u32 {
    value.ceil() as u32
}
