//! Shader modules, layouts and pipelines, each made once for a device.

use litemap::LiteMap;

use super::super::{Fault, Info, UNFINISHED, WRONG_RESULTS};
use super::bindings::KernelPipeline;
use super::cache::{Cache, CompiledFile, Identity, digest};
use super::checks::Checks;
use super::device::{Gpu, count_object};
use super::grid::Cut;
use super::parts::FirstItem;
use super::verdicts::{self, Trial, Verdict, Verdicts};
use crate::kernels::{self, Extent, Kernel, Tile};
use crate::plan::Dispatch;

/// Whether this system can try pipelines. A page does not load the code.
const CAN_JUDGE: bool = !cfg!(target_arch = "wasm32");

/// Kernel by address, values of constants as bits, tile, extent.
type PipelineKey = (usize, Vec<(&'static str, u64)>, Tile, Extent);

/// Number of bindings of each kind: uniform, read-only storage, storage; and whether there is a second group.
type BindingCounts = (usize, usize, usize, Extent);

/// A kernel, its constants, and its cut: what makes a pipeline.
pub(super) type Wanted<'a> = (&'static Kernel, &'a [(&'static str, f64)], Cut);

/// The pipeline of a dispatch with a tile, in runs of up to `capacity` rows.
pub(super) fn wanted<'a>(gpu: &Gpu, dispatch: &'a Dispatch, tile: Tile, capacity: u32) -> Wanted<'a> {
    let cut = Cut::of(tile, dispatch.grid).computing(gpu.patience.extent(dispatch, capacity));
    (dispatch.kernel, &dispatch.constants, cut)
}

#[derive(Default)]
pub(super) struct Pipelines {
    modules: LiteMap<String, wgpu::ShaderModule>,
    layouts: LiteMap<BindingCounts, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    pipelines: LiteMap<PipelineKey, KernelPipeline>,
    first_item: Option<FirstItem>,
    /// Compiled pipelines, where a driver gives them.
    compiled: Option<(wgpu::PipelineCache, CompiledFile)>,
    /// `None` where every pipeline is taken as it is.
    verdicts: Option<Verdicts>,
}

impl Pipelines {
    /// With what was compiled and judged before.
    pub(super) fn open(info: &Info, gpu: &Gpu, cache: &Cache) -> Self {
        let verdicts = CAN_JUDGE.then(|| Verdicts::open(info, gpu, cache));
        let compiled = cache.folder("pipelines").filter(|_| gpu.keeps_compiled()).map(|folder| {
            let (file, compiled) = CompiledFile::open(Identity::new(info, gpu.checks), Some(folder));
            (compiled_before(gpu, compiled.as_deref()), file)
        });
        Self { compiled, verdicts, ..Self::default() }
    }

    /// Keeps what was compiled for the next start.
    pub(super) fn keep(&mut self) {
        if let Some((cache, file)) = &mut self.compiled {
            file.save(|| cache.get_data());
        }
    }

    /// The first workgroup of a part, for pipelines of parts.
    pub(super) fn first_item(&self) -> Option<&FirstItem> {
        self.first_item.as_ref()
    }

