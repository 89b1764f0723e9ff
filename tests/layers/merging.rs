//! The contracts of layers that merge tensors element by element.

use crate::rows::{Refusal, Row, row};

const TWO_SHAPES: Refusal = Refusal {
    settings: "",
    inputs: &[&[2, 3], &[2, 4]],
    says: "needs inputs whose axes are equal or 1, but got [batch, 2, 3] and [batch, 2, 4]\n  help: bring them to one shape \
           first, for example with a 1 × 1 `Conv2D` on the shorter branch; its input comes from `in0`, `in1`",
};

const ONE_INPUT: Refusal = Refusal {
    settings: "",
    inputs: &[&[3]],
    says: "needs two inputs or more, but got 1\n  help: name at least two tensors as its inputs; its input comes from `in0`",
};

/// Its axes run in six groups, which take turns in whose they are.
const TOO_MANY_TURNS: Refusal = Refusal {
    settings: "",
    inputs: &[&[2, 1, 2, 1, 2, 1], &[1, 2, 1, 2, 1, 2]],
    says: "needs inputs whose axes are equal or 1, in at most 5 groups of equal or stretched axes, but got [batch, 2, 1, 2, \
           1, 2, 1] and [batch, 1, 2, 1, 2, 1, 2]\n  help: bring axes that are stretched side by side with `Permute`, or \
           merge in two steps; its input comes from `in0`, `in1`",
};

pub static ROWS: &[Row] = &[
    Row { refuses: &[TWO_SHAPES, ONE_INPUT], ..row("Add", "", &[&[2, 3], &[2, 3], &[2, 3]]) },
    Row { output: &[2, 3, 2], refuses: &[TOO_MANY_TURNS], ..row("Add", "", &[&[1, 2], &[2, 3, 1]]) },
    Row { refuses: &[TWO_SHAPES, ONE_INPUT], ..row("Average", "", &[&[2, 3], &[2, 3], &[1, 3]]) },
    Row { refuses: &[TWO_SHAPES, ONE_INPUT], ..row("Maximum", "", &[&[2, 3], &[2, 3], &[2, 1]]) },
    Row { refuses: &[TWO_SHAPES, ONE_INPUT], ..row("Minimum", "", &[&[2, 3], &[3]]) },
    Row { refuses: &[TWO_SHAPES, ONE_INPUT], ..row("Multiply", "", &[&[2, 3], &[2, 3], &[2, 3]]) },
    Row { output: &[3, 2, 4], ..row("Multiply", "", &[&[3, 2, 4], &[1, 1, 4], &[3, 2, 1]]) },
    Row {
        refuses: &[
            TWO_SHAPES,
            Refusal {
                settings: "",
                inputs: &[&[3], &[3], &[3]],
                says: "needs two inputs, but got 3\n  help: name two tensors as its inputs; its input comes from `in0`, \
                       `in1`, `in2`",
            },
        ],
        ..row("Subtract", "", &[&[2, 3], &[2, 3]])
    },
    Row { output: &[2, 3], ..row("Subtract", "", &[&[3], &[2, 3]]) },
];
