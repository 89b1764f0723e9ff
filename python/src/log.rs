//! Warnings of the crate go to Python's `logging`, under the name `manyhands`.

use std::sync::Once;

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

struct Logging;

/// The number of a level in Python's `logging`.
fn number(level: Level) -> u8 {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug | Level::Trace => 10,
    }
}

impl Log for Logging {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("manyhands")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let (level, text) = (number(record.level()), record.args().to_string());
        // Where the interpreter is gone there is nobody to tell.
        let told = Python::try_attach(|py| -> PyResult<()> {
            let logger = py.import("logging")?.call_method1("getLogger", ("manyhands",))?;
            logger.call_method1("log", (level, "%s", text)).map(drop)
        });
        drop(told);
    }

    fn flush(&self) {}
}

/// Takes in what the crate logs from now on, unless another module of the process does.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if log::set_logger(&Logging).is_ok() {
            log::set_max_level(LevelFilter::Warn);
        }
    });
}
