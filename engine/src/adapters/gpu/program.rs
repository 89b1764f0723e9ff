//! A loaded plan: its buffers, its params arena, and a bind group for each dispatch.

use litemap::LiteMap;
use std::sync::Arc;

use super::super::memory::{DeviceBuffers, Ring, padded, params_bytes};
use super::super::storage::{self, Storage};
use super::super::{Fault, WRONG_RESULTS};
use super::bindings::{KernelPipeline, Slice, bind_group};
use super::device::Gpu;
use super::grid::Cut;
use super::parts::FirstItem;
use super::pipelines::{Pipelines, Wanted, wanted};
use super::prepared::{Completion, PreparedDispatch};
use super::staging::{Readbacks, Uploads};
use super::tuning::{self, TileChoice, Tuner};
use crate::kernels::{Extent, Kernel, Tile, completion};
use crate::plan::{Command, Dispatch, Grid, MOST_ELEMENTS, Pass, Plan, Role, Scalars, SplitSums, View, Word};
use crate::size::F32_BYTES;

/// The commands of a pass; `None` stands for an exchange.
#[derive(Default)]
pub(super) struct PreparedPass {
    pub(super) commands: Vec<Option<PreparedDispatch>>,
    /// The part of the arena with its params, in bytes.
    arena: std::ops::Range<u64>,
    /// Milliseconds of a dispatch in the last run, and its rows.
    pub(super) pace: Option<(f64, u32)>,
    /// Work of that run in a millisecond, where a dispatch may run in parts.
    pub(super) speed: Option<f64>,
}

impl PreparedPass {
    /// Whether a dispatch may run in parts.
    pub(super) fn has_parts(&self) -> bool {
        self.commands.iter().flatten().any(|prepared| prepared.extent == Extent::Part)
    }
}

pub(super) struct Program {
    /// The plan, with split sums.
    pub(super) plan: Arc<Plan>,
    /// The place of each of its commands in the plan that was sent.
    pub(super) places: LiteMap<Pass, Vec<usize>>,
    pub(super) passes: LiteMap<Pass, PreparedPass>,
    pub(super) completion: Completion,
    uploads: Uploads,
    pub(super) readbacks: Readbacks,
    /// Buffers for the results of runs in flight.
    pub(super) results: Ring,
    /// The first workgroup of a part, if a dispatch may run in parts.
    pub(super) first_item: Option<FirstItem>,
    pub(super) capacity: u32,
    buffers: Vec<Option<wgpu::Buffer>>,
    roles: LiteMap<Role, usize>,
    arena: wgpu::Buffer,
    words: Vec<u32>,
}

impl Program {
    /// Makes all objects for runs of up to `capacity` rows.
    pub(super) async fn new(
        gpu: &Gpu,
        pipelines: &mut Pipelines,
        SplitSums { plan, places }: SplitSums,
        capacity: u32,
    ) -> Result<Self, Fault> {
        let storage = storage::storage(&plan);
        check(gpu, &plan, &storage, capacity)?;
        let sizes = DeviceBuffers::of(&plan, &storage, capacity);
        let buffers = gpu.scoped(|| allocate(gpu, &plan, &storage, &sizes)).await?;
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let transfers = || {
            let arena = gpu.buffer("params", sizes.params, usage);
            (arena, Uploads::new(gpu, sizes.uploads), Readbacks::new(gpu, sizes.readbacks))
        };
        let (arena, uploads, readbacks) = gpu.scoped(transfers).await?;
        let mut maker = Maker { gpu, pipelines, arena: &arena, at: 0, capacity };
        let mut passes = LiteMap::new();
        for (pass, commands) in &plan.passes {
            passes.insert(*pass, maker.pass(commands, &buffers).await?);
        }
        let completion = maker.completion(&completion::COUNT).await?;
        let roles = plan.buffers.iter().enumerate().map(|(idx, buffer)| (buffer.role, idx)).collect();
        let words = vec![0; word(sizes.params)];
        let results = sizes.results;
        let first_item = pipelines.first_item().cloned();
        let mut program = Self {
            plan: plan.into(),
            places,
            passes,
            completion,
            uploads,
            readbacks,
            results,
            first_item,
            capacity,
            buffers,
            roles,
            arena,
            words,
        };
        program.uploads.prime(gpu);
        Ok(program)
    }

