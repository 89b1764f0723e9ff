//! A recurrent layer in both directions.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::merge::{merge_two, merge_two_backward};
use super::recurrence::{Recurrence, RecurrencePart, RecurrentOutput};
use super::recurrent_onnx::recurrence_onnx;
use super::{Built, Gru, Layer, Lstm, MaskUse, Problem, SimpleRnn, to_config};
use crate::kernels::merge::Operation;
use crate::names;
use crate::onnx::{Attribute, Form, Order};
use crate::plan::{Length, Recorder, View};
use crate::shape::Shape;

/// A recurrent layer, as another layer holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub enum RecurrentLayer {
    /// Long short-term memory.
    #[serde(rename = "LSTM")]
    Lstm(Lstm),
    /// Gated recurrent unit.
    #[serde(rename = "GRU")]
    Gru(Gru),
    /// The plain one.
    #[serde(rename = "SimpleRNN")]
    SimpleRnn(SimpleRnn),
}

impl From<Lstm> for RecurrentLayer {
    fn from(layer: Lstm) -> Self {
        Self::Lstm(layer)
    }
}

impl From<Gru> for RecurrentLayer {
    fn from(layer: Gru) -> Self {
        Self::Gru(layer)
    }
}

impl From<SimpleRnn> for RecurrentLayer {
    fn from(layer: SimpleRnn) -> Self {
        Self::SimpleRnn(layer)
    }
}

impl RecurrentLayer {
    fn recurrence(&self, part: RecurrencePart) -> Recurrence {
        match self {
            Self::Lstm(layer) => layer.recurrence(part),
            Self::Gru(layer) => layer.recurrence(part),
            Self::SimpleRnn(layer) => layer.recurrence(part),
        }
    }

    fn check(&self) -> Result<(), Problem> {
        match self {
            Self::Lstm(layer) => layer.check(),
            Self::Gru(layer) => layer.check(),
            Self::SimpleRnn(layer) => layer.check(),
        }
    }
}

/// Merge of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MergeMode {
    /// Both side by side: features double.
    #[default]
    Concat,
    /// Their sum.
    Sum,
    /// Their mean.
    Ave,
    /// Their product.
    Mul,
}

/// A recurrent layer in both directions of time, each with weights of its own.
///
/// | tensor | shape | initial value |
/// | --- | --- | --- |
/// | input | `[batch, time, features]`, and perhaps a mask `[batch, time]` | |
/// | `forward_kernel`, … , `backward_kernel`, … | those of the layer, twice | as the layer has them |
/// | output | that of the layer; `concat`: twice as many features | |
///
/// With `return_sequences` outputs of both directions stand at the steps that they belong to, and are 0 where a mask
/// leaves a step out. **Across adapters** nothing changes: each row stands alone, gradients are sums over rows. Kept
/// for backward: gates and states of each step. Source: Schuster & Paliwal 1997, doi:10.1109/78.650093. Golden values:
/// Keras 3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bidirectional {
    /// The recurrent layer: `{ type = "LSTM", units = 8 }`.
    pub layer: RecurrentLayer,
    /// Merge of both directions: `concat`, `sum`, `ave` or `mul`.
    #[serde(default, deserialize_with = "names::read")]
    pub merge_mode: MergeMode,
}

impl Bidirectional {
    /// A recurrent layer in both directions, whose outputs stand side by side.
    pub fn new(layer: impl Into<RecurrentLayer>) -> Self {
        Self { layer: layer.into(), merge_mode: MergeMode::Concat }
    }

    /// Makes something else of both directions.
    #[must_use]
    pub fn merge_mode(mut self, merge_mode: MergeMode) -> Self {
        self.merge_mode = merge_mode;
        self
    }

    /// Both directions: the layer's own, and the other.
    fn directions(&self) -> [Recurrence; 2] {
        let [forward, backward] =
            [RecurrencePart::Forward, RecurrencePart::Backward].map(|part| self.layer.recurrence(part));
        let zero_output_for_mask = forward.return_sequences;
        [
            Recurrence { zero_output_for_mask, go_backwards: false, ..forward },
            Recurrence { zero_output_for_mask, go_backwards: true, ..backward },
        ]
    }

