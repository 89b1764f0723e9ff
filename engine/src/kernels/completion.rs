//! The last dispatch of a run: a completion marker, which only a device that ran to the end has written.

use super::cases::Case;
use super::rounding::{float, index};
use super::text::wgsl;
use super::{Call, Kernel};

crate::params! {
    /// Training step, or any number that differs from the last run's.
    step: u32,
}

/// The family.
pub static KERNELS: &[&Kernel] = &[&WRITE];

/// `marker [1]` = [`marker`] of the step.
///
/// Grid: `Elements(1)`.
pub static WRITE: Kernel = Kernel {
    stem: "completion",
    entry: "write",
    source: wgsl!("completion"),
    uses: &[],
    params: Params::FIELDS,
    inputs: &[],
    outputs: &["marker"],
    workgroup: 64,
    constants: &[],
    twin: write_twin,
    fast: None,
    // Whole numbers below 2^23.
    tolerance: 0.0,
    #[cfg(not(target_arch = "wasm32"))]
    cases,
}
.lean();

/// Marker of a step: `step` modulo 2^23, exact in f32.
pub fn marker(step: u32) -> f32 {
    float(index(step % (1 << 23)))
}

fn write_twin(call: &Call<'_>, outputs: &mut [&mut [f32]]) {
    outputs[0][0] = marker(call.params::<Params>().step);
}

fn cases() -> Vec<Case> {
    [0, 1, (1 << 23) - 1, 1 << 23, u32::MAX]
        .map(|step| Case::elements(format!("step {step}"), Params { step }.words(), 1).output(1))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_differ_from_their_neighbours() {
        for step in [0, 1, (1 << 23) - 2, (1 << 23) - 1, u32::MAX - 1] {
            assert_ne!(marker(step), marker(step + 1));
        }
        assert_eq!(marker((1 << 23) + 5), 5.0);
    }
}
