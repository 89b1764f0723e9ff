//! The sizes at which the steps are tested.

use super::super::activation_functions::{Activation, Function, FunctionNumbers};
use super::super::cases::{Case, InputFill};
use super::super::rounding::index;
use super::{NONE, Params};

/// Rows and units.
const SIZES: [[u32; 2]; 6] = [[1, 1], [3, 7], [63, 4], [2, 64], [65, 5], [5, 257]];

/// Many invocations: a grid that is folded. One step, or buffers would outgrow a binding.
const FOLDED: [u32; 2] = [16_400, 256];

/// A step of three: the first, one between, the last, and one whose output is not wanted.
fn places() -> [[u32; 4]; 4] {
    [[0, 1, 1, 0], [1, 2, 0, 7], [2, NONE, 0, 3], [2, 1, 0, NONE]]
}

/// Arguments of a case beside its sizes.
#[derive(Clone, Copy)]
struct RecurrentArguments {
    function: Function,
    is_masked: bool,
    is_zero_output: bool,
    is_hard: bool,
    use_bias: bool,
}

fn asked() -> [RecurrentArguments; 4] {
    let plain = RecurrentArguments {
        function: Function::plain(Activation::Tanh),
        is_masked: false,
        is_zero_output: false,
        is_hard: false,
        use_bias: true,
    };
    let numbers = FunctionNumbers { slope: 0.25, ..FunctionNumbers::NONE };
    [
        plain,
        RecurrentArguments { is_masked: true, ..plain },
        RecurrentArguments { is_masked: true, is_zero_output: true, is_hard: true, ..plain },
        RecurrentArguments { use_bias: false, function: Function { activation: Activation::Elu, numbers }, ..plain },
    ]
}

fn case(
    [rows, units]: [u32; 2],
    steps: u32,
    [at, next, is_first, y_offset]: [u32; 4],
    asked: RecurrentArguments,
) -> (Case, Params) {
    // The cell stands behind the output, where the row ends.
    let cell_offset = if next == NONE { units + 9 } else { NONE };
    let params = Params { rows, units, steps, at, next, is_first, y_offset, y_stride: 2 * units + 9, cell_offset };
    let label = format!("{rows} x {units}, {at} to {next} of {steps}, {:?}", asked.function.activation);
    let mut case = Case::elements(label, params.words(), rows * units).function(asked.function);
    for (name, is, default) in [
        ("MASKED", asked.is_masked, false),
        ("ZERO_OUTPUT", asked.is_zero_output, false),
        ("HARD", asked.is_hard, false),
        ("USE_BIAS", asked.use_bias, true),
    ] {
        if is != default {
            case = case.constant(name, f64::from(u8::from(is))).labelled(name);
        }
    }
    (case, params)
}

/// Every case of a kernel, with its buffers: all sizes and places with a mask, and one size with all that may be asked for.
fn each(buffers: impl Fn(Case, &Params) -> Case) -> Vec<Case> {
    let [plain, masked, others @ ..] = asked();
    let all = SIZES.iter().flat_map(|size| places().map(|place| (*size, place, masked)));
    let others = [plain].into_iter().chain(others).flat_map(|asked| places().map(|place| (SIZES[1], place, asked)));
    let case = |(size, place, asked)| {
        let (case, params) = case(size, 3, place, asked);
        buffers(case, &params)
    };
    all.chain(others).map(case).collect()
}

fn len(factors: &[u32]) -> usize {
    factors.iter().map(|factor| index(*factor)).product()
}

fn forward(case: Case, p: &Params, widths: [u32; 3]) -> Case {
    let [part, bias, gates] = widths.map(|width| width * p.units);
    case.input(InputFill::Normal(len(&[p.rows, part])))
        .input(InputFill::Normal(index(bias)))
        .input(InputFill::Labels(len(&[p.rows, p.steps]), 2))
        .in_place(InputFill::Normal(len(&[p.rows, p.steps, gates])))
        .in_place(InputFill::Normal(len(&[p.rows, p.steps, p.units])))
        .in_place(InputFill::Normal(len(&[p.rows, p.units])))
        .output(len(&[p.rows, p.y_stride]))
}

pub(super) fn forward_lstm() -> Vec<Case> {
    each(|case, p| forward(case, p, [4, 4, 4]).in_place(InputFill::Normal(len(&[p.rows, p.steps, p.units]))))
}

pub(super) fn forward_gru() -> Vec<Case> {
    each(|case, p| forward(case, p, [3, 6, 6]))
}

pub(super) fn forward_simple() -> Vec<Case> {
    let (folded, params) = case(FOLDED, 1, [0, NONE, 1, 0], asked()[1]);
    let mut cases = each(|case, p| forward(case, p, [1, 1, 1]));
    cases.push(forward(folded, &params, [1, 1, 1]));
    cases
}

fn backward(case: Case, p: &Params, before: InputFill, gates: u32) -> Case {
    // Like what forward leaves: between 0 and 1.
    case.input(InputFill::Normal(len(&[p.rows, p.units])))
        .input(InputFill::Normal(len(&[p.rows, p.y_stride])))
        .input(InputFill::Labels(len(&[p.rows, p.steps]), 2))
        .input(before)
        .in_place(InputFill::Uniform(len(&[p.rows, p.steps, gates * p.units]), 0.0, 1.0))
        .in_place(InputFill::Normal(len(&[p.rows, p.units])))
}

pub(super) fn backward_lstm() -> Vec<Case> {
    each(|case, p| {
        let cells = InputFill::Normal(len(&[p.rows, p.steps, p.units]));
        backward(case, p, cells, 4).in_place(InputFill::Normal(len(&[p.rows, p.units])))
    })
}

pub(super) fn backward_gru() -> Vec<Case> {
    each(|case, p| backward(case, p, InputFill::Normal(len(&[p.rows, p.steps, p.units])), 6))
}

pub(super) fn backward_simple() -> Vec<Case> {
    each(|case, p| backward(case, p, InputFill::Uniform(len(&[p.rows, p.steps, p.units]), 0.0, 1.0), 1))
}
