//! Memory of the CPU adapter; runs single dispatches in it.

use std::sync::Arc;

use crate::adapters::memory::HostBuffers;
use crate::kernels::Call;
use crate::plan::{BufferId, Dispatch, Length, Pass, Plan, Role, Scalars, View};
use crate::runtime;
use crate::shown::bytes;

/// Checks that the system has so many bytes, where it says.
///
/// # Errors
/// If not: what is needed, and what is there.
pub(super) fn check_free(needed: u64) -> Result<(), String> {
    match runtime::free_if_below(needed) {
        None => Ok(()),
        Some(free) => Err(format!("needs {}, but the system has {} free", bytes(needed), bytes(free))),
    }
}

/// A plan with its buffers in host memory.
#[derive(Debug)]
pub struct Interpreter {
    plan: Arc<Plan>,
    capacity: u32,
    /// Rows for which there is memory: those of the largest run so far, or some more.
    room: u32,
    buffers: HostBuffers,
    memory: Vec<Vec<f32>>,
}

impl Interpreter {
    /// Makes the buffers for runs of up to `capacity` rows, all zero.
    pub fn new(plan: Arc<Plan>, capacity: u32) -> Self {
        Self::with_room(plan, capacity, capacity)
    }

    /// Makes the buffers, all zero, without room for rows: see [`Self::make_room`].
    pub fn growing(plan: Arc<Plan>, capacity: u32) -> Self {
        Self::with_room(plan, capacity, 0)
    }

    fn with_room(plan: Arc<Plan>, capacity: u32, room: u32) -> Self {
        let buffers = HostBuffers::of(&plan);
        let memory = buffers.lengths.iter().map(|len| vec![0.0; size(*len, room)]).collect();
        Self { plan, capacity, room, buffers, memory }
    }

    /// Makes room for runs of so many rows, up to `capacity`. Where there is too little, what depends on rows is made anew, all zero:
    /// nothing of it is kept from run to run. Shares that grow by a row each time do not each make it anew.
    ///
    /// # Errors
    /// If the system does not give the memory: why. Then there is room for no row.
    pub fn make_room(&mut self, rows: u32) -> Result<(), String> {
        if rows <= self.room {
            return Ok(());
        }
        let room = self.capacity.min(self.room + self.room / 4).max(rows);
        self.room = 0;
        let grows = |len: &Length| size(*len, room) > size(*len, 0);
        let growing = || self.buffers.lengths.iter().enumerate().filter(|(_, len)| grows(len));
        // All that is too small is freed before anything larger is asked for.
        growing().for_each(|(place, _)| self.memory[place] = Vec::new());
        check_free(self.buffers.bytes(room).saturating_sub(self.buffers.bytes(0)))?;
        for (place, len) in growing() {
            let values = &mut self.memory[place];
            values.try_reserve_exact(size(*len, room)).map_err(|error| error.to_string())?;
            values.resize(size(*len, room), 0.0);
        }
        self.room = room;
        Ok(())
    }

