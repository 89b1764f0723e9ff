//! Inputs brought to mean 0 and variance 1, by the mean and variance of the data.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::axes::Axes;
use super::merge::{fixed_backward, fixed_forward, with_tensor_onnx};
use super::{Built, Layer, MaskUse, Problem, Statistic, Values, only, to_config};
use crate::kernels::merge::{Alignment, Operation};
use crate::onnx::Form;
use crate::plan::{Length, Recorder};
use crate::shape::{Shape, elements};

/// Brings inputs to mean 0 and variance 1: `y = (x - mean) / max(√variance, 1e-7)`.
///
/// `mean` and `variance` are given, or they are those of the training rows: `Trainer::adapt` computes them, and a run
/// from a settings file does so before its first step. `invert` undoes it: `y = x max(√variance, 1e-7) + mean`.
///
/// | tensor | shape | value |
/// | --- | --- | --- |
/// | input, output | `[batch, ...]`, the same | |
/// | `mean`, `variance` | the axes of `axis` | 0 and 1 before they are adapted |
///
/// **Across adapters** nothing changes: each element stands alone, and the data are read once by the host.
/// Nothing is kept for backward. Golden values: Keras 3.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Normalization {
    /// Axes that have a mean of their own for each place; 1 is the first after the batch, -1 the last. None of them (`[]`):
    /// one mean for all.
    pub axis: Axes,
    /// Mean, or one for each place of `axis`; adapted to the data if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Values>,
    /// Variance, or one for each place of `axis`; adapted to the data if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variance: Option<Values>,
    /// Go from mean 0 and variance 1 to these.
    pub invert: bool,
}

impl Normalization {
    /// The shape of the means with each axis of a row, whole or of length 1.
    fn stretched(&self, input: &Shape) -> Option<Vec<usize>> {
        let mut shape = vec![1; input.rank()];
        self.axis.among(input)?.into_iter().for_each(|axis| shape[axis] = input.axes()[axis]);
        Alignment::new(input.axes(), &shape).filter(Alignment::is_able).map(|_| shape)
    }

    fn recorded_shape(&self, rec: &Recorder<'_>) -> Vec<usize> {
        self.stretched(&rec.input_shape(0)).unwrap_or_else(|| unreachable!("`build` checks the axes"))
    }

    /// The values that are given, for so many places.
    fn given(&self, places: usize) -> Result<[Values; 2], Problem> {
        match (&self.mean, &self.variance) {
            (None, None) => Ok([0.0.into(), 1.0.into()]),
            (Some(mean), Some(variance)) => match (mean.for_each(places), variance.for_each(places)) {
                (Some(mean), Some(variance)) => Ok([Values::Each(mean), Values::Each(variance)]),
                _ => Err(Problem::new(
                    format!(
                        "needs one number or {places} in `mean` and in `variance`, but got {} and {}",
                        mean.count(),
                        variance.count()
                    ),
                    "give one for each place of `axis`",
                )),
            },
            _ => Err(Problem::new(
                "needs `mean` and `variance`, or neither, but got one of them",
                "without them, they are adapted to the training data",
            )),
        }
    }
}

impl Layer for Normalization {
    fn kind(&self) -> &'static str {
        "Normalization"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        MaskUse::Passes
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        let input = only(inputs)?;
        let (Some(kept), Some(shape)) = (self.axis.among(input), self.stretched(input)) else {
            return Err(Problem::new(
                format!("needs axes of {input}, but got {}", to_config(&self.axis)),
                "1 is the first axis after the batch, -1 the last; `[]` for one mean of all",
            ));
        };
        let [mean, variance] = self.given(elements(&shape))?;
        let shape: Vec<usize> = kept.into_iter().map(|axis| input.axes()[axis]).collect();
        let statistics = vec![
            Statistic { name: "mean", shape: shape.clone(), initial: mean },
            Statistic { name: "variance", shape, initial: variance },
        ];
        Ok(Built { output: input.clone(), parameters: Vec::new(), statistics })
    }

    fn adapted(&self, input: &Shape) -> Option<Vec<usize>> {
        let shape = self.stretched(input).filter(|_| self.mean.is_none())?;
        let mut places = vec![0];
        for (len, own) in input.axes().iter().zip(&shape) {
            let each = |place: usize| (0..*len).map(move |at| if *own == 1 { place } else { place * len + at });
            places = places.into_iter().flat_map(each).collect();
        }
        Some(places)
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let (x, y, shape) = (rec.input(0), rec.output(), self.recorded_shape(rec));
        let between = rec.scratch("centered", Length::per_row(rec.output_shape().len()));
        if self.invert {
            fixed_forward(rec, Operation::Unstandardize, ("variance", &shape), [x, between]);
            fixed_forward(rec, Operation::Add, ("mean", &shape), [between, y]);
        } else {
            fixed_forward(rec, Operation::Subtract, ("mean", &shape), [x, between]);
            fixed_forward(rec, Operation::Standardize, ("variance", &shape), [between, y]);
        }
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let operation = if self.invert { Operation::Unstandardize } else { Operation::Standardize };
        let shape = self.recorded_shape(rec);
        fixed_backward(rec, operation, ("variance", &shape));
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let shape = self.stretched(form.input_shape(0)).unwrap_or_else(|| unreachable!("`build` checks the axes"));
        let order = form.order(0);
        let x = form.input_in(0, order);
        let variance = form.spread("variance", &shape, order);
        let deviation = form.op("Sqrt", &[&variance], &[]);
        let deviation = form.op_with("Max", &deviation, 1e-7);
        let y = if self.invert {
            let scaled = form.op("Mul", &[&x, &deviation], &[]);
            with_tensor_onnx(form, "Add", (&scaled, order), ("mean", &shape))
        } else {
            let centered = with_tensor_onnx(form, "Sub", (&x, order), ("mean", &shape));
            form.op("Div", &[&centered, &deviation], &[])
        };
        form.output(y, order);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_belong_to_the_means_of_their_axes() {
        let adapted = |axis: Axes| Normalization { axis, ..Normalization::default() }.adapted(&Shape::new([2, 3]));
        assert_eq!(adapted(Axes::default()), Some(vec![0, 1, 2, 0, 1, 2]));
        assert_eq!(adapted([1].into()), Some(vec![0, 0, 0, 1, 1, 1]));
        assert_eq!(adapted([].into()), Some(vec![0; 6]));
        assert_eq!(adapted([2, 1].into()), Some(vec![0, 1, 2, 3, 4, 5]));
        let given = Normalization { mean: Some(0.0.into()), variance: Some(1.0.into()), ..Normalization::default() };
        assert_eq!(given.adapted(&Shape::new([2, 3])), None);
    }
}
