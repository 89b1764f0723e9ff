//! The table `[training]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use manyhands::adapters::MemoryLimits;
use manyhands::callbacks::EarlyStopping;
use manyhands::data::{Augmentation, ClassWeighted, Dataset, LoaderSettings};
use manyhands::reading::{ReadError, Tree};
use manyhands::{
    BatchStatistics, CpuFallback, Error, Fit, GradientCompression, Metric, NonFinite, Placement, Precision, Reduction,
    Result, SplitMode,
};
use manyhands_engine::{names, shown::shown};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

#[cfg(test)]
use super::described;
use super::early_stopping::EarlyStoppingTable;

/// The table `[training]`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TrainingTable {
    /// Epochs of the run, counted from its start.
    pub epochs: u64,
    /// Rows of a batch, over all adapters.
    pub batch_size: usize,
    /// Seed of initial weights, shuffling and dropout.
    pub seed: Option<u64>,
    /// Data on which each epoch is evaluated: `"test"`, `"none"`, or a part of the training rows, such as `0.1`: drawn
    /// by `seed`, the same part of each class.
    #[cfg_attr(test, schemars(extend("default" = "test")))]
    pub(super) validation: Validation,
    /// Fold of the training rows that is held out in place of the test data: `"2/5"` is the second of five, drawn by `seed`,
    /// from each class the same part. `train --folds 5` sets it.
    #[serde(deserialize_with = "fold")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) fold: Option<(usize, usize)>,
    /// Adapters to train on: `"all"`, `"0,1"`, `"nvidia,cpu"`. Default: all GPUs, or the CPU if there is none.
    pub adapters: Option<String>,
    /// Folder for all that the run gives: settings, log, checkpoints (best and last), and `report.html`.
    pub run: Option<PathBuf>,
    /// Most memory for the model on adapters: `0=6GB,cpu=2GB`, by position, name or kind. Positions count in the order of
    /// `adapters`, from 0. Where a batch takes more, an adapter gets fewer rows; rows that fit nowhere run in pieces, as with
    /// `micro_batches`.
    pub memory: Option<MemoryLimits>,
    /// Split of each batch: `learned` from speed, `even`, or proportions such as `3:1`.
    #[serde(deserialize_with = "split")]
    #[cfg_attr(test, schemars(with = "String", extend("default" = "learned")))]
    pub split: SplitMode,
    /// Global norm above which gradients are scaled down.
    pub(super) clip_norm: Option<f32>,
    /// Weights of classes in training, by name or number: `{ rose = 2.0, tulip = 0.5 }`, or `"balanced"`: all classes
    /// count alike, by `rows / (classes · rows of the class)` of the training rows. Default: 1 each.
    pub(super) class_weight: ClassWeights,
    /// Names of the layers that are trained; all others are frozen. Default: all.
    pub(super) trainable: Option<Vec<String>>,
    /// Format of gradients on their way to the host, and between processes: `"none"`, or `"fp16"`, half the bytes.
    #[serde(deserialize_with = "names::read")]
    pub(super) gradient_compression: GradientCompression,
    /// Rows over which batch normalization takes mean and variance: `"shard"`, each adapter's own, or `"batch"`, the
    /// whole batch: then every adapter waits twice a layer for the slowest. Not with `micro_batches`.
    #[serde(deserialize_with = "names::read")]
    pub(super) batch_statistics: BatchStatistics,
    /// Numbers with which training computes: `"float32"`, or `"mixed_float16"`: products round both factors to 16-bit
    /// floats and add in 32 bits.
    #[serde(deserialize_with = "names::read")]
    pub(super) precision: Precision,
    /// Whether values within the network are computed again for backward, in place of waiting for it: less memory, and the time of one more
    /// forward pass. The result keeps its bits. What stands beside batch normalization is kept.
    pub(super) recompute: bool,
    /// Whether a short last batch is left out.
    pub drop_remainder: bool,
    /// Parts in which each adapter computes its rows, for one update: more parts need less memory. Gradients are added
    /// on the adapter and sent once.
    pub micro_batches: u32,
    /// Adapters that compute the layers: `"replicas"`, `"auto"`, or a list of stages such as `[{ layers = ["..conv3"],
    /// adapters = [0] }, { layers = ["conv4.."], adapters = [1] }]`.
    pub placement: Placement,
    /// Random changes of the training images, in order.
    #[serde(deserialize_with = "names::read_types")]
    pub(super) augment: Vec<Augmentation>,
    /// Whether rows are shuffled in each epoch.
    pub shuffle: bool,
    /// Threads that read data. Default: one for each core, at most 8.
    #[cfg_attr(test, schemars(skip_serializing_if = "described::is_of_machine"))]
    pub workers: usize,
    /// Batches that are read ahead.
    pub prefetch: usize,
    /// Metrics of the one output, or a list for each output. Default: those of the loss.
    pub(super) metrics: Metrics,
    /// Weights of the losses of several outputs.
    pub(super) loss_weights: Vec<f32>,
    /// Reduction of the rows' losses to one.
    #[serde(deserialize_with = "names::read")]
    pub(super) reduction: Reduction,
    /// Batch size for which the learning rate was chosen: other batch sizes scale the rate in proportion.
    pub(super) learning_rate_batch: Option<usize>,
    /// Treatment of a step whose gradient is not finite: `"stop"`, or `"skip"`, which continues with the next step.
    /// Such a step is never applied.
    #[serde(deserialize_with = "names::read")]
    pub(super) non_finite: NonFinite,
    /// Ends training when a number no longer improves: `{ monitor = "val_loss", patience = 3 }`. The model then gets
    /// the best weights.
    pub(super) early_stopping: Option<EarlyStoppingTable>,
    /// Whether the CPU takes over when every adapter is lost.
    cpu_fallback: bool,
    /// Seconds after which a process that does not answer counts as hung, where several train together.
    pub process_timeout: u64,
}

