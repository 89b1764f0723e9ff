//! Verdicts on pipelines: before one may count, it computes small cases as the twin of its kernel does.
//!
//! Compilers of drivers have errors: a kernel that passes every test with one driver may be wrong with the next. A verdict is of an
//! adapter, its driver and a text with its constants; it is kept, so that later loads cost nothing.

// Files: `cases.rs`: the cases of a pipeline; `batch.rs`: runs the cases of many pipelines in one submission.

mod batch;
mod cases;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use litemap::LiteMap;
use serde::{Deserialize, Serialize};

use super::super::Info;
use super::cache::{Cache, Identity, Table, digest};
use super::checks::Checks;
use super::device::Gpu;
use super::grid::Cut;
use crate::kernels::{Extent, Kernel};
pub(super) use batch::{Trial, run};
#[doc(hidden)]
pub use cases::chosen;

/// Whether a pipeline computes right.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The pipeline computes its cases as its twin does.
    Right,
    /// No case has its constants, or its author gave it none.
    Untried,
    /// The pipeline computes something else: the first difference.
    Wrong(String),
}

/// All verdicts of this process, by adapter.
static KNOWN: Mutex<LiteMap<String, BTreeMap<String, Verdict>>> = Mutex::new(LiteMap::new());

/// Verdicts on the pipelines that this process used on an adapter, by kernel, tile and constants.
pub fn verdicts(info: &Info) -> BTreeMap<String, Verdict> {
    let adapter = Identity::new(info, Checks::from_environment()).file_name("");
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&adapter).cloned().unwrap_or_default()
}

/// Verdicts on the pipelines of an adapter.
pub(super) struct Verdicts {
    /// Name of the driver.
    pub(super) driver: String,
    adapter: String,
    table: Table<Verdict>,
    /// Whether some are not saved yet.
    is_changed: bool,
}

impl Verdicts {
    /// With those that were kept. What was wrong is tried again in each process.
    pub(super) fn open(info: &Info, gpu: &Gpu, cache: &Cache) -> Self {
        let identity = Identity::new(info, gpu.checks);
        let adapter = identity.file_name("");
        let table = Table::open(identity, cache.folder("verdicts"));
        Self { driver: info.driver.clone(), adapter, table, is_changed: false }
    }

    /// The verdict on a pipeline, of this process or kept.
    pub(super) fn get(&mut self, pipeline: &str) -> Option<Verdict> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(self.adapter.clone()).or_default();
        let kept = self.table.get(pipeline).filter(|verdict| !matches!(verdict, Verdict::Wrong(_)));
        match (known.get(pipeline).cloned(), kept) {
            (Some(verdict), kept) => {
                if kept != Some(&verdict) {
                    self.table.insert(pipeline, verdict.clone());
                    self.is_changed = true;
                }
                Some(verdict)
            }
            (None, Some(kept)) => {
                known.insert(pipeline.to_owned(), kept.clone());
                Some(kept.clone())
            }
            (None, None) => None,
        }
    }

    /// Adds verdicts.
    pub(super) fn extend(&mut self, verdicts: Vec<(String, Verdict)>) {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(self.adapter.clone()).or_default();
        for (pipeline, verdict) in verdicts {
            self.table.insert(&pipeline, verdict.clone());
            known.insert(pipeline, verdict);
            self.is_changed = true;
        }
    }

    /// Keeps them for later processes.
    pub(super) fn keep(&mut self) {
        if std::mem::take(&mut self.is_changed) {
            self.table.save();
        }
    }
}

/// Name of a pipeline: kernel, tile, constants, and a digest of its text.
pub(super) fn name(kernel: &Kernel, constants: &[(&'static str, f64)], cut: Cut) -> String {
    let Cut { tile, constant, extent } = if kernel.is_tiled() { cut } else { Cut::NONE.computing(cut.extent) };
    let of_tile = constant.map(|(name, value)| (name, f64::from(value)));
    let constants = constants.iter().copied().chain(of_tile).map(|(name, value)| format!(" {name}={value}"));
    let tile = if kernel.is_tiled() { format!(" {tile:?}") } else { String::new() };
    let part = if extent == Extent::Part { " in parts" } else { "" };
    let text = digest(&kernel.wgsl_for(cut.tile, cut.extent));
    format!("{kernel:?}{}{part}{} #{text:016x}", tile.to_lowercase(), constants.collect::<String>())
}
