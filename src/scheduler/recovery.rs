//! Continues a run on the CPU adapter when no adapter is left.

use super::partition::Partition;
use super::rig::Rig;
use super::state::State;
use crate::adapters::Fault;
use crate::error::Result;

/// Adds the CPU adapter if no other is active and this is allowed.
///
/// If the only adapter was lost with steps that the host has no copy of, the CPU takes its place and the state is
/// rewound to the last copy. Otherwise nothing was lost, and other adapters may be reopened beside it.
///
/// # Errors
/// If it is not allowed, or the CPU adapter fails, too.
pub(super) async fn ensure_active(rig: &mut Rig, state: &mut State, partition: &mut Partition) -> Result<()> {
    if rig.has_active() {
        return Ok(());
    }
    if !state.is_behind() {
        state.move_to_host();
        rig.add_cpu(0).await?;
        partition.grow_to(rig.members.len());
        return Ok(());
    }
    if !rig.may_use_cpu() {
        return Err(rig.refused(0, &Fault::Lost("with what it had trained".into())));
    }
    rig.replace_by_cpu(0).await?;
    partition.forget(0);
    state.rewind();
    if partition.needs_host(rig) {
        state.move_to_host();
    }
    Ok(())
}
