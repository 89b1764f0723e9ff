//! The adapters of native drivers, listed once in the life of the process.

use std::sync::OnceLock;

use super::super::super::list::{self, Raw, System};
use super::super::super::{Info, Kind};
use super::kind;

/// Part of the memory that a driver grants this process beyond which no buffer is created: on Vulkan and DX12.
const MEMORY_PERCENT: u8 = 90;

/// The adapters, once. Opening uses these very objects, so that an [`Info`] means one thing.
struct Registry {
    entries: Vec<(Info, wgpu::Adapter)>,
}

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Each GPU and software driver once, sorted. Opens no device.
pub async fn enumerate() -> Vec<Info> {
    registry().entries.iter().map(|(info, _)| info.clone()).collect()
}

/// Whether this adapter is listed.
pub(in super::super) fn is_known(info: &Info) -> bool {
    place(info).is_some()
}

/// The wgpu adapter of a listed one.
#[allow(clippy::unused_async, reason = "a browser has to be asked again")]
pub(in super::super) async fn find(info: &Info) -> Option<wgpu::Adapter> {
    place(info).map(|place| registry().entries[place].1.clone())
}

fn place(info: &Info) -> Option<usize> {
    let entries = &registry().entries;
    let same = |place: &usize| Info { index: info.index, ..entries[*place].0.clone() } == *info;
    let places: Vec<usize> = (0..entries.len()).filter(same).collect();
    // Identical cards are adjacent in both lists; the CPU adapter comes before software.
    let before = usize::from(info.kind > Kind::Cpu);
    let ordinal = info.index.saturating_sub(before + places.first()?);
    places.get(ordinal).or(places.last()).copied()
}

fn registry() -> &'static Registry {
    REGISTRY.get_or_init(|| {
        let apart = wgpu::Backends::GL | wgpu::Backends::DX12;
        let mut found = direct3d();
        found.extend(adapters(wgpu::Backends::all() - apart, None).into_iter().map(listed));
        // GL is the last resort. Merely starting it makes some EGL libraries print, and a few crash.
        if found.iter().all(|(info, _)| info.kind == Kind::Software) {
            found.extend(adapters(wgpu::Backends::GL, None).into_iter().map(listed));
        }
        let raw = found.iter().enumerate().map(|(position, (info, _))| Raw { info: info.clone(), position }).collect();
        let mut entries: Vec<(Info, wgpu::Adapter)> = list::deduplicate(raw, System::current())
            .into_iter()
            .map(|raw| (raw.info, found[raw.position].1.clone()))
            .collect();
        entries.sort_by_cached_key(|(info, _)| list::order(info));
        Registry { entries }
    })
}

/// The adapters of DX12, with the best compiler: DXC if it is found, else FXC, which every Windows has.
///
/// wgpu would choose by itself, but does not tell its choice, and shows no adapter where DXC is there and the driver is too
/// old for it.
fn direct3d() -> Vec<(Info, wgpu::Adapter)> {
    use wgpu::Dx12Compiler::{Fxc, StaticDxc};
    let static_dxc = cfg!(feature = "static-dxc").then_some(StaticDxc);
    let compilers = match wgpu::Dx12Compiler::from_env() {
        _ if !cfg!(windows) => Vec::new(),
        Some(wanted) => vec![wanted],
        None => static_dxc.into_iter().chain([wgpu::Dx12Compiler::default_dynamic_dxc(), Fxc]).collect(),
    };
    let mut found = compilers.into_iter().map(|compiler| {
        let mark = if matches!(compiler, Fxc) { marked } else { listed };
        adapters(wgpu::Backends::DX12, Some(compiler)).into_iter().map(mark).collect::<Vec<_>>()
    });
    found.find(|found| !found.is_empty()).unwrap_or_default()
}

fn listed(adapter: wgpu::Adapter) -> (Info, wgpu::Adapter) {
    (info(&adapter), adapter)
}

/// An adapter whose shaders the old compiler builds.
fn marked(adapter: wgpu::Adapter) -> (Info, wgpu::Adapter) {
    let info = info(&adapter);
    let driver = format!("{} {}", info.driver, list::FXC).trim().to_owned();
    (Info { driver, ..info }, adapter)
}

fn adapters(backends: wgpu::Backends, compiler: Option<wgpu::Dx12Compiler>) -> Vec<wgpu::Adapter> {
    let backends = wgpu::Backends::from_env().map_or(backends, |wanted| backends & wanted);
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    // The validation layers of a debug build would slow the test suite many times; WGPU_VALIDATION=1 has them.
    descriptor.flags = wgpu::InstanceFlags::empty();
    // Else a driver may move buffers to the system's memory, where they are many times slower, and report nothing.
    descriptor.memory_budget_thresholds.for_resource_creation = Some(MEMORY_PERCENT);
    let mut descriptor = wgpu::InstanceDescriptor { backends, ..descriptor.with_env() };
    if let Some(compiler) = compiler {
        descriptor.backend_options.dx12.shader_compiler = compiler;
    }
    let instance = wgpu::Instance::new(descriptor);
    // On native systems this future is ready at once. The adapters keep their instance.
    pollster::block_on(instance.enumerate_adapters(backends))
}

fn info(adapter: &wgpu::Adapter) -> Info {
    let found = adapter.get_info();
    let driver = [found.driver.as_str(), found.driver_info.as_str()].join(" ").trim().to_owned();
    Info {
        index: 0,
        kind: kind(found.device_type, &found.name),
        name: found.name,
        backend: found.backend.to_str().to_owned(),
        driver,
        vendor: found.vendor,
        device: found.device,
        bus_id: found.device_pci_bus_id,
    }
}
