//! All work as data: buffers and commands, for any number of rows.
//!
//! Layers record into a plan; an adapter runs it. A plan holds no device object and prints as text,
//! so that what will run where can be tested by reading.

// Files: `layout.rs`: position of each parameter; `places.rs`: places of a stage's parameters in the whole model's; `record.rs`: how
// layers write a plan; `split_sums.rs`: more workgroups for products with few results; `unread.rs`: removes commands whose results no
// command reads; `text.rs`: a plan as text; `wire.rs`: requests as numbers, for a worker of a page; `work.rs`: costs of its kernels.

mod layout;
mod places;
mod record;
mod split_sums;
mod text;
mod unread;
pub mod wire;
mod work;

use std::sync::Arc;

use litemap::LiteMap;

use crate::kernels::{Kernel, halves};
use crate::size::F32_BYTES;

/// Elements of a buffer at most: shaders count them in 32 bits, and a grid ends a little behind the last.
pub(crate) const MOST_ELEMENTS: u64 = (1 << 32) - (1 << 20);

pub use crate::size::{Grid, Length, Scalars, Word, length_word, vectors_word};
pub use layout::{Layout, PlacedTensor};
pub use places::{Place, Places};
pub use record::{Node, Recorder, Tensor};
pub use split_sums::SplitSums;
pub use wire::{Reader, Wire};
pub use work::{Work, product_flops};

/// Elements of f32 to which every view in a flat buffer is aligned: 256 bytes, WebGPU's default
/// `min_storage_buffer_offset_alignment`.
pub const ALIGN: u64 = 64;

/// Largest binding that WebGPU promises: `max_storage_buffer_binding_size`, in elements of f32.
pub const MAX_BINDING: u64 = (128 << 20) / 4;

/// Largest tensor, in elements of f32: the 2 GiB that wgpu binds at most, less an alignment. One above [`MAX_BINDING`] needs adapters that bind
/// more than WebGPU promises.
pub const MAX_TENSOR: u64 = (2 << 30) / 4 - ALIGN;

/// Purpose of a buffer. Buffers of all roles but [`Role::Activation`] and [`Role::Unpacked`] outlive a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Input of the model, by position; written before a run.
    Input(u32),
    /// Target of an output, by position; written before a run.
    Target(u32),
    /// Sample weights of an output, one a row; written before a run.
    SampleWeight(u32),
    /// A segment of the flat parameters.
    Parameters(u32),
    /// A segment of the flat gradients, of the same layout as the parameters.
    Gradients(u32),
    /// Moving statistics, flat.
    Statistics,
    /// Optimizer state on the device: kind (0 is first), segment.
    State(u32, u32),
    /// Per-row loss and score of an output, `[rows * positions, 2]`; read after a run.
    Report(u32),
    /// Output of the model, by position; read after a run that predicts.
    Output(u32),
    /// Values of a tensor that an earlier stage computes; written before a run.
    Received(u32),
    /// Gradient of a tensor that later stages read, from the next of them; written before a run.
    ReceivedGradient(u32),
    /// Anything that lives within one pass; pooled by liveness.
    Activation,
    /// Floats of packed parameters, each for the next kernel; pooled by liveness among themselves, so that the largest is the
    /// memory of all.
    Unpacked,
    /// Small and kept between passes: moments for the statistics' update, the clip's control words.
    Control,
}

impl Role {
    /// Whether a buffer lives within one pass, and may share its memory with others.
    pub fn is_pooled(self) -> bool {
        matches!(self, Self::Activation | Self::Unpacked)
    }
}

/// Index of a buffer in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// A buffer of f32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Name for people: the node and what it holds.
    pub name: String,
    /// Purpose of the buffer.
    pub role: Role,
    /// Its length.
    pub len: Length,
}

/// A part of a buffer, which begins at a multiple of 64 elements: 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The buffer.
    #[doc(hidden)]
    pub buffer: BufferId,
    /// First element.
    pub offset: u64,
    /// Number of elements.
    pub len: Length,
}

