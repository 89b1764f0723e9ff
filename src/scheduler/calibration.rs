//! First estimate of each adapter's speed: the first batch is run at two sizes, and nothing is committed.

use super::Scheduler;
use super::open_runs::{Among, Job};
use super::shards::Shard;
use super::timeline::Activity;
use crate::data::Batch;
use crate::error::Result;
use crate::plan::{Pass, Scalars};
use manyhands_engine::adapters::Combining;

/// Small size, as a part of an even share.
const SMALL_PART: u32 = 4;

/// Measures all adapters at two sizes at once, before the first step of a learned split.
///
/// The first run warms up: drivers compile late, and caches are cold.
pub(super) async fn calibrate(scheduler: &mut Scheduler, batch: &Batch, scalars: &Scalars) -> Result<()> {
    if !scheduler.partition.wants_calibration() {
        return Ok(());
    }
    let members = &scheduler.rig.members;
    let n_adapters = members.iter().fold(0_u32, |n_adapters, _| n_adapters + 1).max(1);
    let smallest = members.iter().map(|member| member.capacity).min().unwrap_or(0);
    let large = (scalars.rows / n_adapters).min(smallest);
    let small = large / SMALL_PART;
    if small < scheduler.partition.splitter().min_rows() || members.len() < 2 {
        return Ok(());
    }
    let begin_ms = scheduler.rig.runtime.now_ms();
    measure(scheduler, batch, scalars, small).await?;
    let small_ms = measure(scheduler, batch, scalars, small).await?;
    let large_ms = measure(scheduler, batch, scalars, large).await?;
    // The CPU adapter may have joined between the two.
    for (adapter_idx, times) in small_ms.into_iter().zip(large_ms).enumerate() {
        let (Some(small_ms), Some(large_ms)) = times else { continue };
        let splitter = scheduler.partition.splitter_mut();
        splitter.calibrate(adapter_idx, (small, small_ms), (large, large_ms));
        log::debug!("{}: {:?}", scheduler.rig.name(adapter_idx), splitter.estimate(adapter_idx));
    }
    scheduler.rig.record(Activity::Calibrate, begin_ms, Some(u64::from(scalars.step)), scalars.rows);
    Ok(())
}

/// Milliseconds that each adapter is busy with the first `rows` of a batch, all at once. `None` for adapters that were
/// lost, or have too little memory.
async fn measure(scheduler: &mut Scheduler, batch: &Batch, scalars: &Scalars, rows: u32) -> Result<Vec<Option<f64>>> {
    let members = scheduler.rig.members.iter().enumerate();
    let able = members.filter(|(_, member)| member.is_active() && member.capacity >= rows).map(|(idx, _)| idx);
    let shards = able.map(|adapter_idx| Shard::whole(adapter_idx, 0, rows)).collect();
    let job = Job { pass: Pass::Train, batch, scalars, combining: Combining::Host, among: Among::Adapters };
    let answers = scheduler.round(job).run(shards).await?;
    let mut times = vec![None; scheduler.rig.members.len()];
    // A restarted round, after an adapter was lost or ran out of memory, has another split.
    for answer in answers.iter().filter(|answer| answer.shard.rows == rows) {
        times[answer.shard.adapter_idx] = Some(answer.timing.busy_ms());
    }
    Ok(times)
}