impl Default for TrainingTable {
    fn default() -> Self {
        Self {
            epochs: 10,
            batch_size: 32,
            seed: None,
            validation: Validation::Test,
            fold: None,
            adapters: None,
            run: None,
            memory: None,
            split: SplitMode::default(),
            class_weight: ClassWeights::default(),
            clip_norm: None,
            trainable: None,
            gradient_compression: GradientCompression::None,
            batch_statistics: BatchStatistics::default(),
            precision: Precision::default(),
            recompute: false,
            drop_remainder: false,
            micro_batches: 1,
            placement: Placement::default(),
            augment: Vec::new(),
            shuffle: true,
            workers: LoaderSettings::default().workers,
            prefetch: LoaderSettings::default().prefetch,
            metrics: Metrics::Default,
            loss_weights: Vec::new(),
            reduction: Reduction::default(),
            learning_rate_batch: None,
            non_finite: NonFinite::default(),
            early_stopping: None,
            cpu_fallback: true,
            process_timeout: 600,
        }
    }
}

impl TrainingTable {
    pub(super) fn check(&self, file: &str) -> Result<()> {
        let refuse = |key: &str, problem: &str, help: &str| {
            Err(Error::setting(format!("`{file}`, key `{key}`,"), problem, help))
        };
        if self.epochs == 0 {
            return refuse("epochs", "needs at least 1, but is 0", "10 is a good first choice");
        }
        if self.micro_batches == 0 {
            return refuse("micro_batches", "needs at least 1, but is 0", "1 computes a batch at once");
        }
        if self.process_timeout == 0 {
            return refuse("process_timeout", "needs at least 1 second, but is 0", "600 is usual");
        }
        if self.batch_size == 0 {
            return refuse("batch_size", "needs at least 1, but is 0", "32 is a good first choice");
        }
        Ok(())
    }

    /// The settings of a run on training data, without files and validation data.
    pub fn fit(&self, train: &dyn Dataset) -> Result<Fit> {
        let mut fit = Fit::new(self.epochs)
            .batch_size(self.batch_size)
            .micro_batches(self.micro_batches)
            .workers(self.workers)
            .prefetch(self.prefetch)
            .augment(self.augment.clone());
        fit.class_weight = self.class_weight.by_label(train)?;
        (fit.shuffle, fit.drop_remainder) = (self.shuffle, self.drop_remainder);
        Ok(fit)
    }

    /// The callback that ends training early, if it is asked for.
    pub fn early_stopping(&self, has_validation: bool) -> Result<Option<EarlyStopping>> {
        self.early_stopping.as_ref().map(|table| table.callback(has_validation)).transpose()
    }

    pub fn cpu_fallback(&self) -> CpuFallback {
        if self.cpu_fallback { CpuFallback::Allowed } else { CpuFallback::Refused }
    }
}

/// Weights of classes.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(schema_with = "described::class_weight"))]
pub(super) enum ClassWeights {
    /// By name or number.
    Each(BTreeMap<String, f32>),
    /// All classes count alike.
    Balanced,
}

impl Default for ClassWeights {
    fn default() -> Self {
        Self::Each(BTreeMap::new())
    }
}

