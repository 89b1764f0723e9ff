//! A list of adapters: each physical one once, in an order that lasts; and the choice among them.

use std::path::PathBuf;

use litemap::LiteMap;

use super::{Info, Kind};
use crate::{Error, Result};

/// Environment variable with a choice of adapters, as [`choose`] takes it.
pub const ADAPTERS_VARIABLE: &str = "MANYHANDS_ADAPTERS";

/// Sorts and numbers a list.
pub fn sort(mut infos: Vec<Info>) -> Vec<Info> {
    infos.sort_by_cached_key(order);
    for (index, info) in infos.iter_mut().enumerate() {
        info.index = index;
    }
    infos
}

/// Sort key of a list.
pub(crate) fn order(info: &Info) -> (Kind, String, u32, u32, String) {
    (info.kind, info.bus_id.clone(), info.vendor, info.device, info.name.clone())
}

/// The operating system, which decides the backend that is best for a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// DX12 with DXC first, then Vulkan, then DX12 with FXC.
    Windows,
    /// Vulkan first; also what is neither Windows nor Mac.
    Linux,
    /// macOS: Metal first.
    Mac,
}

impl System {
    /// The system that this program runs on.
    pub fn current() -> Self {
        if cfg!(windows) {
            Self::Windows
        } else if cfg!(target_vendor = "apple") {
            Self::Mac
        } else {
            Self::Linux
        }
    }

    fn backends(self) -> &'static [&'static str] {
        match self {
            Self::Windows => &["dx12", "vulkan", FXC, "gl"],
            Self::Linux => &["vulkan", "gl"],
            Self::Mac => &["metal", "vulkan", "gl"],
        }
    }

    /// Rank of a backend for reaching a card; 0 is best.
    ///
    /// Mesa's Dozen, Vulkan on top of DX12, comes last: it is a second layer over a card that has a driver.
    fn rank(self, info: &Info) -> usize {
        let backends = self.backends();
        let last = backends.len() + 1;
        let layered = info.driver.contains("Dozen") || info.name.starts_with(DOZEN);
        let way = if is_fxc(info) { FXC } else { info.backend.as_str() };
        if layered { last } else { backends.iter().position(|known| *known == way).unwrap_or(last - 1) }
    }
}

/// The last word about the driver of a DX12 adapter whose shaders the old compiler builds.
pub const FXC: &str = "FXC";

/// Whether FXC, the old compiler of DX12, builds this adapter's shaders.
pub fn is_fxc(info: &Info) -> bool {
    info.backend == "dx12" && info.driver.ends_with(FXC)
}

/// DXC, the new compiler of DX12, where FXC builds the shaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dxc {
    /// This program has none.
    Missing,
    /// This program has one, but the driver does not take its shaders, or it is too old.
    Unused,
}

impl Dxc {
    /// Looks where this program takes it from: within itself, or beside it.
    pub fn of_program() -> Self {
        let is_beside = |program: PathBuf| program.with_file_name("dxcompiler.dll").exists();
        let is_there = cfg!(feature = "static-dxc") || std::env::current_exe().is_ok_and(is_beside);
        if is_there { Self::Unused } else { Self::Missing }
    }

    /// Remedy for FXC.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Missing => {
                "lay Microsoft's `dxcompiler.dll` of version 1.8.2502 or later beside the program, or install the card's Vulkan \
                 driver"
            }
            Self::Unused => {
                "install a newer driver of the card, for DX12 or Vulkan: DXC, the new compiler, is there, but needs a driver with \
                 shader model 6, and version 1.8.2502 or later"
            }
        }
    }
}

const DOZEN: &str = "Microsoft Direct3D12 (";

/// An adapter as one backend reports it, before the reports of several backends are merged into one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// Description of the adapter; its `index` is not yet set.
    pub info: Info,
    /// Its place in the enumeration, by which the one who enumerated knows it again.
    pub position: usize,
}

/// Each physical card once, under the best backend for the system.
///
/// A card under a lesser backend is the same as one already taken if the PCI bus ids agree, else if
/// vendor, device and name do. Pairs are counted: a card of the better backend stands for one of the
/// lesser, because DX12 reports the bus id of the first of two identical cards for both. GL is dropped
/// where another backend shows the vendor.
pub fn deduplicate(raw: Vec<Raw>, system: System) -> Vec<Raw> {
    let mut by_rank: LiteMap<usize, Vec<Raw>> = LiteMap::new();
    let vendors: Vec<u32> = raw.iter().filter(|raw| raw.info.backend != "gl").map(|raw| raw.info.vendor).collect();
    for raw in raw {
        let vendor = raw.info.vendor;
        let shown = vendors.contains(&vendor) || (vendor == 0 && !vendors.is_empty());
        if raw.info.backend != "gl" || !shown {
            by_rank.entry(system.rank(&raw.info)).or_default().push(raw);
        }
    }
    let mut cards: Vec<Raw> = Vec::new();
    for (_, listed) in by_rank {
        let new = unmatched(&cards, without_second_drivers(listed));
        cards.extend(new);
    }
    cards
}

/// Adapters of one backend that are not cards of a better backend.
fn unmatched(cards: &[Raw], listed: Vec<Raw>) -> Vec<Raw> {
    let mut free: Vec<&Info> = cards.iter().map(|card| &card.info).collect();
    let mut rest = listed;
    for same in [same_bus as fn(&Info, &Info) -> bool, same_model] {
        rest.retain(|raw| {
            let found = free.iter().position(|card| same(card, &raw.info));
            found.map(|place| free.remove(place)).is_none()
        });
    }
    rest
}

