//! The cases by which a pipeline is tried: small ones of its kernel, with its own constants.

use crate::kernels::activation_functions::CONSTANTS;
use crate::kernels::cases::{Case, InputFill};
use crate::kernels::{Kernel, Tile};

/// Values of a case at most, inputs and outputs together: quick on any device, and for the twin.
const MOST_VALUES: usize = 1 << 14;
/// Cases of a pipeline at most.
const MOST_CASES: usize = 8;

/// Cases for a pipeline of a kernel with these constants: of all sizes, from the smallest to the largest. None if no case has its
/// constants; an activation function may be another, since any kernel applies any.
pub fn chosen(kernel: &Kernel, constants: &[(&'static str, f64)]) -> Vec<Case> {
    let mut all = all(kernel);
    all.retain(|case| values(case) <= MOST_VALUES);
    let text = kernel.wgsl(Tile::Registers);
    let with = |ignored: &[&str]| -> Vec<Case> {
        let of = |constants: &[(&'static str, f64)]| sorted(&text, constants, ignored);
        all.iter().filter(|case| of(&case.constants) == of(constants)).cloned().collect()
    };
    let mut found = with(&[]);
    if found.is_empty() && kernel.constants.contains(&CONSTANTS[0]) {
        found = with(&CONSTANTS);
        found.iter_mut().for_each(|case| case.label += &format!(", but with {constants:?}"));
    }
    found.sort_by_key(values);
    let last = found.len().saturating_sub(1);
    let mut places: Vec<usize> = (0..MOST_CASES).map(|nth| last * nth / (MOST_CASES - 1)).collect();
    places.dedup();
    let chosen = places.into_iter().filter_map(|place| found.get(place).cloned());
    chosen.map(|case| Case { constants: constants.to_vec(), ..case }).collect()
}

/// The cases of a kernel. A page has none.
#[cfg(not(target_arch = "wasm32"))]
fn all(kernel: &Kernel) -> Vec<Case> {
    (kernel.cases)()
}

#[cfg(target_arch = "wasm32")]
fn all(_kernel: &Kernel) -> Vec<Case> {
    Vec::new()
}

fn values(case: &Case) -> usize {
    case.inputs.iter().chain(&case.outputs).map(InputFill::len).sum()
}

/// Constants by name, without some, and without those that have their default.
fn sorted(text: &str, constants: &[(&'static str, f64)], ignored: &[&str]) -> Vec<(&'static str, u64)> {
    let kept = constants.iter().filter(|(name, _)| !ignored.contains(name));
    let kept = kept.filter(|(name, value)| default(text, name) != Some(*value));
    let mut sorted: Vec<_> = kept.map(|(name, value)| (*name, value.to_bits())).collect();
    sorted.sort_unstable();
    sorted
}

/// The default of an `override` constant: `override USE_BIAS: u32 = 1u;` has 1.
fn default(text: &str, name: &str) -> Option<f64> {
    let declaration = text.split(&format!("override {name}:")).nth(1)?.split(';').next()?;
    declaration.split('=').nth(1)?.trim().trim_end_matches(['u', 'i', 'f']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::conv2d;

    #[test]
    fn constants_with_their_default_make_no_difference() {
        let text = conv2d::FORWARD.wgsl(Tile::Registers);
        assert_eq!((default(&text, "USE_BIAS"), default(&text, "NO_CONSTANT")), (Some(1.0), None));
        let plain = chosen(&conv2d::FORWARD, &[]);
        assert!(!plain.is_empty() && plain.iter().all(|case| case.constants.is_empty()));
        assert_eq!(chosen(&conv2d::FORWARD, &[("USE_BIAS", 1.0)]).len(), plain.len());
        assert!(chosen(&conv2d::FORWARD, &[("GROUPS", 1e6)]).is_empty());
    }
}
