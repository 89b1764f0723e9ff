//! The adapters of the machine: GPUs, the CPU, and drivers that compute on the CPU.
//!
//! An adapter runs training steps and predictions, and does not depend on other adapters. [`list()`] lists them, and [`choose`] picks
//! some by index, kind or name.

// Files: `list.rs`: the machine's adapters and the choice among them; `protocol.rs`: messages and their contract; `opening.rs`: opens an
// adapter; `mailbox.rs`: the actor around a device; `storage.rs`: activations that share memory; `memory.rs`: memory of a plan before it
// is taken; `limits.rs`: the most that it may take; `heartbeat.rs`: signs of life in long runs; `throttle.rs`: adapters slowed down on purpose; `remote.rs`: an adapter behind a
// link; `cpu/`, `gpu/`: the two kinds of devices.

pub mod cpu;
#[cfg(feature = "gpu")]
pub mod gpu;
mod heartbeat;
pub mod limits;
pub mod list;
pub mod mailbox;
pub mod memory;
pub mod opening;
pub mod protocol;
pub mod remote;
pub mod storage;
pub mod throttle;

pub use limits::MemoryLimits;
pub use list::{ADAPTERS_VARIABLE, choose};
pub use opening::*;
pub use protocol::*;
pub use throttle::Throttles;

/// Kind of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A graphics card of its own.
    DiscreteGpu,
    /// A GPU that shares the CPU's memory.
    IntegratedGpu,
    /// A GPU behind a hypervisor, or of unknown kind.
    VirtualGpu,
    /// This crate's CPU adapter.
    Cpu,
    /// A driver that computes on the CPU (lavapipe, SwiftShader, WARP): used only when asked for.
    Software,
}

impl Kind {
    /// Whether it is a graphics card, and no driver that computes on the CPU.
    pub fn is_gpu(self) -> bool {
        matches!(self, Self::DiscreteGpu | Self::IntegratedGpu | Self::VirtualGpu)
    }

    /// Workgroups of a product that keep such an adapter busy: for them, sums are split. 0 where no product needs more than it has. A
    /// large card has some 130 processors, and a workgroup that is alone on one waits for memory most of the time.
    pub(crate) fn workgroups(self) -> u32 {
        match self {
            Self::DiscreteGpu => 256,
            Self::IntegratedGpu | Self::VirtualGpu => 64,
            Self::Cpu | Self::Software => 0,
        }
    }
}

/// Properties of an adapter that are known without opening it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Info {
    /// Index in the sorted list.
    pub index: usize,
    /// Name that the driver gives.
    pub name: String,
    /// Kind of the adapter.
    pub kind: Kind,
    /// `vulkan`, `metal`, `dx12`, `gl`, `webgpu`, or `host` for the CPU adapter.
    pub backend: String,
    /// Name and version of the driver; may be empty.
    pub driver: String,
    /// PCI vendor id, 0 if unknown.
    pub vendor: u32,
    /// PCI device id, 0 if unknown.
    pub device: u32,
    /// PCI bus id, empty if unknown.
    pub bus_id: String,
}

impl Info {
    /// The CPU adapter, which is always there.
    pub fn cpu() -> Self {
        cpu::info()
    }
}

/// Every adapter of the machine: the GPUs, the CPU adapter, and drivers that compute on the CPU. Blocks until drivers have
/// answered.
///
/// Opens no device and changes nothing. Sorted by kind, bus id, vendor, device and name, so that an
/// index means the same card tomorrow.
#[cfg(not(target_arch = "wasm32"))]
pub fn list() -> Vec<Info> {
    pollster::block_on(list_async())
}

/// Every adapter of the machine or the browser, as [`list()`], without blocking.
pub async fn list_async() -> Vec<Info> {
    #[cfg(feature = "gpu")]
    let gpus = gpu::enumerate().await;
    #[cfg(not(feature = "gpu"))]
    let gpus = Vec::new();
    list::sort([gpus, vec![cpu::info()]].concat())
}

/// The adapters to choose from: all, or only the CPU if the choice can name no other.
///
/// Drivers of GPUs take time to start, may print, and may crash: no driver is started for the CPU adapter.
#[doc(hidden)]
pub async fn list_for(wanted: &str) -> Vec<Info> {
    if wanted.split(',').all(|item| item.trim().eq_ignore_ascii_case("cpu")) {
        return vec![cpu::info()];
    }
    list_async().await
}
