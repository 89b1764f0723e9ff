//! The contracts of layers with factors and offsets: fixed, adapted to the data, or learned.

use crate::rows::{Refusal, Row, TWO_INPUTS, row};

pub static ROWS: &[Row] = &[
    Row {
        numbers: [3, 0],
        refuses: &[Refusal {
            settings: "projection_dim = 4",
            inputs: &[&[2, 3]],
            says: "needs 4 channels, but got [batch, 2, 3]\n  help: let `projection_dim` be the length of the last axis; its \
                   input comes from `in0`",
        }],
        ..row("LayerScale", "projection_dim = 3\ninit_values = 0.5", &[&[2, 3]])
    },
    Row {
        numbers: [0, 6],
        refuses: &[
            TWO_INPUTS,
            Refusal {
                settings: "mean = 1.0",
                inputs: &[&[3]],
                says: "needs `mean` and `variance`, or neither, but got one of them\n  help: without them, they are adapted to \
                       the training data; its input comes from `in0`",
            },
            Refusal {
                settings: "axis = 3",
                inputs: &[&[2, 3]],
                says: "needs axes of [batch, 2, 3], but got 3\n  help: 1 is the first axis after the batch, -1 the last; `[]` \
                       for one mean of all; its input comes from `in0`",
            },
            Refusal {
                settings: "mean = [1.0, 2.0]\nvariance = 1.0",
                inputs: &[&[3]],
                says: "needs one number or 3 in `mean` and in `variance`, but got 2 and 1\n  help: give one for each place of \
                       `axis`; its input comes from `in0`",
            },
        ],
        ..row("Normalization", "", &[&[2, 3]])
    },
    Row { numbers: [0, 4], ..row("Normalization", "axis = 1\ninvert = true", &[&[2, 3]]) },
    Row { numbers: [0, 2], ..row("Normalization", "axis = []\nmean = 0.5\nvariance = 4.0", &[&[2, 3]]) },
    Row {
        numbers: [6, 0],
        refuses: &[Refusal {
            settings: "shared_axes = [3]",
            inputs: &[&[2, 3]],
            says: "needs `shared_axes` from 1 to 2, but got [3]\n  help: the first axis after the batch is 1: `shared_axes = \
                   [1, 2]` for one slope a channel of an image; its input comes from `in0`",
        }],
        ..row("PReLU", "", &[&[2, 3]])
    },
    Row { numbers: [4, 0], ..row("PReLU", "shared_axes = [1, 2]\nalpha_initializer = \"ones\"", &[&[3, 2, 4]]) },
    Row { numbers: [6, 0], ..row("PReLU", "shared_axes = [2]", &[&[2, 2, 3]]) },
    Row {
        refuses: &[Refusal { settings: "scale = 1.0", ..TWO_INPUTS }],
        ..row("Rescaling", "scale = 0.25\noffset = -1.0", &[&[2, 3]])
    },
    Row {
        numbers: [0, 6],
        refuses: &[Refusal {
            settings: "scale = [0.5, 2.0]",
            inputs: &[&[3]],
            says: "needs a number or one for each channel in `scale`, but got 2 for [batch, 3]\n  help: give as many numbers as \
                   the last axis is long; its input comes from `in0`",
        }],
        ..row("Rescaling", "scale = [0.5, -2.0, 3.0]\noffset = 1.0", &[&[2, 3]])
    },
];
