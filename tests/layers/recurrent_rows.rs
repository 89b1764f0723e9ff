//! Do recurrent layers keep their contract: with masks, in both directions, with states that are given and returned?

use crate::rows::{Refusal, Row, row};

const NO_STEPS: Refusal = Refusal {
    settings: "units = 2",
    inputs: &[&[64]],
    says: "needs an input [batch, time, features] and perhaps a mask [batch, time], but got [batch, 64]\n  help: a sequence of \
           single numbers has one feature: `Reshape` adds an axis; indices go through `Embedding`; its input comes from `in0`",
};

pub const OTHER_MASK: Refusal = Refusal {
    settings: "units = 2",
    inputs: &[&[4, 3], &[3]],
    says: "needs an input [batch, time, features] and perhaps a mask [batch, time], but got [batch, 4, 3] and [batch, 3]\n  help: a \
           sequence of single numbers has one feature: `Reshape` adds an axis; indices go through `Embedding`; its input comes \
           from `in0`, `in1`",
};

const NO_SLOPE: Refusal = Refusal {
    settings: "units = 2\nactivation = \"gelu\"",
    inputs: &[&[4, 3]],
    says: "needs an activation whose slope follows from its output alone, but got another one\n  help: `tanh` is Keras' default; \
           `relu`, `sigmoid`, `elu` and `softsign` are possible, too; its input comes from `in0`",
};

const TWO_STATES: Refusal = Refusal {
    settings: "units = 2\ninitial_state = true",
    inputs: &[&[4, 3], &[2]],
    says: "needs an input [batch, time, features], the state and the cell before it [batch, 2], but got [batch, 4, 3] and [batch, 2]\n  \
           help: leave out `initial_state` to begin with zeros; its input comes from `in0`, `in1`",
};

const OTHER_STATE: Refusal = Refusal {
    settings: "units = 2\ninitial_state = true",
    inputs: &[&[4, 3], &[3]],
    says: "needs an input [batch, time, features], the state before it [batch, 2], but got [batch, 4, 3] and [batch, 3]\n  help: leave \
           out `initial_state` to begin with zeros; its input comes from `in0`, `in1`",
};

pub static ROWS: &[Row] = &[
    Row {
        output: &[4, 6],
        numbers: [120, 0],
        refuses: &[
            Refusal { settings: "layer = { type = \"LSTM\", units = 2 }", ..NO_STEPS },
            Refusal {
                settings: "layer = { type = \"LSTM\", units = 2, go_backwards = true }",
                inputs: &[&[4, 3]],
                says: "needs a layer that goes forwards, but got `go_backwards = true`\n  help: leave it out: the layer is used in \
                       both directions; its input comes from `in0`",
            },
            Refusal {
                settings: "layer = { type = \"LSTM\", units = 2, return_state = true }",
                inputs: &[&[4, 3]],
                says: "needs a layer without states as inputs or outputs, but got `return_state` or `initial_state`\n  help: use two \
                       layers, one with `go_backwards`, and `Concatenate`; its input comes from `in0`",
            },
        ],
        ..row("Bidirectional", "layer = { type = \"LSTM\", units = 3, return_sequences = true }", &[&[4, 1]])
    },
    Row {
        output: &[3],
        numbers: [108, 0],
        ..row("Bidirectional", "layer = { type = \"GRU\", units = 3 }\nmerge_mode = \"mul\"", &[&[3, 1], &[3]])
    },
    Row {
        output: &[4, 3],
        numbers: [63, 0],
        refuses: &[
            NO_STEPS,
            OTHER_MASK,
            NO_SLOPE,
            Refusal {
                settings: "units = 2\nreset_after = false",
                inputs: &[&[4, 3]],
                says: "needs `reset_after = true`, but got false\n  help: the reset gate before the product is not there; Keras' \
                       default is after it; its input comes from `in0`",
            },
        ],
        ..row("GRU", "units = 3\nreturn_sequences = true\ngo_backwards = true", &[&[4, 2], &[4]])
    },
    Row {
        output: &[3],
        numbers: [54, 0],
        ..row("GRU", "units = 3\ndropout = 0.25\nrecurrent_dropout = 0.5\nuse_bias = false", &[&[4, 3]])
    },
    Row {
        output: &[5, 3],
        numbers: [84, 0],
        refuses: &[
            NO_STEPS,
            OTHER_MASK,
            NO_SLOPE,
            Refusal {
                settings: "units = 2\nrecurrent_activation = \"tanh\"",
                inputs: &[&[4, 3]],
                says: "needs `sigmoid` or `hard_sigmoid` as its recurrent activation, but got another one\n  help: gates are numbers \
                       from 0 to 1; `sigmoid` is Keras' default; its input comes from `in0`",
            },
            Refusal {
                settings: "units = 0",
                inputs: &[&[4, 3]],
                says: "needs at least one unit, but got 0\n  help: set `units`; its input comes from `in0`",
            },
        ],
        ..row("LSTM", "units = 3\nreturn_sequences = true\nzero_output_for_mask = true", &[&[5, 3], &[5]])
    },
    Row { output: &[3], numbers: [84, 0], ..row("LSTM", "units = 3\nactivation = \"softsign\"", &[&[1, 3]]) },
    Row {
        output: &[4, 3],
        numbers: [84, 0],
        ..row("LSTM", "units = 3\nreturn_sequences = true\ndropout = 0.25\nrecurrent_dropout = 0.5", &[&[4, 3], &[4]])
    },
    Row { output: &[3], numbers: [72, 0], ..row("LSTM", "units = 3\ndropout = 0.5\nuse_bias = false", &[&[4, 3]]) },
    Row {
        output: &[4, 2],
        numbers: [12, 0],
        refuses: &[NO_STEPS, OTHER_MASK],
        ..row("SimpleRNN", "units = 2\nreturn_sequences = true\nrecurrent_dropout = 0.5", &[&[4, 3], &[4]])
    },
    Row {
        output: &[5, 3],
        numbers: [63, 0],
        refuses: &[OTHER_STATE],
        ..row(
            "GRU",
            "units = 3\nreturn_sequences = true\nreturn_state = true\ninitial_state = true\nrecurrent_dropout = 0.5",
            &[&[4, 2], &[3], &[4]],
        )
    },
    Row { output: &[1, 3], numbers: [63, 0], ..row("GRU", "units = 3\nreturn_state = true", &[&[4, 2]]) },
    Row {
        output: &[6, 3],
        numbers: [84, 0],
        refuses: &[TWO_STATES],
        ..row(
            "LSTM",
            "units = 3\nreturn_sequences = true\nreturn_state = true\ninitial_state = true\ngo_backwards = true",
            &[&[4, 3], &[3], &[3], &[4]],
        )
    },
    Row {
        output: &[2, 3],
        numbers: [84, 0],
        ..row(
            "LSTM",
            "units = 3\nreturn_state = true\ninitial_state = true\nrecurrent_dropout = 0.5",
            &[&[4, 3], &[3], &[3]],
        )
    },
    Row {
        output: &[4, 2],
        numbers: [12, 0],
        refuses: &[OTHER_STATE],
        ..row(
            "SimpleRNN",
            "units = 2\nreturn_sequences = true\nzero_output_for_mask = true\ninitial_state = true",
            &[&[4, 3], &[2], &[4]],
        )
    },
];