    /// Makes pipelines, and tries all at once that have no verdict yet. Those that can't be built have none.
    pub(super) async fn judge(&mut self, gpu: &Gpu, wanted: impl Iterator<Item = Wanted<'_>>) -> Result<(), Fault> {
        if !CAN_JUDGE {
            return Ok(());
        }
        let mut trials: LiteMap<String, Trial> = LiteMap::new();
        for (kernel, constants, cut) in wanted {
            let name = verdicts::name(kernel, constants, cut);
            let is_known = self.verdicts.as_mut().is_none_or(|verdicts| verdicts.get(&name).is_some());
            if is_known || trials.contains_key(&name) {
                continue;
            }
            match self.get(gpu, kernel, constants, cut).await {
                Ok(pipeline) => {
                    let cases = verdicts::chosen(kernel, constants);
                    trials.insert(name, Trial { kernel, cut, pipeline, cases });
                }
                Err(Fault::Unsupported(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        let (names, trials): (Vec<String>, Vec<Trial>) = trials.into_iter().unzip();
        let begin_ms = gpu.now_ms();
        let mut found = verdicts::run(gpu, self.first_item.as_ref(), &trials).await?;
        for (verdict, trial) in found.iter_mut().zip(&trials) {
            // Alone: another pipeline may have written over its results.
            if matches!(verdict, Verdict::Wrong(_)) {
                let again = verdicts::run(gpu, self.first_item.as_ref(), std::slice::from_ref(trial)).await?;
                *verdict = again.into_iter().next().unwrap_or(Verdict::Untried);
            }
        }
        if !trials.is_empty() {
            log::debug!("{} pipelines tried in {:.0} ms", trials.len(), gpu.now_ms() - begin_ms);
        }
        if trials.len() > 1 && found.iter().all(|verdict| matches!(verdict, Verdict::Wrong(_))) {
            return Err(Fault::Lost(UNFINISHED.into()));
        }
        if let Some(verdicts) = &mut self.verdicts {
            verdicts.extend(names.into_iter().zip(found).collect());
            verdicts.keep();
        }
        Ok(())
    }

    /// The pipeline of a kernel, if it computes right; else [`Fault::Unsupported`] with what is wrong.
    pub(super) async fn right(&mut self, gpu: &Gpu, wanted: Wanted<'_>) -> Result<KernelPipeline, Fault> {
        let (kernel, constants, cut) = wanted;
        let pipeline = self.get(gpu, kernel, constants, cut).await?;
        self.judge(gpu, std::iter::once(wanted)).await?;
        let Some(verdicts) = &mut self.verdicts else { return Ok(pipeline) };
        match verdicts.get(&verdicts::name(kernel, constants, cut)) {
            Some(Verdict::Wrong(difference)) => {
                let driver = &verdicts.driver;
                Err(Fault::Unsupported(format!("{WRONG_RESULTS} its driver `{driver}` computes {difference}")))
            }
            Some(Verdict::Right | Verdict::Untried) | None => Ok(pipeline),
        }
    }

    /// The pipeline of a kernel; [`Fault::Unsupported`] if it does not compile.
    pub(super) async fn get(
        &mut self,
        gpu: &Gpu,
        kernel: &'static Kernel,
        constants: &[(&'static str, f64)],
        cut: Cut,
    ) -> Result<KernelPipeline, Fault> {
        let Cut { tile, constant, extent } = if kernel.is_tiled() { cut } else { Cut::NONE.computing(cut.extent) };
        let of_tile = constant.map(|(name, value)| (name, f64::from(value)));
        let constants: Vec<_> = constants.iter().copied().chain(of_tile).collect();
        let bits = constants.iter().map(|(name, value)| (*name, value.to_bits())).collect();
        let key = (std::ptr::from_ref(kernel).addr(), bits, tile, extent);
        if let Some(known) = self.pipelines.get(&key) {
            return Ok(known.clone());
        }
        let named = |fault| match fault {
            Fault::Unsupported(text) => Fault::Unsupported(format!("kernel `{kernel:?}` can't be built: {text}")),
            other => other,
        };
        let module = self.module(gpu, kernel, tile, extent).await.map_err(named)?;
        let (layout, pipeline_layout) = self.layout(gpu, kernel, extent).await.map_err(named)?;
        let cache = self.compiled.as_ref().map(|(cache, _)| cache);
        let made = gpu.scoped(|| create(gpu, kernel, &constants, (&module, &pipeline_layout), cache));
        let pipeline = KernelPipeline { pipeline: made.await.map_err(named)?, layout, extent };
        if let Some((_, file)) = &mut self.compiled {
            file.add(digest(&(kernel.wgsl_for(tile, extent), kernel.entry, &key.1)));
        }
        self.pipelines.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    async fn module(
        &mut self,
        gpu: &Gpu,
        kernel: &Kernel,
        tile: Tile,
        extent: Extent,
    ) -> Result<wgpu::ShaderModule, Fault> {
        let text = kernel.wgsl_for(tile, extent);
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
        extent: Extent,
    ) -> Result<(wgpu::BindGroupLayout, wgpu::PipelineLayout), Fault> {
        let counts = (usize::from(!kernel.params.is_empty()), kernel.inputs.len(), kernel.outputs.len(), extent);
        if let Some(known) = self.layouts.get(&counts) {
            return Ok(known.clone());
        }
        if extent == Extent::Part && self.first_item.is_none() {
            self.first_item = Some(gpu.scoped(|| FirstItem::new(gpu)).await?);
        }
        let second = self.first_item.as_ref().filter(|_| extent == Extent::Part).map(|first_item| &first_item.layout);
        let made = gpu.scoped(|| layouts(gpu, counts, second)).await?;
        self.layouts.insert(counts, made.clone());
        Ok(made)
    }
}

fn create(
    gpu: &Gpu,
    kernel: &Kernel,
    constants: &[(&'static str, f64)],
    (module, layout): (&wgpu::ShaderModule, &wgpu::PipelineLayout),
    cache: Option<&wgpu::PipelineCache>,
) -> wgpu::ComputePipeline {
    count_object();
    gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&kernel.name()),
        layout: Some(layout),
        module,
        entry_point: Some(kernel.entry),
        // No kernel reads workgroup memory before it writes it, and filling it costs up to 46 times a kernel's own time.
        compilation_options: wgpu::PipelineCompilationOptions { constants, zero_initialize_workgroup_memory: false },
        cache,
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

/// A cache of compiled pipelines, with what was kept of an earlier one. A driver checks whose it is; what is broken is not given to it.
#[allow(unsafe_code, reason = "the data is what this driver gave, which a digest proves")]
fn compiled_before(gpu: &Gpu, compiled: Option<&[u8]>) -> wgpu::PipelineCache {
    count_object();
    let descriptor = wgpu::PipelineCacheDescriptor { label: Some("manyhands"), data: compiled, fallback: true };
    // SAFETY: `CompiledFile` gives only bytes that `PipelineCache::get_data` gave for this adapter, its driver and this version.
    unsafe { gpu.device.create_pipeline_cache(&descriptor) }
}

fn layouts(
    gpu: &Gpu,
    counts: BindingCounts,
    second: Option<&wgpu::BindGroupLayout>,
) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
    let (uniforms, inputs, outputs, _) = counts;
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
    let groups = [Some(&group), second];
    let pipeline = gpu.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: if second.is_some() { &groups } else { &groups[..1] },
        immediate_size: 0,
    });
    (group, pipeline)
}
