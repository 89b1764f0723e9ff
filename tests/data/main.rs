//! Data: formats and the loader. Needs no adapter.

mod formats;
mod loader;