    /// Applies the chosen tiles; makes no pipeline that was not tried.
    pub(super) async fn adopt(&mut self, gpu: &Gpu, pipelines: &mut Pipelines, tuner: &Tuner) -> Result<(), Fault> {
        if !tuner.is_on() {
            return Ok(());
        }
        for (pass, prepass) in &mut self.passes {
            for (prepared, command) in prepass.commands.iter_mut().zip(self.plan.commands(*pass)) {
                if let (Some(prepared), Some(dispatch)) = (prepared, dispatch(command)) {
                    prepared.tuned = tuned(gpu, pipelines, tuner, dispatch, self.capacity).await?;
                }
            }
        }
        Ok(())
    }

    /// The device's buffer for a plan's buffer.
    pub(super) fn buffer(&self, idx: usize) -> Option<&wgpu::Buffer> {
        self.buffers.get(idx).and_then(Option::as_ref)
    }

    /// A buffer by its role, with its place in the plan.
    pub(super) fn by_role(&self, role: Role) -> Result<(usize, &wgpu::Buffer), Fault> {
        let found = self.roles.get(&role).and_then(|idx| Some((*idx, self.buffer(*idx)?)));
        found.ok_or_else(|| Fault::Unsupported(format!("the plan has no buffer for {role:?}")))
    }

    /// Writes values that fit into a buffer.
    pub(super) async fn write(&mut self, gpu: &Gpu, role: Role, offset: u64, data: &[f32]) -> Result<(), Fault> {
        let buffer = self.by_role(role)?.1.clone();
        self.write_to(gpu, (&buffer, offset * F32_BYTES), data).await
    }

    /// Writes values at a byte offset of a buffer, before whatever is submitted later.
    pub(super) async fn write_to(&mut self, gpu: &Gpu, place: (&wgpu::Buffer, u64), data: &[f32]) -> Result<(), Fault> {
        if data.is_empty() { Ok(()) } else { self.uploads.write(gpu, &mut self.completion, place, data).await }
    }

    /// Resolves all params of a pass for a run, and sends them.
    pub(super) fn write_params(&mut self, gpu: &Gpu, pass: Pass, scalars: &Scalars) {
        let (Some(prepass), Some(commands)) = (self.passes.get(&pass), self.plan.passes.get(&pass)) else { return };
        for (prepared, command) in prepass.commands.iter().zip(commands) {
            if let (Some(prepared), Command::Dispatch(dispatch)) = (prepared, command) {
                let at = word(prepared.params_at);
                for (place, value) in self.words[at..].iter_mut().zip(&dispatch.params) {
                    *place = value.bits(scalars);
                }
            }
        }
        send(gpu, &self.arena, &self.words, &prepass.arena);
    }
}

/// The chosen tiles of a dispatch that differ from the usual one, by size of the run.
async fn tuned(
    gpu: &Gpu,
    pipelines: &mut Pipelines,
    tuner: &Tuner,
    dispatch: &Dispatch,
    capacity: u32,
) -> Result<Vec<(u32, TileChoice)>, Fault> {
    let mut tuned = Vec::new();
    let usual = gpu.tile.chosen_for(dispatch.grid);
    for size in tuning::sizes(capacity) {
        let Some(tile) = tuner.decided(gpu, dispatch, size).filter(|tile| *tile != usual) else { continue };
        match pipelines.right(gpu, wanted(gpu, dispatch, tile, capacity)).await {
            Ok(made) => tuned.push((size, TileChoice { tile, pipeline: made.pipeline })),
            Err(Fault::Unsupported(text)) => log::warn!("{tile:?} is not used: {text}"),
            Err(fault) => return Err(fault),
        }
    }
    Ok(tuned)
}

/// The pipelines of a plan, each with the tile that suits the kind of adapter.
pub(super) fn usual<'a>(gpu: &'a Gpu, plan: &'a Plan, capacity: u32) -> impl Iterator<Item = Wanted<'a>> {
    let dispatches = plan.passes.values().flatten().filter_map(dispatch);
    let of_plan = dispatches.map(move |dispatch| wanted(gpu, dispatch, gpu.tile.chosen_for(dispatch.grid), capacity));
    of_plan.chain(std::iter::once((&completion::COUNT, &[][..], Cut::NONE)))
}

fn word(bytes: u64) -> usize {
    usize::try_from(bytes / F32_BYTES).unwrap_or(usize::MAX)
}

fn send(gpu: &Gpu, arena: &wgpu::Buffer, words: &[u32], range: &std::ops::Range<u64>) {
    if !range.is_empty() {
        let part = &words[word(range.start)..word(range.end)];
        gpu.queue.write_buffer(arena, range.start, bytemuck::cast_slice(part));
    }
}

