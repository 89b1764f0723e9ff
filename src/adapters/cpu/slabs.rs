//! Fewer slabs for sums over rows: a GPU needs many to fill its units, a CPU a few for its threads.

use crate::kernels::reduce;
use crate::plan::{Command, Dispatch, Plan, Word};

/// Slabs of a sum at most. More would cost memory traffic: each is written, read and added. The number does not depend on
/// the machine's threads, so that results don't either.
const MOST: u32 = 8;

/// The plan with at most [`MOST`] slabs in each sum that [`reduce::COMBINE`] adds.
pub(super) fn fewer(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for (_, commands) in plan.passes.iter_mut() {
        for (writer, reader) in sums(commands) {
            for idx in [writer, reader] {
                if let Command::Dispatch(dispatch) = &mut commands[idx] {
                    set_slabs(dispatch);
                }
            }
        }
    }
    plan
}

/// The dispatches of each sum, by position: the one that writes its slabs, and the one that adds them.
fn sums(commands: &[Command]) -> Vec<(usize, usize)> {
    let mut sums = Vec::new();
    for (reader, command) in commands.iter().enumerate() {
        let Command::Dispatch(combine) = command else { continue };
        if !std::ptr::eq(combine.kernel, &raw const reduce::COMBINE) {
            continue;
        }
        let slabs = combine.inputs[0].buffer;
        let touches = |command: &Command| match command {
            Command::Dispatch(dispatch) => dispatch.inputs.iter().chain(&dispatch.outputs).any(|it| it.buffer == slabs),
            Command::Exchange(exchange) => exchange.view.buffer == slabs,
        };
        // Memory that other commands use, too, keeps its size.
        let users: Vec<usize> = (0..commands.len()).filter(|idx| touches(&commands[*idx])).collect();
        if let [writer, last] = users[..]
            && last == reader
            && matches!(&commands[writer], Command::Dispatch(it) if slabs_of(it) == slabs_of(combine))
        {
            sums.push((writer, reader));
        }
    }
    sums
}

/// The number of slabs of a dispatch, if it has one.
fn slabs_of(dispatch: &Dispatch) -> Option<u32> {
    match dispatch.params.get(place(dispatch)?) {
        Some(Word::U32(slabs)) => Some(*slabs),
        _ => None,
    }
}

/// Its position in the dispatch's words.
fn place(dispatch: &Dispatch) -> Option<usize> {
    dispatch.kernel.params.iter().position(|field| field.name == "splits")
}

fn set_slabs(dispatch: &mut Dispatch) {
    if let Some(Word::U32(slabs)) = place(dispatch).and_then(|place| dispatch.params.get_mut(place)) {
        *slabs = MOST.min(*slabs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Dense;
    use crate::losses::Loss;
    use crate::model::{Objective, Sequential};
    use crate::optimizers::Optimizer;
    use crate::plan::Pass;

    /// Slabs of all dispatches of a training pass that have them.
    fn slabs(plan: &Plan) -> Vec<u32> {
        let commands = plan.commands(Pass::Train).iter();
        let of = |command: &Command| match command {
            Command::Dispatch(dispatch) => slabs_of(dispatch),
            Command::Exchange(_) => None,
        };
        commands.filter_map(of).collect()
    }

    #[test]
    fn sums_have_few_slabs_and_all_of_them_are_added() {
        let model = Sequential::new([64]).add(Dense::new(48)).add(Dense::new(3)).build(0).unwrap();
        let plan = model.plan(&Objective::new(vec![Loss::MEAN_SQUARED_ERROR], Optimizer::adam(1e-3))).unwrap();
        let (before, after) = (slabs(&plan), slabs(&fewer(&plan)));
        assert!(before.iter().any(|slabs| *slabs > MOST), "{before:?}");
        assert_eq!(after, before.iter().map(|slabs| MOST.min(*slabs)).collect::<Vec<_>>());
    }
}
