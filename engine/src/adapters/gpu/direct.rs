//! One kernel at a time, without a plan: for the tests of kernels and for measuring them.

use std::sync::Arc;

use super::super::{Fault, Info};
use super::bindings::{Slice, bind_group};
use super::checks::Checks;
use super::device::Gpu;
use super::grid::{Cut, MOST_WORKGROUPS, workgroups};
use super::patience::Patience;
use super::pipelines::Pipelines;
use crate::kernels::cases::Case;
use crate::kernels::{Kernel, Tile};
use crate::plan::{Grid, Scalars};
use crate::runtime::Runtime;
use crate::size::F32_BYTES;
use crate::{Error, ErrorKind, Result};

/// One call of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The tile of a kernel that has tiles.
    pub tile: Tile,
    /// The words of `Params`.
    pub params: &'a [u32],
    /// `override` constants.
    pub constants: &'a [(&'static str, f64)],
    /// The grid.
    pub grid: Grid,
    /// Values of the inputs.
    pub inputs: &'a [Vec<f32>],
    /// Values of the outputs before the call, followed by values that the kernel must not change.
    pub outputs: &'a [Vec<f32>],
}

impl<'a> Launch<'a> {
    /// A call with the sizes of a case, on its values or others.
    pub fn of(
        kernel: &'static Kernel,
        tile: Tile,
        case: &'a Case,
        (inputs, outputs): (&'a [Vec<f32>], &'a [Vec<f32>]),
    ) -> Self {
        Self { kernel, tile, params: &case.params, constants: &case.constants, grid: case.grid, inputs, outputs }
    }
}

/// A device on which kernels run one by one.
pub struct Direct {
    name: String,
    gpu: Gpu,
    pipelines: Pipelines,
    runtime: Arc<dyn Runtime>,
    /// Workgroups along x from which a grid is folded.
    fold_at: u32,
}

impl Direct {
    /// Opens a device of an adapter.
    ///
    /// # Errors
    /// [`ErrorKind::Adapter`](crate::ErrorKind::Adapter) if the adapter gives no device.
    pub async fn open(info: &Info, checks: Checks, runtime: Arc<dyn Runtime>) -> Result<Self> {
        let name = format!("adapter {} `{}`", info.index, info.name);
        let gpu = Gpu::open(info, checks, (Patience::of(info.kind, None), None, None), runtime.clone())
            .await
            .map_err(|fault| error(&name, &fault))?;
        Ok(Self { name, gpu, pipelines: Pipelines::default(), runtime, fold_at: MOST_WORKGROUPS })
    }

    /// Folds grids at fewer workgroups than the 65,535 of WebGPU, so that small grids test folding, too.
    #[must_use]
    pub fn fold_at(mut self, workgroups: u32) -> Self {
        self.fold_at = workgroups;
        self
    }

    /// Whether the device can compile a tile's text.
    pub fn is_able(&self, tile: Tile) -> bool {
        self.gpu.is_able(tile)
    }

    /// Runs a kernel once; returns all values of the outputs.
    ///
    /// # Errors
    /// [`ErrorKind::Adapter`](crate::ErrorKind::Adapter) if the kernel can't be compiled or the device fails.
    pub async fn run(&mut self, launch: Launch<'_>) -> Result<Vec<Vec<f32>>> {
        let prepared = self.prepare(launch).await.map_err(|fault| error(&self.name, &fault))?;
        self.outputs(launch, &prepared).await.map_err(|fault| error(&self.name, &fault))
    }

    /// Milliseconds of a kernel: the mean of `repeats` dispatches in one submission, after as many to warm up: the clock of a card that
    /// had nothing to do rises only under load.
    ///
    /// # Errors
    /// [`ErrorKind::Adapter`](crate::ErrorKind::Adapter) if the kernel can't be compiled or the device fails.
    pub async fn time(&mut self, launch: Launch<'_>, repeats: u32) -> Result<f64> {
        let prepared = self.prepare(launch).await.map_err(|fault| error(&self.name, &fault))?;
        self.dispatch(launch, &prepared, repeats).await.map_err(|fault| error(&self.name, &fault))?;
        let start_ms = self.runtime.now_ms();
        self.dispatch(launch, &prepared, repeats).await.map_err(|fault| error(&self.name, &fault))?;
        Ok((self.runtime.now_ms() - start_ms) / f64::from(repeats.max(1)))
    }

