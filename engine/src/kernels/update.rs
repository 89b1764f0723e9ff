//! The frame of optimizers' updates: all that optimizers share, around the formula of each. Its shader is `lib/update.wgsl`.
//!
//! Each kernel's inputs are `gradient [len]` and `control [4]`, its outputs `parameter [len]` and the states `[len]`, all in
//! place. `control` is `[scale, apply, norm, 0]`, as `clip.combine` writes it; with `apply` 0 nothing changes. The grid is
//! `Elements(ceil(len / 4))`. A formula is written once: in f64 it is the twin, in f32 the fast version, which is the host's
//! update.

use super::Call;
use super::cases::{Case, InputFill};
use super::real::Real;
use super::rounding::index;
use super::vectors::widest;

/// Names of the inputs.
pub(super) const INPUTS: &[&str] = &["gradient", "control"];

/// Declares the `Params` of an update: what all of them begin with, then the optimizer's own.
macro_rules! update_params {
    ($($own:tt)*) => {
        $crate::params! {
            /// Number of elements.
            len: u32,
            /// Learning rate of this step.
            learning_rate: f32,
            /// Decoupled weight decay, a part of the parameter for each unit of the learning rate; 0 for none.
            weight_decay: f32,
            $($own)*
        }
    };
}
pub(super) use update_params;

/// The first fields of the `Params` of every update.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct CommonParams {
    len: u32,
    learning_rate: f32,
    weight_decay: f32,
}

/// A parameter in a step.
#[derive(Clone, Copy)]
pub(super) struct UpdatedParameter<F> {
    old_w: F,
    /// The parameter less its weight decay.
    pub w: F,
    /// Its gradient, scaled.
    pub g: F,
}

impl<F: Real> UpdatedParameter<F> {
    /// The gradient, with a part of the parameter added to it.
    #[inline(always)]
    pub fn with_l2(self, l2_decay: F) -> F {
        self.g + l2_decay * self.old_w
    }
}

/// A number of `Params` in a formula.
#[inline(always)]
pub(super) fn real<F: Real>(number: f32) -> F {
    F::of(number.into())
}

/// Updates a parameter and its states by a formula, which makes the new ones of the old ones.
pub(super) fn apply<F: Real, const STATES: usize>(
    call: &Call<'_>,
    parameter: &mut [f32],
    states: [&mut [f32]; STATES],
    formula: impl Fn(UpdatedParameter<F>, [F; STATES]) -> (F, [F; STATES]),
) {
    let CommonParams { len, learning_rate, weight_decay } = call.params();
    let (len, control) = (index(len), call.inputs[1]);
    if control[1] != 0.0 {
        let numbers = [real(control[0]), real::<F>(weight_decay) * real(learning_rate)];
        let states = states.map(|state| &mut state[..len]);
        apply_all(&mut parameter[..len], states, &call.inputs[0][..len], numbers, formula);
    }
}

widest! {
    /// The loop of [`apply`]; the numbers are the gradient's scale and the part of the parameter that decays.
    fn apply_all<F: Real, T: Fn(UpdatedParameter<F>, [F; STATES]) -> (F, [F; STATES]); const STATES: usize>(
        parameter: &mut [f32],
        states: [&mut [f32]; STATES],
        gradient: &[f32],
        numbers: [F; 2],
        formula: T,
    ) {
        let (mut states, [scale, decay]) = (states, numbers);
        for (i, (w, g)) in parameter.iter_mut().zip(gradient).enumerate() {
            let old_w = real::<F>(*w);
            let element = UpdatedParameter { old_w, w: old_w - old_w * decay, g: real::<F>(*g) * scale };
            let (new_w, new) = formula(element, states.each_ref().map(|state| real(state[i])));
            *w = new_w.single();
            for (state, new) in states.iter_mut().zip(new) {
                state[i] = new.single();
            }
        }
    }
}

/// A case of an update.
#[derive(Clone, Copy)]
pub(super) struct UpdateCase {
    /// Place among the cases.
    pub nth: usize,
    /// Number of elements.
    pub len: u32,
    /// Weight decay.
    pub weight_decay: f32,
    control: [f32; 4],
    is_first_step: bool,
}

impl UpdateCase {
    const fn new(nth: usize, len: u32, weight_decay: f32, scale: f32) -> Self {
        Self { nth, len, weight_decay, control: [scale, 1.0, 2.0, 0.0], is_first_step: false }
    }
}

/// The cases of every update. In the first step some gradients are 0, and so are all states.
const ROWS: [UpdateCase; 8] = [
    UpdateCase::new(0, 1, 0.0, 1.0),
    UpdateCase::new(1, 63, 0.1, 0.5),
    UpdateCase::new(2, 64, 0.01, 0.25),
    UpdateCase::new(3, 65, 0.01, 1.0),
    UpdateCase { is_first_step: true, ..UpdateCase::new(4, 65, 0.0, 1.0) },
    UpdateCase { control: [1.0, 0.0, 0.0, 0.0], ..UpdateCase::new(5, 257, 0.1, 1.0) },
    // Two workgroups.
    UpdateCase::new(1, 261, 0.1, 0.5),
    UpdateCase::new(6, 70_001, 0.004, 1.0),
];

/// The cases of an update with states of these values, and `Params` for each.
pub(super) fn cases_of(states: &[fn(usize) -> InputFill], params: impl Fn(UpdateCase) -> Vec<u32>) -> Vec<Case> {
    let case = |row: UpdateCase| {
        let UpdateCase { len, weight_decay, control, .. } = row;
        let label = format!("{len}, decay {weight_decay}, {control:?}");
        let case = Case::elements(label, params(row), len.div_ceil(4))
            .input(InputFill::Normal(index(len)))
            .input(InputFill::Values(control.into()))
            .in_place(InputFill::Normal(index(len)));
        let mut case = states.iter().fold(case, |case, state| case.in_place(state(index(len))));
        if row.is_first_step {
            case = case.labelled("first step, some gradients 0");
            case.inputs[0] = InputFill::Values((0..len).map(|i| [-1.0, 0.0, 1.0][index(i % 3)]).collect());
            case.outputs[1..].fill(InputFill::Values(vec![0.0; index(len)]));
        }
        case
    };
    ROWS.into_iter().map(case).collect()
}

/// Lets twin and fast version update one element of a gradient by hand.
#[cfg(test)]
pub(super) fn by_hand(
    kernel: &super::Kernel,
    params: &[u32],
    constants: &[(&'static str, f64)],
    [gradient, scale, applies]: [f32; 3],
    before: &[f32],
) -> [Vec<f32>; 2] {
    [Some(kernel.twin), kernel.fast].map(|update| {
        let mut outputs: Vec<[f32; 1]> = before.iter().map(|value| [*value]).collect();
        let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(<[f32; 1]>::as_mut_slice).collect();
        let call = Call { params, constants, inputs: &[&[gradient], &[scale, applies, 0.0, 0.0]] };
        update.unwrap()(&call, &mut slices);
        outputs.concat()
    })
}
