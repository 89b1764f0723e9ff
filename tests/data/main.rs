//! Data: formats, the loader, random changes of images. Needs no adapter.

#[path = "../common/golden.rs"]
mod golden;

mod augment;
mod formats;
mod loader;