impl ClassWeights {
    /// Weights by label, for these training data.
    fn by_label(&self, train: &dyn Dataset) -> Result<BTreeMap<usize, f32>> {
        let Self::Each(weights) = self else { return ClassWeighted::balanced(train) };
        let schema = train.schema();
        let known: Vec<&str> = schema.classes(0).iter().map(String::as_str).collect();
        let label = |name: &str| known.iter().position(|class| *class == name).or_else(|| name.parse().ok());
        let of = |(name, weight): (&String, &f32)| match label(name) {
            Some(label) => Ok((label, *weight)),
            None => Err(Error::setting(
                "key `class_weight`",
                format!("needs names of classes or numbers from 0 up, but names `{}`", shown(name)),
                names::help(name, "the classes are", &known),
            )),
        };
        weights.iter().map(of).collect()
    }
}

impl<'de> Deserialize<'de> for ClassWeights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Weights;
        impl<'de> Visitor<'de> for Weights {
            type Value = ClassWeights;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"balanced\", or weights of classes such as { rose = 2.0 }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ClassWeights, E> {
                match text {
                    "balanced" => Ok(ClassWeights::Balanced),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClassWeights, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(map)).map(ClassWeights::Each)
            }
        }
        deserializer.deserialize_any(Weights)
    }
}

/// Data by which each epoch is evaluated.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(schema_with = "described::validation"))]
pub(super) enum Validation {
    /// The test data, if there are any.
    Test,
    None,
    /// Training rows set aside.
    Fraction(f64),
}

impl<'de> Deserialize<'de> for Validation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source;
        impl Visitor<'_> for Source {
            type Value = Validation;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"test\", \"none\", or the fraction of the training rows to set aside, such as 0.1")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Validation, E> {
                match text {
                    "test" => Ok(Validation::Test),
                    "none" => Ok(Validation::None),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_f64<E: de::Error>(self, fraction: f64) -> Result<Validation, E> {
                Ok(Validation::Fraction(fraction))
            }
        }
        deserializer.deserialize_any(Source)
    }
}

/// Metrics: of the one output, or of each.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "Vec<described::OneOrEach>"))]
pub(super) enum Metrics {
    /// Default metrics of the losses.
    Default,
    One(Vec<Metric>),
    Many(Vec<Vec<Metric>>),
}

impl Metrics {
    pub(super) fn of_outputs(&self, outputs: usize) -> Option<Vec<Vec<Metric>>> {
        match self {
            Self::Default => Some(Vec::new()),
            Self::One(metrics) => (outputs == 1).then(|| vec![metrics.clone()]),
            Self::Many(metrics) => (outputs == metrics.len()).then(|| metrics.clone()),
        }
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListOfMetrics)
    }
}

struct ListOfMetrics;

impl<'de> Visitor<'de> for ListOfMetrics {
    type Value = Metrics;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of metrics")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Metrics, A::Error> {
        let (mut one, mut many) = (Vec::new(), Vec::new());
        let read = |item| names::read_variant(item).map_err(ReadError::raise);
        while let Some(item) = items.next_element()? {
            match item {
                Tree::List(metrics) => many.push(metrics.into_iter().map(read).collect::<Result<_, _>>()?),
                metric => one.push(read(metric)?),
            }
        }
        match (one.is_empty(), many.is_empty()) {
            (_, true) => Ok(Metrics::One(one)),
            (true, false) => Ok(Metrics::Many(many)),
            (false, false) => Err(de::Error::custom("needs metrics, or lists of metrics, not both")),
        }
    }
}

fn split<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SplitMode, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_split(&text).map_err(de::Error::custom)
}

/// A fold as settings name it: `2/5`, as its number and the number of folds.
fn fold<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<(usize, usize)>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let fold = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
    match fold {
        Some((number, of)) if of > 1 && (1..=of).contains(&number) => Ok(fold),
        _ => Err(de::Error::custom(format!(
            "needs a fold such as `2/5`, the second of five, but got `{}`",
            shown(&text)
        ))),
    }
}

/// `learned`, `even`, or proportions such as `3:1`.
pub fn parse_split(text: &str) -> Result<SplitMode, String> {
    let parts = || text.split(':').map(|part| part.trim().parse().ok()).collect::<Option<Vec<f64>>>();
    match text {
        "learned" => Ok(SplitMode::Learned),
        "even" => Ok(SplitMode::Even),
        _ => parts()
            .map(SplitMode::Fixed)
            .ok_or_else(|| format!("needs `learned`, `even` or proportions such as `3:1`, but got `{text}`")),
    }
}
