//! A metric by its name: one that a loss tells of each row, or one that is counted from outputs and targets.

use std::fmt;
use std::sync::Arc;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::function::{Entry, MetricFunction, check_merge};
use super::mean::MeanAbsoluteErrorOf;
use super::mode::Mode;
use super::table::{KINDS, METRICS};
use crate::error::Problem;
use crate::kind::known_names;
use crate::losses::{LossFunction, Score, Target};
use crate::reading::{self, ReadError, ReadReason};
use crate::shape::Shape;

/// A metric that is reported beside the loss, by its Keras name.
///
/// ```
/// use manyhands::Metric;
/// use manyhands::metrics::{AUC, Precision};
///
/// let metrics: Vec<Metric> = vec![Metric::Accuracy, AUC::default().into(), Precision::default().into()];
/// assert_eq!(metrics.iter().map(Metric::name).collect::<Vec<_>>(), ["accuracy", "auc", "precision"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case", transform = add_counted))]
pub enum Metric {
    /// Part of the rows whose likeliest class, the first of several, is the true one (binary: part of the columns on
    /// the right side).
    Accuracy,
    /// Part of the rows for which fewer than `k` classes are likelier than the true one: ties count, as in Keras.
    TopKCategoricalAccuracy {
        /// Number of classes that count.
        k: u32,
    },
    /// Mean of `|output - target|`.
    MeanAbsoluteError,
    /// `exp` of the mean cross-entropy of all positions, by their sample weights: the number of classes among which a model
    /// that is as unsure as this one would guess. With the two categorical cross-entropies.
    Perplexity,
    /// Mean of the score that a loss of your own reports under this name.
    #[cfg_attr(feature = "schema", schemars(skip))]
    Own(String),
    /// Counted over the whole dataset from outputs and targets: one of [`metrics`](crate::metrics), or your own.
    #[cfg_attr(feature = "schema", schemars(skip))]
    Counted(Counted),
}

/// Adds the metrics of the table to those that a loss tells: each is a name, or the only key of a table.
#[cfg(feature = "schema")]
fn add_counted(schema: &mut schemars::Schema) {
    let settings = schemars::generate::SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    let mut generator = settings.into_generator();
    let all = super::table::DESCRIBED.iter().flat_map(|(kind, describe)| {
        let settings = describe(&mut generator);
        let properties = serde_json::json!({ *kind: settings });
        [
            serde_json::json!({ "title": kind, "const": kind }),
            serde_json::json!({ "title": kind, "type": "object", "properties": properties, "required": [kind] }),
        ]
    });
    let counted: Vec<Value> = all.collect();
    if let Some(each) = schema.get_mut("oneOf").and_then(Value::as_array_mut) {
        each.extend(counted);
    }
}

/// A [`MetricFunction`], shared by its clones.
#[derive(Clone)]
pub struct Counted(Arc<dyn MetricFunction>);

impl Counted {
    /// The function behind it.
    pub fn function(&self) -> &dyn MetricFunction {
        &*self.0
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Metrics are equal if kind and settings are.
impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        (self.0.kind(), self.0.config()) == (other.0.kind(), other.0.config())
    }
}

impl Eq for Counted {}

impl<M: MetricFunction + 'static> From<M> for Metric {
    fn from(metric: M) -> Self {
        Self::Counted(Counted(Arc::new(metric)))
    }
}

const ACCURACY: &str = "accuracy";
const TOP_K: &str = "top_k_categorical_accuracy";
const MEAN_ABSOLUTE_ERROR: &str = "mean_absolute_error";
const PERPLEXITY: &str = "perplexity";
const OWN: &str = "own";

impl Metric {
    /// Name in a log.
    pub fn name(&self) -> String {
        match self {
            Self::Accuracy => ACCURACY.into(),
            Self::TopKCategoricalAccuracy { k } => format!("top_{k}_accuracy"),
            Self::MeanAbsoluteError => MEAN_ABSOLUTE_ERROR.into(),
            Self::Perplexity => PERPLEXITY.into(),
            Self::Own(name) => name.clone(),
            Self::Counted(counted) => counted.0.name(),
        }
    }

