//! The contracts of layers that copy, repeat and interpolate, and of pooling over all positions.

use crate::rows::{NO_IMAGE, Refusal, Row, TWO_INPUTS, row};

const FLAT: Refusal = Refusal { settings: "", inputs: &[&[64]], says: NO_IMAGE };

pub static ROWS: &[Row] = &[
    Row {
        output: &[5, 2],
        refuses: &[Refusal {
            settings: "axis = 0",
            inputs: &[&[2, 3], &[2, 3]],
            says: "needs an axis from 1 to 2 or from -2 to -1, but got 0\n  help: -1 is the last axis; rows of a batch can't be \
                   put together; its input comes from `in0`, `in1`",
        }],
        ..row("Concatenate", "axis = 1", &[&[3, 2], &[2, 2]])
    },
    Row {
        output: &[2, 1, 2],
        refuses: &[
            FLAT,
            Refusal {
                settings: "cropping = [[2, 1], [0, 0]]",
                inputs: &[&[3, 3, 2]],
                says: "needs an image that is larger than what it takes away, [[2, 1], [0, 0]], but got [batch, 3, 3, 2]\n  help: \
                       take away less: `cropping = [[top, bottom], [left, right]]`; its input comes from `in0`",
            },
        ],
        ..row("Cropping2D", "cropping = [[1, 0], [0, 2]]", &[&[3, 3, 2]])
    },
    Row { output: &[1, 1, 2], ..row("GlobalAveragePooling2D", "keepdims = true", &[&[5, 3, 2]]) },
    Row { output: &[2], refuses: &[FLAT], ..row("GlobalMaxPooling2D", "", &[&[5, 3, 2]]) },
    Row { output: &[1, 1, 3], ..row("GlobalMaxPooling2D", "keepdims = true", &[&[2, 3, 3]]) },
    Row {
        output: &[4, 2, 3],
        refuses: &[
            Refusal {
                settings: "dims = [1, 3]",
                inputs: &[&[2, 3]],
                says: "needs each axis from 1 to 2 once in `dims`, but got [1, 3] for [batch, 2, 3]\n  help: the first axis after \
                       the batch is 1: `dims = [2, 1]` swaps two axes; its input comes from `in0`",
            },
            Refusal {
                settings: "dims = [6, 5, 4, 3, 2, 1]",
                inputs: &[&[2, 2, 2, 2, 2, 2]],
                says: "can move at most 5 groups of axes, but got [6, 5, 4, 3, 2, 1]\n  help: permute in two steps; its input \
                       comes from `in0`",
            },
        ],
        ..row("Permute", "dims = [3, 1, 2]", &[&[2, 3, 4]])
    },
    Row {
        output: &[3, 5],
        refuses: &[Refusal {
            settings: "n = 3",
            inputs: &[&[2, 3]],
            says: "needs an input [batch, features] and `n` of at least 1, but got [batch, 2, 3] and 3\n  help: `Flatten` makes \
                   one axis of several; its input comes from `in0`",
        }],
        ..row("RepeatVector", "n = 3", &[&[5]])
    },
    Row {
        output: &[4, 9, 2],
        refuses: &[
            FLAT,
            Refusal {
                settings: "size = 0",
                inputs: &[&[2, 2, 1]],
                says: "needs factors of at least 1, but got [0, 0]\n  help: `size = 2` doubles height and width; its input comes \
                       from `in0`",
            },
        ],
        ..row("UpSampling2D", "size = [2, 3]", &[&[2, 3, 2]])
    },
    Row { output: &[6, 4, 2], ..row("UpSampling2D", "size = [3, 2]\ninterpolation = \"bilinear\"", &[&[2, 2, 2]]) },
    Row {
        output: &[4, 4, 2],
        refuses: &[FLAT, TWO_INPUTS],
        ..row("ZeroPadding2D", "padding = [[0, 2], [1, 0]]", &[&[2, 3, 2]])
    },
];
