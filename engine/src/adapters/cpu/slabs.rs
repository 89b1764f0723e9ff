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
    use crate::kernels::Kernel;
    use crate::plan::{Grid, Length, Pass, Role, View};

    /// A dispatch of a sum over rows of 10 columns, in so many slabs.
    fn dispatch(kernel: &'static Kernel, slabs: u32, [x, y]: [View; 2]) -> Command {
        let params = reduce::Record { rows: Word::U32(40), cols: Word::U32(10), splits: Word::U32(slabs) };
        Command::Dispatch(Dispatch {
            kernel,
            node: String::new(),
            constants: Vec::new(),
            params: params.into(),
            inputs: vec![x],
            outputs: vec![y],
            grid: Grid::Elements(Word::U32(10 * slabs)),
        })
    }

    /// A plan that adds 40 rows in so many slabs. They may be read once more.
    fn plan(slabs: u32, is_read_twice: bool) -> Plan {
        let mut plan = Plan::default();
        let mut buffer = |name, len| plan.buffer(name, Role::Activation, Length::fixed(len));
        let [x, parts, sum] =
            [("x", 400), ("parts", 10 * slabs as usize), ("sum", 10)].map(|(name, len)| buffer(name, len));
        let mut commands =
            vec![dispatch(&reduce::COLUMN_SUMS, slabs, [x, parts]), dispatch(&reduce::COMBINE, slabs, [parts, sum])];
        if is_read_twice {
            commands.push(dispatch(&reduce::COLUMN_SUMS, 1, [parts, x]));
        }
        plan.passes.insert(Pass::Train, commands);
        plan
    }

    /// Slabs of each dispatch of the loaded plan.
    fn loaded(plan: &Plan) -> Vec<Option<u32>> {
        let plan = fewer(plan);
        let of = |command: &Command| match command {
            Command::Dispatch(dispatch) => slabs_of(dispatch),
            Command::Exchange(_) => None,
        };
        plan.commands(Pass::Train).iter().map(of).collect()
    }

    #[test]
    fn sums_have_few_slabs_and_all_of_them_are_added() {
        assert_eq!(loaded(&plan(64, false)), [Some(MOST); 2]);
        assert_eq!(loaded(&plan(3, false)), [Some(3); 2]);
    }

    #[test]
    fn slabs_that_others_read_stay() {
        assert_eq!(loaded(&plan(64, true)), [Some(64), Some(64), Some(1)]);
    }
}
