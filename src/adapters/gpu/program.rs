//! A loaded plan: its buffers, its params arena, and a bind group for each dispatch.

use litemap::LiteMap;
use std::sync::Arc;

use super::super::Fault;
use super::super::storage::{self, Storage};
use super::device::{Gpu, padded};
use super::grid::Cut;
use super::pipelines::{Pipeline, Pipelines, Slice, bind_group};
use super::staging::{Readbacks, Uploads};
use super::tuning::{self, Choice, Tuner};
use crate::kernels::{Kernel, Tile, completion};
use crate::plan::{Command, Dispatch, MOST_ELEMENTS, Pass, Plan, Role, Scalars, View};
use crate::size::F32_BYTES;

/// A dispatch that is ready to be encoded.
pub(super) struct Prepared {
    /// With the tile that suits the kind of adapter.
    usual: Choice,
    /// With better tiles, found by measurement, by size of the run.
    tuned: Vec<(u32, Choice)>,
    pub(super) bind_group: wgpu::BindGroup,
    /// Position of its params in the arena, in bytes.
    params_at: u64,
}

impl Prepared {
    /// Tile and pipeline for a run of so many rows.
    pub(super) fn choice(&self, rows: u32) -> &Choice {
        let size = tuning::size(rows);
        self.tuned.iter().find(|(tuned, _)| *tuned == size).map_or(&self.usual, |(_, choice)| choice)
    }
}

/// The commands of a pass; `None` stands for an exchange.
#[derive(Default)]
pub(super) struct PreparedPass {
    pub(super) commands: Vec<Option<Prepared>>,
    /// The part of the arena with its params, in bytes.
    arena: std::ops::Range<u64>,
    /// Milliseconds of a dispatch in the last run, and its rows.
    pub(super) pace: Option<(f64, u32)>,
}

/// The kernel that writes the completion marker: buffers of a lost device may still map with plausible values.
pub(super) struct Completion {
    pub(super) prepared: Prepared,
    pub(super) marker: wgpu::Buffer,
}

pub(super) struct Program {
    pub(super) plan: Arc<Plan>,
    pub(super) passes: LiteMap<Pass, PreparedPass>,
    pub(super) completion: Completion,
    pub(super) uploads: Uploads,
    pub(super) readbacks: Readbacks,
    pub(super) bytes: u64,
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
        plan: Arc<Plan>,
        capacity: u32,
    ) -> Result<Self, Fault> {
        let storage = storage::storage(&plan);
        check(gpu, &plan, &storage, capacity)?;
        let (buffers, bytes) = gpu.scoped(|| allocate(gpu, &plan, &storage, capacity)).await?;
        let arena_bytes = arena_bytes(&plan);
        let (arena, uploads, readbacks) = gpu.scoped(|| transfers(gpu, &plan, capacity, arena_bytes)).await?;
        let mut maker = Maker { gpu, pipelines, arena: &arena, at: 0, capacity };
        let mut passes = LiteMap::new();
        for (pass, commands) in &plan.passes {
            passes.insert(*pass, maker.pass(commands, &buffers).await?);
        }
        let completion = maker.completion(&completion::WRITE).await?;
        let roles = plan.buffers.iter().enumerate().map(|(idx, buffer)| (buffer.role, idx)).collect();
        let words = vec![0; usize::try_from(arena_bytes / F32_BYTES).unwrap_or_default()];
        let bytes = bytes + arena.size();
        let mut program =
            Self { plan, passes, completion, uploads, readbacks, bytes, capacity, buffers, roles, arena, words };
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
        if data.is_empty() { Ok(()) } else { self.uploads.write(gpu, &buffer, offset * F32_BYTES, data).await }
    }

    /// Resolves all params of a pass for a run, and sends them.
    pub(super) fn write_params(&mut self, gpu: &Gpu, pass: Pass, scalars: &Scalars, run_number: u32) {
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
        let at = self.completion.prepared.params_at;
        self.words[word(at)] = run_number;
        send(gpu, &self.arena, &self.words, &(at..at + F32_BYTES));
    }
}

/// The chosen tiles of a dispatch that differ from the usual one, by size of the run.
async fn tuned(
    gpu: &Gpu,
    pipelines: &mut Pipelines,
    tuner: &Tuner,
    dispatch: &Dispatch,
    capacity: u32,
) -> Result<Vec<(u32, Choice)>, Fault> {
    let mut tuned = Vec::new();
    let usual = gpu.tile.chosen_for(dispatch.grid);
    for size in tuning::sizes(capacity) {
        let Some(tile) = tuner.decided(gpu, dispatch, size).filter(|tile| *tile != usual) else { continue };
        match pipelines.get(gpu, dispatch.kernel, &dispatch.constants, Cut::of(tile, dispatch.grid)).await {
            Ok(made) => tuned.push((size, Choice { tile, pipeline: made.pipeline })),
            Err(Fault::Unsupported(text)) => log::warn!("{tile:?} is not used: {text}"),
            Err(fault) => return Err(fault),
        }
    }
    Ok(tuned)
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
    }
    Ok(())
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

