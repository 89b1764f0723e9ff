//! Where activations live: buffers that are never needed at the same time share a slot.

use litemap::LiteMap;
use std::ops::RangeInclusive;

use crate::plan::{BufferId, Command, Length, Pass, Plan, Role};

/// Slots for the activations of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Storage {
    /// The slot of each buffer; `None` for buffers of other roles and for those that no command uses.
    pub slots: Vec<Option<usize>>,
    /// The length of each slot: the largest of its buffers.
    pub lengths: Vec<Length>,
}

/// From first to last use of a buffer, by pass.
type Life = LiteMap<Pass, RangeInclusive<usize>>;

/// Gives each activation a slot, so that no two in a slot are alive at once in any pass.
///
/// A buffer is alive from the first to the last command that names it, both included: the buffers of
/// one dispatch never share a slot. Each buffer, in the order of first use, takes the free slot that
/// has to grow least for it.
pub fn storage(plan: &Plan) -> Storage {
    let lives = lives(plan);
    let mut storage = Storage { slots: vec![None; plan.buffers.len()], lengths: Vec::new() };
    let mut tenants: Vec<Vec<usize>> = Vec::new();
    for idx in by_first_use(&lives) {
        let buffer = &plan.buffers[idx];
        if buffer.role != Role::Activation {
            continue;
        }
        let is_free = |slot: &usize| tenants[*slot].iter().all(|other| !overlap(&lives[idx], &lives[*other]));
        let growth = |slot: &usize| grown(storage.lengths[*slot], buffer.len);
        let slot = (0..tenants.len()).filter(is_free).min_by_key(growth).unwrap_or_else(|| {
            tenants.push(Vec::new());
            storage.lengths.push(Length::default());
            tenants.len() - 1
        });
        storage.lengths[slot] = storage.lengths[slot].max(buffer.len);
        storage.slots[idx] = Some(slot);
        tenants[slot].push(idx);
    }
    storage
}

/// The buffers that a command names.
pub fn used(command: &Command) -> Vec<BufferId> {
    match command {
        Command::Dispatch(dispatch) => {
            dispatch.inputs.iter().chain(&dispatch.outputs).map(|view| view.buffer).collect()
        }
        Command::Exchange(exchange) => {
            std::iter::once(exchange.view).chain(exchange.halves).map(|view| view.buffer).collect()
        }
    }
}

fn lives(plan: &Plan) -> Vec<Life> {
    let mut lives = vec![Life::new(); plan.buffers.len()];
    for (pass, commands) in &plan.passes {
        for (command_idx, command) in commands.iter().enumerate() {
            for buffer in used(command) {
                let life = lives[buffer.0 as usize].entry(*pass).or_insert(command_idx..=command_idx);
                *life = *life.start()..=command_idx;
            }
        }
    }
    lives
}

fn by_first_use(lives: &[Life]) -> Vec<usize> {
    let first = |idx: &usize| lives[*idx].iter().next().map(|(pass, life)| (*pass, *life.start()));
    let mut order: Vec<usize> = (0..lives.len()).filter(|idx| !lives[*idx].is_empty()).collect();
    order.sort_by_key(first);
    order
}

fn overlap(a: &Life, b: &Life) -> bool {
    a.iter().any(|(pass, a)| b.get(pass).is_some_and(|b| a.start() <= b.end() && b.start() <= a.end()))
}

/// Elements by which a slot must grow, and those it would leave unused: for each row first.
fn grown(slot: Length, wanted: Length) -> (u64, u64, u64) {
    let larger = slot.max(wanted);
    (larger.per_row - slot.per_row, larger.fixed - slot.fixed, slot.per_row - wanted.per_row.min(slot.per_row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels;
    use crate::plan::{Buffer, Combine, Dispatch, Exchange, Grid, View, When, Word};

    /// A plan whose commands name one buffer each: an exchange is the least that does.
    fn plan(roles: &[(Role, Length)], passes: &[(Pass, &[u32])]) -> Plan {
        let buffers = roles.iter().map(|(role, len)| Buffer { name: String::new(), role: *role, len: *len }).collect();
        let exchange = |buffer: &u32| {
            let view = View { buffer: BufferId(*buffer), offset: 0, len: Length::fixed(1) };
            Command::Exchange(Exchange { view, combine: Combine::Sum, when: When::Update, halves: None })
        };
        let passes = passes.iter().map(|(pass, uses)| (*pass, uses.iter().map(exchange).collect())).collect();
        Plan { buffers, passes, ..Plan::default() }
    }

    fn activations(lengths: &[usize]) -> Vec<(Role, Length)> {
        lengths.iter().map(|len| (Role::Activation, Length::per_row(*len))).collect()
    }

    #[test]
    fn a_slot_is_taken_again_after_the_last_use() {
        let plan = plan(&activations(&[10, 20, 30]), &[(Pass::Train, &[0, 1, 0, 2, 1])]);
        let storage = storage(&plan);
        assert_eq!(storage.slots, [Some(0), Some(1), Some(0)]);
        assert_eq!(storage.lengths, [Length::per_row(30), Length::per_row(20)]);
    }

    #[test]
    fn a_life_in_any_pass_counts() {
        let passes: &[(Pass, &[u32])] = &[(Pass::Train, &[0, 0, 1, 1]), (Pass::Predict, &[0, 1, 0])];
        assert_eq!(storage(&plan(&activations(&[4, 4]), passes)).slots, [Some(0), Some(1)]);
    }

    #[test]
    fn passes_share_slots() {
        let passes: &[(Pass, &[u32])] = &[(Pass::Train, &[0, 0]), (Pass::Predict, &[1, 1])];
        assert_eq!(storage(&plan(&activations(&[4, 8]), passes)).slots, [Some(0), Some(0)]);
    }

    #[test]
    fn the_slot_that_fits_best_is_taken() {
        let plan = plan(&activations(&[100, 10, 9]), &[(Pass::Train, &[0, 1, 0, 1, 2])]);
        assert_eq!(storage(&plan).slots, [Some(0), Some(1), Some(1)]);
    }

    #[test]
    fn the_buffers_of_one_dispatch_never_share() {
        let mut plan = plan(&activations(&[4, 4, 4]), &[]);
        let view = |buffer| View { buffer: BufferId(buffer), offset: 0, len: Length::fixed(4) };
        let dispatch = |input, output| {
            Command::Dispatch(Dispatch {
                kernel: kernels::all().next().unwrap(),
                node: String::new(),
                constants: Vec::new(),
                params: Vec::new(),
                inputs: vec![view(input)],
                outputs: vec![view(output)],
                grid: Grid::Items(Word::U32(1)),
            })
        };
        plan.passes.insert(Pass::Train, vec![dispatch(0, 1), dispatch(1, 2)]);
        assert_eq!(storage(&plan).slots, [Some(0), Some(1), Some(0)]);
    }

    #[test]
    fn only_used_activations_have_slots() {
        let roles = [(Role::Parameters(0), Length::fixed(4)), (Role::Activation, Length::fixed(4))];
        assert_eq!(storage(&plan(&roles, &[(Pass::Train, &[0])])).slots, [None, None]);
    }
}