/// One kernel with its numbers and buffers.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The kernel.
    #[doc(hidden)]
    pub kernel: &'static Kernel,
    /// Name of the node that recorded it.
    #[doc(hidden)]
    pub node: String,
    /// Values of `override` constants, by name.
    pub constants: Vec<(&'static str, f64)>,
    /// `Params`, a word for each field.
    #[doc(hidden)]
    pub params: Vec<Word>,
    /// Buffers that it reads, in the order of its bindings.
    #[doc(hidden)]
    pub inputs: Vec<View>,
    /// Buffers that it writes (and may read), in the order of its bindings.
    #[doc(hidden)]
    pub outputs: Vec<View>,
    /// Its grid.
    #[doc(hidden)]
    pub grid: Grid,
}

/// Combination of the values of all adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Element-wise sum, in the order of the shards' slots.
    Sum,
    /// `[mean, sum of squared deviations]` over `count_per_row` values a row, merged by count.
    Moments {
        /// Values that each row adds to the count of a channel.
        count_per_row: u32,
    },
    /// Nothing is combined: the value goes to the stages that read it.
    HandOver(Handed),
}

/// A value that a stage hands over to another one: of a tensor, by its number in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Handed {
    /// Its values.
    Value(u32),
    /// Its gradient.
    Gradient(u32),
}

/// Time at which the combined value is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the next command: every adapter waits, and the view then holds the combined value.
    NextCommand,
    /// Before the update, on the host: the view itself stays as it is.
    Update,
    /// Before the update, of the last of the runs whose gradients are added on the adapter: the others don't send it.
    LastUpdate,
}

/// A view to be combined over all adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Values to combine.
    pub view: View,
    /// Combination.
    pub combine: Combine,
    /// Time.
    pub when: When,
    /// Packed values that are sent in its place: [`kernels::halves`](crate::kernels::halves) packs them.
    pub halves: Option<View>,
}

impl Exchange {
    /// The view that an adapter sends.
    pub fn sent(&self) -> View {
        self.halves.unwrap_or(self.view)
    }

    /// Whether the next command needs the combined value.
    pub fn is_awaited(&self) -> bool {
        self.when == When::NextCommand
    }
}

/// One entry of a pass.
#[derive(Clone, Debug)]
pub enum Command {
    /// Run a kernel.
    Dispatch(Dispatch),
    /// Combine a view over all adapters.
    Exchange(Exchange),
}

impl Command {
    /// Whether it is needed only with several adapters.
    pub fn is_for_others(&self) -> bool {
        match self {
            Self::Dispatch(dispatch) => std::ptr::eq(dispatch.kernel, &raw const halves::PACK),
            Self::Exchange(_) => true,
        }
    }

    /// Whether the next command needs the combined value.
    pub fn is_awaited(&self) -> bool {
        matches!(self, Self::Exchange(exchange) if exchange.is_awaited())
    }

    /// Whether only the last of the runs whose gradients are added on the adapter sends it.
    pub fn is_of_last(&self) -> bool {
        matches!(self, Self::Exchange(exchange) if exchange.when == When::LastUpdate)
    }
}

/// Place where the gradients of an adapter's micro-batches are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accumulation {
    /// The host: each run sends its gradient.
    #[default]
    Host,
    /// The adapter: the gradient leaves once, after the last of its runs in a step.
    Adapter,
}

/// Format of gradients that travel: from an adapter to the host, and between processes. The only adapter of the only process keeps
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GradientCompression {
    /// 32-bit floats, as they were computed.
    #[default]
    None,
    /// 16-bit floats with a factor for each 64: about half the bytes, each value within 2^-11 of itself (2^-10 where
    /// the device does not round to the nearest), or within 2^-39 of the largest of its block. Sums are of 32 bits, and are rounded
    /// once more where they travel to other processes.
    Fp16,
}

/// Numbers with which training computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit floats throughout.
    #[default]
    Float32,
    /// Matrix products and convolutions, forward and backward, round both factors to 16-bit floats and add in 32 bits. All else is of 32
    /// bits: weights, activations, norms, losses, attention, recurrent kernels, depthwise convolution, the optimizer. Gradients are scaled so
    /// that 16 bits hold them (`LossScale` of the trainer). Evaluation and prediction compute in 32 bits, as with the saved model.
    MixedFloat16,
}

/// Rows over which batch normalization takes mean and variance in training, if several adapters share a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BatchStatistics {
    /// Each adapter's own rows, but for layers that are `synchronized`: nothing waits, and the result depends on
    /// the split.
    #[default]
    Shard,
    /// The whole batch in all layers, as on one adapter: every adapter waits twice a layer for the slowest.
    Batch,
}

