//! The contracts of the layers that normalize each row by itself.

use super::rows::{Refusal, Row, TWO_INPUTS, row};

pub static ROWS: &[Row] = &[
    Row {
        numbers: [12, 0],
        refuses: &[
            TWO_INPUTS,
            Refusal {
                settings: "groups = 4",
                inputs: &[&[3, 6]],
                says: "needs groups of equal size, but got 4 groups for 6 channels\n  help: let `groups` divide the channels; \
                       -1 is a group for each channel; its input comes from `in0`",
            },
            Refusal {
                settings: "groups = 0",
                inputs: &[&[6]],
                says: "needs groups of equal size, but got 0 groups for 6 channels\n  help: let `groups` divide the channels; \
                       -1 is a group for each channel; its input comes from `in0`",
            },
            Refusal {
                settings: "groups = 1\nepsilon = 0.0",
                inputs: &[&[6]],
                says: "needs a positive `epsilon`, but got 0\n  help: Keras' default is 0.001; its input comes from `in0`",
            },
        ],
        ..row("GroupNormalization", "groups = 2", &[&[3, 2, 6]])
    },
    Row { numbers: [3, 0], ..row("GroupNormalization", "groups = -1\nscale = false", &[&[3, 3, 3]]) },
    Row { numbers: [4, 0], ..row("GroupNormalization", "groups = 1\ncenter = false\nepsilon = 0.01", &[&[5, 4]]) },
    Row { numbers: [0, 0], ..row("GroupNormalization", "groups = 2\ncenter = false\nscale = false", &[&[14]]) },
    Row {
        numbers: [18, 0],
        refuses: &[
            TWO_INPUTS,
            Refusal {
                settings: "axis = 1",
                inputs: &[&[3, 5]],
                says: "needs the last axes of its input [batch, 3, 5] as `axis`, but got [1]\n  help: -1 is the last axis, \
                       [-2, -1] are the last two; its input comes from `in0`",
            },
            Refusal {
                settings: "epsilon = -0.001",
                inputs: &[&[5]],
                says: "needs a positive `epsilon`, but got -0.001\n  help: Keras' default is 0.001; its input comes from `in0`",
            },
        ],
        ..row("LayerNormalization", "", &[&[3, 9]])
    },
    Row {
        numbers: [12, 0],
        ..row("LayerNormalization", "axis = [-2, -1]\nepsilon = 0.01\ncenter = false", &[&[2, 3, 4]])
    },
    Row { numbers: [20, 0], ..row("LayerNormalization", "axis = 1\nscale = false", &[&[20]]) },
    Row {
        numbers: [7, 0],
        refuses: &[
            TWO_INPUTS,
            Refusal {
                settings: "axis = [-1, -3]",
                inputs: &[&[2, 3, 5]],
                says: "needs the last axes of its input [batch, 2, 3, 5] as `axis`, but got [-1, -3]\n  help: -1 is the last \
                       axis, [-2, -1] are the last two; its input comes from `in0`",
            },
        ],
        ..row("RMSNormalization", "", &[&[3, 7]])
    },
    Row { numbers: [18, 0], ..row("RMSNormalization", "axis = [1, 2]\nepsilon = 0.1", &[&[3, 6]]) },
];
