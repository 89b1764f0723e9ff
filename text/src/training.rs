//! Settings of training by which language models are fine-tuned: those of PEFT's examples, with `AdamW` as PyTorch has it.

use manyhands::losses::SparseCategoricalCrossentropy;
use manyhands::optimizers::AdamW;
use manyhands::{Compile, Error, Metric, Result, Schedule};

use crate::examples::NOT_LEARNED_CLASS;

/// The learning rate, unless another one is asked for.
pub const LEARNING_RATE: f32 = 2e-4;

/// Training steps in which the learning rate rises from 0, and steps behind them in which it falls to 0 by a cosine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Steps of the rise.
    pub warmup: u64,
    /// Steps of the fall.
    pub decay: u64,
}

impl Steps {
    /// The steps of a run: 3 % of them are the rise.
    pub fn of(rows: usize, batch_size: usize, epochs: usize) -> Self {
        Self::of_all(rows.div_ceil(batch_size.max(1)).saturating_mul(epochs) as u64)
    }

    /// Steps of another number of epochs, if these are the steps of `epochs`.
    ///
    /// A run that goes on for more epochs would else learn nothing in them: its rate has fallen to 0.
    pub fn stretched(self, epochs: u64, to: u64) -> Option<Self> {
        let all = self.warmup + self.decay;
        let is_own = epochs > 0 && all.is_multiple_of(epochs) && Self::of_all(all) == self;
        is_own.then(|| Self::of_all((all / epochs).saturating_mul(to)))
    }

    fn of_all(steps: u64) -> Self {
        // In whole numbers, rounded up.
        let warmup = steps.saturating_mul(3).div_ceil(100);
        Self { warmup, decay: steps.saturating_sub(warmup).max(1) }
    }
}

/// Refuses a learning rate that can't train. `who` names the setting, whose default is `usual`.
///
/// # Errors
/// If it is below 0, or not finite.
pub fn check_learning_rate(who: &str, learning_rate: f32, usual: f32) -> Result<()> {
    if learning_rate.is_finite() && learning_rate >= 0.0 {
        return Ok(());
    }
    let problem = format!("needs to be a number of at least 0, but is {learning_rate}");
    Err(Error::setting(who, problem, format!("leave it out to take {usual:e}")))
}

/// Optimizer, loss, metric and schedule: `AdamW` without decay, the mean loss of the tokens that are learned, gradients cut at a norm of 1.
pub fn compile(learning_rate: f32, steps: Steps, seed: u64) -> Compile {
    let optimizer = AdamW { learning_rate, weight_decay: 0.0, epsilon: 1e-8, outer_epsilon: true, ..AdamW::default() };
    let loss = SparseCategoricalCrossentropy { ignore_class: Some(NOT_LEARNED_CLASS), ..Default::default() };
    let schedule = Schedule::CosineDecay { decay_steps: steps.decay, alpha: 0.0, warmup_steps: steps.warmup };
    let compile = Compile::new(optimizer, loss).metrics([Metric::Perplexity]).schedule(schedule);
    compile.clip_norm(1.0).seed(seed)
}