/// The buffers of a plan, those of one slot being one, and their bytes.
fn allocate(gpu: &Gpu, plan: &Plan, storage: &Storage, capacity: u32) -> (Vec<Option<wgpu::Buffer>>, u64) {
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let make = |name: &str, elements: u64| gpu.buffer(name, elements * F32_BYTES, usage);
    let slots: Vec<wgpu::Buffer> =
        storage.lengths.iter().map(|length| make("activations", length.at(capacity))).collect();
    let mut bytes = slots.iter().map(wgpu::Buffer::size).sum();
    let mut buffers = Vec::with_capacity(plan.buffers.len());
    for (buffer, slot) in plan.buffers.iter().zip(&storage.slots) {
        buffers.push(match slot {
            Some(slot) => Some(slots[*slot].clone()),
            None if buffer.role == Role::Activation => None,
            None => {
                let made = make(&buffer.name, buffer.len.at(capacity));
                bytes += made.size();
                Some(made)
            }
        });
    }
    (buffers, bytes)
}

fn params_bytes(kernel: &Kernel) -> u64 {
    padded(kernel.params.len() as u64 * F32_BYTES)
}

fn arena_bytes(plan: &Plan) -> u64 {
    let kernels = plan.passes.values().flatten().filter_map(dispatch).map(|dispatch| dispatch.kernel);
    kernels.chain([&completion::WRITE]).map(params_bytes).sum()
}

/// The params arena and the rings, sized by the plan's transfers.
fn transfers(gpu: &Gpu, plan: &Plan, capacity: u32, arena_bytes: u64) -> (wgpu::Buffer, Uploads, Readbacks) {
    let moved = |roles: fn(&Role) -> bool| {
        let moved = plan.buffers.iter().filter(move |buffer| roles(&buffer.role));
        moved.map(|buffer| buffer.len.at(capacity) * F32_BYTES)
    };
    let down = moved(|role| !matches!(role, Role::Activation | Role::Gradients(_) | Role::Report(_) | Role::Output(_)));
    let up = moved(|role| matches!(role, Role::Report(_) | Role::Output(_) | Role::Control));
    let exchanged = |commands: &Vec<Command>| -> Vec<u64> {
        let views = commands.iter().filter_map(|command| match command {
            Command::Exchange(exchange) => Some(exchange.sent()),
            Command::Dispatch(_) => None,
        });
        views.map(|view| view.len.at(capacity) * F32_BYTES).collect()
    };
    let exchanges: Vec<Vec<u64>> = plan.passes.values().map(exchanged).collect();
    let most = exchanges.iter().map(Vec::len).max().unwrap_or_default();
    let items = most + up.clone().count() + 1;
    let largest_up = exchanges.into_iter().flatten().chain(up).max().unwrap_or_default();
    let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
    (
        gpu.buffer("params", arena_bytes, usage),
        Uploads::new(gpu, down.max().unwrap_or_default()),
        Readbacks::new(gpu, largest_up, items),
    )
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
        Ok(PreparedPass { commands: prepared, arena: start..self.at, pace: None })
    }

    async fn dispatch(&mut self, dispatch: &Dispatch, buffers: &[Option<wgpu::Buffer>]) -> Result<Prepared, Fault> {
        let tile = self.gpu.tile.chosen_for(dispatch.grid);
        let cut = Cut::of(tile, dispatch.grid);
        let pipeline = self.pipelines.get(self.gpu, dispatch.kernel, &dispatch.constants, cut).await?;
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

    async fn completion(&mut self, kernel: &'static Kernel) -> Result<Completion, Fault> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        let marker = self.gpu.scoped(|| self.gpu.buffer("completion marker", F32_BYTES, usage)).await?;
        let pipeline = self.pipelines.get(self.gpu, kernel, &[], Cut::NONE).await?;
        let view = Slice { buffer: &marker, offset: 0, bytes: marker.size() };
        let prepared = self.prepare(kernel, Cut::NONE.tile, &pipeline, &[view]).await?;
        Ok(Completion { prepared, marker })
    }

    async fn prepare(
        &mut self,
        kernel: &Kernel,
        tile: Tile,
        pipeline: &Pipeline,
        views: &[Slice<'_>],
    ) -> Result<Prepared, Fault> {
        let params_at = self.at;
        let bytes = params_bytes(kernel);
        let params = Slice { buffer: self.arena, offset: params_at, bytes };
        let params = (!kernel.params.is_empty()).then_some(params);
        self.at += bytes;
        let bind_group = self.gpu.scoped(|| bind_group(self.gpu, pipeline, params, views)).await?;
        let usual = Choice { tile, pipeline: pipeline.pipeline.clone() };
        Ok(Prepared { usual, tuned: Vec::new(), bind_group, params_at })
    }
}
