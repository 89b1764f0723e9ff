//! Describes training in a model's file: names and losses; checks that data match the data of the training.

use super::Trainer;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::losses::Head;
use crate::model::Model;
use crate::schema::{Field, Schema, few};

impl Trainer {
    /// Checks the data of a run before anything is opened, and describes them in the model: names of columns and
    /// classes, and the losses of its training. Training does so by itself.
    ///
    /// # Errors
    /// If the data do not fit the model; if validation data, or those of a run that continues, have columns or classes
    /// of other names.
    pub fn check_run(&mut self, train: &dyn Dataset, validation: Option<&dyn Dataset>) -> Result<()> {
        let schema = train.schema();
        if self.progress.step == 0 || self.model.schema == Schema::default() {
            self.model.schema = schema;
        } else {
            self.model.schema.held_out = schema.held_out;
        }
        self.model.evaluation = Some(self.compile.evaluation());
        [Some(train), validation].into_iter().flatten().try_for_each(|data| self.check_data(data))
    }

    /// Warns of a class too many or too few when a run starts.
    pub(super) fn warn_of_classes(&self) {
        for (output, (name, shape)) in self.model.outputs().into_iter().enumerate() {
            let classes = self.model.schema.classes(output).len();
            let units = shape.last();
            match self.compile.losses[output].head() {
                _ if classes == 0 => {}
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

    /// Checks that a binary output has at most two classes.
    pub(super) fn check_classes(&self, schema: &Schema) -> Result<()> {
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
