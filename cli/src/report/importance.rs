//! Permutation importance: how much worse a model's score gets when the values of a column are shuffled.

use std::ops::Range;
use std::sync::Arc;

use manyhands::data::{Batch, BatchMut, Dataset, Field, Schema, Subset};
use manyhands::{Result, Shape, Trainer};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::spread::mean_and_deviation;

/// Times that each column is shuffled; scikit-learn's default.
const REPEATS: u64 = 5;
/// Rows that are evaluated for it, over all columns and repetitions. Of more rows, evenly spaced ones are taken.
const MOST_EVALUATED: usize = 1 << 20;
/// Rows below which a score is too coarse, where columns are so many.
const FEWEST_ROWS: usize = 100;

/// Importance of the columns of a table. Source: Breiman 2001, "Random forests", as scikit-learn's `permutation_importance`
/// defines it: the score less the score with the column shuffled.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Importance {
    /// The number that is compared: `accuracy`.
    pub metric: String,
    /// Its value with no column shuffled.
    pub score: f64,
    /// Rows that were evaluated.
    pub rows: usize,
    /// Times that each column was shuffled.
    pub repeats: u64,
    /// The columns, the most important first.
    pub columns: Vec<ColumnImportance>,
}

/// Importance of a column.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnImportance {
    pub name: String,
    /// Mean over the repetitions of how much worse the score gets.
    pub mean: f64,
    /// Standard deviation over the repetitions.
    pub deviation: f64,
}

/// Importance of the columns for a trainer's model, by its first metric, or its loss where it has several outputs. `None` where
/// the inputs are no columns of a table, or too many.
pub fn importance(
    trainer: &mut Trainer,
    dataset: &Arc<dyn Dataset>,
    batch_size: usize,
    seed: u64,
) -> Result<Option<Importance>> {
    let columns = columns(trainer.model().schema(), &dataset.input_shapes());
    let budget = MOST_EVALUATED / columns.len().max(1) / usize::try_from(REPEATS).unwrap_or(1);
    if columns.len() < 2 || budget < FEWEST_ROWS.min(dataset.len()) {
        return Ok(None);
    }
    let n_outputs = trainer.model().outputs().len();
    let reported = trainer.reported(false).into_iter().find(|number| (number.name == "loss") == (n_outputs > 1));
    let Some((metric, mode)) = reported.and_then(|number| Some((number.name, number.mode?))) else { return Ok(None) };
    let rows: Vec<usize> = (0..dataset.len()).step_by(dataset.len().div_ceil(budget).max(1)).collect();
    let rows: Arc<dyn Dataset> = Arc::new(Subset::new(dataset.clone(), rows)?);
    let whole = Batch::fetch(rows.as_ref(), &(0..rows.len()).collect::<Vec<_>>())?;
    let mut score = |rows: Arc<dyn Dataset>| -> Result<f64> {
        Ok(trainer.evaluate(rows, batch_size)?.get(&metric).unwrap_or(f64::NAN))
    };
    let unshuffled = score(rows.clone())?;
    let mut found = Vec::new();
    for (at, (name, place)) in columns.into_iter().enumerate() {
        let mut drops = Vec::new();
        for repeat in 0..REPEATS {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(at as u64 * REPEATS + repeat);
            let shuffled = Shuffled::new(&rows, &whole, place.clone(), &mut random);
            drops.push(mode.sign() * (score(Arc::new(shuffled))? - unshuffled));
        }
        let (mean, deviation) = mean_and_deviation(&drops, 0);
        found.push(ColumnImportance { name, mean, deviation });
    }
    if !found.iter().all(|column| column.mean.is_finite()) {
        return Ok(None);
    }
    found.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    Ok(Some(Importance { metric, score: unshuffled, rows: rows.len(), repeats: REPEATS, columns: found }))
}

/// An input, and its elements that a column becomes.
type Place = (usize, Range<usize>);