    /// Operation that merges both, unless they are concatenated.
    fn operation(&self) -> Option<(Operation, f32)> {
        match self.merge_mode {
            MergeMode::Concat => None,
            MergeMode::Sum => Some((Operation::Add, 1.0)),
            MergeMode::Ave => Some((Operation::Add, 0.5)),
            MergeMode::Mul => Some((Operation::Multiply, 1.0)),
        }
    }
}

/// Two buffers of the size of the output.
fn two(rec: &mut Recorder<'_>, names: [&str; 2]) -> [View; 2] {
    let len = Length::per_row(rec.output_shape().len());
    names.map(|name| rec.scratch(name, len))
}

impl Layer for Bidirectional {
    fn kind(&self) -> &'static str {
        "Bidirectional"
    }

    fn config(&self) -> Value {
        to_config(self)
    }

    fn masking(&self) -> MaskUse {
        if self.directions()[0].return_sequences { MaskUse::Takes { behind: 1 } } else { MaskUse::Ends { behind: 1 } }
    }

    fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
        self.layer.check()?;
        let layer = self.layer.recurrence(RecurrencePart::Whole);
        if layer.go_backwards {
            return Err(Problem::new(
                "needs a layer that goes forwards, but got `go_backwards = true`",
                "leave it out: the layer is used in both directions",
            ));
        }
        if layer.return_state || layer.initial_state {
            return Err(Problem::new(
                "needs a layer without states as inputs or outputs, but got `return_state` or `initial_state`",
                "use two layers, one with `go_backwards`, and `Concatenate`",
            ));
        }
        let [forward, backward] = self.directions();
        let (forward, backward) = (forward.build(inputs)?, backward.build(inputs)?);
        let twice = forward.output.last().saturating_mul(2);
        let output = if self.operation().is_none() { forward.output.with_last(twice) } else { forward.output };
        let mut parameters = forward.parameters;
        parameters.extend(backward.parameters);
        Ok(Built { output, parameters, statistics: Vec::new() })
    }

    fn forward(&self, rec: &mut Recorder<'_>) {
        let ([forward, backward], y) = (self.directions(), rec.output());
        let units = forward.units;
        let Some((operation, scale)) = self.operation() else {
            forward.forward(rec, RecurrentOutput { view: y, width: 2 * units, first: 0 });
            return backward.forward(rec, RecurrentOutput { view: y, width: 2 * units, first: units });
        };
        let both = two(rec, ["forward_output", "backward_output"]);
        for ((i, direction), view) in [forward, backward].iter().enumerate().zip(both) {
            rec.keep_each("outputs", i, view);
            direction.forward(rec, RecurrentOutput { view, width: units, first: 0 });
        }
        let shape = rec.output_shape();
        merge_two(rec, (operation, scale), &shape, both, y);
    }

    fn backward(&self, rec: &mut Recorder<'_>) {
        let ([forward, backward], dy) = (self.directions(), rec.output_gradient());
        let units = forward.units;
        let Some(merge) = self.operation() else {
            forward.backward(rec, RecurrentOutput { view: dy, width: 2 * units, first: 0 });
            return backward.backward(rec, RecurrentOutput { view: dy, width: 2 * units, first: units });
        };
        let (shape, outputs) = (rec.output_shape(), [0, 1].map(|i| rec.kept_each("outputs", i)));
        let gradients = two(rec, ["forward_gradient", "backward_gradient"]);
        for (i, direction) in [forward, backward].into_iter().enumerate() {
            merge_two_backward(rec, merge, &shape, [outputs[i], outputs[1 - i], dy], gradients[i]);
            direction.backward(rec, RecurrentOutput { view: gradients[i], width: units, first: 0 });
        }
    }

    fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
        let [forward, backward] = self.directions().map(|direction| recurrence_onnx(&direction, form));
        let both = [&forward, &backward];
        let y = match self.merge_mode {
            MergeMode::Concat => form.op("Concat", &both, &[("axis", Attribute::Int(-1))]),
            MergeMode::Sum => form.op("Add", &both, &[]),
            MergeMode::Ave => form.op("Mean", &both, &[]),
            MergeMode::Mul => form.op("Mul", &both, &[]),
        };
        form.output(y, Order::Last);
        Ok(())
    }
}