/// Drops a second Vulkan driver for one card, such as AMDVLK beside RADV. Vulkan's bus ids distinguish cards.
fn without_second_drivers(listed: Vec<Raw>) -> Vec<Raw> {
    let mut kept: Vec<Raw> = Vec::new();
    for raw in listed {
        let again = |known: &Raw| same_bus(&known.info, &raw.info) && known.info.driver != raw.info.driver;
        if raw.info.backend != "vulkan" || !kept.iter().any(again) {
            kept.push(raw);
        }
    }
    kept
}

fn same_bus(a: &Info, b: &Info) -> bool {
    !a.bus_id.is_empty() && a.bus_id.eq_ignore_ascii_case(&b.bus_id)
}

fn same_model(a: &Info, b: &Info) -> bool {
    let known = a.device != 0 && b.device != 0;
    a.vendor == b.vendor && if known { a.device == b.device } else { normalised(&a.name) == normalised(&b.name) }
}

/// A name without what backends and drivers add to it, letters and digits alone.
fn normalised(name: &str) -> String {
    let name = name.strip_prefix(DOZEN).unwrap_or(name);
    let name = name.to_ascii_lowercase().replace("(r)", "").replace("(tm)", "");
    let name = name.split(['/', '(']).next().unwrap_or_default();
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// Whether this is the name of a driver that computes on the CPU.
pub fn is_software_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["llvmpipe", "lavapipe", "softpipe", "swiftshader", "microsoft basic render"]
        .iter()
        .any(|known| name.contains(known))
}

/// The adapters that a choice names, in its order.
///
/// `wanted` is a list with commas. An item is an index, a part of a name, a kind (`discrete`,
/// `integrated`, `gpu`, `cpu`, `software`) or `all`: every GPU, or the CPU adapter where there is none. An adapter
/// named twice is there twice, and will be opened as two devices. Software adapters and the CPU are there only when
/// named. An empty choice is `all`.
///
/// # Errors
/// [`ErrorKind::Adapter`](crate::ErrorKind::Adapter) if an item names no adapter; the help shows the list.
pub fn choose(list: &[Info], wanted: &str) -> Result<Vec<Info>> {
    if wanted.trim().is_empty() {
        return Ok(all(list));
    }
    let mut chosen = Vec::new();
    let mut place_of_all = None;
    for item in wanted.split(',').map(str::trim) {
        if item.eq_ignore_ascii_case(ALL) {
            place_of_all.get_or_insert(chosen.len());
        }
        let found = matching(list, item);
        // A group may be empty where another item names an adapter; a name that is not there is a mistake.
        if found.is_empty() && !GROUPS.contains(&item.to_ascii_lowercase().as_str()) {
            return Err(unknown(list, item));
        }
        chosen.extend(found);
    }
    // Where there is no GPU, `all,cpu` is the CPU once.
    if let Some(place) = place_of_all
        && !chosen.iter().any(|info| info.kind.is_gpu() || info.kind == Kind::Cpu)
    {
        chosen.splice(place..place, all(list));
    }
    if chosen.is_empty() { Err(unknown(list, wanted)) } else { Ok(chosen) }
}

/// Every GPU, or the CPU adapter where there is none.
pub(super) fn all(list: &[Info]) -> Vec<Info> {
    let gpus = select(list, |info| info.kind.is_gpu());
    if gpus.is_empty() { select(list, |info| info.kind == Kind::Cpu) } else { gpus }
}

/// The item that stands for the default choice.
pub(super) const ALL: &str = "all";

/// Items that name as many adapters as there are, also none, where another item names one.
pub(super) const GROUPS: [&str; 5] = [ALL, "gpu", "discrete", "integrated", "software"];

/// The adapters that an item names.
pub(super) fn matching(list: &[Info], item: &str) -> Vec<Info> {
    let wanted = item.to_ascii_lowercase();
    let of_kind = |kind: Kind| select(list, |info| info.kind == kind);
    let by_index = wanted.parse::<usize>().ok().and_then(|index| list.iter().find(|info| info.index == index));
    match wanted.as_str() {
        "" => Vec::new(),
        ALL | "gpu" => select(list, |info| info.kind.is_gpu()),
        "discrete" => of_kind(Kind::DiscreteGpu),
        "integrated" => of_kind(Kind::IntegratedGpu),
        "cpu" => of_kind(Kind::Cpu),
        "software" => of_kind(Kind::Software),
        part => match by_index {
            Some(info) => vec![info.clone()],
            None => select(list, |info| info.name.to_ascii_lowercase().contains(part)),
        },
    }
}

fn select(list: &[Info], wanted: impl Fn(&Info) -> bool) -> Vec<Info> {
    list.iter().filter(|info| wanted(info)).cloned().collect()
}

fn unknown(list: &[Info], item: &str) -> Error {
    let adapters: Vec<String> = list.iter().map(|info| format!("`{}` (index {})", info.name, info.index)).collect();
    let problem = if item.is_empty() {
        "has an empty item".to_owned()
    } else {
        format!("names no adapter of this machine: `{item}`")
    };
    Error::adapter(
        "the choice of adapters",
        problem,
        format!(
            "give indices, name parts, `discrete`, `integrated`, `cpu`, `software`, `gpu` (every GPU) or `all` (every GPU, or the CPU where there is none), with commas; this machine has {}",
            adapters.join(", ")
        ),
    )
}