/// The columns of a table that are inputs, with their places. A text, categories or a date are one column, however many elements
/// they become.
fn columns(schema: &Schema, shapes: &[Shape]) -> Vec<(String, Place)> {
    let mut all = Vec::new();
    for (input, shape) in shapes.iter().enumerate() {
        let Some(Field { columns, text, .. }) = schema.inputs.get(input) else { return Vec::new() };
        let mut end = 0;
        for column in columns {
            let width = match (text, &column.encoding) {
                (Some(_), _) => shape.len(),
                (None, Some(encoding)) => encoding.width(),
                (None, None) => 1,
            };
            all.push((column.to_string(), (input, end..end + width)));
            end += width;
        }
        if end != shape.len() {
            return Vec::new();
        }
    }
    all
}

/// Rows of which one column has the values of other rows.
struct Shuffled {
    rows: Arc<dyn Dataset>,
    place: Place,
    /// The column's elements, row by row.
    values: Vec<f32>,
}

impl Shuffled {
    fn new(rows: &Arc<dyn Dataset>, whole: &Batch, (input, range): Place, random: &mut ChaCha8Rng) -> Self {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.shuffle(random);
        let values = &whole.inputs[input];
        let row_len = values.len() / rows.len().max(1);
        let of_row = |row: &usize| &values[row * row_len + range.start..row * row_len + range.end];
        let values = order.iter().flat_map(of_row).copied().collect();
        Self { rows: rows.clone(), place: (input, range), values }
    }
}

