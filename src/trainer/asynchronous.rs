//! Functions of a trainer that do not block.

use super::{Fit, Trainer};
use crate::error::Result;

/// The functions of a [`Trainer`] that wait, without blocking: for pages, and for callers with an executor of their own.
///
/// ```
/// use std::sync::Arc;
/// use manyhands::data::digits;
/// use manyhands::layers::{Dense, Flatten};
/// use manyhands::{Compile, Fit, Loss, Optimizer, Sequential, Trainer};
/// # fn main() -> manyhands::Result<()> {
/// let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
/// let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
/// let mut trainer = Trainer::new(model, compile)?.adapters("cpu")?;
/// let history = pollster::block_on(trainer.asynchronous().fit(Arc::new(digits::train()?), &Fit::new(1), &mut []))?;
/// assert_eq!(history.epochs.len(), 1);
/// # Ok(())
/// # }
/// ```
pub struct AsyncTrainer<'a> {
    pub(super) trainer: &'a mut Trainer,
}

impl Trainer {
    /// The functions that wait, without blocking.
    pub fn asynchronous(&mut self) -> AsyncTrainer<'_> {
        AsyncTrainer { trainer: self }
    }
}

impl AsyncTrainer<'_> {
    /// Opens the adapters for a run over `rows` training rows, if they are not open yet, and the file in which the run
    /// is saved, without blocking. Batches hold no more rows than the training or validation data.
    ///
    /// # Errors
    /// If no adapter can be opened, one can't run the model, or another run is, or was, saved to that file.
    pub async fn open(&mut self, fit: &Fit, rows: usize) -> Result<()> {
        let save = fit.save.as_ref().filter(|_| self.trainer.adapters.group.is_first());
        self.trainer.saving.open(save, self.trainer.progress.step)?;
        let rows = fit.validation.as_ref().map_or(rows, |validation| rows.max(validation.len()));
        let opened = self.open_for(fit.batch_size.min(rows), fit.micro_batches).await;
        self.trainer.adapters.group.shared(opened).await
    }

    /// Opens the adapters for batches of so many rows in so many parts, if they are not open for them.
    pub(super) async fn open_for(&mut self, batch_size: usize, micro_batches: u32) -> Result<()> {
        if self.trainer.adapters.can_run(batch_size, micro_batches) {
            return Ok(());
        }
        if !self.trainer.adapters.keeps_open(micro_batches) {
            self.trainer.sync_state().await?;
        }
        self.trainer.adapters.open(&self.trainer.model, &self.trainer.compile, batch_size, micro_batches).await?;
        self.trainer.follow_rewind();
        self.trainer.share.meet(&mut self.trainer.adapters, batch_size).await
    }
}
