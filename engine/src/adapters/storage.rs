//! Memory of activations: buffers that are never needed at the same time share a slot.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;

use litemap::LiteMap;

use crate::plan::{BufferId, Command, Length, Pass, Plan, Role};

/// Slots for the activations of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Storage {
    /// The slot of each buffer; `None` for buffers of other roles and for those that no command uses.
    pub slots: Vec<Option<usize>>,
    /// The length of each slot: the largest of its buffers.
    pub lengths: Vec<Length>,
}

/// First to last use of a buffer, by pass.
type Life = LiteMap<Pass, RangeInclusive<usize>>;

/// A slot has at most so many times the numbers of a row that a buffer needs, or the buffer gets a slot of its own: a small one that is
/// needed for long would keep a large one taken. The division that takes least is used.
const WASTES: [u64; 2] = [u64::MAX, 2];

/// Gives each activation a slot, so that no two in a slot are alive at once in any pass. Unpacked parameters have slots of their own:
/// among activations, whose sizes depend on the rows, each could end up in another slot.
///
/// A buffer is alive from the first to the last command that names it, both included: the buffers of
/// one dispatch never share a slot. Each buffer, in the order of first use, takes the free slot that
/// has to grow least for it. Time grows with the buffers, times the number of different lengths.
pub fn storage(plan: &Plan) -> Storage {
    let lives = lives(plan);
    let order = by_first_use(&lives);
    let total = |storage: &Storage| {
        let sum = |part: fn(&Length) -> u64| storage.lengths.iter().map(part).sum::<u64>();
        (sum(|length| length.per_row), sum(|length| length.fixed))
    };
    let divisions = WASTES.map(|most| divided(plan, &lives, &order, most));
    divisions.into_iter().min_by_key(total).unwrap_or_default()
}

fn divided(plan: &Plan, lives: &[Life], order: &[usize], most_wasted: u64) -> Storage {
    let mut storage = Storage { slots: vec![None; plan.buffers.len()], lengths: Vec::new() };
    for role in [Role::Activation, Role::Unpacked] {
        let (mut places, first) = (SlotPlaces { most_wasted, ..SlotPlaces::default() }, storage.lengths.len());
        for idx in order.iter().copied().filter(|idx| plan.buffers[*idx].role == role) {
            storage.slots[idx] = places.take(&lives[idx], plan.buffers[idx].len).map(|slot| first + slot);
        }
        storage.lengths.extend(places.lengths);
    }
    storage
}

/// The slots while buffers take them in the order of first use.
#[derive(Default)]
struct SlotPlaces {
    /// Numbers of a row that a slot may have for each that a buffer needs.
    most_wasted: u64,
    lengths: Vec<Length>,
    /// The pass in which the current buffers are first used.
    pass: Option<Pass>,
    /// Slots that are taken in this pass: last use first, and slot.
    taken: BinaryHeap<Reverse<(usize, usize)>>,
    /// Slots that are free in this pass, by length, and in order.
    free: Vec<(Length, Vec<usize>)>,
    /// Uses of each slot in passes after a buffer's first.
    later: Vec<Vec<(Pass, RangeInclusive<usize>)>>,
}

impl SlotPlaces {
    /// A slot for a buffer; `None` for one that no command uses.
    fn take(&mut self, life: &Life, len: Length) -> Option<usize> {
        let (pass, uses) = life.iter().next()?;
        self.go_to(*pass, *uses.start());
        let slot = self.best(life, len).unwrap_or_else(|| {
            self.lengths.push(Length::default());
            self.later.push(Vec::new());
            self.lengths.len() - 1
        });
        self.lengths[slot] = self.lengths[slot].max(len);
        self.taken.push(Reverse((*uses.end(), slot)));
        self.later[slot].extend(life.iter().skip(1).map(|(pass, uses)| (*pass, uses.clone())));
        Some(slot)
    }

    /// Frees buffers after their last use, at a command of a pass.
    fn go_to(&mut self, pass: Pass, command: usize) {
        if self.pass != Some(pass) {
            self.pass = Some(pass);
            self.taken.clear();
            self.free.clear();
            (0..self.lengths.len()).for_each(|slot| self.release(slot));
        }
        while let Some(Reverse((last, slot))) = self.taken.peek().copied()
            && last < command
        {
            self.taken.pop();
            self.release(slot);
        }
    }

    fn release(&mut self, slot: usize) {
        let len = self.lengths[slot];
        match self.free.iter_mut().find(|(of, _)| *of == len) {
            Some((_, slots)) => slots.insert(slots.partition_point(|other| *other < slot), slot),
            None => self.free.push((len, vec![slot])),
        }
    }

