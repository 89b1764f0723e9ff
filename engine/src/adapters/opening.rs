//! Opens adapters: GPUs and the CPU.

use std::sync::Arc;

use async_channel::Sender;

use super::protocol::{ActorId, Handle, Message};
use super::{Info, Kind, cpu};
#[cfg(feature = "gpu")]
use super::{gpu, protocol::Opener};
use crate::Result;
use crate::runtime::Runtime;

/// Opens an adapter. Its events come on `events`, each with `actor`.
///
/// # Errors
/// If it is not there any more.
pub fn open(info: &Info, actor: ActorId, runtime: Arc<dyn Runtime>, events: Sender<Message>) -> Result<Handle> {
    match info.kind {
        Kind::Cpu => Ok(cpu::open(info, actor, runtime, events)),
        #[cfg(feature = "gpu")]
        _ => gpu::open(info, actor, runtime, events),
        #[cfg(not(feature = "gpu"))]
        _ => Err(crate::Error::adapter(
            format!("adapter {} `{}`", info.index, info.name),
            "needs the cargo feature `gpu`, but this build has none",
            "build with `--features gpu`, or choose `cpu`",
        )),
    }
}

/// Opens adapters with these choices, and not those of the environment variables.
#[cfg(feature = "gpu")]
pub fn opener(options: gpu::Options) -> Opener {
    Arc::new(move |info, actor, runtime, events| match info.kind {
        Kind::Cpu => open(info, actor, runtime, events),
        _ => gpu::open_with(info, actor, runtime, events, options.clone()),
    })
}
