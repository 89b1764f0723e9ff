//! Placement by measurement: copies of the model, or stages, whichever the simulator predicts to be faster.
//!
//! **Unstable**: for the packages of this repository. Names and behaviour change with any version.
//!
//! `blocks.rs` cuts a model into blocks, between which stages may begin; `probe.rs` measures each block on each adapter;
//! `search.rs` finds divisions whose slowest stage is fast and that fit the memory; the best few are run in the simulator, by the
//! scheduler's own code, and so are copies on all adapters and on fewer (`site/copies.rs`); the fastest is taken. `site.rs` does so, also
//! with speeds that training has corrected; `chosen.rs` tells the choice; `rig.rs` chooses for simulated rigs.

// Other files: `speeds.rs`: what was measured; `probe/`: slowdown beside other adapters, speed of host and link.

mod blocks;
mod chosen;
mod probe;
pub mod rig;
mod search;
mod site;
mod speeds;

pub(crate) use blocks::Blocks;
pub use chosen::{ChosenPlacement, ChosenStage};
pub(crate) use probe::{Probed, probe};
pub(crate) use site::Site;