    /// The free slot that has to grow least; of several, the first.
    fn best(&mut self, life: &Life, wanted: Length) -> Option<usize> {
        let later = &self.later;
        let is_used = |(pass, uses): &(Pass, _)| life.get(pass).is_some_and(|own| meet(own, uses));
        let fits = |slot: &&usize| !later[**slot].iter().any(is_used);
        let is_near = |len: &Length| len.per_row <= wanted.per_row.saturating_mul(self.most_wasted);
        let near = self.free.iter().enumerate().filter(|(_, (len, _))| is_near(len));
        let firsts = near.filter_map(|(group, (len, slots))| {
            let slot = *slots.iter().find(fits)?;
            Some((grown(*len, wanted), slot, group))
        });
        let (_, slot, group) = firsts.min()?;
        self.free[group].1.retain(|other| *other != slot);
        if self.free[group].1.is_empty() {
            self.free.swap_remove(group);
        }
        Some(slot)
    }
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

fn meet(a: &RangeInclusive<usize>, b: &RangeInclusive<usize>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
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

    /// A plan whose commands name one buffer each: an exchange is the smallest such command.
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
    fn a_small_value_that_is_needed_for_long_leaves_large_slots_free() {
        let plan = plan(&activations(&[100, 3, 100, 3, 100]), &[(Pass::Train, &[0, 1, 2, 3, 4, 3, 1])]);
        assert_eq!(storage(&plan).slots, [Some(0), Some(1), Some(0), Some(2), Some(0)]);
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
    fn unpacked_parameters_share_the_memory_of_the_largest() {
        let mut roles = activations(&[10, 20, 10]);
        roles.extend([300, 500, 400].map(|len| (Role::Unpacked, Length::fixed(len))));
        let plan = plan(&roles, &[(Pass::Train, &[0, 3, 0, 1, 4, 1, 2, 5]), (Pass::Predict, &[4, 3])]);
        let storage = storage(&plan);
        assert_eq!(storage.slots, [Some(0), Some(0), Some(0), Some(1), Some(1), Some(1)]);
        assert_eq!(storage.lengths, [Length::per_row(20), Length::fixed(500)]);
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

    fn overlap(a: &Life, b: &Life) -> bool {
        a.iter().any(|(pass, a)| b.get(pass).is_some_and(|b| meet(a, b)))
    }

    /// Result of [`storage`], found by comparing each buffer with all buffers of every slot.
    fn plain_storage(plan: &Plan, most_wasted: u64) -> Storage {
        let lives = lives(plan);
        let mut storage = Storage { slots: vec![None; plan.buffers.len()], lengths: Vec::new() };
        let mut tenants: Vec<Vec<usize>> = Vec::new();
        for idx in by_first_use(&lives) {
            let len = plan.buffers[idx].len;
            let is_free = |slot: &usize| tenants[*slot].iter().all(|other| !overlap(&lives[idx], &lives[*other]));
            let growth = |slot: &usize| grown(storage.lengths[*slot], len);
            let is_near = |slot: &usize| storage.lengths[*slot].per_row <= len.per_row.saturating_mul(most_wasted);
            let slot = (0..tenants.len()).filter(is_near).filter(is_free).min_by_key(growth).unwrap_or_else(|| {
                tenants.push(Vec::new());
                storage.lengths.push(Length::default());
                tenants.len() - 1
            });
            storage.lengths[slot] = storage.lengths[slot].max(len);
            storage.slots[idx] = Some(slot);
            tenants[slot].push(idx);
        }
        storage
    }

    #[test]
    fn slots_are_those_of_the_plain_search() {
        let mut state = 1u32;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            (state >> 16) % below
        };
        for _ in 0..500 {
            let n_buffers = 1 + random(24);
            let lens: Vec<_> = (0..n_buffers)
                .map(|_| (Role::Activation, Length { per_row: u64::from(random(4)), fixed: u64::from(random(3)) }))
                .collect();
            // Most buffers belong to one pass, one in five to any.
            let mut uses = |pass: u32| -> Vec<u32> {
                let mut any = || (random(5) == 0, random(n_buffers));
                let uses = (0..40).map(|_| any());
                uses.filter(|(is_any, buffer)| *is_any || buffer % 2 == pass).map(|(_, buffer)| buffer).collect()
            };
            let (train, predict) = (uses(0), uses(1));
            let plan = plan(&lens, &[(Pass::Train, &train), (Pass::Predict, &predict)]);
            let lives = lives(&plan);
            for most in WASTES {
                let got = divided(&plan, &lives, &by_first_use(&lives), most);
                assert_eq!(got, plain_storage(&plan, most), "{lens:?} {train:?} {predict:?}");
            }
        }
    }
}
