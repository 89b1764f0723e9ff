//! Memory that a plan takes on an adapter, known from the plan and the rows of a run before anything is allocated.
//!
//! The adapters allocate by these sizes, so that what is counted beforehand is what they take.

use std::borrow::Borrow;

use super::Kind;
use super::storage::{Storage, storage};
use crate::error::Result;
use crate::kernels::Kernel;
use crate::plan::{Command, Pass, Plan, Role};
use crate::size::{F32_BYTES, Length};

/// Bytes up to which an upload needs no ring.
pub(crate) const SMALL: u64 = 64 << 10;
/// Largest chunk of a ring. Longer values go in several.
const LARGEST: u64 = 8 << 20;
const UPLOADS: usize = 3;
const READBACKS: usize = 8;
/// Runs that may be in flight when the next begins: a step's training pass and its update, or two micro-batches.
pub(crate) const AHEAD: usize = 2;
/// Largest results of a run that may be in flight; larger ones are read at once.
const LARGEST_RESULTS: u64 = 8 << 20;

/// Bytes rounded up to a multiple of 256, at least 256: the size of a buffer on a device.
pub(crate) fn padded(bytes: u64) -> u64 {
    bytes.clamp(1, u64::MAX - 256).next_multiple_of(256)
}

/// Bytes that a plan takes on an adapter of a kind that runs up to `capacity` rows at once.
pub fn bytes(plan: &Plan, capacity: u32, kind: Kind) -> u64 {
    match kind {
        Kind::Cpu => HostBuffers::of(plan).bytes(capacity),
        _ => device_bytes(plan, capacity, kind.workgroups()),
    }
}

/// Bytes that a plan takes on a device that splits sums for so many workgroups.
pub(crate) fn device_bytes(plan: &Plan, capacity: u32, workgroups: u32) -> u64 {
    let split = (workgroups > 0).then(|| plan.with_split_sums(capacity, workgroups).plan);
    let plan = split.as_ref().unwrap_or(plan);
    DeviceBuffers::of(plan, &storage(plan), capacity).bytes()
}

/// Memory that training takes on an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct MemoryNeed {
    /// Rows that the adapter runs at once; more of a batch go in pieces.
    pub rows: u32,
    /// Bytes of all buffers, alignment and those for transfers included.
    pub bytes: u64,
}

/// A need within a limit; where one row takes more, the bytes that the limit lacks.
pub type NeedOrLack = std::result::Result<MemoryNeed, u64>;

/// The need of a plan for as many rows as a limit allows, `most` at most: an adapter halves them where memory does not suffice.
///
/// # Errors
/// The bytes that the limit lacks, if one row takes more.
pub fn need(plan: &Plan, most: u32, kind: Kind, limit: u64) -> NeedOrLack {
    let mut rows = most.max(1);
    loop {
        let bytes = bytes(plan, rows, kind);
        match rows {
            _ if bytes <= limit => return Ok(MemoryNeed { rows, bytes }),
            1 => return Err(bytes - limit),
            _ => rows = rows.div_ceil(2),
        }
    }
}

/// The need of a copy of the model on an adapter that may get `most` rows; `plan` gives its plan for a number of micro-batches. Rows
/// that do not fit at once go in pieces in every step: then gradients are added on the adapter, by the plan for two.
///
/// # Errors
/// If it can't be planned.
pub fn need_of_copy<P: Borrow<Plan>>(
    plan: impl Fn(u32) -> Result<P>,
    micro_batches: u32,
    most: u32,
    kind: Kind,
    limit: u64,
) -> Result<NeedOrLack> {
    let need_for = |pieces: u32| -> Result<NeedOrLack> { Ok(need(plan(pieces)?.borrow(), most, kind, limit)) };
    let whole = need_for(micro_batches)?;
    let is_whole = micro_batches > 1 || most <= 1 || whole.is_ok_and(|need| need.rows == most);
    if is_whole { Ok(whole) } else { need_for(2) }
}

/// Bytes of a number of values.
fn of_values(values: u64) -> u64 {
    values.saturating_mul(F32_BYTES)
}

/// Memory of the CPU adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostBuffers {
    /// Values of each memory, by the rows of a run.
    pub lengths: Vec<Length>,
    /// Index of each buffer's memory.
    pub places: Vec<usize>,
}

impl HostBuffers {
    /// The memory of a plan.
    pub fn of(plan: &Plan) -> Self {
        let pooled = storage(plan);
        let mut lengths = pooled.lengths;
        let mut places = Vec::with_capacity(plan.buffers.len());
        for (buffer, slot) in plan.buffers.iter().zip(&pooled.slots) {
            places.push(slot.unwrap_or_else(|| {
                // No command uses an activation without a slot.
                lengths.push(if buffer.role.is_pooled() { Length::fixed(0) } else { buffer.len });
                lengths.len() - 1
            }));
        }
        Self { lengths, places }
    }

    /// Bytes of all memories, for runs of up to `capacity` rows.
    pub fn bytes(&self, capacity: u32) -> u64 {
        self.lengths.iter().fold(0, |bytes, len| bytes.saturating_add(of_values(len.at(capacity))))
    }
}

/// Buffers of one size through which values move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Number of buffers.
    pub count: usize,
    /// Bytes of each.
    pub chunk_bytes: u64,
}

impl Ring {
    /// A ring for items of up to `largest` bytes, if they need one.
    fn for_uploads(largest: u64) -> Self {
        Self { count: if largest > SMALL { UPLOADS } else { 0 }, chunk_bytes: chunk_bytes(largest) }
    }

