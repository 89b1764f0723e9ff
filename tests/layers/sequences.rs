//! Do layers of sequences keep their contract: along time, with embeddings and masks? Which data does an embedding refuse?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use manyhands::data::{Batch, InMemory};
use manyhands::layers::{
    Activation, Add, Bidirectional, Concatenate, Dense, Dropout, Embedding, Flatten, GlobalAveragePooling1D,
    GroupQueryAttention, Gru, LayerNormalization, Lstm, MultiHeadAttention, SimpleRnn,
};
use manyhands::{Compile, Fit, Loss, Model, ModelBuilder, Optimizer, Predictor, Sequential, SplitMode, Trainer};
use manyhands_engine::adapters::cpu;
use manyhands_engine::plan::Pass;
use ndarray::{Array1, Array2};

use crate::bench::Bench;
use crate::close::assert_close;
use crate::recurrent_rows::OTHER_MASK;
use crate::rows::{Refusal, Row, TWO_INPUTS, Truth, row};

const NO_SEQUENCE: &str = "needs an input [batch, time, features], but got [batch, 64]\n  help: a sequence of single numbers has one \
                           feature: [batch, time, 1]. `Reshape` adds an axis; its input comes from `in0`";

const FLAT: Refusal = Refusal { settings: "", inputs: &[&[64]], says: NO_SEQUENCE };

const OTHER_MASK_AT_ALL: Refusal = Refusal { settings: "", ..OTHER_MASK };

const NO_QUERY: &str = "needs a query [batch, time, features], perhaps value and key [batch, keys, features], and perhaps masks [batch, time] \
                        and [batch, keys], but got [batch, 64]\n  help: name query, value, key, then masks; value and key have one \
                        length. `Reshape` makes sequences; its input comes from `in0`";

const TWO_LENGTHS: &str = "needs a query [batch, time, features], perhaps value and key [batch, keys, features], and perhaps masks [batch, \
                           time] and [batch, keys], but got [batch, 4, 3] and [batch, 5, 3] and [batch, 4]\n  help: name query, value, \
                           key, then masks; value and key have one length. `Reshape` makes sequences; its input comes from `in0`, \
                           `in1`, `in2`";

const NO_POSITIONS: &str = "needs an input [batch, time, features], but got [batch, 64]\n  help: put it behind an `Embedding`: its output has \
                            positions and features; its input comes from `in0`";

const NO_PAIRS: &str = "needs an input [batch, time, features] or [batch, time, heads, features] with an even number of features, but got \
                        [batch, 64]\n  help: `Reshape` makes heads of features; its input comes from `in0`";

