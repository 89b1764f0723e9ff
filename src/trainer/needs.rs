//! Checks of data against model and losses: shapes, values, names of columns and classes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch_check::numbers_of;
use super::{BatchCheck, Compile, Trainer};
use crate::data::{
    ClassWeighted, Dataset, check_counted_labels, check_indices, check_numbers, class_parts, column_means,
};
use crate::error::{Error, Result};
use crate::losses::{Domain, Head};
use crate::model::Model;
use crate::schema::{Field, Schema, few};
use crate::shape::Shape;

/// Fewest rows that an adapter should get on average to be worth its fixed costs and to have useful statistics.
const FEW_ROWS: usize = 8;
/// Most numbers of an output's last axis whose means are kept.
const MOST_MEANS: usize = 4096;

/// The needs of a model with its losses.
#[derive(Clone, Copy)]
pub(super) struct Needs<'a> {
    pub(super) model: &'a Model,
    pub(super) compile: &'a Compile,
}

impl<'a> Needs<'a> {
    pub(super) fn of(trainer: &'a Trainer) -> Self {
        Self { model: &trainer.model, compile: &trainer.compile }
    }

    /// Checks that a dataset has the shapes and labels that model and losses need.
    ///
    /// # Errors
    /// If not: which shape, or the first label that is no class.
    pub(super) fn check_data(&self, dataset: &dyn Dataset) -> Result<()> {
        check_inputs(self.model, dataset)?;
        let schema = dataset.schema();
        check_meaning(self.model, &schema)?;
        self.check_classes(&schema)?;
        let outputs = self.model.outputs();
        let targets: Vec<Shape> =
            outputs.iter().zip(&self.compile.losses).map(|((_, shape), loss)| loss.target_shape(shape)).collect();
        let names: Vec<(&str, &Shape)> = outputs.iter().map(|(name, _)| *name).zip(&targets).collect();
        check_shapes("target for output", &names, &dataset.target_shapes())?;
        for (output, ((_, shape), loss)) in outputs.iter().zip(&self.compile.losses).enumerate() {
            let domain = loss.target(shape).domain;
            if let Domain::Classes(classes) = domain {
                check_counted_labels(dataset, output, classes, loss.ignored_class())?;
            } else if let Some(numbers) = numbers_of(domain) {
                check_numbers(dataset, output, numbers)?;
            }
        }
        Ok(())
    }

    /// Mean target of each output, for each number of its last axis; for labels the part of each class. The data have been checked.
    pub(super) fn target_means(&self, dataset: &dyn Dataset) -> Result<Vec<Vec<f32>>> {
        let outputs = self.model.outputs().into_iter().zip(&self.compile.losses).enumerate();
        let means = outputs.map(|(output, ((_, shape), loss))| match loss.target(shape).domain {
            _ if shape.last() > MOST_MEANS => Ok(Vec::new()),
            Domain::Classes(classes) => class_parts(dataset, output, classes, loss.ignored_class()),
            _ => column_means(dataset, output, shape.last()),
        });
        means.collect()
    }

    /// Checks of batches that need neither model nor losses any more.
    pub(super) fn batch_check(&self) -> BatchCheck {
        BatchCheck::of(self.model, &self.compile.losses)
    }

