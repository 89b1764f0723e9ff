//! Lists adapters with the wgpu adapter of each: a native system has a list, a browser gives them on request.

#[cfg(target_arch = "wasm32")]
mod browser;
#[cfg(not(target_arch = "wasm32"))]
mod native;

use super::super::{Kind, list};

#[cfg(target_arch = "wasm32")]
pub use browser::{Missing, enumerate, missing, requested_as};
#[cfg(target_arch = "wasm32")]
pub(super) use browser::{find, is_known};
#[cfg(not(target_arch = "wasm32"))]
pub use native::enumerate;
#[cfg(not(target_arch = "wasm32"))]
pub(super) use native::{find, is_known};

fn kind(device_type: wgpu::DeviceType, name: &str) -> Kind {
    match device_type {
        _ if list::is_software_name(name) => Kind::Software,
        wgpu::DeviceType::Cpu => Kind::Software,
        wgpu::DeviceType::DiscreteGpu => Kind::DiscreteGpu,
        wgpu::DeviceType::IntegratedGpu => Kind::IntegratedGpu,
        wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => Kind::VirtualGpu,
    }
}
