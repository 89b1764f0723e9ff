//! Checks that all processes of a run have the same version, settings, weights and data.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::share::hash_of;
use super::{AsyncTrainer, Fit, Trainer};
use crate::data::{Batch, Dataset};
use crate::error::{Error, ErrorKind, Result};
use crate::processes::Joined;

/// Characters of a setting that a message shows.
const MOST_SHOWN: usize = 60;

/// Names and values that are the same in all processes.
type Facts = Vec<(&'static str, String)>;

impl AsyncTrainer<'_> {
    /// Checks that all processes are about to begin the same run. Each of them calls it; `fit` does, too.
    ///
    /// # Errors
    /// If one has other settings, weights or data.
    pub async fn check_alike(&self, train: &dyn Dataset, fit: &Fit) -> Result<()> {
        let Some(joined) = self.trainer.adapters.group.joined() else { return Ok(()) };
        let own = facts(self.trainer, train, fit)?;
        let told: Vec<String> = own.iter().map(|(what, value)| format!("{what}\0{value}")).collect();
        let all = joined.all_gather(told.join("\u{1}").into_bytes()).await?;
        check(joined, &all.iter().map(|message| String::from_utf8_lossy(message).into_owned()).collect::<Vec<_>>())
    }
}

fn facts(trainer: &Trainer, train: &dyn Dataset, fit: &Fit) -> Result<Facts> {
    let Trainer { compile, progress, .. } = trainer;
    let validation = fit.validation.as_deref();
    Ok(vec![
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("number of training rows", train.len().to_string()),
        ("number of validation rows", validation.map_or(0, Dataset::len).to_string()),
        ("batch size", fit.batch_size.to_string()),
        ("number of epochs", fit.epochs.to_string()),
        ("micro_batches", fit.micro_batches.to_string()),
        ("shuffle", fit.shuffle.to_string()),
        ("drop_remainder", fit.drop_remainder.to_string()),
        ("class_weight", format!("{:?}", fit.class_weight)),
        ("augment", format!("{:?}", fit.augment)),
        ("seed", compile.seed.to_string()),
        ("optimizer", format!("{:?}", compile.optimizer)),
        ("losses", format!("{:?}", compile.losses)),
        ("settings of training", format!("{compile:?}")),
        ("position", format!("step {}, epoch {}, batch {}", progress.step, progress.epoch, progress.batch)),
        ("layers", hash(&format!("{:?}", trainer.model.config()))),
        ("weights", format!("{:016x}", hash_of(trainer.adapters.state()))),
        ("training data", data(train)?),
        ("validation data", validation.map_or_else(|| Ok(String::new()), data)?),
    ])
}

/// Names of columns and classes, and some rows, as a hash.
fn data(dataset: &dyn Dataset) -> Result<String> {
    let last = dataset.len().saturating_sub(1);
    let batch = Batch::fetch(dataset, &[0, last / 2, last])?;
    let mut hasher = DefaultHasher::new();
    for values in batch.inputs.iter().chain(&batch.targets) {
        values.iter().for_each(|value| value.to_bits().hash(&mut hasher));
    }
    Ok(format!("{:016x} {}", hasher.finish(), hash(&format!("{:?}", dataset.schema()))))
}

fn hash(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Compares the facts of each process with those of the first.
fn check(joined: &Joined, all: &[String]) -> Result<()> {
    let facts = |told: &str| -> Vec<(String, String)> {
        let pairs = told.split('\u{1}').filter_map(|fact| fact.split_once('\0'));
        pairs.map(|(what, value)| (what.to_owned(), value.to_owned())).collect()
    };
    let first = facts(&all[0]);
    for (rank, told) in all.iter().enumerate().skip(1) {
        let other = facts(told);
        let unlike = first.iter().zip(&other).find(|(first, other)| first != other);
        if let Some(((what, wanted), (_, value))) = unlike {
            return Err(unequal(joined, rank, what, wanted, value));
        }
    }
    Ok(())
}

fn unequal(joined: &Joined, rank: usize, what: &str, wanted: &str, value: &str) -> Error {
    let short = |text: &str| -> String {
        let shown: String = text.chars().take(MOST_SHOWN).collect();
        if shown.len() < text.len() { format!("{shown}…") } else { shown }
    };
    Error::new(
        ErrorKind::Process,
        format!("process {rank} of {}", joined.size()),
        format!("needs the same {what} as process 0, `{}`, but has `{}`", short(wanted), short(value)),
        "start all processes with the same version, settings and data",
    )
}