    /// A ring for up to `items` items of up to `largest` bytes on the way at once.
    fn for_readbacks(largest: u64, items: usize) -> Self {
        let chunk_bytes = chunk_bytes(largest);
        Self { count: if largest > chunk_bytes { READBACKS } else { items.clamp(1, READBACKS) }, chunk_bytes }
    }

    /// Buffers for the results of training runs of up to `capacity` rows that are in flight; none if the plan does not
    /// train, or results are large.
    fn for_results(plan: &Plan, capacity: u32) -> Self {
        let bytes_of = |pass| {
            let values = plan.results(pass).into_iter().map(|id| plan.get(id).len.at(capacity));
            of_values(values.fold(1, u64::saturating_add))
        };
        let bytes = bytes_of(Pass::Train).max(bytes_of(Pass::Update));
        let trains = [Pass::Forward, Pass::Train, Pass::Update].iter().any(|pass| !plan.commands(*pass).is_empty());
        let is_needed = trains && bytes <= LARGEST_RESULTS;
        Self { count: if is_needed { AHEAD + 1 } else { 0 }, chunk_bytes: bytes }
    }

    fn bytes(self) -> u64 {
        padded(self.chunk_bytes).saturating_mul(self.count as u64)
    }
}

/// Bytes of a chunk for a ring that moves items of up to `largest` bytes.
fn chunk_bytes(largest: u64) -> u64 {
    largest.min(LARGEST).next_power_of_two().clamp(4096, LARGEST)
}

/// Buffers of a device: sizes in bytes, before they are rounded up to 256.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceBuffers {
    /// Slots of activations.
    pub slots: Vec<u64>,
    /// Each buffer of the plan that has no slot; `None` for those that have one, or that no command uses.
    pub own: Vec<Option<u64>>,
    /// `Params` of all dispatches.
    pub params: u64,
    /// The completion marker.
    pub marker: u64,
    /// Values sent to the device.
    pub uploads: Ring,
    /// Values sent to the host.
    pub readbacks: Ring,
    /// Results of runs in flight.
    pub results: Ring,
}

impl DeviceBuffers {
    /// Buffers for runs of up to `capacity` rows.
    pub fn of(plan: &Plan, storage: &Storage, capacity: u32) -> Self {
        let own = |(idx, slot): (usize, &Option<usize>)| {
            let buffer = &plan.buffers[idx];
            let is_shared = slot.is_some() || buffer.role.is_pooled();
            (!is_shared).then(|| of_values(buffer.len.at(capacity)))
        };
        let (uploads, readbacks) = rings(plan, capacity);
        Self {
            slots: storage.lengths.iter().map(|length| of_values(length.at(capacity))).collect(),
            own: storage.slots.iter().enumerate().map(own).collect(),
            params: params_of(plan),
            marker: F32_BYTES,
            uploads,
            readbacks,
            results: Ring::for_results(plan, capacity),
        }
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        let single = self.slots.iter().chain(self.own.iter().flatten()).chain([&self.params, &self.marker]);
        let rings = [self.uploads, self.readbacks, self.results].map(Ring::bytes);
        single.map(|bytes| padded(*bytes)).chain(rings).fold(0, u64::saturating_add)
    }
}

/// Bytes of a kernel's `Params` among those of a plan.
pub(crate) fn params_bytes(kernel: &Kernel) -> u64 {
    padded(kernel.params.len() as u64 * F32_BYTES)
}

fn params_of(plan: &Plan) -> u64 {
    let kernels = plan.passes.values().flatten().filter_map(|command| match command {
        Command::Dispatch(dispatch) => Some(dispatch.kernel),
        Command::Exchange(_) => None,
    });
    kernels.map(params_bytes).sum()
}

/// The rings for uploads and readbacks, sized by the plan's transfers.
fn rings(plan: &Plan, capacity: u32) -> (Ring, Ring) {
    let moved = |roles: fn(&Role) -> bool| {
        let moved = plan.buffers.iter().filter(move |buffer| roles(&buffer.role));
        moved.map(|buffer| of_values(buffer.len.at(capacity)))
    };
    let down =
        moved(|role| !role.is_pooled() && !matches!(role, Role::Gradients(_) | Role::Report(_) | Role::Output(_)));
    let up = moved(|role| matches!(role, Role::Report(_) | Role::Output(_) | Role::Control));
    let exchanged = |commands: &Vec<Command>| -> Vec<u64> {
        let views = commands.iter().filter_map(|command| match command {
            Command::Exchange(exchange) => Some(exchange.sent()),
            Command::Dispatch(_) => None,
        });
        views.map(|view| of_values(view.len.at(capacity))).collect()
    };
    let exchanges: Vec<Vec<u64>> = plan.passes.values().map(exchanged).collect();
    let most = exchanges.iter().map(Vec::len).max().unwrap_or_default();
    let items = most + up.clone().count() + 1;
    let largest_up = exchanges.into_iter().flatten().chain(up).max().unwrap_or_default();
    (Ring::for_uploads(down.max().unwrap_or_default()), Ring::for_readbacks(largest_up, items))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_padded_to_256_bytes() {
        assert_eq!([0, 1, 256, 257, u64::MAX].map(padded), [256, 256, 256, 512, u64::MAX - 255]);
    }

    #[test]
    fn chunks_are_powers_of_two_between_4_kib_and_8_mib() {
        let chunks = [0, 4096, 4097, 5 << 20, 9 << 20, u64::MAX].map(chunk_bytes);
        assert_eq!(chunks, [4096, 4096, 8192, 8 << 20, 8 << 20, 8 << 20]);
    }
}
