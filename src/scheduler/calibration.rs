//! The first estimate of each adapter's speed: the first batch is run at two sizes, and nothing is committed.

use crate::adapters::Combining;
use crate::data::Batch;
use crate::error::Result;
use crate::plan::{Pass, Scalars};

use super::Scheduler;
use super::shards::Shard;
use super::timeline::What;

/// Part of an even share that the small size is.
const SMALL_PART: u32 = 4;

impl Scheduler {
    /// Measures all adapters at two sizes at once, before the first step of a learned split.
    ///
    /// The first run warms up: drivers compile late, and caches are cold.
    pub(super) async fn calibrate(&mut self, batch: &Batch, scalars: &Scalars) -> Result<()> {
        if std::mem::replace(&mut self.is_calibrated, true) || !self.splitter.is_learned() {
            return Ok(());
        }
        let n_adapters = super::shards::count(self.members.len());
        let large =
            (scalars.rows / n_adapters).min(self.members.iter().map(|member| member.capacity).min().unwrap_or(0));
        let small = large / SMALL_PART;
        if small < self.splitter.min_rows() || self.members.len() < 2 {
            return Ok(());
        }
        let begin_ms = self.runtime.now_ms();
        self.measure(batch, scalars, small).await?;
        let small_ms = self.measure(batch, scalars, small).await?;
        let large_ms = self.measure(batch, scalars, large).await?;
        // The CPU adapter may have joined between the two.
        for (adapter_idx, times) in small_ms.into_iter().zip(large_ms).enumerate() {
            let (Some(small_ms), Some(large_ms)) = times else { continue };
            self.splitter.calibrate(adapter_idx, (small, small_ms), (large, large_ms));
            log::debug!("{}: {:?}", self.who(adapter_idx), self.splitter.estimate(adapter_idx));
        }
        self.record(What::Calibrate, begin_ms, Some(u64::from(scalars.step)), scalars.rows);
        Ok(())
    }

    /// Milliseconds that each adapter is busy with the first `rows` of a batch, all at once. `None` for those that are
    /// lost, or have turned out to have too little memory.
    async fn measure(&mut self, batch: &Batch, scalars: &Scalars, rows: u32) -> Result<Vec<Option<f64>>> {
        let members = self.members.iter().enumerate();
        let able = members.filter(|(_, member)| member.is_alive() && member.capacity >= rows).map(|(idx, _)| idx);
        let shards = able.map(|adapter_idx| Shard { adapter_idx, first: 0, rows: rows as usize }).collect();
        let answers = self.round(Pass::Train, batch, scalars, shards, Combining::Host).await?;
        let mut times = vec![None; self.members.len()];
        // A round that began anew, because an adapter was lost or ran out of memory, is split in another way.
        for answer in answers.iter().filter(|answer| answer.shard.rows == rows as usize) {
            times[answer.shard.adapter_idx] = Some(answer.timing.busy_ms());
        }
        Ok(times)
    }
}
