//! The contracts of layers: a row or more for each layer of the crate.

/// What splitting a batch changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Across {
    /// Nothing.
    Nothing,
    /// The values, which follow the statistics of each shard. The moving statistics stay the same.
    StatisticsOfShards,
}

/// Where the truth comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Truth {
    /// Golden values of Keras.
    Golden,
    /// A test of its own in this file, since there is no golden value of it.
    Own,
}

/// Inputs or settings that the layer refuses, and how.
pub struct Refusal {
    pub settings: &'static str,
    pub inputs: &'static [&'static [usize]],
    pub says: &'static str,
}

/// A layer's contract.
pub struct Row {
    /// Its name in `LAYERS`.
    pub kind: &'static str,
    /// Its settings in TOML.
    pub settings: &'static str,
    /// Shapes of its inputs, of awkward sizes.
    pub inputs: &'static [&'static [usize]],
    /// Shape of its output.
    pub output: &'static [usize],
    /// Trainable numbers, and moving statistics.
    pub numbers: [usize; 2],
    pub truth: Truth,
    pub across: Across,
    pub refuses: &'static [Refusal],
}

pub const TWO_INPUTS: Refusal = Refusal {
    settings: "",
    inputs: &[&[3], &[3]],
    says: "needs one input, but got 2\n  help: merge the inputs first, with `Add` or `Concatenate`; its input comes from \
           `in0`, `in1`",
};

pub const NO_IMAGE: &str = "needs an input [batch, height, width, channels], but got [batch, 64]\n  help: give images channels \
                        last; a grey image has one channel: [batch, height, width, 1]. `Reshape` adds an axis; its \
                        input comes from `in0`";

pub const fn row(kind: &'static str, settings: &'static str, inputs: &'static [&'static [usize]]) -> Row {
    Row {
        kind,
        settings,
        inputs,
        output: inputs[0],
        numbers: [0, 0],
        truth: Truth::Golden,
        across: Across::Nothing,
        refuses: &[],
    }
}

/// Every row of every table.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.iter().flat_map(|table| *table)
}

/// The tables, one a file.
static TABLES: &[&[Row]] = &[
    ROWS,
    crate::activations::ROWS,
    crate::conv_rows::ROWS,
    crate::language::ROWS,
    crate::merging::ROWS,
    crate::norm_rows::ROWS,
    crate::random::ROWS,
    crate::recurrent_rows::ROWS,
    crate::reshaping::ROWS,
    crate::scaling::ROWS,
    crate::sequences::ROWS,
];

