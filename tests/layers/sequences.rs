//! The contracts of layers of sequences: along time, embeddings and masks; which data an embedding refuses.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use manyhands::data::{Batch, InMemory};
use manyhands::internals::adapters::cpu;
use manyhands::layers::{Dense, Embedding, Flatten};
use manyhands::{Compile, Fit, Loss, Model, Optimizer, Sequential, Trainer};
use ndarray::{Array1, Array2};

use crate::rows::{Refusal, Row, TWO_INPUTS, Truth, row};

const NO_SEQUENCE: &str = "needs an input [batch, time, features], but got [batch, 64]\n  help: a sequence of single numbers has one \
                           feature: [batch, time, 1]. `Reshape` adds an axis; its input comes from `in0`";

const FLAT: Refusal = Refusal { settings: "", inputs: &[&[64]], says: NO_SEQUENCE };

pub static ROWS: &[Row] = &[
    Row {
        output: &[3, 2],
        refuses: &[FLAT, TWO_INPUTS],
        ..row("AveragePooling1D", "pool_size = 3\nstrides = 2\npadding = \"same\"", &[&[5, 2]])
    },
    Row {
        output: &[3],
        truth: Truth::Own,
        refuses: &[Refusal {
            settings: "",
            inputs: &[&[2, 2, 2]],
            says: "needs an input [batch, time] or [batch, time, features], but got [batch, 2, 2, 2]\n  help: `Reshape` makes a \
                   sequence of other shapes; its input comes from `in0`",
        }],
        ..row("ComputeMask", "mask_value = 0.5", &[&[3, 2]])
    },
    Row { output: &[5], truth: Truth::Own, ..row("ComputeMask", "", &[&[5]]) },
    Row {
        output: &[4, 3],
        numbers: [21, 0],
        refuses: &[
            Refusal { settings: "filters = 2\nkernel_size = 3", inputs: &[&[64]], says: NO_SEQUENCE },
            Refusal {
                settings: "filters = 2\nkernel_size = 3\ndilation_rate = 2",
                inputs: &[&[4, 1]],
                says: "needs a sequence of at least 5 steps, but got 4\n  help: use padding `same`, a smaller window, or longer \
                       sequences; its input comes from `in0`",
            },
            Refusal {
                settings: "filters = 0\nkernel_size = 3",
                inputs: &[&[4, 1]],
                says: "needs at least one filter, but got 0\n  help: set `filters`; its input comes from `in0`",
            },
        ],
        ..row(
            "Conv1D",
            "filters = 3\nkernel_size = 3\nstrides = 2\npadding = \"causal\"\nactivation = \"tanh\"",
            &[&[8, 2]],
        )
    },
    Row {
        output: &[6, 4],
        numbers: [16, 0],
        ..row(
            "Conv1D",
            "filters = 4\nkernel_size = 2\ndilation_rate = 3\npadding = \"causal\"\ngroups = 2\nuse_bias = false",
            &[&[6, 4]],
        )
    },
    Row {
        output: &[5, 2],
        numbers: [14, 0],
        ..row("Conv1D", "filters = 2\nkernel_size = 3\npadding = \"same\"", &[&[5, 2]])
    },
    Row {
        output: &[2, 2],
        refuses: &[
            FLAT,
            Refusal {
                settings: "cropping = [2, 1]",
                inputs: &[&[3, 2]],
                says: "needs more steps than it takes away, [2, 1], but got 3\n  help: take away less: `cropping = [before, \
                       after]`; its input comes from `in0`",
            },
        ],
        ..row("Cropping1D", "cropping = [0, 3]", &[&[5, 2]])
    },
    Row {
        output: &[2, 3, 4],
        numbers: [20, 0],
        refuses: &[
            Refusal { settings: "input_dim = 5\noutput_dim = 2", ..TWO_INPUTS },
            Refusal {
                settings: "input_dim = 20000000\noutput_dim = 2",
                inputs: &[&[3]],
                says: "needs from 1 to 16777216 indices and vectors of at least one number, but got 20000000 and 2\n  help: \
                       `input_dim` is the largest index plus 1, `output_dim` the length of a vector; its input comes from `in0`",
            },
            Refusal {
                settings: "input_dim = 16000000\noutput_dim = 64",
                inputs: &[&[3]],
                says: "needs a table of at most 2 GiB, but 16000000 × 64 is larger\n  help: take shorter vectors, or fewer \
                       indices; its input comes from `in0`",
            },
        ],
        ..row("Embedding", "input_dim = 5\noutput_dim = 4", &[&[2, 3]])
    },
    Row { output: &[3], refuses: &[FLAT], ..row("GlobalAveragePooling1D", "", &[&[4, 3]]) },
    Row { output: &[1, 3], refuses: &[FLAT], ..row("GlobalMaxPooling1D", "keepdims = true", &[&[4, 3]]) },
    Row {
        refuses: &[Refusal {
            settings: "",
            inputs: &[&[2, 2, 2]],
            says: "needs an input [batch, time] or [batch, time, features], but got [batch, 2, 2, 2]\n  help: `Reshape` makes a \
                   sequence of other shapes; its input comes from `in0`",
        }],
        ..row("Masking", "mask_value = 0.5", &[&[4, 3]])
    },
    Row {
        output: &[2, 3],
        refuses: &[
            FLAT,
            Refusal {
                settings: "pool_size = 6",
                inputs: &[&[5, 1]],
                says: "needs a sequence of at least 6 steps, but got 5\n  help: use padding `same`, a smaller window, or longer \
                       sequences; its input comes from `in0`",
            },
        ],
        ..row("MaxPooling1D", "", &[&[5, 3]])
    },
    Row {
        output: &[6, 2],
        refuses: &[
            FLAT,
            Refusal {
                settings: "size = 0",
                inputs: &[&[5, 1]],
                says: "needs a factor of at least 1, but got 0\n  help: `size = 2` doubles the steps; its input comes from `in0`",
            },
        ],
        ..row("UpSampling1D", "size = 3", &[&[2, 2]])
    },
    Row { output: &[6, 2], refuses: &[FLAT], ..row("ZeroPadding1D", "padding = [3, 1]", &[&[2, 2]]) },
];

