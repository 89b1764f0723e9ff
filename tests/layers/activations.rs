//! The contracts of activation functions that have settings, or no layer of their own.

use crate::rows::{Refusal, Row, TWO_INPUTS, row};

pub static ROWS: &[Row] = &[
    row("Activation", "activation = \"silu\"", &[&[3, 5]]),
    row("Activation", "activation = \"mish\"", &[&[3, 5]]),
    Row {
        refuses: &[
            TWO_INPUTS,
            Refusal {
                settings: "alpha = -0.5",
                inputs: &[&[3]],
                says: "needs `alpha` of at least 0, but got -0.5\n  help: 1 is the default of Keras; its input comes from \
                       `in0`",
            },
        ],
        ..row("ELU", "alpha = 0.7", &[&[3, 5]])
    },
    Row {
        refuses: &[Refusal {
            settings: "max_value = -1.0",
            inputs: &[&[3]],
            says: "needs `max_value` of at least 0, but got -1\n  help: leave it out, or set it to 0 or more; its input \
                   comes from `in0`",
        }],
        ..row("ReLU", "max_value = 0.35\nnegative_slope = 0.2\nthreshold = 0.07", &[&[3, 5]])
    },
];
