//! Data: formats, the loader, random changes of images. Needs no adapter.

#[path = "../common/golden.rs"]
mod golden;

mod augment;
#[cfg(target_os = "linux")]
mod feeding;
mod formats;
mod loader;