/// Rows of four indices below 6, each a class of two.
fn words() -> Model {
    let graph = Sequential::new([4]).add(Embedding::new(6, 3)).add(Flatten::default()).add(Dense::new(2));
    graph.build(0).unwrap()
}

fn trainer() -> Trainer {
    let compile = Compile::new(Optimizer::sgd(0.1, 0.0), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    Trainer::new(words(), compile).unwrap().on(vec![cpu::info()])
}

fn data(value: f32) -> InMemory {
    let mut inputs = Array2::zeros((9, 4));
    inputs[[7, 2]] = value;
    InMemory::new(inputs, Array1::zeros(9)).unwrap()
}

/// An index out of range is told before anything runs, by row and value: of a dataset, and of a batch that is brought.
#[test]
fn an_index_out_of_range_is_an_error() {
    for value in [6.0, -1.0, 2.5] {
        let needed = format!(
            "input `input` needs whole numbers from 0 to 5, but row 7 holds {value}\n  help: each is a row of a table of 6; let the \
             layer's `input_dim` be the largest number plus 1"
        );
        let fit = trainer().fit(data(value), &Fit::new(1)).err().unwrap();
        assert_eq!(fit.to_string(), needed);
        let predict = trainer().predict(data(value), 4).err().unwrap();
        assert_eq!(predict.to_string(), needed);
        let batch = Batch::fetch(&data(value), &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        let step = trainer().train_on_batch(batch).err().unwrap();
        assert_eq!(step.to_string(), needed);
    }
    trainer().predict(data(5.0), 4).unwrap();
}

/// A table that no binding holds stands in parts; each is a parameter of its own.
#[test]
fn a_large_table_is_kept_in_parts() {
    let model = Sequential::new([2]).add_named("words", Embedding::new(50_000, 768)).build(0).unwrap();
    let told: Vec<(&str, &[usize])> = model.tensors().map(|(name, shape, _)| (name, shape)).collect();
    let part: &[usize] = &[25_000, 768];
    assert_eq!(told, [("words/embeddings", part), ("words/embeddings_1", part)]);
    assert_eq!(model.n_parameters(), 50_000 * 768);
}
