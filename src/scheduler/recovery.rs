//! Continues a run on adapters that were left out, or on the CPU adapter, when no other is left.

use super::partition::Partition;
use super::rig::Rig;
use super::state::State;
use crate::error::Result;
use manyhands_engine::adapters::Fault;

/// Opens the adapters that the placement has left out, if no other is active; without them the CPU adapter, if this is allowed.
///
/// If the only adapter was lost with steps that the host has no copy of, the state is rewound to the last copy, and the CPU
/// takes the place of that adapter. Otherwise nothing was lost, and other adapters may be reopened beside it.
///
/// # Errors
/// If the CPU adapter is not allowed, or fails, too.
pub(super) async fn ensure_active(rig: &mut Rig, state: &mut State, partition: &mut Partition) -> Result<()> {
    if rig.has_active() {
        return Ok(());
    }
    let only = rig.only();
    if rig.recall_spares().await? {
        if state.is_behind() {
            state.rewind();
        }
        state.move_to_host();
        return Ok(());
    }
    if !state.is_behind() {
        state.move_to_host();
        rig.add_cpu(0).await?;
        partition.grow_to(rig.members.len());
        return Ok(());
    }
    if !rig.may_use_cpu() {
        return Err(rig.refused(only, &Fault::Lost("with what it had trained".into())));
    }
    rig.replace_by_cpu(only).await?;
    partition.forget(only);
    state.rewind();
    if partition.needs_host(rig) {
        state.move_to_host();
    }
    Ok(())
}