/// Purpose of a run of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Forward, loss and backward.
    Train,
    /// Forward and loss, as at inference.
    Evaluate,
    /// Forward, as at inference.
    Predict,
    /// Clip, optimizer and moving statistics, on the device.
    Update,
    /// Forward as in training: of a stage that hands its values over, or of a model whose outputs the caller turns into
    /// gradients. Its `Train` computes them again for backward.
    Forward,
}

/// Moving statistics that follow a view of moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Moving {
    /// `[mean, sum of squared deviations]` of a batch, `channels` each.
    pub moments: View,
    /// Channels.
    pub channels: usize,
    /// Values that each row adds to the count of a channel.
    pub count_per_row: u32,
    /// The moving mean, in [`Role::Statistics`].
    pub mean: View,
    /// The moving variance, in [`Role::Statistics`].
    pub variance: View,
    /// Part of the old value that stays.
    pub momentum: f32,
    /// Subtracted from the count in the divisor of the new variance.
    pub correction: u32,
}

/// A parameter whose size is penalized: `l1 · Σ |w| + l2 · Σ w²` is part of the loss, once for the whole batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Penalty {
    /// Index of the segment of the flat parameters.
    pub segment: u32,
    /// First element in the segment.
    pub offset: u64,
    /// Number of elements.
    pub len: u64,
    /// Factor of the sizes.
    pub l1: f32,
    /// Factor of the squares.
    pub l2: f32,
}

impl Penalty {
    /// Its elements in the segment.
    #[allow(clippy::cast_possible_truncation, reason = "a segment is smaller than 2^25 elements")]
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.len) as usize
    }

    /// Factors of sizes and squares.
    pub fn factors(&self) -> [f32; 2] {
        [self.l1, self.l2]
    }
}

/// Mask of an output that follows from an input: a position counts unless all its numbers are the value.
///
/// The host multiplies the sample weights by it and counts what is left, so neither depends on the split of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputMask {
    /// Index of the input.
    pub input: usize,
    /// Value of numbers that are padding.
    pub value: f32,
    /// Positions of a row.
    pub positions: usize,
}

impl InputMask {
    /// 1 for each position of `rows` rows that counts, else 0.
    #[allow(clippy::float_cmp, reason = "padding is a value")]
    pub fn of(&self, inputs: &[Arc<[f32]>], rows: usize) -> Vec<f32> {
        let values = &inputs[self.input];
        let len = values.len() / (rows * self.positions).max(1);
        let is_padding = |numbers: &[f32]| numbers.iter().all(|number| *number == self.value);
        values.chunks_exact(len.max(1)).map(|numbers| if is_padding(numbers) { 0.0 } else { 1.0 }).collect()
    }
}

/// Positions of an output that count in its loss and metrics: those that an input leaves, without those of an ignored class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionMask {
    /// Mask that follows from an input.
    pub input: Option<InputMask>,
    /// Class of targets that do not count.
    pub ignored: Option<f32>,
    /// Positions of a row.
    pub positions: usize,
}

impl PositionMask {
    /// 1 for each position of `rows` rows that counts, else 0.
    #[allow(clippy::float_cmp, reason = "a class is a value")]
    pub fn of(&self, inputs: &[Arc<[f32]>], target: &[f32], rows: usize) -> Vec<f32> {
        let mut mask = self.input.map_or_else(|| vec![1.0; rows * self.positions], |mask| mask.of(inputs, rows));
        for (counts, class) in mask.iter_mut().zip(target) {
            if self.ignored == Some(*class) {
                *counts = 0.0;
            }
        }
        mask
    }

    /// The weight of each position: that of its row, or 0.
    pub fn weights(&self, inputs: &[Arc<[f32]>], target: &[f32], rows: usize, weights: Option<&[f32]>) -> Vec<f32> {
        let mut mask = self.of(inputs, target, rows);
        for (positions, weight) in mask.chunks_exact_mut(self.positions.max(1)).zip(weights.into_iter().flatten()) {
            positions.iter_mut().for_each(|counts| *counts *= weight);
        }
        mask
    }
}