/// Checks that devices lack or report badly: sizes against limits, views against their buffers.
fn check(gpu: &Gpu, plan: &Plan, storage: &Storage, capacity: u32) -> Result<(), Fault> {
    for buffer in &plan.buffers {
        fits(gpu.limits.max_buffer_size, "a buffer", &buffer.name, buffer.len.at(capacity), buffer.len.per_row)?;
    }
    let slots: Vec<u64> = storage.lengths.iter().map(|length| length.at(capacity)).collect();
    for length in slots {
        fits(gpu.limits.max_buffer_size, "a buffer", "activations", length, 1)?;
    }
    for dispatch in plan.passes.values().flatten().filter_map(dispatch) {
        for view in dispatch.inputs.iter().chain(&dispatch.outputs) {
            let name = &plan.buffers[view.buffer.0 as usize].name;
            let length = view.len.at(capacity);
            let limit = gpu.limits.max_storage_buffer_binding_size;
            fits(limit, "a binding", name, length, view.len.per_row)?;
            let room = plan.buffers[view.buffer.0 as usize].len.at(capacity);
            if view.offset + length > room {
                let text =
                    format!("`{}` sees {} values of `{name}`, which has {room}", dispatch.node, view.offset + length);
                return Err(Fault::Unsupported(text));
            }
        }
        check_aliases(plan, dispatch)?;
        check_sum(gpu, dispatch, capacity)?;
    }
    Ok(())
}

/// A product of a software adapter takes a turn of its loop for each term of its sums.
fn check_sum(gpu: &Gpu, dispatch: &Dispatch, capacity: u32) -> Result<(), Fault> {
    let (terms, grows) = match dispatch.grid {
        Grid::Tiles { k: Word::U32(terms), depth, .. } => (u64::from(terms).div_ceil(u64::from(depth)), false),
        Grid::Tiles { k: Word::Rows(terms), depth, .. } => {
            ((u64::from(terms) * u64::from(capacity)).div_ceil(u64::from(depth)), capacity > 1)
        }
        _ => return Ok(()),
    };
    if terms <= gpu.most_turns || gpu.tile != Tile::Registers {
        return Ok(());
    }
    let text = format!("`{}` adds {terms} products, and the driver ends sums after {}", dispatch.node, gpu.most_turns);
    Err(if grows { Fault::OutOfMemory(text) } else { Fault::Unsupported(text) })
}

/// A buffer can't be read and written in one dispatch, nor written through two views that overlap.
fn check_aliases(plan: &Plan, dispatch: &Dispatch) -> Result<(), Fault> {
    for (idx, output) in dispatch.outputs.iter().enumerate() {
        let read = dispatch.inputs.iter().any(|input| input.buffer == output.buffer);
        let written =
            dispatch.outputs[..idx].iter().any(|other| other.buffer == output.buffer && other.offset == output.offset);
        if read || written {
            let name = &plan.buffers[output.buffer.0 as usize].name;
            let text = format!("`{}` binds `{name}` twice in `{:?}`, once to write it", dispatch.node, dispatch.kernel);
            return Err(Fault::Unsupported(text));
        }
    }
    Ok(())
}

/// Checks a length against a limit in bytes: too many rows are out of memory, a row that is too long is unsupported.
fn fits(limit: u64, what: &str, name: &str, length: u64, per_row: u64) -> Result<(), Fault> {
    let (bytes, limit) = (padded(length.saturating_mul(F32_BYTES)), limit.min(MOST_ELEMENTS * F32_BYTES));
    if bytes <= limit {
        return Ok(());
    }
    let text = format!("`{name}` needs {bytes} bytes, but {what} of this adapter has at most {limit}");
    Err(if per_row > 0 { Fault::OutOfMemory(text) } else { Fault::Unsupported(text) })
}

fn dispatch(command: &Command) -> Option<&Dispatch> {
    match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        Command::Exchange(_) => None,
    }
}

/// The buffers of a plan, those of one slot being one.
fn allocate(gpu: &Gpu, plan: &Plan, storage: &Storage, sizes: &DeviceBuffers) -> Vec<Option<wgpu::Buffer>> {
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let slots: Vec<wgpu::Buffer> = sizes.slots.iter().map(|bytes| gpu.buffer("activations", *bytes, usage)).collect();
    let slot = |idx: usize| storage.slots[idx].map(|slot| slots[slot].clone());
    let own = |idx: usize| sizes.own[idx].map(|bytes| gpu.buffer(&plan.buffers[idx].name, bytes, usage));
    (0..plan.buffers.len()).map(|idx| slot(idx).or_else(|| own(idx))).collect()
}