    /// The loaded plan.
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.clone()
    }

    /// The plan, and the rows that a run may have.
    pub(crate) fn loaded(&self) -> (&Plan, u32) {
        (&self.plan, self.capacity)
    }

    /// Bytes of all buffers now.
    pub fn bytes(&self) -> u64 {
        self.memory.iter().map(|values| size_of_val(values.as_slice()) as u64).sum()
    }

    /// Bytes of all buffers with room for as many rows as there may be.
    pub fn most_bytes(&self) -> u64 {
        self.buffers.bytes(self.capacity)
    }

    fn place(&self, buffer: BufferId) -> usize {
        self.buffers.places[buffer.0 as usize]
    }

    /// Writes a part of the buffer of a role; nothing if the plan has none.
    pub fn write(&mut self, role: Role, offset: u64, data: &[f32]) {
        if let Some(buffer) = self.plan.find(role) {
            let place = self.place(buffer);
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            self.memory[place][start..start + data.len()].copy_from_slice(data);
        }
    }

    /// The buffer of a role; empty if the plan has none.
    pub fn read(&self, role: Role) -> &[f32] {
        self.plan.find(role).map_or(&[], |buffer| &self.memory[self.place(buffer)])
    }

    /// The first elements of a buffer.
    #[allow(clippy::cast_possible_truncation, reason = "a buffer is smaller than the address space")]
    pub fn whole(&self, buffer: BufferId, len: u64) -> &[f32] {
        &self.memory[self.place(buffer)][..len as usize]
    }

    /// Reports of a run by output, or its outputs if it predicts; the update's only report is its control buffers, whole.
    pub fn results(&self, pass: Pass, rows: u32) -> Vec<Vec<f32>> {
        let values = |buffer| self.whole(buffer, self.plan.get(buffer).len.at(rows)).to_vec();
        self.plan.results(pass).into_iter().map(values).collect()
    }

    /// Values of a view.
    pub fn view(&self, view: View, rows: u32) -> &[f32] {
        &self.memory[self.place(view.buffer)][range(view, rows)]
    }

    /// A view's values, to be changed.
    pub fn view_mut(&mut self, view: View, rows: u32) -> &mut [f32] {
        let place = self.place(view.buffer);
        &mut self.memory[place][range(view, rows)]
    }

    /// Runs one kernel. Nothing happens if its grid is empty.
    pub fn dispatch(&mut self, dispatch: &Dispatch, scalars: &Scalars) {
        if dispatch.grid.is_empty(scalars) {
            return;
        }
        let params: Vec<u32> = dispatch.params.iter().map(|word| word.bits(scalars)).collect();
        // The outputs' memory is taken out, so that the inputs can be borrowed beside it: no kernel reads and writes
        // one buffer through two bindings.
        let mut places: Vec<usize> = dispatch.outputs.iter().map(|view| self.place(view.buffer)).collect();
        places.sort_unstable();
        places.dedup();
        let mut taken: Vec<Vec<f32>> = places.iter().map(|place| std::mem::take(&mut self.memory[*place])).collect();
        {
            let inputs: Vec<&[f32]> = dispatch.inputs.iter().map(|view| self.view(*view, scalars.rows)).collect();
            let call = Call { params: &params, constants: &dispatch.constants, inputs: &inputs };
            let slot_of = |view: &View| places.binary_search(&self.place(view.buffer)).unwrap_or(0);
            let mut outputs = cut(&mut taken, &dispatch.outputs, slot_of, scalars.rows);
            let kernel = dispatch.kernel;
            kernel.fast.unwrap_or(kernel.twin)(&call, &mut outputs);
        }
        for (place, values) in places.into_iter().zip(taken) {
            self.memory[place] = values;
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a buffer is smaller than the address space")]
fn size(len: Length, rows: u32) -> usize {
    len.at(rows) as usize
}

#[allow(clippy::cast_possible_truncation, reason = "a buffer is smaller than the address space")]
fn range(view: View, rows: u32) -> std::ops::Range<usize> {
    let start = view.offset as usize;
    start..start + view.len.at(rows) as usize
}

/// Cuts views out of their memories; views of one memory do not overlap.
fn cut<'a>(
    memories: &'a mut [Vec<f32>],
    views: &[View],
    slot_of: impl Fn(&View) -> usize,
    rows: u32,
) -> Vec<&'a mut [f32]> {
    let mut order: Vec<usize> = (0..views.len()).collect();
    order.sort_by_key(|idx| (slot_of(&views[*idx]), views[*idx].offset));
    let mut rest: Vec<(usize, &mut [f32])> = memories.iter_mut().map(|values| (0, values.as_mut_slice())).collect();
    let mut parts: Vec<(usize, &mut [f32])> = Vec::with_capacity(views.len());
    for idx in order {
        let (start, values) = &mut rest[slot_of(&views[idx])];
        let range = range(views[idx], rows);
        let (_, from) = std::mem::take(values).split_at_mut(range.start - *start);
        let (part, after) = from.split_at_mut(range.len());
        *start = range.end;
        *values = after;
        parts.push((idx, part));
    }
    parts.sort_by_key(|(idx, _)| *idx);
    parts.into_iter().map(|(_, part)| part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Buffer;

    const WEIGHTS: usize = 100;
    const ROW: usize = 10;

    fn plan() -> Arc<Plan> {
        let buffer = |role, len| Buffer { name: String::new(), role, len };
        let buffers =
            vec![buffer(Role::Parameters(0), Length::fixed(WEIGHTS)), buffer(Role::Input(0), Length::per_row(ROW))];
        Arc::new(Plan { buffers, ..Plan::default() })
    }

    #[test]
    fn memory_follows_the_rows_of_the_runs() {
        let bytes = |rows: usize| ((WEIGHTS + rows * ROW) * size_of::<f32>()) as u64;
        let mut interpreter = Interpreter::growing(plan(), 512);
        assert_eq!(interpreter.bytes(), bytes(0));
        interpreter.write(Role::Parameters(0), 0, &[1.5; WEIGHTS]);
        // The next run has a row more, and makes room for some to come; then there are as many as may be.
        for (rows, room) in [(64, 64), (65, 80), (80, 80), (3, 80), (500, 500), (501, 512), (512, 512)] {
            interpreter.make_room(rows).unwrap();
            assert_eq!(interpreter.bytes(), bytes(room), "after a run of {rows} rows");
            assert_eq!(interpreter.read(Role::Parameters(0)), [1.5; WEIGHTS], "weights stay");
        }
        assert_eq!(Interpreter::new(plan(), 512).bytes(), bytes(512));
    }
}