impl Dataset for Shuffled {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.rows.input_shapes()
    }

    fn target_shapes(&self) -> Vec<Shape> {
        self.rows.target_shapes()
    }

    fn has_sample_weights(&self) -> bool {
        self.rows.has_sample_weights()
    }

    fn schema(&self) -> Schema {
        self.rows.schema()
    }

    fn fetch(&self, rows: &[usize], batch: &mut BatchMut<'_>) -> Result<()> {
        self.rows.fetch(rows, batch)?;
        let (input, range) = &self.place;
        let row_len = batch.input(*input).len() / rows.len().max(1);
        if row_len > 0 {
            for (to, row) in batch.input(*input).chunks_mut(row_len).zip(rows) {
                to[range.clone()].copy_from_slice(&self.values[row * range.len()..(row + 1) * range.len()]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyhands::data::{Code, Encoding, InMemory, TableColumn};
    use manyhands::layers::Dense;
    use manyhands::metrics::{MeanSquaredError, Metric};
    use manyhands::{Compile, Loss, Model, Optimizer, Sequential};
    use ndarray::{Array2, Axis};

    /// A trainer whose only output is the weighted sum of its inputs.
    fn linear(weights: &[f32], schema: Schema, loss: Loss, metrics: &[Metric]) -> Trainer {
        let mut model: Model = Sequential::new([weights.len()]).add_named("sum", Dense::new(1)).build(0).unwrap();
        model.tensor_mut("sum/kernel").unwrap().copy_from_slice(weights);
        let compile = Compile::new(Optimizer::sgd(0.1, 0.0), loss).metrics(metrics);
        let mut trainer = Trainer::new(model, compile).unwrap().on(vec![manyhands::adapters::Info::cpu()]);
        trainer.check_run(&rows(weights.len(), 4, &|_| 0.0).with_schema(schema), None).unwrap();
        trainer
    }

    /// Rows of standardized numbers that are alike in no two columns, but for column 1, which is as column 0.
    #[allow(clippy::cast_precision_loss, reason = "small")]
    fn rows(columns: usize, rows: usize, target: &dyn Fn(&[f32]) -> f32) -> InMemory {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut inputs = Array2::from_shape_fn((rows, columns), |(row, _)| row as f32 / rows as f32 - 0.5);
        for (at, mut column) in inputs.axis_iter_mut(Axis(1)).enumerate().filter(|(at, _)| *at != 1) {
            let mut values: Vec<f32> = column.to_vec();
            values.shuffle(&mut random);
            column.iter_mut().zip(values).for_each(|(to, from)| *to = from + 0.0 * at as f32);
        }
        if columns > 1 {
            let first = inputs.column(0).to_owned();
            inputs.column_mut(1).assign(&first);
        }
        let targets: Vec<f32> = inputs.rows().into_iter().map(|row| target(&row.to_vec())).collect();
        InMemory::new(inputs, ndarray::Array1::from_vec(targets)).unwrap()
    }

    /// A table whose columns become so many elements each.
    fn schema(widths: &[usize]) -> Schema {
        let category = |width: usize| Code::Category { categories: (0..width).map(|at| at.to_string()).collect() };
        let column = |(index, width): (usize, &usize)| TableColumn {
            index,
            name: Some(format!("c{index}")),
            encoding: Some(Encoding { code: category(*width), fill: None, indicator: false }),
            seen: None,
        };
        let columns = widths.iter().enumerate().map(column).collect();
        Schema { inputs: vec![Field { columns, ..Field::default() }], ..Schema::default() }
    }

    fn by_name(found: &Importance, name: &str) -> f64 {
        found.columns.iter().find(|column| column.name == name).unwrap().mean
    }

    /// For `y = w·x` a shuffled column makes the mean of `(w·x - w·x')²` over all pairs of rows: `2 w² · variance`.
    #[test]
    fn importances_are_those_of_the_definition() {
        let weights = [1.5, 0.5, 0.0, -1.0];
        let target = |row: &[f32]| row.iter().zip(weights).map(|(x, weight)| x * weight).sum();
        let dataset: Arc<dyn Dataset> = Arc::new(rows(4, 2000, &target));
        let mut trainer =
            linear(&weights, schema(&[1, 1, 1, 1]), Loss::MEAN_SQUARED_ERROR, &[MeanSquaredError {}.into()]);
        let found = importance(&mut trainer, &dataset, 256, 3).unwrap().unwrap();
        assert_eq!((found.metric.as_str(), found.rows, found.repeats), ("mean_squared_error", 2000, 5));
        assert!(found.score < 1e-9, "{found:?}");
        let names: Vec<&str> = found.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["c0", "c3", "c1", "c2"]);
        // Columns 0 and 1 are the same: each counts for its own weight alone, not for what both say.
        for (name, weight) in ["c0", "c1", "c2", "c3"].into_iter().zip(weights) {
            let needed = 2.0 * f64::from(weight).powi(2) / 12.0;
            assert!((by_name(&found, name) - needed).abs() < 0.06 * needed + 1e-9, "{name}, needs {needed}: {found:?}");
        }
    }

    /// Elements of one column are shuffled together: a sum that they leave as it is stays.
    #[test]
    fn a_column_of_several_elements_is_shuffled_as_one() {
        let dataset: Arc<dyn Dataset> = Arc::new(rows(4, 400, &|_| 0.0));
        // Columns 0 and 1 are alike, so their difference is 0 in each row, whatever the order of the rows.
        let mut trainer =
            linear(&[1.0, -1.0, 0.0, 0.0], schema(&[2, 2]), Loss::MEAN_SQUARED_ERROR, &[MeanSquaredError {}.into()]);
        let found = importance(&mut trainer, &dataset, 64, 0).unwrap().unwrap();
        assert!(found.columns.iter().all(|column| column.mean.abs() < 1e-12), "{found:?}");
        let mut trainer =
            linear(&[1.0, -1.0, 0.0, 0.0], schema(&[1, 1, 2]), Loss::MEAN_SQUARED_ERROR, &[MeanSquaredError {}.into()]);
        let found = importance(&mut trainer, &dataset, 64, 0).unwrap().unwrap();
        assert!(by_name(&found, "c0") > 0.1 && by_name(&found, "c2").abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn inputs_that_are_no_columns_have_none() {
        let dataset: Arc<dyn Dataset> = Arc::new(rows(4, 40, &|_| 0.0));
        let mut trainer = linear(&[1.0; 4], Schema::default(), Loss::MEAN_SQUARED_ERROR, &[]);
        assert!(importance(&mut trainer, &dataset, 64, 0).unwrap().is_none());
    }
}
