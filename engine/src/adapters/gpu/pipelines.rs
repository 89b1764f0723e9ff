//! Shader modules, layouts and pipelines, each made once for a device.

use litemap::LiteMap;

use super::super::Fault;
use super::device::{Checks, Gpu, count_object};
use super::grid::Cut;
use crate::kernels::{self, Kernel, Tile};

/// A pipeline, and the layout for its bind groups.
#[derive(Clone)]
pub(super) struct KernelPipeline {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

/// Kernel by address, values of constants as bits, tile.
type PipelineKey = (usize, Vec<(&'static str, u64)>, Tile);

/// Number of bindings of each kind: uniform, read-only storage, storage.
type BindingCounts = (usize, usize, usize);

#[derive(Default)]
pub(super) struct Pipelines {
    modules: LiteMap<String, wgpu::ShaderModule>,
    layouts: LiteMap<BindingCounts, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    pipelines: LiteMap<PipelineKey, KernelPipeline>,
}

impl Pipelines {
    /// The pipeline of a kernel; [`Fault::Unsupported`] if it does not compile.
    pub(super) async fn get(
        &mut self,
        gpu: &Gpu,
        kernel: &'static Kernel,
        constants: &[(&'static str, f64)],
        cut: Cut,
    ) -> Result<KernelPipeline, Fault> {
        let Cut { tile, constant } = if kernel.is_tiled() { cut } else { Cut::NONE };
        let of_tile = constant.map(|(name, value)| (name, f64::from(value)));
        let constants: Vec<_> = constants.iter().copied().chain(of_tile).collect();
        let bits = constants.iter().map(|(name, value)| (*name, value.to_bits())).collect();
        let key = (std::ptr::from_ref(kernel).addr(), bits, tile);
        if let Some(known) = self.pipelines.get(&key) {
            return Ok(known.clone());
        }
        let named = |fault| match fault {
            Fault::Unsupported(text) => Fault::Unsupported(format!("kernel `{kernel:?}` can't be built: {text}")),
            other => other,
        };
        let module = self.module(gpu, kernel, tile).await.map_err(named)?;
        let (layout, pipeline_layout) = self.layout(gpu, kernel).await.map_err(named)?;
        let made = gpu.scoped(|| create(gpu, kernel, &constants, &module, &pipeline_layout)).await.map_err(named)?;
        let pipeline = KernelPipeline { pipeline: made, layout };
        self.pipelines.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    async fn module(&mut self, gpu: &Gpu, kernel: &Kernel, tile: Tile) -> Result<wgpu::ShaderModule, Fault> {
        let text = kernel.wgsl(tile);
        if let Some(known) = self.modules.get(&text) {
            return Ok(known.clone());
        }
        let module = gpu.scoped(|| compile(gpu, kernel, &text)).await?;
        self.modules.insert(text, module.clone());
        Ok(module)
    }

    async fn layout(
        &mut self,
        gpu: &Gpu,
        kernel: &Kernel,
    ) -> Result<(wgpu::BindGroupLayout, wgpu::PipelineLayout), Fault> {
        let counts = (usize::from(!kernel.params.is_empty()), kernel.inputs.len(), kernel.outputs.len());
        if let Some(known) = self.layouts.get(&counts) {
            return Ok(known.clone());
        }
        let made = gpu.scoped(|| layouts(gpu, counts)).await?;
        self.layouts.insert(counts, made.clone());
        Ok(made)
    }
}

fn create(
    gpu: &Gpu,
    kernel: &Kernel,
    constants: &[(&'static str, f64)],
    module: &wgpu::ShaderModule,
    layout: &wgpu::PipelineLayout,
) -> wgpu::ComputePipeline {
    count_object();
    gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&kernel.name()),
        layout: Some(layout),
        module,
        entry_point: Some(kernel.entry),
        // No kernel reads workgroup memory before it writes it, and filling it costs up to 46 times a kernel's own time.
        compilation_options: wgpu::PipelineCompilationOptions { constants, zero_initialize_workgroup_memory: false },
        cache: None,
    })
}

fn compile(gpu: &Gpu, kernel: &Kernel, text: &str) -> wgpu::ShaderModule {
    count_object();
    let source = wgpu::ShaderSource::Wgsl(text.into());
    let descriptor = wgpu::ShaderModuleDescriptor { label: Some(kernel.stem), source };
    // Kernels of a user's own layers are not tested here, so they keep the checks.
    match gpu.checks {
        Checks::Unchecked if may_trust(kernel) => trusted(&gpu.device, descriptor),
        Checks::Checked | Checks::Unchecked => gpu.device.create_shader_module(descriptor),
    }
}

/// A browser checks every shader itself, and the table of all kernels need not be loaded.
fn may_trust(kernel: &Kernel) -> bool {
    cfg!(not(target_arch = "wasm32")) && kernels::is_known(kernel)
}

/// Bounded loops alone cost a third of a kernel's speed on lavapipe and far more elsewhere (wgpu#7698).
///
/// The shaders are this crate's own, none comes from outside. `tests/kernels/twins.rs` runs each of them checked and
/// unchecked with filler past the end of every output, and every plan's views are checked against their buffers.
#[allow(unsafe_code, reason = "the one call that trusts our own shaders; see above")]
fn trusted(device: &wgpu::Device, descriptor: wgpu::ShaderModuleDescriptor<'_>) -> wgpu::ShaderModule {
    // SAFETY: the kernels index within the views that their params describe and their loops end, which tests check.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
}

fn layouts(gpu: &Gpu, counts: BindingCounts) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
    let (uniforms, inputs, outputs) = counts;
    let storage = |read_only| wgpu::BufferBindingType::Storage { read_only };
    let inputs = std::iter::repeat_n(storage(true), inputs);
    let outputs = std::iter::repeat_n(storage(false), outputs);
    // Storage starts at binding 1, whether there are params or not.
    let entries: Vec<wgpu::BindGroupLayoutEntry> = std::iter::once(wgpu::BufferBindingType::Uniform)
        .chain(inputs)
        .chain(outputs)
        .zip(0..)
        .skip(1 - uniforms)
        .map(|(ty, binding)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        })
        .collect();
    let group =
        gpu.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
    let pipeline = gpu.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&group)],
        immediate_size: 0,
    });
    (group, pipeline)
}

/// Bytes `[offset, offset + bytes)` of a buffer, as a binding sees it.
#[derive(Clone, Copy)]
pub(super) struct Slice<'a> {
    pub(super) buffer: &'a wgpu::Buffer,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The bind group of one dispatch: params, if there are any, then storage.
pub(super) fn bind_group(
    gpu: &Gpu,
    pipeline: &KernelPipeline,
    params: Option<Slice<'_>>,
    storage: &[Slice<'_>],
) -> wgpu::BindGroup {
    count_object();
    let params = params.map(|slice| entry(slice, 0));
    let storage = storage.iter().zip(1..).map(|(slice, binding)| entry(*slice, binding));
    let entries: Vec<_> = params.into_iter().chain(storage).collect();
    gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.layout,
        entries: &entries,
    })
}

fn entry(slice: Slice<'_>, binding: u32) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: slice.buffer,
            offset: slice.offset,
            size: wgpu::BufferSize::new(slice.bytes),
        }),
    }
}