/// Makes pipelines and bind groups, and assigns positions in the arena.
struct Maker<'a> {
    gpu: &'a Gpu,
    pipelines: &'a mut Pipelines,
    arena: &'a wgpu::Buffer,
    at: u64,
    capacity: u32,
}

impl Maker<'_> {
    async fn pass(&mut self, commands: &[Command], buffers: &[Option<wgpu::Buffer>]) -> Result<PreparedPass, Fault> {
        let start = self.at;
        let mut prepared = Vec::with_capacity(commands.len());
        for command in commands {
            prepared.push(match dispatch(command) {
                Some(dispatch) => Some(self.dispatch(dispatch, buffers).await?),
                None => None,
            });
        }
        Ok(PreparedPass { commands: prepared, arena: start..self.at, pace: None, speed: None })
    }

    async fn dispatch(
        &mut self,
        dispatch: &Dispatch,
        buffers: &[Option<wgpu::Buffer>],
    ) -> Result<PreparedDispatch, Fault> {
        let (tile, pipeline) = self.right(dispatch).await?;
        let capacity = self.capacity;
        let slice = |view: &View| {
            let bytes = padded(view.len.at(capacity) * F32_BYTES);
            let buffer = buffers.get(view.buffer.0 as usize).and_then(Option::as_ref);
            buffer.map(|buffer| Slice { buffer, offset: view.offset * F32_BYTES, bytes })
        };
        let views: Option<Vec<Slice<'_>>> = dispatch.inputs.iter().chain(&dispatch.outputs).map(slice).collect();
        let views = views.ok_or_else(|| Fault::Unsupported(format!("`{}` names an unknown buffer", dispatch.node)))?;
        self.prepare(dispatch.kernel, tile, &pipeline, &views).await
    }

    /// The first tile with which the device computes a dispatch right, and its pipeline: the one that suits its kind, or another.
    async fn right(&mut self, dispatch: &Dispatch) -> Result<(Tile, KernelPipeline), Fault> {
        let gpu = self.gpu;
        let usual = gpu.tile.chosen_for(dispatch.grid);
        let others = Tile::ALL.into_iter().filter(|tile| *tile != usual && tuning::is_able(gpu, *tile, dispatch));
        let mut first = None;
        for tile in std::iter::once(usual).chain(others) {
            match self.pipelines.right(gpu, wanted(gpu, dispatch, tile, self.capacity)).await {
                Ok(pipeline) => return Ok((tile, pipeline)),
                Err(Fault::Unsupported(text)) => {
                    log::warn!("{:?} can't be computed with {tile:?}: {text}", dispatch.kernel);
                    first.get_or_insert(text);
                }
                Err(fault) => return Err(fault),
            }
        }
        let text = first.unwrap_or_default();
        // The rows of an adapter that is lost go to others.
        Err(if text.starts_with(WRONG_RESULTS) { Fault::Lost(text) } else { Fault::Unsupported(text) })
    }

    async fn completion(&mut self, kernel: &'static Kernel) -> Result<Completion, Fault> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        let marker = self.gpu.scoped(|| self.gpu.buffer("completion marker", F32_BYTES, usage)).await?;
        let pipeline = self.pipelines.get(self.gpu, kernel, &[], Cut::NONE).await?;
        let view = Slice { buffer: &marker, offset: 0, bytes: marker.size() };
        let prepared = self.prepare(kernel, Cut::NONE.tile, &pipeline, &[view]).await?;
        Ok(Completion { prepared, marker, submissions: 0 })
    }

    async fn prepare(
        &mut self,
        kernel: &Kernel,
        tile: Tile,
        pipeline: &KernelPipeline,
        views: &[Slice<'_>],
    ) -> Result<PreparedDispatch, Fault> {
        let params_at = self.at;
        let bytes = params_bytes(kernel);
        let params = Slice { buffer: self.arena, offset: params_at, bytes };
        let params = (!kernel.params.is_empty()).then_some(params);
        self.at += bytes;
        let bind_group = self.gpu.scoped(|| bind_group(self.gpu, pipeline, params, views)).await?;
        let usual = TileChoice { tile, pipeline: pipeline.pipeline.clone() };
        let extent = if pipeline.is_for_parts() { Extent::Part } else { Extent::Whole };
        Ok(PreparedDispatch { usual, tuned: Vec::new(), bind_group, params_at, extent })
    }
}
