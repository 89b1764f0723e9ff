//! The recurrent layers: LSTM, GRU and the plain one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::recurrence::{Cell, Recurrence, RecurrencePart, RecurrentOutput};
use super::recurrent_onnx::recurrence_onnx;
use super::{Activation, Built, Initializer, Layer, MaskUse, Problem, to_config, yes};
use crate::names;
use crate::onnx::{Form, Order};
use crate::plan::Recorder;
use crate::shape::Shape;

fn tanh() -> Activation {
    Activation::Tanh
}

fn sigmoid() -> Activation {
    Activation::Sigmoid
}

fn orthogonal() -> Initializer {
    Initializer::Orthogonal
}

/// A recurrent layer with the settings that all have, and its own.
macro_rules! recurrent_layer {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr,)*
        }, $kind:literal, $cell:ident, |$layer:ident| ($gate:expr, $bias:expr) $(, $check:expr)?
    ) => {
        $(#[$doc])*
        ///
        /// **Across adapters** nothing changes: each row stands alone, gradients are sums over rows. What is dropped
        /// depends on (seed, training step, node, row of the whole batch, unit), and is the same at all steps. Kept for
        /// backward: gates and state of each step. Golden values: Keras 3.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Length of the state, which is the output.
            pub units: usize,
            /// Activation of the candidate of a step, and of a cell.
            #[serde(default = "tanh", deserialize_with = "names::read")]
            pub activation: Activation,
            $($(#[$field_doc])* pub $field: $ty,)*
            /// Whether a bias is added.
            #[serde(default = "yes")]
            pub use_bias: bool,
            /// Initial values of `kernel`.
            #[serde(default, deserialize_with = "names::read")]
            pub kernel_initializer: Initializer,
            /// Initial values of `recurrent_kernel`.
            #[serde(default = "orthogonal", deserialize_with = "names::read")]
            pub recurrent_initializer: Initializer,
            /// Part of the input's features that is dropped in training, at all steps the same, in `[0, 1)`.
            #[serde(default)]
            pub dropout: f32,
            /// Part of the state that each gate does not see in training, at all steps the same, in `[0, 1)`. It takes a
            /// product for each gate in place of one.
            #[serde(default)]
            pub recurrent_dropout: f32,
            /// Whether the output has the state after each step, or only the last state.
            #[serde(default)]
            pub return_sequences: bool,
            /// Whether steps run from the last to the first. Outputs are in the order in which they are computed.
            #[serde(default)]
            pub go_backwards: bool,
            /// Whether masked steps give zeros, or the unchanged state.
            #[serde(default)]
            pub zero_output_for_mask: bool,
            /// Whether the output ends with the state after the last step, and behind it the cell, if there is one: these
            /// steps alone without `return_sequences`, whose output is the state.
            #[serde(default)]
            pub return_state: bool,
            /// Whether the state before the first step, and the cell, if there is one, are inputs behind the sequence:
            /// `[batch, units]` each.
            #[serde(default)]
            pub initial_state: bool,
            /// Whether steps that the mask of the sequence leaves out count, too, and the mask only goes to the output: as in
            /// Keras, where `initial_state` is given and `mask` is not.
            #[serde(default)]
            pub ignore_mask: bool,
        }

        impl $name {
            /// A layer of so many units, with Keras' defaults.
            pub fn new(units: usize) -> Self {
                Self {
                    units,
                    activation: tanh(),
                    $($field: $default,)*
                    use_bias: true,
                    kernel_initializer: Initializer::default(),
                    recurrent_initializer: orthogonal(),
                    dropout: 0.0,
                    recurrent_dropout: 0.0,
                    return_sequences: false,
                    go_backwards: false,
                    zero_output_for_mask: false,
                    return_state: false,
                    initial_state: false,
                    ignore_mask: false,
                }
            }

            /// Gives the last state, too.
            #[must_use]
            pub fn return_state(mut self) -> Self {
                self.return_state = true;
                self
            }

            /// Begins with states that are inputs.
            #[must_use]
            pub fn initial_state(mut self) -> Self {
                self.initial_state = true;
                self
            }

            /// Gives the state after each step.
            #[must_use]
            pub fn return_sequences(mut self) -> Self {
                self.return_sequences = true;
                self
            }

            /// Begins with the last step.
            #[must_use]
            pub fn go_backwards(mut self) -> Self {
                self.go_backwards = true;
                self
            }

            /// Drops a part of the input in training.
            #[must_use]
            pub fn dropout(mut self, rate: f32) -> Self {
                self.dropout = rate;
                self
            }

            /// Drops a part of the state that gates see in training.
            #[must_use]
            pub fn recurrent_dropout(mut self, rate: f32) -> Self {
                self.recurrent_dropout = rate;
                self
            }

            pub(super) fn recurrence(&self, part: RecurrencePart) -> Recurrence {
                let $layer = self;
                Recurrence {
                    cell: Cell::$cell,
                    part,
                    units: self.units,
                    activation: self.activation,
                    recurrent_activation: $gate,
                    use_bias: self.use_bias,
                    bias_initializer: $bias,
                    kernel_initializer: self.kernel_initializer,
                    recurrent_initializer: self.recurrent_initializer,
                    dropout: self.dropout,
                    recurrent_dropout: self.recurrent_dropout,
                    return_sequences: self.return_sequences,
                    go_backwards: self.go_backwards,
                    zero_output_for_mask: self.zero_output_for_mask,
                    return_state: self.return_state,
                    initial_state: self.initial_state,
                }
            }

            pub(super) fn check(&self) -> Result<(), Problem> {
                $(
                    let check: fn(&Self) -> Result<(), Problem> = $check;
                    check(self)?;
                )?
                Ok(())
            }
        }

        impl Layer for $name {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn config(&self) -> Value {
                to_config(self)
            }

            fn masking(&self) -> MaskUse {
                let behind = self.recurrence(RecurrencePart::Whole).n_inputs();
                match (self.return_sequences && !self.return_state, self.ignore_mask) {
                    (true, false) => MaskUse::Takes { behind },
                    (false, false) => MaskUse::Ends { behind },
                    (true, true) => MaskUse::Passes,
                    (false, true) => MaskUse::Drops,
                }
            }

            fn build(&self, inputs: &[Shape]) -> Result<Built, Problem> {
                self.check()?;
                self.recurrence(RecurrencePart::Whole).build(inputs)
            }

            fn forward(&self, rec: &mut Recorder<'_>) {
                let y = RecurrentOutput { view: rec.output(), width: self.units, first: 0 };
                self.recurrence(RecurrencePart::Whole).forward(rec, y);
            }

            fn backward(&self, rec: &mut Recorder<'_>) {
                let dy = RecurrentOutput { view: rec.output_gradient(), width: self.units, first: 0 };
                self.recurrence(RecurrencePart::Whole).backward(rec, dy);
            }

            fn onnx(&self, form: &mut Form<'_>) -> Result<(), Problem> {
                let y = recurrence_onnx(&self.recurrence(RecurrencePart::Whole), form);
                form.output(y, Order::Last);
                Ok(())
            }
        }
    };
}

recurrent_layer! {
    /// Long short-term memory: a state and a cell that gates change step by step.
    ///
    /// `i, f, o = σ(x · W + h' · U + b)`, `c = f c' + i tanh(x · W_c + h' · U_c + b_c)`, `h = o tanh(c)`; columns stand
    /// in the order i, f, c, o.
    ///
    /// | tensor | shape | initial value |
    /// | --- | --- | --- |
    /// | input | `[batch, time, features]`, with `initial_state` state and cell `[batch, units]`, and perhaps a mask `[batch, time]` | |
    /// | `kernel` | `[features, 4 * units]` | `kernel_initializer`, Glorot uniform |
    /// | `recurrent_kernel` | `[units, 4 * units]` | `recurrent_initializer`, orthogonal |
    /// | `bias` | `[4 * units]` | 0; 1 for f |
    /// | output | `[batch, units]`, or `[batch, time, units]`; with `return_state` `[batch, 2, units]`, or `[batch, time + 2, units]` | |
    ///
    /// Source: Hochreiter & Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735.
    Lstm {
        /// Activation of the gates: `sigmoid` or `hard_sigmoid`.
        #[serde(default = "sigmoid", deserialize_with = "names::read")]
        recurrent_activation: Activation = sigmoid(),
        /// Whether the bias of the forget gate starts at 1.
        #[serde(default = "yes")]
        unit_forget_bias: bool = true,
    }, "LSTM", Lstm, |layer| (
        layer.recurrent_activation,
        if layer.unit_forget_bias { Initializer::ForgetGate } else { Initializer::Zeros }
    )
}

recurrent_layer! {
    /// Gated recurrent unit: a state that two gates change step by step.
    ///
    /// `z, r = σ(x · W + b + h' · U + b')`, `ĥ = tanh(x · W_h + b_h + r (h' · U_h + b'_h))`, `h = z h' + (1 - z) ĥ`;
    /// columns stand in the order z, r, h.
    ///
    /// | tensor | shape | initial value |
    /// | --- | --- | --- |
    /// | input | `[batch, time, features]`, with `initial_state` the state `[batch, units]`, and perhaps a mask `[batch, time]` | |
    /// | `kernel` | `[features, 3 * units]` | `kernel_initializer`, Glorot uniform |
    /// | `recurrent_kernel` | `[units, 3 * units]` | `recurrent_initializer`, orthogonal |
    /// | `bias` | `[2, 3 * units]`: b and b' | 0 |
    /// | output | `[batch, units]`, or `[batch, time, units]`; with `return_state` `[batch, 1, units]`, or `[batch, time + 1, units]` | |
    ///
    /// Source: Cho et al. 2014, arXiv:1406.1078, version 1, whose reset gate acts after the product.
    Gru {
        /// Activation of the gates: `sigmoid` or `hard_sigmoid`.
        #[serde(default = "sigmoid", deserialize_with = "names::read")]
        recurrent_activation: Activation = sigmoid(),
        /// Whether the reset gate acts after the product. Must be true; the setting exists since Keras has it.
        #[serde(default = "yes")]
        reset_after: bool = true,
    }, "GRU", Gru, |layer| (layer.recurrent_activation, Initializer::Zeros), |layer| match layer.reset_after {
        true => Ok(()),
        false => Err(Problem::new(
            "needs `reset_after = true`, but got false",
            "the reset gate before the product is not there; Keras' default is after it",
        )),
    }
}

recurrent_layer! {
    /// The plain recurrent layer: `h = tanh(x · W + h' · U + b)`.
    ///
    /// | tensor | shape | initial value |
    /// | --- | --- | --- |
    /// | input | `[batch, time, features]`, with `initial_state` the state `[batch, units]`, and perhaps a mask `[batch, time]` | |
    /// | `kernel` | `[features, units]` | `kernel_initializer`, Glorot uniform |
    /// | `recurrent_kernel` | `[units, units]` | `recurrent_initializer`, orthogonal |
    /// | `bias` | `[units]` | 0 |
    /// | output | `[batch, units]`, or `[batch, time, units]`; with `return_state` `[batch, 1, units]`, or `[batch, time + 1, units]` | |
    SimpleRnn {
    }, "SimpleRNN", Simple, |_layer| (Activation::Sigmoid, Initializer::Zeros)
}