pub static ROWS: &[Row] = &[
    Row {
        output: &[5, 4],
        numbers: [4 * 12 + 12 + 4 * 12 + 12 + 4 * 12 + 12 + 12 * 4 + 4, 0],
        refuses: &[
            Refusal { settings: "num_heads = 2\nkey_dim = 3", inputs: &[&[64]], says: NO_QUERY },
            Refusal { settings: "num_heads = 2\nkey_dim = 3", inputs: &[&[4, 3], &[5, 3], &[4]], says: TWO_LENGTHS },
            Refusal {
                settings: "num_heads = 0\nkey_dim = 3",
                inputs: &[&[4, 3]],
                says: "needs at least one head, and heads and an output of at least one number, but got 0 heads of 3 and 3, and an \
                       output of 3\n  help: set `num_heads` and `key_dim`; 8 heads of an eighth of the features each are usual; its \
                       input comes from `in0`",
            },
            Refusal {
                settings: "num_heads = 2\nkey_dim = 3\ndropout = 1.0",
                inputs: &[&[4, 3]],
                says: "needs a rate of at least 0 and below 1, but got 1\n  help: the rate is the part that is dropped: 0.5 drops half; \
                       its input comes from `in0`",
            },
            Refusal {
                settings: "num_heads = 8\nkey_dim = 3",
                inputs: &[&[20000, 3]],
                says: "needs at most 2147483648 pairs of heads, queries and keys a row, but got 8 × 20000 × 20000\n  help: use shorter \
                       sequences, or fewer heads; its input comes from `in0`",
            },
        ],
        ..row("MultiHeadAttention", "num_heads = 4\nkey_dim = 3\nuse_causal_mask = true", &[&[5, 4]])
    },
    Row {
        numbers: [3 * (3 * 4 + 4) + 4 * 3 + 3, 0],
        ..row("MultiHeadAttention", "num_heads = 2\nkey_dim = 2", &[&[4, 3], &[4]])
    },
    Row {
        output: &[3, 5],
        numbers: [2 * 2 + 3 * 2 + 3 * 6 + 6 * 5, 0],
        ..row(
            "MultiHeadAttention",
            "num_heads = 2\nkey_dim = 1\nvalue_dim = 3\nuse_bias = false\noutput_shape = 5\ndropout = 0.25",
            &[&[3, 2], &[6, 3], &[3], &[6]],
        )
    },
    Row {
        output: &[3, 2],
        numbers: [2 * 3 + 3 + 4 * 3 + 3 + 3 * 3 + 3 + 3 * 2 + 2, 0],
        ..row("MultiHeadAttention", "num_heads = 1\nkey_dim = 3", &[&[3, 2], &[5, 3], &[5, 4], &[5]])
    },
    Row {
        numbers: [4 * 12 + 12 + 2 * (4 * 6 + 6) + 12 * 4 + 4, 0],
        refuses: &[Refusal {
            settings: "head_dim = 3\nnum_query_heads = 4\nnum_key_value_heads = 3",
            inputs: &[&[4, 3]],
            says: "needs heads of keys and values that divide those of the queries, but got 3 for 4\n  help: set \
                       `num_key_value_heads` to a divisor of `num_query_heads`; 1 is multi-query attention; its input comes from `in0`",
        }],
        ..row(
            "GroupQueryAttention",
            "head_dim = 3\nnum_query_heads = 4\nnum_key_value_heads = 2\nuse_causal_mask = true",
            &[&[5, 4]],
        )
    },
    Row {
        numbers: [2 * 6 + 2 * (4 * 2) + 6 * 2, 0],
        ..row(
            "GroupQueryAttention",
            "head_dim = 2\nnum_query_heads = 3\nnum_key_value_heads = 1\nuse_bias = false\ndropout = 0.25",
            &[&[3, 2], &[6, 4], &[3], &[6]],
        )
    },
    Row {
        numbers: [9 * 3, 0],
        refuses: &[
            Refusal { settings: "sequence_length = 9", inputs: &[&[64]], says: NO_POSITIONS },
            Refusal {
                settings: "sequence_length = 3",
                inputs: &[&[4, 2]],
                says: "needs at most 3 positions, but got [batch, 4, 2]\n  help: set `sequence_length` to the longest sequence; its input \
                       comes from `in0`",
            },
        ],
        ..row("PositionEmbedding", "sequence_length = 9", &[&[5, 3]])
    },
    Row { numbers: [10, 0], ..row("PositionEmbedding", "sequence_length = 5", &[&[5, 2]]) },
    Row {
        numbers: [0, 28],
        refuses: &[
            Refusal { settings: "", inputs: &[&[64]], says: NO_POSITIONS },
            Refusal {
                settings: "max_wavelength = 0.0",
                inputs: &[&[4, 2]],
                says: "needs a positive `max_wavelength`, but got 0\n  help: 10,000 is usual; its input comes from `in0`",
            },
        ],
        ..row("SinePositionEncoding", "", &[&[7, 4]])
    },
    Row {
        numbers: [0, 30],
        refuses: &[
            Refusal { settings: "", inputs: &[&[64]], says: NO_PAIRS },
            Refusal {
                settings: "",
                inputs: &[&[4, 3]],
                says: "needs an input [batch, time, features] or [batch, time, heads, features] with an even number of features, but \
                       got [batch, 4, 3]\n  help: `Reshape` makes heads of features; its input comes from `in0`",
            },
            Refusal {
                settings: "scaling_factor = 0.0",
                inputs: &[&[4, 2]],
                says: "needs a positive `max_wavelength` and `scaling_factor`, but got 10000 and 0\n  help: 10,000 and 1 are usual; \
                       its input comes from `in0`",
            },
            Refusal {
                settings: "low_freq_factor = 1.0",
                inputs: &[&[4, 2]],
                says: "needs all of `frequency_adjustment_factor`, `low_freq_factor`, `high_freq_factor` and \
                       `pretraining_sequence_length`, or none, but got some of them\n  help: Llama 3.1 has 8, 1, 4 and 8192; its \
                       input comes from `in0`",
            },
            Refusal {
                settings: "frequency_adjustment_factor = 8.0\nlow_freq_factor = 4.0\nhigh_freq_factor = 1.0\n\
                           pretraining_sequence_length = 8192",
                inputs: &[&[4, 2]],
                says: "needs a positive `frequency_adjustment_factor`, and `low_freq_factor` below `high_freq_factor`, but got 8, 4 and \
                       1\n  help: Llama 3.1 has 8, 1 and 4; its input comes from `in0`",
            },
        ],
        ..row("RotaryEmbedding", "", &[&[5, 3, 6]])
    },
    Row { numbers: [0, 70], ..row("RotaryEmbedding", "max_wavelength = 50\nscaling_factor = 2", &[&[7, 10]]) },
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
    Row { output: &[3], refuses: &[OTHER_MASK_AT_ALL], ..row("GlobalAveragePooling1D", "", &[&[4, 3]]) },
    Row { output: &[1, 3], ..row("GlobalAveragePooling1D", "keepdims = true", &[&[4, 3], &[4]]) },
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
        let help = match value {
            2.5 => {
                "give whole numbers, not scaled ones; in a settings file, numbers of a table stay as they are by \
                 `numbers = \"unchanged\"` in `[data]`"
            }
            _ => "let the layer's `input_dim` be the largest number plus 1",
        };
        let needed = format!(
            "input `input` needs whole numbers from 0 to 5, but row 7 holds {value}\n  help: each is a row of a table of 6; {help}"
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

/// Indices, of which 0 is padding, through two recurrent layers that pass over it.
fn padded(steps: usize) -> Model {
    let graph = Sequential::new([steps]).add(Embedding::new(6, 3).mask_zero()).add(Lstm::new(4).return_sequences());
    graph.add(Dropout::new(0.25)).add(Bidirectional::new(Gru::new(3))).add(Dense::new(2)).build(7).unwrap()
}

fn predicted(model: Model, ids: &[f32]) -> Vec<f32> {
    let rows = ids.len() / model.inputs()[0].shape.len();
    let data = Array2::from_shape_vec((rows, ids.len() / rows), ids.to_vec()).unwrap();
    let mut predictor = Predictor::new(model).on(vec![cpu::info()]);
    predictor.predict(InMemory::without_targets(data).unwrap(), rows).unwrap()[0].iter().copied().collect()
}

/// What is padded says what it says without its padding, wherever that stands; the mask is one tensor, which a file keeps.
#[test]
fn padding_does_not_count() {
    let short = predicted(padded(3), &[1.0, 2.0, 5.0, 4.0, 4.0, 3.0]);
    for ids in [[1.0, 2.0, 5.0, 0.0, 0.0, 4.0, 4.0, 3.0, 0.0, 0.0], [0.0, 1.0, 0.0, 2.0, 5.0, 4.0, 0.0, 0.0, 4.0, 3.0]]
    {
        let long = predicted(padded(5), &ids);
        assert_close("padded rows", &long, &short, 1e-6);
    }
    let model = padded(5);
    let kinds: Vec<String> = model.config().layers.into_iter().filter_map(|layer| layer.kind).collect();
    assert_eq!(kinds, ["Embedding", "ComputeMask", "LSTM", "Dropout", "Bidirectional", "Dense"]);
    let loaded = Model::from_bytes(&model.to_bytes().unwrap(), "file", &[]).unwrap();
    assert_eq!(loaded.config(), model.config());
}

/// One recurrent layer that reads two inputs: gradients of both uses are added, on any number of adapters.
#[test]
fn a_recurrent_layer_is_shared() {
    let mut graph = ModelBuilder::new();
    let inputs = [graph.input("a", [4, 2]), graph.input("b", [4, 2])];
    let shared = graph.layer("shared", Lstm::new(3).dropout(0.25));
    let both = inputs.map(|input| graph.call(shared, &[input]));
    let joined = graph.add(Concatenate::default(), &both);
    let output = graph.add(Dense::new(2), &[joined]);
    let model = graph.build(&[output], 5).unwrap();
    assert_eq!(model.n_parameters(), 4 * 3 * (2 + 3 + 1) + 6 * 2 + 2);
    let mut bench = Bench::of_normals(model, 5);
    bench.check_loss_gradients();
    bench.check_exchanges();
    let (_, one) = bench.step(1, SplitMode::Even);
    for split in [SplitMode::Even, SplitMode::Fixed(vec![1.0, 0.0, 3.0])] {
        let (_, three) = bench.step(3, split);
        let what = "weights after a step on three adapters";
        assert_close(what, &three.weights.parameters.concat(), &one.weights.parameters.concat(), 1e-5);
    }
}

/// A layer whose outputs show what it drops: `h = x · I + h' · recurrent`, without bias.
fn shown(recurrent: f32, layer: SimpleRnn) -> Bench {
    let layer = SimpleRnn { activation: Activation::Linear, use_bias: false, ..layer.return_sequences() };
    let mut model = Sequential::new([3, 100]).add_named("it", layer).build(0).unwrap();
    for (name, value) in [("it/kernel", 1.0), ("it/recurrent_kernel", recurrent)] {
        let values = model.tensor_mut(name).unwrap();
        values.fill(0.0);
        values.iter_mut().step_by(101).for_each(|place| *place = value);
    }
    Bench::of_normals(model, 20)
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand numbers")]
fn assert_rate(kept: &[bool], rate: f32) {
    let n = kept.len() as f32;
    let dropped = kept.iter().filter(|kept| !**kept).count() as f32 / n;
    // Five standard deviations.
    assert!((dropped - rate).abs() < 5.0 * (rate * (1.0 - rate) / n).sqrt(), "{dropped} is not {rate}");
}

/// What is dropped of the input is dropped at every step of a row.
#[test]
fn dropout_is_that_of_all_steps() {
    let bench = shown(0.0, SimpleRnn::new(100).dropout(0.25));
    let (x, y) = (bench.batch.inputs[0].clone(), bench.outputs(Pass::Train).remove(0));
    let factors: Vec<f32> = y.iter().zip(&*x).map(|(y, x)| y / x).collect();
    let mut kept = Vec::new();
    for row in factors.chunks(300) {
        for unit in 0..100 {
            let first = row[unit];
            assert!(first == 0.0 || (first - 4.0 / 3.0).abs() < 1e-5, "{first}");
            assert!([100, 200].iter().all(|step| (row[unit + step] - first).abs() < 1e-5));
            kept.push(first != 0.0);
        }
    }
    assert_rate(&kept, 0.25);
    assert_eq!(bench.outputs(Pass::Predict)[0][..], x[..], "inference");
}

/// What is dropped of the state is dropped at every step, and the layer's own output is whole.
#[test]
fn recurrent_dropout_is_that_of_all_steps() {
    let mut bench = shown(1.0, SimpleRnn::new(100).recurrent_dropout(0.25));
    // Ones at the first step alone.
    bench.batch.inputs[0] = (0..6000).map(|at| if at % 300 < 100 { 1.0 } else { 0.0 }).collect();
    let y = bench.outputs(Pass::Train).remove(0);
    let mut kept = Vec::new();
    for row in y.chunks(300) {
        for unit in 0..100 {
            let [first, second, third] = [0, 100, 200].map(|step| row[unit + step]);
            assert!(first == 1.0 && (third - second * second).abs() < 1e-5, "{first} {second} {third}");
            assert!(second == 0.0 || (second - 4.0 / 3.0).abs() < 1e-5, "{second}");
            kept.push(second != 0.0);
        }
    }
    assert_rate(&kept, 0.25);
}

/// Masks of both sequences reach attention, whichever of them have one; a file keeps them.
#[test]
fn attention_finds_its_masks() {
    let kinds = |masked: [bool; 2], is_self: bool| {
        let mut graph = ModelBuilder::new();
        let words = [graph.input("a", [4]), graph.input("b", [4])];
        let embedded = [0, 1].map(|at| {
            let layer = Embedding { mask_zero: masked[at], ..Embedding::new(6, 3) };
            graph.add(layer, &[words[at]])
        });
        let inputs = if is_self { &embedded[..1] } else { &embedded[..] };
        let attended = graph.add(MultiHeadAttention::new(2, 2), inputs);
        let sum = graph.add(Add::default(), &[embedded[0], attended]);
        let mean = graph.add(GlobalAveragePooling1D::default(), &[sum]);
        let model = graph.build(&[mean], 1).unwrap();
        let loaded = Model::from_bytes(&model.to_bytes().unwrap(), "file", &[]).unwrap();
        assert_eq!(loaded.config(), model.config());
        let inputs = |kind: &str| {
            let config = model.config();
            let layer = config.layers.iter().find(|layer| layer.kind.as_deref() == Some(kind)).unwrap();
            layer.inputs.as_ref().map_or(1, Vec::len)
        };
        [inputs("MultiHeadAttention"), inputs("GlobalAveragePooling1D")]
    };
    assert_eq!(kinds([false, false], true), [1, 1]);
    assert_eq!(kinds([true, false], true), [2, 2]);
    assert_eq!(kinds([false, false], false), [2, 1]);
    assert_eq!(kinds([false, true], false), [3, 1]);
    // The mask of keys that all count stands behind that of the queries.
    assert_eq!(kinds([true, false], false), [4, 2]);
    assert_eq!(kinds([true, true], false), [4, 2]);
}

/// A model of words through a block with a residual connection.
fn attentive(steps: usize, layer: MultiHeadAttention) -> Model {
    let mut graph = ModelBuilder::new();
    let words = graph.input("words", [steps]);
    let x = graph.add(Embedding::new(6, 4).mask_zero(), &[words]);
    let normed = graph.add(LayerNormalization::default(), &[x]);
    let attended = graph.add(layer, &[normed]);
    let sum = graph.add(Add::default(), &[x, attended]);
    let mean = graph.add(GlobalAveragePooling1D::default(), &[sum]);
    graph.build(&[mean], 7).unwrap()
}

/// Padding is seen from nowhere and has no part in what is behind.
#[test]
fn attention_passes_over_padding() {
    for layer in [MultiHeadAttention::new(2, 3), MultiHeadAttention::new(1, 2).causal().dropout(0.5)] {
        let short = predicted(attentive(3, layer.clone()), &[1.0, 2.0, 5.0, 4.0, 4.0, 3.0]);
        for ids in
            [[1.0, 2.0, 5.0, 0.0, 0.0, 4.0, 4.0, 3.0, 0.0, 0.0], [0.0, 1.0, 0.0, 2.0, 5.0, 4.0, 0.0, 0.0, 4.0, 3.0]]
        {
            let long = predicted(attentive(5, layer.clone()), &ids);
            assert_close("padded rows", &long, &short, 1e-6);
        }
    }
}

/// Where positions are merged, those count that count in any of them; one behind the other, each keeps its own.
#[test]
fn masks_go_through_merges() {
    let predict = |joins: bool, ids: [f32; 6]| {
        let mut graph = ModelBuilder::new();
        let inputs = [graph.input("a", [3]), graph.input("b", [3])];
        let layer = graph.layer("words", Embedding::new(6, 4).mask_zero());
        let both = inputs.map(|input| graph.call(layer, &[input]));
        let merged = if joins { graph.add(Concatenate { axis: 1 }, &both) } else { graph.add(Add::default(), &both) };
        let mean = graph.add(GlobalAveragePooling1D::default(), &[merged]);
        let model = graph.build(&[mean], 3).unwrap();
        let table = model.tensor("words/embeddings").unwrap().to_vec();
        let [a, b] = [&ids[..3], &ids[3..]].map(|ids| Array2::from_shape_vec((1, 3), ids.to_vec()).unwrap());
        let data = InMemory::without_targets(a).unwrap().with_input(b).unwrap();
        let mut predictor = Predictor::new(model).on(vec![cpu::info()]);
        let got: Vec<f32> = predictor.predict(data, 1).unwrap()[0].iter().copied().collect();
        (got, table)
    };
    let mean = |table: &[f32], ids: &[usize], count: f32| -> Vec<f32> {
        (0..4).map(|c| ids.iter().map(|id| table[id * 4 + c]).sum::<f32>() / count).collect()
    };
    let (sums, table) = predict(false, [1.0, 0.0, 0.0, 2.0, 3.0, 0.0]);
    // The vector of a padded word is part of the sum, as in Keras, where the other counts.
    assert_close("sum", &sums, &mean(&table, &[1, 0, 2, 3], 2.0), 1e-6);
    let (joined, table) = predict(true, [1.0, 0.0, 0.0, 2.0, 3.0, 0.0]);
    assert_close("joined", &joined, &mean(&table, &[1, 2, 3], 3.0), 1e-6);
}

/// A query that sees nothing gives 0 where there is dropout, as Keras' softmax does; then only the bias is left.
#[test]
fn a_query_that_sees_nothing_gives_0_where_there_is_dropout() {
    let build = |layer: MultiHeadAttention| {
        let mut graph = ModelBuilder::new();
        let words = graph.input("words", [3]);
        let x = graph.add(Embedding::new(6, 4).mask_zero(), &[words]);
        let attended = graph.add_named("it", layer, &[x]);
        let mut model = graph.build(&[attended], 7).unwrap();
        model.tensor_mut("it/attention_output_bias").unwrap().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        predicted(model, &[0.0, 2.0, 0.0])
    };
    let [plain, dropped] = [build(MultiHeadAttention::new(1, 4)), build(MultiHeadAttention::new(1, 4).dropout(0.5))];
    assert_eq!(dropped[..4], [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(dropped[8..], [1.0, 2.0, 3.0, 4.0]);
    assert_close("the query that counts", &dropped[4..8], &plain[4..8], 1e-6);
    assert!(plain[..4].iter().zip(&dropped).any(|(a, b)| (a - b).abs() > 1e-4), "the mean of all values is not 0");
}

/// Buffers grow with the length of a sequence, not with its square.
#[test]
fn memory_of_attention_is_linear() {
    let bytes = |steps: usize| {
        let layer = Sequential::new([steps, 16]).add(MultiHeadAttention::new(4, 4).causal());
        let plan = Bench::of_normals(layer.build(0).unwrap(), 1).plan;
        plan.buffers.iter().map(|buffer| buffer.len.per_row).sum::<u64>()
    };
    let (short, long) = (bytes(64), bytes(640));
    assert!(long <= 10 * short, "{short} and {long}");
}

/// Keys and values that heads share are as much fewer.
#[test]
fn memory_of_grouped_keys_shrinks_by_the_group() {
    let bytes = |key_heads: usize| {
        let layer = Sequential::new([32, 16]).add(GroupQueryAttention::new(4, 8, key_heads));
        let plan = Bench::of_normals(layer.build(0).unwrap(), 1).plan;
        plan.buffers.iter().map(|buffer| buffer.len.per_row).sum::<u64>()
    };
    // 6 heads at 32 positions: keys, values and their gradients in training, keys and values to evaluate and to predict.
    assert_eq!(bytes(8) - bytes(2), (4 + 2 + 2) * 6 * 4 * 32);
}

/// What training drops is the rate of the probabilities: with equal scores and one value of ones, outputs count them.
#[test]
fn dropped_probabilities_are_the_rate() {
    let layer = MultiHeadAttention::new(1, 1).no_bias().dropout(0.25);
    let mut model = Sequential::new([100, 1]).add_named("it", layer).build(0).unwrap();
    for (name, value) in [("query", 0.0), ("key", 0.0), ("value", 1.0), ("attention_output", 1.0)] {
        model.tensor_mut(&format!("it/{name}_kernel")).unwrap().fill(value);
    }
    let mut bench = Bench::of_normals(model, 3);
    bench.batch.inputs[0] = vec![1.0; 300].into();
    let y = bench.outputs(Pass::Train).remove(0);
    // 100 probabilities of a hundredth, each 0 or a hundredth by 0.75.
    let kept: f32 = y.iter().map(|y| y * 75.0).sum();
    let std = (30_000.0_f32 * 0.25 * 0.75).sqrt();
    assert!((kept - 22_500.0).abs() < 5.0 * std, "{kept}");
    assert!(y.iter().any(|other| (other - y[0]).abs() > 1e-3), "each query drops its own");
    assert_close("inference", &bench.outputs(Pass::Predict)[0], &[1.0; 300], 1e-5);
}
