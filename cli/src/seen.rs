//! Classes that rows have and that a model predicts, counted while it is evaluated.

use std::sync::{Arc, Mutex, PoisonError};

use manyhands::logs::Values;
use manyhands::losses::Head;
use manyhands::metrics::{MetricFunction, Position, Settings};
use manyhands::schema::few;
use manyhands::{Compile, Model};
use manyhands_engine::shown::thousands;

use super::baseline::metrics_of;
use super::classes::Names;

/// Name in a log, from which it is taken out again.
const NAME: &str = "seen_classes";
/// Classes that are counted, at most.
const MOST_CLASSES: usize = 4096;

/// Rows of each class, and rows that are predicted as each: a metric, so that they are counted without a second pass.
#[derive(Clone, Debug, Default)]
pub struct SeenClasses(Arc<Mutex<Vec<f64>>>);

impl SeenClasses {
    /// Counts the classes of each output that has one for a row.
    pub fn watch(model: &Model, compile: &mut Compile) -> Vec<Option<Self>> {
        let outputs = model.outputs();
        let heads = compile.losses.iter().map(|loss| loss.head());
        let seen: Vec<Option<Self>> = outputs
            .iter()
            .zip(heads)
            .map(|((_, shape), head)| {
                let has_class = match head {
                    Head::Softmax => shape.positions() == 1 && shape.len() <= MOST_CLASSES,
                    Head::Sigmoid => shape.len() == 1,
                    Head::Values => false,
                };
                has_class.then(Self::default)
            })
            .collect();
        let metrics = seen.iter().enumerate().map(|(output, seen)| {
            let more = seen.clone().map(Into::into);
            metrics_of(compile, output).into_iter().chain(more).collect()
        });
        compile.metrics = metrics.collect();
        seen
    }

    /// Classes with rows that are never predicted, and their rows.
    fn never_predicted(&self) -> Vec<(usize, f64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, predicted) = counts.split_at(counts.len() / 2);
        let all = rows.iter().copied().zip(predicted).enumerate();
        all.filter(|(_, (rows, predicted))| *rows > 0.0 && **predicted == 0.0)
            .map(|(class, (rows, _))| (class, rows))
            .collect()
    }
}

/// The values without these counts.
pub fn without_counts(values: &Values) -> Values {
    let mut rest = Values::default();
    for (name, value) in values.iter().filter(|(name, _)| !name.ends_with(NAME)) {
        rest.set(name, value);
    }
    rest
}

/// Names of the classes that an output never predicts, with their rows, for each output that has some.
pub fn never_predicted(
    model: &Model,
    compile: &Compile,
    seen: &[Option<SeenClasses>],
) -> Vec<(String, Vec<(String, f64)>)> {
    let outputs = model.outputs();
    let all = outputs.iter().zip(&compile.losses).zip(seen).enumerate();
    let of = all.filter_map(|(at, (((output, shape), loss), seen))| {
        let classes = Names::of(loss.head(), shape.len(), model.schema().targets.get(at)).classes;
        let name = |class: usize| classes.get(class).cloned().unwrap_or_else(|| class.to_string());
        let never = seen.as_ref()?.never_predicted().into_iter().map(|(class, rows)| (name(class), rows));
        Some(((*output).to_owned(), never.collect::<Vec<_>>()))
    });
    of.filter(|(_, never)| !never.is_empty()).collect()
}

/// `` `Always` (3 rows), `Often` (1 row)``.
pub fn listed(never: &[(String, f64)]) -> String {
    let one = |(name, rows): &(String, f64)| {
        let what = if *rows == 1.0 { "row" } else { "rows" };
        format!("`{name}` ({} {what})", thousands(rows))
    };
    few(&never.iter().map(one).collect::<Vec<_>>())
}

impl MetricFunction for SeenClasses {
    fn kind(&self) -> &'static str {
        NAME
    }

    fn config(&self) -> Settings {
        Settings::default()
    }

    /// Rows of each class, then rows that are predicted as each.
    fn n_sums(&self, columns: usize) -> usize {
        2 * columns.max(2)
    }

    fn add(&self, position: &Position<'_>, sums: &mut [f64]) {
        let class = |values: &[f64]| match values {
            [only] => usize::from(*only > 0.5),
            several => (0..several.len()).rev().max_by(|a, b| several[*a].total_cmp(&several[*b])).unwrap_or(0),
        };
        let classes = sums.len() / 2;
        sums[class(position.targets)] += 1.0;
        sums[classes + class(position.outputs)] += 1.0;
    }

    /// Keeps the sums of the most rows: those of a batch are told, too.
    fn result(&self, sums: &[f64]) -> f64 {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sums.iter().sum::<f64>() >= kept.iter().sum() {
            *kept = sums.to_vec();
        }
        0.0
    }
}