/// Rows of layers that have no table of their own.
static ROWS: &[Row] = &[
    Row { refuses: &[TWO_INPUTS], ..row("Activation", "activation = \"softmax\"", &[&[3, 5]]) },
    row("Activation", "activation = \"linear\"", &[&[7]]),
    Row {
        output: &[5, 2, 3],
        refuses: &[Refusal { settings: "", inputs: &[&[64]], says: NO_IMAGE }],
        ..row("AveragePooling2D", "pool_size = [2, 3]\nstrides = [1, 2]\npadding = \"same\"", &[&[5, 4, 3]])
    },
    Row {
        numbers: [6, 6],
        across: Across::StatisticsOfShards,
        refuses: &[
            TWO_INPUTS,
            Refusal {
                settings: "momentum = 1.5",
                inputs: &[&[3]],
                says: "needs a momentum from 0 to 1 and a positive epsilon, but got 1.5 and 0.001\n  help: Keras' defaults \
                       are 0.99 and 0.001; its input comes from `in0`",
            },
        ],
        ..row("BatchNormalization", "", &[&[3, 2, 3]])
    },
    Row {
        numbers: [10, 10],
        ..row("BatchNormalization", "synchronized = true\nmomentum = 0.5\nepsilon = 0.01", &[&[5]])
    },
    Row { numbers: [3, 6], ..row("BatchNormalization", "synchronized = true\nscale = false", &[&[2, 3]]) },
    Row { numbers: [3, 6], ..row("BatchNormalization", "synchronized = true\ncenter = false", &[&[2, 3]]) },
    Row { numbers: [6, 6], ..row("BatchNormalization", "fixed_statistics = true", &[&[2, 3]]) },
    Row {
        output: &[2, 8],
        refuses: &[Refusal {
            settings: "",
            inputs: &[&[2, 3], &[3, 3]],
            says: "needs inputs that agree in all axes but the last, but got [batch, 2, 3] and [batch, 3, 3]\n  help: bring \
                   them to one height and width first, for example with pooling or strides; its input comes from `in0`, \
                   `in1`",
        }],
        ..row("Concatenate", "", &[&[2, 3], &[2, 1], &[2, 4]])
    },
    Row {
        output: &[3, 4, 3],
        numbers: [39, 0],
        refuses: &[
            Refusal { settings: "filters = 8\nkernel_size = [3, 3]", inputs: &[&[64]], says: NO_IMAGE },
            Refusal {
                settings: "filters = 8\nkernel_size = [3, 3]",
                inputs: &[&[2, 5, 1]],
                says: "needs an image of at least 3 × 3, but got 2 × 5\n  help: use padding `same`, a smaller window, or \
                       fewer layers that shrink the image; its input comes from `in0`",
            },
            Refusal {
                settings: "filters = 0\nkernel_size = [3, 3]",
                inputs: &[&[5, 5, 1]],
                says: "needs at least one filter, but got 0\n  help: set `filters`; its input comes from `in0`",
            },
        ],
        ..row(
            "Conv2D",
            "filters = 3\nkernel_size = [3, 2]\nstrides = [2, 1]\npadding = \"same\"\nactivation = \"tanh\"",
            &[&[5, 4, 2]],
        )
    },
    Row {
        output: &[2, 3, 2],
        numbers: [6, 0],
        ..row(
            "Conv2D",
            "filters = 2\nkernel_size = [1, 1]\nstrides = [3, 2]\nuse_bias = false\nactivation = \"gelu\"",
            &[&[4, 5, 3]],
        )
    },
    Row {
        output: &[3, 7],
        numbers: [42, 0],
        refuses: &[
            Refusal { settings: "units = 4", ..TWO_INPUTS },
            Refusal {
                settings: "units = 0",
                inputs: &[&[3]],
                says: "needs an input with features and at least one unit, but got [batch, 3] and 0 units\n  help: set \
                       `units`, and give each row at least one axis; its input comes from `in0`",
            },
        ],
        ..row("Dense", "units = 7\nactivation = \"gelu\"", &[&[3, 5]])
    },
    Row { output: &[1], numbers: [1, 0], ..row("Dense", "units = 1\nuse_bias = false", &[&[1]]) },
    Row { output: &[5], numbers: [40, 0], ..row("Dense", "units = 5\nactivation = \"softmax\"", &[&[7]]) },
    Row {
        output: &[3, 4],
        numbers: [5 * 4 + 4 + 5 * 2 + 2 * 4, 0],
        refuses: &[
            Refusal {
                settings: "units = 4\nlora_alpha = 2.0",
                inputs: &[&[5]],
                says: "needs `lora_rank` with `lora_alpha` and `lora_dropout`, but has none\n  help: set `lora_rank`; 8 is usual; \
                       its input comes from `in0`",
            },
            Refusal {
                settings: "units = 4\nlora_rank = 0",
                inputs: &[&[5]],
                says: "needs a `lora_rank` of at least 1, but got 0\n  help: 8 is usual; its input comes from `in0`",
            },
            Refusal {
                settings: "units = 4\nlora_rank = 2\nlora_dropout = 1.0",
                inputs: &[&[5]],
                says: "needs a rate of at least 0 and below 1, but got 1\n  help: the rate is the part that is dropped: 0.5 drops \
                       half; its input comes from `in0`",
            },
        ],
        ..row("Dense", "units = 4\nlora_rank = 2\nlora_alpha = 3.0\nactivation = \"tanh\"", &[&[3, 5]])
    },
    Row {
        output: &[5],
        numbers: [8 * 5 + 8 * 3 + 3 * 5, 0],
        ..row(
            "Dense",
            "units = 5\nuse_bias = false\nactivation = \"gelu\"\nlora_rank = 3\nlora_alpha = 0.5\nlora_dropout = 0.25",
            &[&[8]],
        )
    },
    Row { output: &[65], numbers: [585, 0], ..row("Dense", "units = 65\nactivation = \"sigmoid\"", &[&[8]]) },
    Row {
        truth: Truth::Own,
        refuses: &[
            Refusal { settings: "rate = 0.5", ..TWO_INPUTS },
            Refusal {
                settings: "rate = 1.0",
                inputs: &[&[3]],
                says: "needs a rate of at least 0 and below 1, but got 1\n  help: the rate is the part that is dropped: 0.5 \
                       drops half; its input comes from `in0`",
            },
        ],
        ..row("Dropout", "rate = 0.4", &[&[3, 5]])
    },
    Row { truth: Truth::Own, ..row("Dropout", "rate = 0.0", &[&[5]]) },
    Row { output: &[12], refuses: &[TWO_INPUTS], ..row("Flatten", "", &[&[2, 3, 2]]) },
    Row { refuses: &[TWO_INPUTS], ..row("GELU", "", &[&[3, 5]]) },
    row("GELU", "approximate = true", &[&[3, 5]]),
    Row {
        output: &[2],
        refuses: &[Refusal { settings: "", inputs: &[&[64]], says: NO_IMAGE }],
        ..row("GlobalAveragePooling2D", "", &[&[5, 3, 2]])
    },
    Row { refuses: &[TWO_INPUTS], ..row("LeakyReLU", "negative_slope = 0.1", &[&[3, 5]]) },
    Row {
        output: &[3, 4, 2],
        refuses: &[
            Refusal { settings: "", inputs: &[&[64]], says: NO_IMAGE },
            Refusal {
                settings: "pool_size = [0, 2]",
                inputs: &[&[4, 4, 1]],
                says: "needs sizes and strides of at least 1, but got size [0, 2], strides [0, 2], input [4, 4, 1]\n  help: \
                       set them to 1 or more; its input comes from `in0`",
            },
        ],
        ..row("MaxPooling2D", "pool_size = [3, 2]\nstrides = [2, 1]\npadding = \"same\"", &[&[5, 4, 2]])
    },
    Row { refuses: &[TWO_INPUTS], ..row("ReLU", "", &[&[3, 5]]) },
    Row {
        output: &[6, 2],
        refuses: &[Refusal {
            settings: "target_shape = [5, 2]",
            inputs: &[&[3, 4]],
            says: "needs 10 elements a row for [batch, 5, 2], but its input [batch, 3, 4] has 12\n  help: let the product of \
                   `target_shape` be that of the input's axes; its input comes from `in0`",
        }],
        ..row("Reshape", "target_shape = [6, 2]", &[&[3, 4]])
    },
    Row { refuses: &[TWO_INPUTS], ..row("Sigmoid", "", &[&[3, 5]]) },
    Row { refuses: &[TWO_INPUTS], ..row("Softmax", "", &[&[2, 2, 5]]) },
    Row { refuses: &[TWO_INPUTS], ..row("Tanh", "", &[&[3, 5]]) },
];
