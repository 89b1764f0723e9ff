//! Memory of training: limits, and what it takes on an adapter, known before anything is opened.

use super::Trainer;
use super::adapters::capacity_of;
use crate::error::Result;
use manyhands_engine::adapters::memory::{self, MemoryNeed};
use manyhands_engine::adapters::{Kind, MemoryLimits};

impl Trainer {
    /// Sets the most memory that the model may take on adapters, when they are opened. An adapter on which a batch takes
    /// more runs its rows in pieces: the result is that of `micro_batches`.
    ///
    /// ```
    /// use manyhands::data::digits;
    /// use manyhands::layers::{Dense, Flatten};
    /// use manyhands::{Compile, Fit, Loss, Optimizer, Sequential, Trainer};
    /// # fn main() -> manyhands::Result<()> {
    /// let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
    /// let compile = Compile::new(Optimizer::sgd(0.1, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    /// let mut trainer = Trainer::new(model, compile)?.adapters("cpu")?.memory("cpu=50kB".parse()?);
    /// trainer.fit(digits::train()?, &Fit::new(1).batch_size(256))?;
    /// assert!(trainer.open_adapters()[0].bytes <= 50_000);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn memory(mut self, limits: MemoryLimits) -> Self {
        self.adapters.close();
        self.adapters.forget_speeds();
        self.adapters.limits = limits;
        self
    }

    /// Memory that training takes on an adapter of a kind in each stage of the [`placement`](Self::placement), within a limit of
    /// bytes: `None` for a stage of which one row takes more. Without stages, or before they are chosen, it is that of [`memory_need`](Self::memory_need).
    ///
    /// # Errors
    /// If the placement does not go with the model, or there are more rows than can be counted.
    pub fn stage_needs(
        &self,
        kind: Kind,
        batch_size: usize,
        micro_batches: u32,
        limit: Option<u64>,
    ) -> Result<Vec<Option<MemoryNeed>>> {
        let Some(nodes) = self.adapters.nodes(&self.model)? else {
            return Ok(vec![self.memory_need(kind, batch_size, micro_batches, limit)?]);
        };
        let (most, limit) = (capacity_of(batch_size, micro_batches)?, limit.unwrap_or(u64::MAX));
        let objective = self.compile.objective().for_micro_batches(micro_batches);
        let stages = self.model.stages(Some(&objective), &nodes)?;
        Ok(stages.iter().map(|stage| memory::need(&stage.plan, most, kind, limit).ok()).collect())
    }

    /// Memory that training takes on an adapter of a kind that may get a whole batch, within a limit of bytes; `None` if
    /// one row takes more.
    ///
    /// # Errors
    /// If there are more rows than can be counted.
    pub fn memory_need(
        &self,
        kind: Kind,
        batch_size: usize,
        micro_batches: u32,
        limit: Option<u64>,
    ) -> Result<Option<MemoryNeed>> {
        let (most, limit) = (capacity_of(batch_size, micro_batches)?, limit.unwrap_or(u64::MAX));
        let plan = |pieces| self.model.plan(&self.compile.objective().for_micro_batches(pieces));
        Ok(memory::need_of_copy(plan, micro_batches, most, kind, limit)?.ok())
    }
}