    /// Checks that a binary output has at most two classes.
    fn check_classes(&self, schema: &Schema) -> Result<()> {
        for (output, (name, shape)) in self.model.outputs().into_iter().enumerate() {
            let classes = schema.classes(output).len();
            if self.compile.losses[output].head() == Head::Sigmoid && shape.last() == 1 && classes > 2 {
                return Err(Error::data(
                    format!("output `{name}`"),
                    format!("needs at most 2 classes for its one unit, but the data have {classes}"),
                    format!(
                        "for several classes use `SparseCategoricalCrossentropy` and {classes} units in the last layer"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The training data, with the weights of their classes where a run has them.
    pub(super) fn class_weighted(
        &self,
        train: Arc<dyn Dataset>,
        weights: &BTreeMap<usize, f32>,
    ) -> Result<Arc<dyn Dataset>> {
        let Some((highest, _)) = weights.last_key_value() else { return Ok(train) };
        let weighted = ClassWeighted::new(train, weights.clone())?;
        let (_, shape) = self.model.outputs()[0];
        let target = self.compile.losses[0].target(shape);
        let classes = match (target.domain, target.shape.len()) {
            (Domain::Classes(classes), 1) => classes,
            (Domain::Probabilities, 1) => 2,
            (Domain::Probabilities, classes) => classes,
            _ => {
                return Err(Error::setting(
                    "`class_weight`",
                    "needs a loss whose targets are one class for each row, but has another",
                    "give sample weights instead",
                ));
            }
        };
        if *highest >= classes {
            return Err(Error::setting(
                "`class_weight`",
                format!("needs classes from 0 to {}, but names {highest}", classes - 1),
                "count the classes from 0",
            ));
        }
        Ok(Arc::new(weighted))
    }

    /// Warns of a class too many or too few when a run starts.
    pub(super) fn warn_of_classes(&self) {
        for (output, (name, shape)) in self.model.outputs().into_iter().enumerate() {
            // A vocabulary may be smaller than the units that it was given.
            let is_text = self.model.schema.targets.get(output).is_some_and(|field| field.text.is_some());
            let classes = self.model.schema.classes(output).len();
            let units = shape.last();
            match self.compile.losses[output].head() {
                _ if classes == 0 || is_text => {}
                Head::Softmax if classes < units => log::warn!(
                    "output `{name}` has {units} units for {classes} classes: {} of them can never be right\n  \
                     help: give its layer {classes} units, or check whether the data lack a class",
                    units - classes
                ),
                Head::Sigmoid | Head::Softmax if classes == 1 => log::warn!(
                    "the training data have a single class, `{}`: there is nothing to distinguish\n  \
                     help: check whether `target` names the right column",
                    self.model.schema.classes(output)[0]
                ),
                _ => {}
            }
        }
    }

    /// Rows that keep an adapter busy: fewer where a row has many positions, such as the tokens of a text.
    fn few_rows(&self) -> usize {
        let positions = self.model.outputs().into_iter().map(|(_, shape)| shape.positions()).max();
        FEW_ROWS.div_ceil(positions.unwrap_or(1).max(1))
    }

    /// Warns, as Keras does, that no layer is trainable.
    pub(super) fn warn_of_frozen(&self) {
        if self.model.layout().trainable().is_empty() {
            log::warn!("the model has no trainable weights: training changes nothing");
        }
    }

    /// Warns of batches too small for as many adapters as share them, and of a last batch too small for batch normalization.
    pub(super) fn warn_of_small_batches(&self, batch_size: usize, rows: usize, sharing: usize) {
        let few = self.few_rows() * sharing;
        if sharing > 1 && batch_size < few {
            log::warn!(
                "a batch of {batch_size} rows is small for {sharing} adapters: some will get none\n  \
                 help: use {few} rows or more, or fewer adapters"
            );
        }
        let last = rows % batch_size.max(1);
        if last > 0 && last < FEW_ROWS && self.model.has_batch_statistics() {
            log::warn!(
                "the last batch of each epoch has only {last} rows, too few for batch normalization\n  \
                 help: use another batch size, or `drop_remainder`"
            );
        }
    }
}

/// Checks that a dataset has the arrays that a model takes, with indices below their bounds.
pub(super) fn check_inputs(model: &Model, dataset: &dyn Dataset) -> Result<()> {
    let names: Vec<(&str, &Shape)> = model.inputs().iter().map(|input| (input.name.as_str(), &input.shape)).collect();
    check_shapes("input", &names, &dataset.input_shapes())?;
    for (idx, (name, _)) in names.iter().enumerate() {
        model.index_bound(idx).map_or(Ok(()), |bound| check_indices(dataset, idx, name, bound))?;
    }
    Ok(())
}

fn check_shapes(kind: &str, needed: &[(&str, &Shape)], got: &[Shape]) -> Result<()> {
    if needed.len() != got.len() {
        return Err(Error::data(
            "the dataset",
            format!("needs to have {} arrays as {kind}, but has {}", needed.len(), got.len()),
            "give one array for each, in the model's order",
        ));
    }
    for ((name, needed), got) in needed.iter().zip(got) {
        // A column of shape [1] and a scalar hold the same elements.
        let same = *needed == got
            || (needed.len() == got.len() && needed.rank().abs_diff(got.rank()) == 1 && needed.last() == 1);
        let same = same || (got.last() == 1 && got.rank() == needed.rank() + 1 && got.len() == needed.len());
        if !same {
            return Err(Error::data(
                format!("{kind} `{name}`"),
                format!("needs shape {needed}, but the dataset gives {got}"),
                "reshape the data, or change the model's input or last layer to fit it",
            ));
        }
    }
    Ok(())
}

/// Checks that data match the training data of a model in names of columns, in order, and in labels of classes.
pub(super) fn check_meaning(model: &Model, data: &Schema) -> Result<()> {
    let trained = &model.schema;
    for (input, (ours, theirs)) in model.inputs().iter().zip(trained.inputs.iter().zip(&data.inputs)) {
        check_name("input", &input.name, theirs)?;
        let is_named = |field: &Field| field.columns.iter().all(|column| column.name.is_some());
        if is_named(ours) && is_named(theirs) && !ours.columns.is_empty() && !theirs.columns.is_empty() {
            let (ours, theirs) = (ours.column_names(), theirs.column_names());
            if ours != theirs {
                return Err(Error::data(
                    format!("input `{}`", input.name),
                    format!("needs the columns {}, in this order, but the data have {}", few(&ours), few(&theirs)),
                    "read the data as the model's were: `DataConfig::open_like`, or the model file without settings",
                ));
            }
        }
    }
    for (output, (name, _)) in model.outputs().into_iter().enumerate() {
        let Some(theirs) = data.targets.get(output) else { continue };
        check_name("output", name, theirs)?;
        check_class_names(name, trained.classes(output), &theirs.classes)?;
    }
    Ok(())
}

fn check_name(kind: &str, name: &str, field: &Field) -> Result<()> {
    match &field.name {
        Some(theirs) if theirs != name => Err(Error::data(
            format!("{kind} `{name}`"),
            format!("needs data of that name, but the data in its place are `{theirs}`"),
            format!("name the {kind}s in the data as the model does, in its order"),
        )),
        _ => Ok(()),
    }
}

fn check_class_names(output: &str, ours: &[String], theirs: &[String]) -> Result<()> {
    let differs = |(label, class): &(usize, &String)| ours.get(*label) != Some(class);
    let Some((label, class)) = theirs.iter().enumerate().find(differs).filter(|_| !ours.is_empty()) else {
        return Ok(());
    };
    let problem = match ours.iter().position(|known| known == class) {
        Some(known) => format!("needs class `{class}` as label {known}, but the data have it as label {label}"),
        None => format!("needs the classes of its training ({}), but the data have `{class}`", few(ours)),
    };
    let help = "read the data as the model's were: `DataConfig::open_like`, or the model file without settings";
    Err(Error::data(format!("output `{output}`"), problem, help))
}