/// Buffers, and the commands of each pass.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Moving statistics, in the order in which training writes their moments.
    pub moving: Vec<Moving>,
    /// Penalties of parameters, of which the update adds the slopes to the summed gradients.
    pub penalties: Vec<Penalty>,
    /// Stretches of the flat parameters that the update changes, each by one rule: segment and elements. The host alone needs them.
    pub updated: Vec<(u32, std::ops::Range<usize>)>,
    /// Mask of each output that has one: its sample weights are those of positions. The host alone needs it.
    pub masks: Vec<Option<PositionMask>>,
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// Commands of each pass.
    pub passes: LiteMap<Pass, Vec<Command>>,
}

impl Plan {
    /// Adds a buffer.
    #[allow(clippy::cast_possible_truncation, reason = "a plan has far fewer than 2^32 buffers")]
    pub fn buffer(&mut self, name: impl Into<String>, role: Role, len: Length) -> View {
        let buffer = BufferId(self.buffers.len() as u32);
        self.buffers.push(Buffer { name: name.into(), role, len });
        View { buffer, offset: 0, len }
    }

    /// The buffer of a role, made if it is not there, as a view of the whole.
    pub fn find_or_add(&mut self, name: &str, role: Role, len: Length) -> View {
        match self.find(role) {
            Some(buffer) => View { buffer, offset: 0, len },
            None => self.buffer(format!("{name}.{role:?}"), role, len),
        }
    }

    /// The buffer of a role, of which there is at most one ([`Role::Activation`], [`Role::Unpacked`] and [`Role::Control`]
    /// excepted).
    pub fn find(&self, role: Role) -> Option<BufferId> {
        let idx = self.buffers.iter().position(|buffer| buffer.role == role)?;
        u32::try_from(idx).ok().map(BufferId)
    }

    /// The commands of a pass; none if it was not recorded.
    pub fn commands(&self, pass: Pass) -> &[Command] {
        self.passes.get(&pass).map_or(&[], Vec::as_slice)
    }

    /// Whether the adapters of a pass wait for each other.
    pub fn is_coupled(&self, pass: Pass) -> bool {
        self.commands(pass).iter().any(Command::is_awaited)
    }

    /// Place where the gradients of several runs of a pass on one adapter are added.
    pub fn accumulation(&self, pass: Pass) -> Accumulation {
        let is_on_adapter = self.commands(pass).iter().any(Command::is_of_last);
        if is_on_adapter { Accumulation::Adapter } else { Accumulation::Host }
    }

    /// Whether an adapter can train and update by itself when its rows of a step run in pieces: their gradients are added
    /// there, and no moving statistics follow moments, which the host merges.
    pub fn updates_after_pieces(&self) -> bool {
        self.accumulation(Pass::Train) == Accumulation::Adapter && self.moving.is_empty()
    }

    /// The buffers that are read after a run of a pass, in the order of their positions.
    pub fn results(&self, pass: Pass) -> Vec<BufferId> {
        let is_result = |id: BufferId, role: Role| match pass {
            Pass::Train | Pass::Evaluate => matches!(role, Role::Report(_)),
            Pass::Predict => matches!(role, Role::Output(_)),
            Pass::Update => role == Role::Control,
            // A stage's hands over its values, and has no results.
            Pass::Forward => matches!(role, Role::Output(_)) && self.writes(pass, id),
        };
        let ids = (0..).map(BufferId).zip(&self.buffers);
        let mut results: Vec<(Role, BufferId)> =
            ids.filter(|(id, buffer)| is_result(*id, buffer.role)).map(|(id, buffer)| (buffer.role, id)).collect();
        results.sort();
        results.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether a dispatch of a pass writes a buffer.
    fn writes(&self, pass: Pass, id: BufferId) -> bool {
        let is_written = |command: &Command| match command {
            Command::Dispatch(dispatch) => dispatch.outputs.iter().any(|view| view.buffer == id),
            Command::Exchange(_) => false,
        };
        self.commands(pass).iter().any(is_written)
    }

    /// Bytes of inputs, targets and sample weights of a row.
    pub fn fed_bytes_per_row(&self) -> u64 {
        let is_fed = |role| matches!(role, Role::Input(_) | Role::Target(_) | Role::SampleWeight(_));
        self.buffers.iter().filter(|buffer| is_fed(buffer.role)).map(|buffer| buffer.len.per_row * F32_BYTES).sum()
    }

    /// A buffer by its id.
    pub fn get(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }
}
