//! The last dispatch of a submission: counts, so that a submission that a driver dropped is missing from the count.

use super::cases::{Case, InputFill};
use super::rounding::{float, index};
use super::text::wgsl;
use super::{Call, Kernel};

/// The family.
pub static KERNELS: &[&Kernel] = &[&COUNT];

/// `marker [1]` = [`marker`] of one submission more.
///
/// Grid: `Elements(1)`.
pub static COUNT: Kernel = Kernel {
    stem: "completion",
    entry: "count",
    source: wgsl!("completion"),
    uses: &[],
    params: &[],
    inputs: &[],
    outputs: &["marker"],
    workgroup: 64,
    constants: &[],
    twin: count_twin,
    fast: None,
    // Whole numbers below 2^23.
    tolerance: 0.0,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

/// Numbers that the marker has.
const NUMBERS: u32 = 1 << 23;

/// Marker after so many submissions: their number modulo 2^23, exact in f32.
pub fn marker(submissions: u32) -> f32 {
    float(index(submissions % NUMBERS))
}

fn count_twin(_: &Call<'_>, outputs: &mut [&mut [f32]]) {
    let next = outputs[0][0] + 1.0;
    outputs[0][0] = if next < float(index(NUMBERS)) { next } else { 0.0 };
}

fn cases() -> Vec<Case> {
    [0, 1, NUMBERS - 2, NUMBERS - 1]
        .map(|count| {
            let case = Case::elements(format!("after {count}"), Vec::new(), 1);
            case.in_place(InputFill::Values(vec![marker(count)]))
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_as_the_host_does() {
        for count in [0, 1, NUMBERS - 2, NUMBERS - 1, NUMBERS, u32::MAX - 1] {
            let mut counted = [marker(count)];
            count_twin(&Call { params: &[], constants: &[], inputs: &[] }, &mut [&mut counted]);
            assert_eq!(counted[0], marker(count + 1));
            assert_ne!(counted[0], marker(count));
        }
        assert_eq!(marker(NUMBERS + 5), 5.0);
    }
}