    /// Direction in which it improves, as in Keras; none for a number of your own loss.
    pub fn mode(&self) -> Option<Mode> {
        match self {
            Self::Accuracy | Self::TopKCategoricalAccuracy { .. } => Some(Mode::Max),
            Self::MeanAbsoluteError | Self::Perplexity => Some(Mode::Min),
            Self::Own(_) => None,
            Self::Counted(counted) => counted.0.mode(),
        }
    }

    /// Merges sums of other positions into sums of its own over the whole dataset.
    #[doc(hidden)]
    pub fn merge(&self, part: &[f64], sums: &mut [f64]) {
        match self.counted() {
            Some(function) => function.merge(part, sums),
            // Losses and weights of perplexity.
            None => sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part),
        }
    }

    /// The function that counts it from outputs and targets, if it is such a metric.
    #[doc(hidden)]
    pub fn counted(&self) -> Option<&dyn MetricFunction> {
        match self {
            Self::Counted(counted) => Some(counted.function()),
            _ => None,
        }
    }

    /// Whether it has sums of its own over the whole dataset, and is no mean of batches.
    #[doc(hidden)]
    pub fn is_counted(&self) -> bool {
        matches!(self, Self::Perplexity | Self::Counted(_))
    }

    /// The metric as it is computed beside a loss: one that the loss does not tell is counted from outputs and targets.
    pub(crate) fn beside(self, loss: &dyn LossFunction) -> Self {
        match self {
            Self::MeanAbsoluteError if loss.score() != Score::AbsoluteError => MeanAbsoluteErrorOf {}.into(),
            other => other,
        }
    }

    /// Checks the settings, and that the metric can be computed for an output with a loss.
    ///
    /// # Errors
    /// If not.
    #[doc(hidden)]
    pub fn check(&self, loss: &dyn LossFunction, output: &Shape) -> Result<(), Problem> {
        let target: Target = loss.target(output);
        match self {
            Self::TopKCategoricalAccuracy { k: 0 } => {
                Err(Problem::new("needs `k` of at least 1, but is 0", "5 is usual"))
            }
            Self::Counted(counted) => {
                counted.0.check(output, &target)?;
                check_merge(counted.function(), output.last())
            }
            Self::Perplexity if loss.kind().ends_with("CategoricalCrossentropy") => Ok(()),
            Self::Perplexity => Err(Problem::new(
                format!("can't be computed from the loss `{}`", loss.kind()),
                "perplexity goes with `SparseCategoricalCrossentropy` and `CategoricalCrossentropy`",
            )),
            _ if self.value(loss.score(), 0.0).is_some() => Ok(()),
            _ => Err(Problem::new(
                format!("can't be computed from the loss `{}`", loss.kind()),
                "accuracy goes with cross-entropies and hinges",
            )),
        }
    }

    /// The value of one position, from its score; `None` if the loss does not tell.
    #[allow(clippy::cast_precision_loss, reason = "k is a small number")]
    #[doc(hidden)]
    pub fn value(&self, score: Score, value: f32) -> Option<f64> {
        match (self, score) {
            (Self::Accuracy, Score::Rank) => Some(f64::from(u8::from(value < 0.25))),
            (Self::Accuracy, Score::Hits) | (Self::MeanAbsoluteError, Score::AbsoluteError) => Some(f64::from(value)),
            (Self::TopKCategoricalAccuracy { k }, Score::Rank) => Some(f64::from(u8::from(value < *k as f32))),
            (Self::Own(name), Score::Own(own)) if name == own => Some(f64::from(value)),
            _ => None,
        }
    }

    /// The metric that goes with a loss where none is named.
    #[doc(hidden)]
    pub fn default_of(loss: &dyn LossFunction) -> Self {
        match loss.score() {
            Score::Rank | Score::Hits => Self::Accuracy,
            Score::AbsoluteError => Self::MeanAbsoluteError,
            Score::Own(name) => Self::Own(name.into()),
        }
    }
}

