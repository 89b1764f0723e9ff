//! The adapters that native drivers show, found once in the life of the process.

use std::sync::OnceLock;

use super::super::super::list::{self, Raw, System};
use super::super::super::{Info, Kind};
use super::kind;

/// The adapters, once. Opening uses these very objects, so that an [`Info`] means one thing.
struct Registry {
    entries: Vec<(Info, wgpu::Adapter)>,
}

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Each GPU and software driver once, sorted. Opens no device.
pub async fn enumerate() -> Vec<Info> {
    registry().entries.iter().map(|(info, _)| info.clone()).collect()
}

/// Is this one of the listed?
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
    // Identical cards stand side by side in both lists; the CPU adapter stands before software.
    let before = usize::from(info.kind > Kind::Cpu);
    let ordinal = info.index.saturating_sub(before + places.first()?);
    places.get(ordinal).or(places.last()).copied()
}

fn registry() -> &'static Registry {
    REGISTRY.get_or_init(|| {
        let mut adapters = adapters(wgpu::Backends::all() - wgpu::Backends::GL);
        // GL is the last resort. Merely starting it makes some EGL libraries print, and a few crash.
        if adapters.iter().all(|adapter| info(adapter).kind == Kind::Software) {
            adapters.extend(self::adapters(wgpu::Backends::GL));
        }
        let raw =
            adapters.iter().enumerate().map(|(position, adapter)| Raw { info: info(adapter), position }).collect();
        let mut entries: Vec<(Info, wgpu::Adapter)> = list::deduplicate(raw, System::current())
            .into_iter()
            .map(|raw| (raw.info, adapters[raw.position].clone()))
            .collect();
        entries.sort_by_cached_key(|(info, _)| list::order(info));
        Registry { entries }
    })
}

fn adapters(backends: wgpu::Backends) -> Vec<wgpu::Adapter> {
    let backends = wgpu::Backends::from_env().map_or(backends, |wanted| backends & wanted);
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    // The validation layers of a debug build would slow the test suite many times; WGPU_VALIDATION=1 has them.
    descriptor.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor { backends, ..descriptor.with_env() });
    // On native systems this future is ready at once. The adapters keep their instance.
    pollster::block_on(instance.enumerate_adapters(backends))
}

fn info(adapter: &wgpu::Adapter) -> Info {
    let said = adapter.get_info();
    let driver = [said.driver.as_str(), said.driver_info.as_str()].join(" ").trim().to_owned();
    Info {
        index: 0,
        kind: kind(said.device_type, &said.name),
        name: said.name,
        backend: said.backend.to_str().to_owned(),
        driver,
        vendor: said.vendor,
        device: said.device,
        bus_id: said.device_pci_bus_id,
    }
}