    async fn prepare(&mut self, launch: Launch<'_>) -> Result<PreparedKernel, Fault> {
        let gpu = &self.gpu;
        let cut = Cut::of(launch.tile, launch.grid);
        let pipeline = self.pipelines.get(gpu, launch.kernel, launch.constants, cut).await?;
        let (params, buffers) = gpu.scoped(|| filled(gpu, launch)).await?;
        let slices: Vec<Slice<'_>> =
            buffers.iter().map(|buffer| Slice { buffer, offset: 0, bytes: buffer.size() }).collect();
        let params = Slice { buffer: &params, offset: 0, bytes: params.size() };
        let params = (!launch.params.is_empty()).then_some(params);
        let bind_group = gpu.scoped(|| bind_group(gpu, &pipeline, params, &slices)).await?;
        Ok(PreparedKernel { pipeline: pipeline.pipeline, bind_group, buffers })
    }

    async fn dispatch(&self, launch: Launch<'_>, prepared: &PreparedKernel, repeats: u32) -> Result<(), Fault> {
        let mut encoder = self.gpu.encoder();
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let cut = Cut::of(launch.tile, launch.grid);
        let [x, y, z] = workgroups(launch.grid, launch.kernel, cut, &Scalars::default(), self.fold_at);
        pass.set_pipeline(&prepared.pipeline);
        pass.set_bind_group(0, &prepared.bind_group, &[]);
        (0..repeats).for_each(|_| pass.dispatch_workgroups(x, y, z));
        drop(pass);
        let submission = self.gpu.submit(encoder);
        self.gpu.wait(submission).await
    }

    async fn outputs(&self, launch: Launch<'_>, prepared: &PreparedKernel) -> Result<Vec<Vec<f32>>, Fault> {
        self.dispatch(launch, prepared, 1).await?;
        let mut read = Vec::with_capacity(launch.outputs.len());
        for (output, buffer) in launch.outputs.iter().zip(&prepared.buffers[launch.inputs.len()..]) {
            read.push(if output.is_empty() { Vec::new() } else { self.read(buffer, output.len()).await? });
        }
        Ok(read)
    }

    async fn read(&self, buffer: &wgpu::Buffer, elements: usize) -> Result<Vec<f32>, Fault> {
        let bytes = elements as u64 * F32_BYTES;
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = self.gpu.buffer("readback", bytes, usage);
        let mut encoder = self.gpu.encoder();
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, bytes);
        let submission = self.gpu.submit(encoder);
        staging.slice(..bytes).map_async(wgpu::MapMode::Read, |_| {});
        self.gpu.wait(submission).await?;
        let mapped = staging.slice(..bytes).get_mapped_range();
        let mapped = mapped.map_err(|error| Fault::Lost(error.to_string()))?;
        Ok(bytemuck::cast_slice(&mapped).to_vec())
    }
}

struct PreparedKernel {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    buffers: Vec<wgpu::Buffer>,
}

fn filled(gpu: &Gpu, launch: Launch<'_>) -> (wgpu::Buffer, Vec<wgpu::Buffer>) {
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let make = |bytes: &[u8], usage: wgpu::BufferUsages| {
        let buffer = gpu.buffer("direct", bytes.len() as u64, usage);
        gpu.queue.write_buffer(&buffer, 0, bytes);
        buffer
    };
    let params = make(bytemuck::cast_slice(launch.params), usage | wgpu::BufferUsages::UNIFORM);
    let storage = launch.inputs.iter().chain(launch.outputs);
    let buffers = storage.map(|data| make(bytemuck::cast_slice(data), usage | wgpu::BufferUsages::STORAGE)).collect();
    (params, buffers)
}

fn error(name: &str, fault: &Fault) -> Error {
    match fault {
        Fault::Lost(text) => {
            Error::adapter_lost(name, format!("was lost: {text}"), "update its driver, or leave it out")
        }
        Fault::OutOfMemory(text) => Error::new(ErrorKind::OutOfMemory, name, text, "choose smaller sizes"),
        Fault::Unsupported(text) => {
            Error::new(ErrorKind::Unsupported, name, text, "update its driver, or choose another adapter")
        }
    }
}