/// Settings in the order of their struct.
struct Ordered<'a>(Vec<(&'a str, &'a Value)>);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Accuracy | Self::MeanAbsoluteError | Self::Perplexity => serializer.serialize_str(&self.name()),
            Self::TopKCategoricalAccuracy { k } => {
                serializer.collect_map([(TOP_K, Ordered(vec![("k", &Value::from(*k))]))])
            }
            Self::Own(name) => serializer.collect_map([(OWN, name)]),
            Self::Counted(Counted(function)) => {
                // What is null has its default.
                let config = function.config();
                let settings: Vec<_> = config.iter().filter(|(_, value)| !value.is_null()).collect();
                if settings.is_empty() {
                    return serializer.serialize_str(function.kind());
                }
                serializer.collect_map([(function.kind(), Ordered(settings))])
            }
        }
    }
}

/// A metric as a file has it, before its name is looked up: some may be the user's.
pub(crate) struct MetricRead {
    name: String,
    settings: Option<Value>,
}

impl<'de> Deserialize<'de> for MetricRead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = MetricRead;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a metric, or a table with the name as its only key")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<MetricRead, E> {
                Ok(MetricRead { name: name.into(), settings: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MetricRead, A::Error> {
                let Some((name, settings)) = map.next_entry()? else {
                    return Err(A::Error::custom("needs the name of a metric, but the table is empty"));
                };
                match map.next_key::<String>()? {
                    None => Ok(MetricRead { name, settings: Some(settings) }),
                    Some(other) => {
                        Err(A::Error::custom(format!("needs one metric in a table, but has `{name}` and `{other}`")))
                    }
                }
            }
        }
        deserializer.deserialize_any(NameOrTable)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopK {
    k: u32,
}

impl MetricRead {
    /// Looks the name up, also among the user's own metrics.
    ///
    /// # Errors
    /// If it is unknown, or the settings are not those of it.
    pub(crate) fn metric(self, own: &[Entry]) -> Result<Metric, ReadError> {
        let Self { name, settings } = self;
        let plain = |metric| match settings {
            None => Ok(metric),
            Some(_) => Err(format!("`{name}` has no settings").into()),
        };
        match name.as_str() {
            ACCURACY => return plain(Metric::Accuracy),
            MEAN_ABSOLUTE_ERROR => return plain(Metric::MeanAbsoluteError),
            PERPLEXITY => return plain(Metric::Perplexity),
            _ => {}
        }
        let settings = settings.unwrap_or_else(|| serde_json::json!({}));
        match name.as_str() {
            TOP_K => reading::read(&settings.into()).map(|TopK { k }| Metric::TopKCategoricalAccuracy { k }),
            OWN => reading::read(&settings.into()).map(Metric::Own),
            _ => match own.iter().chain(METRICS).find(|entry| entry.kind == name) {
                Some(entry) => (entry.from_config)(settings).map(|function| Metric::Counted(Counted(function))),
                None => Err(ReadReason::UnknownVariant { name, known: known_names(own, &ALL) }.into()),
            },
        }
    }
}

/// Metrics that are no entries.
const OF_ROWS: [&str; 5] = [ACCURACY, TOP_K, MEAN_ABSOLUTE_ERROR, PERPLEXITY, OWN];

/// Names of all metrics.
static ALL: [&str; OF_ROWS.len() + KINDS.len()] = all();

const fn all<const N: usize>() -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = if at < OF_ROWS.len() { OF_ROWS[at] } else { KINDS[at - OF_ROWS.len()] };
        at += 1;
    }
    names
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        MetricRead::deserialize(deserializer)?.metric(&[]).map_err(ReadError::raise)
    }
}
