//! Do layers of language models keep their contract: low-rank factors beside frozen kernels, attention without projections?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use manyhands::layers::{
    Activation, Configure, Dense, Dropout, Embedding, Flatten, Lora, Regularizer, ReversibleEmbedding,
};
use manyhands::model::ModelConfig;
use manyhands::{Model, ModelBuilder, Sequential, SplitMode};
use manyhands_engine::plan::Pass;

use crate::bench::{Bench, normal};
use crate::close::assert_close;
use crate::rows::{Refusal, Row, row};

const NO_HEADS: &str = "needs a query [batch, time, heads, dim], a key [batch, keys, key_heads, dim], a value [batch, keys, key_heads, \
                        value_dim], and perhaps a mask [batch, keys], but got [batch, 5, 6, 2] and [batch, 4, 4, 2] and [batch, 4, 4, \
                        2]\n  help: `Reshape` makes heads of features; `key_heads` divides `heads`; its input comes from `in0`, `in1`, \
                        `in2`";

const NO_DOCUMENTS: &str = "needs a query [batch, time, heads, dim], a key [batch, time, key_heads, dim], a value [batch, time, key_heads, \
                            value_dim], and numbers of documents [batch, time], but got [batch, 5, 2, 2] and [batch, 5, 2, 2] and [batch, \
                            5, 2, 2]\n  help: leave `documents` out where each row is one text; its input comes from `in0`, `in1`, `in2`";
const NO_DOCUMENTS_OF_KEYS: &str = "needs a query [batch, time, heads, dim], a key [batch, time, key_heads, dim], a value [batch, time, \
                                    key_heads, value_dim], and numbers of documents [batch, time], but got [batch, 5, 2, 2] and [batch, 4, \
                                    2, 2] and [batch, 4, 2, 2] and [batch, 4]\n  help: leave `documents` out where each row is one text; \
                                    its input comes from `in0`, `in1`, `in2`, `in3`";
const NO_WINDOW: &str = "needs a `sliding_window` of 1 key at least, with `use_causal_mask` and without a mask of keys\n  help: set \
                         `use_causal_mask = true`, or leave `sliding_window` out; its input comes from `in0`, `in1`, `in2`";

pub static ROWS: &[Row] = &[
    Row {
        output: &[5, 6, 3],
        refuses: &[
            Refusal { settings: "", inputs: &[&[5, 6, 2], &[4, 4, 2], &[4, 4, 2]], says: NO_HEADS },
            Refusal {
                settings: "dropout = 1.0",
                inputs: &[&[5, 2, 2], &[5, 2, 2], &[5, 2, 2]],
                says: "needs a rate of at least 0 and below 1, but got 1\n  help: the rate is the part that is dropped: 0.5 drops half; \
                       its input comes from `in0`, `in1`, `in2`",
            },
        ],
        ..row("DotProductAttention", "use_causal_mask = true", &[&[5, 6, 2], &[5, 2, 2], &[5, 2, 3]])
    },
    Row {
        output: &[3, 2, 2],
        refuses: &[
            Refusal { settings: "documents = true", inputs: &[&[5, 2, 2], &[5, 2, 2], &[5, 2, 2]], says: NO_DOCUMENTS },
            Refusal {
                settings: "documents = true",
                inputs: &[&[5, 2, 2], &[4, 2, 2], &[4, 2, 2], &[4]],
                says: NO_DOCUMENTS_OF_KEYS,
            },
        ],
        ..row(
            "DotProductAttention",
            "use_causal_mask = true\ndocuments = true",
            &[&[3, 2, 1], &[3, 1, 1], &[3, 1, 2], &[3]],
        )
    },
    Row {
        output: &[4, 2, 2],
        refuses: &[
            Refusal { settings: "sliding_window = 2", inputs: &[&[5, 2, 2], &[5, 2, 2], &[5, 2, 2]], says: NO_WINDOW },
            Refusal {
                settings: "sliding_window = 0\nuse_causal_mask = true",
                inputs: &[&[5, 2, 2], &[5, 2, 2], &[5, 2, 2]],
                says: NO_WINDOW,
            },
        ],
        ..row(
            "DotProductAttention",
            "use_causal_mask = true\nsliding_window = 2",
            &[&[4, 2, 1], &[4, 1, 1], &[4, 1, 2]],
        )
    },
    Row {
        output: &[3, 2, 2],
        ..row("DotProductAttention", "dropout = 0.25", &[&[3, 2, 1], &[6, 1, 1], &[6, 1, 2], &[6]])
    },
    Row {
        output: &[2, 3, 4],
        numbers: [5 * 4 + 5 * 2 + 2 * 4, 0],
        refuses: &[Refusal {
            settings: "input_dim = 5\noutput_dim = 4\nlora_rank = 0",
            inputs: &[&[3]],
            says: "needs a `lora_rank` of at least 1, but got 0\n  help: 8 is usual; its input comes from `in0`",
        }],
        ..row("Embedding", "input_dim = 5\noutput_dim = 4\nlora_rank = 2\nlora_alpha = 0.5", &[&[2, 3]])
    },
    Row {
        output: &[2, 3, 4],
        numbers: [20, 0],
        refuses: &[
            Refusal {
                settings: "input_dim = 5\noutput_dim = 4\nreverse = true",
                inputs: &[&[3]],
                says: "needs vectors of length 4 in reverse, but got [batch, 3]\n  help: `output_dim` is the length of the vectors \
                       before it; its input comes from `in0`",
            },
            Refusal {
                settings: "input_dim = 5\noutput_dim = 4\nlogit_soft_cap = 0.0",
                inputs: &[&[3]],
                says: "needs a positive `logit_soft_cap`, but got 0\n  help: leave it out for logits without a bound; 30 is usual; \
                       its input comes from `in0`",
            },
        ],
        ..row("ReversibleEmbedding", "input_dim = 5\noutput_dim = 4", &[&[2, 3]])
    },
    Row {
        output: &[3, 7],
        numbers: [28, 0],
        ..row("ReversibleEmbedding", "input_dim = 7\noutput_dim = 4\nreverse = true", &[&[3, 4]])
    },
    Row {
        output: &[5],
        numbers: [30, 0],
        ..row(
            "ReversibleEmbedding",
            "input_dim = 5\noutput_dim = 3\ntie_weights = false\nlogit_soft_cap = 4.0\nreverse = true",
            &[&[3]],
        )
    },
];

/// Sets all parameters of a model to normal numbers.
fn fill(model: &mut Model) {
    let names: Vec<String> = model.tensors().map(|(name, ..)| name.to_owned()).collect();
    for (seed, name) in (60..).zip(names) {
        let values = model.tensor_mut(&name).unwrap();
        values.copy_from_slice(&normal(values.len(), seed));
    }
}

fn chain(first: Dense) -> Model {
    let model = Sequential::new([6]).add_named("first", first.activation(Activation::Tanh));
    model
        .add_named("between", Dense::new(4).activation(Activation::Tanh))
        .add_named("last", Dense::new(3))
        .build(1)
        .unwrap()
}

fn outputs(model: &Model) -> Vec<f32> {
    Bench::of_normals(model.clone(), 5).outputs(Pass::Predict).remove(0)
}

#[test]
fn factors_are_trained_and_the_kernel_stays() {
    let mut model = chain(Dense::new(5).lora(Lora::new(2).alpha(3.0)));
    fill(&mut model);
    let bench = Bench::of_normals(model, 7);
    for n_adapters in [1, 3] {
        let (report, state) = bench.step(n_adapters, SplitMode::Even);
        assert!(report.is_applied);
        let mut after = bench.model.clone();
        after.weights = state.weights;
        let is_same = |name: &str| bench.model.tensor(name).unwrap() == after.tensor(name).unwrap();
        assert!(is_same("first/kernel"));
        for name in ["first/bias", "first/lora_kernel_a", "first/lora_kernel_b", "last/kernel"] {
            assert!(!is_same(name), "{name} does not move");
        }
    }
    // Nothing of the kernel is sent.
    let layout = bench.model.layout();
    let trained: Vec<&str> = layout.trainable().iter().map(|placed| placed.name.as_str()).collect();
    assert_eq!(trained[..4], ["first/bias", "first/lora_kernel_a", "first/lora_kernel_b", "between/kernel"]);
    bench.check_exchanges();
}

#[test]
fn freezing_and_unfreezing_leave_the_kernel_frozen() {
    let mut model = chain(Dense::new(5).lora(Lora::new(2)));
    let of_layer = 5 + 6 * 2 + 2 * 5;
    model.freeze_all_but(["first"]).unwrap();
    assert_eq!(model.n_trainable(), of_layer);
    model.unfreeze_all().unwrap();
    assert_eq!(model.n_trainable(), of_layer + 5 * 4 + 4 + 4 * 3 + 3);
    assert!(model.summary().contains("30 frozen"), "{}", model.summary());
}

#[test]
fn enabled_factors_change_nothing_and_merged_ones_neither() {
    let graph = Sequential::new([6]).add(Embedding::new(9, 4)).add(Flatten::default());
    let mut model = graph.add(Dropout::new(0.5)).add(Dense::new(3)).build(2).unwrap();
    fill(&mut model);
    let before = outputs(&model);
    model.enable_lora(["embedding", "dense"], Lora::new(2).alpha(3.0).dropout(0.5), 5).unwrap();
    assert_eq!(outputs(&model), before);
    assert!(model.tensor("dense/lora_kernel_a").unwrap().iter().any(|value| *value != 0.0));
    let again = model.enable_lora(["dense"], Lora::new(2), 5).unwrap_err().to_string();
    assert!(again.contains("needs to have no low-rank factors, but has some"), "{again}");
    let plain = model.enable_lora(["flatten"], Lora::new(2), 5).unwrap_err().to_string();
    assert!(plain.contains("needs to be a layer that can have low-rank factors"), "{plain}");
    let unknown = model.enable_lora(["dense_1"], Lora::new(2), 5).unwrap_err().to_string();
    assert!(unknown.contains("but none has that name"), "{unknown}");
    for name in ["dense/lora_kernel_b", "embedding/lora_embeddings_b"] {
        let values = model.tensor_mut(name).unwrap();
        values.copy_from_slice(&normal(values.len(), 8));
    }
    let moved = outputs(&model);
    assert_ne!(moved, before);
    model.merge_lora().unwrap();
    assert_close("merged", &outputs(&model), &moved, 1e-5);
    assert_eq!(model.n_trainable(), 9 * 4 + 24 * 3 + 3);
}

/// As in Keras, the penalty of a kernel is that of its factors.
#[test]
fn factors_have_the_penalty_of_their_kernel() {
    let dense = Dense::new(3).lora(Lora::new(2)).kernel_regularizer(Regularizer::l2(0.5));
    let mut model = Sequential::new([4]).add_named("it", dense).build(0).unwrap();
    fill(&mut model);
    let bench = Bench::of_normals(model, 2);
    let layout = bench.model.layout();
    let penalized: Vec<&str> = bench
        .plan
        .penalties
        .iter()
        .map(|penalty| {
            let place = |placed: &&manyhands_engine::plan::PlacedTensor| {
                (placed.segment, placed.offset) == (penalty.segment, penalty.offset)
            };
            layout.parameters.iter().find(place).unwrap().name.as_str()
        })
        .collect();
    assert_eq!(penalized, ["it/lora_kernel_a", "it/lora_kernel_b"]);
}

/// With an input of ones, what the frozen kernel adds is the same for each row; what is dropped is dropped before `A` alone.
#[test]
#[allow(clippy::float_cmp, reason = "whole numbers")]
fn dropout_is_of_the_factors_alone() {
    let dense = Dense::new(1).no_bias().lora(Lora::new(1).dropout(0.5));
    let mut model = Sequential::new([8]).add_named("it", dense).build(0).unwrap();
    model.tensor_mut("it/kernel").unwrap().fill(100.0);
    for name in ["it/lora_kernel_a", "it/lora_kernel_b"] {
        model.tensor_mut(name).unwrap().fill(1.0);
    }
    let mut bench = Bench::of_normals(model, 64);
    bench.batch.inputs[0] = vec![1.0; 8 * 64].into();
    assert!(bench.outputs(Pass::Predict)[0].iter().all(|y| *y == 808.0));
    let trained = bench.outputs(Pass::Train).remove(0);
    assert!(trained.iter().all(|y| (*y - 800.0) % 2.0 == 0.0 && (800.0..=816.0).contains(y)), "{trained:?}");
    assert!(trained.iter().any(|y| *y != trained[0]));
}

/// A small language model with one table at both ends.
fn tied(table: ReversibleEmbedding) -> Model {
    let mut graph = ModelBuilder::new();
    let words = graph.input("words", [3]);
    let table = graph.layer("table", table);
    let vectors = graph.call(table, &[words]);
    let hidden = graph.add(Dense::new(4).activation(Activation::Tanh), &[vectors]);
    let logits = graph.call_reversed(table, &[hidden]);
    let mut model = graph.build(&[logits], 1).unwrap();
    fill(&mut model);
    model
}

#[test]
fn a_table_at_both_ends_has_the_gradient_of_both() {
    for table in [ReversibleEmbedding::new(6, 4), ReversibleEmbedding::new(6, 4).untied().logit_soft_cap(3.0)] {
        let mut bench = Bench::of_normals(tied(table), 4);
        bench.batch.inputs[0] = (0..12_u8).map(|at| f32::from(at * 5 % 7 % 6)).collect();
        bench.check_loss_gradients();
        bench.check_exchanges();
        let (_, needed) = bench.step(1, SplitMode::Even);
        let (_, split) = bench.step(3, SplitMode::Even);
        assert_close("split", &split.weights.parameters.concat(), &needed.weights.parameters.concat(), 1e-5);
    }
}

#[test]
fn a_frozen_table_has_no_gradient() {
    let mut model = tied(ReversibleEmbedding::new(6, 4));
    model.freeze(["table"]).unwrap();
    let bench = Bench::of_normals(model, 4);
    let dispatches = bench.plan.commands(Pass::Train).iter().filter_map(|command| match command {
        manyhands_engine::plan::Command::Dispatch(dispatch) => Some((dispatch.node.as_str(), dispatch.kernel.entry)),
        manyhands_engine::plan::Command::Exchange(_) => None,
    });
    let of_table: Vec<_> = dispatches.filter(|(node, _)| node.starts_with("table")).collect();
    // Vectors, logits, and the gradient of what is between them.
    assert_eq!(of_table, [("table", "forward"), ("table:1", "backward_input"), ("table:1", "forward")]);
}

#[test]
fn a_reversed_use_goes_through_files() {
    let model = tied(ReversibleEmbedding::new(6, 4));
    let config = model.config();
    let text = serde_json::to_string(&config).unwrap();
    assert!(text.contains(r#""reuse":"table""#) && text.contains(r#""reverse":true"#), "{text}");
    let read: ModelConfig = serde_json::from_str(&text).unwrap();
    assert_eq!(read.build(1).unwrap().config(), config);
    let loaded = Model::from_bytes(&model.to_bytes().unwrap(), "file", &[]).unwrap();
    assert_eq!(outputs(&loaded), outputs(&model));
    assert!(model.to_onnx().is_ok());
    let wrong: ModelConfig = serde_json::from_str(&text.replace("\"reverse\":true", "\"reverse\":3")).unwrap();
    let error = wrong.build(1).unwrap_err().to_string();
    assert!(error.contains("needs `reverse` true or false, but got 3"), "{error}");
}

#[test]
fn a_layer_of_one_way_is_not_reversed() {
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [3]);
    let dense = graph.layer("dense", Dense::new(3));
    let once = graph.call(dense, &[x]);
    let reversed = graph.call_reversed(dense, &[once]);
    let error = graph.build(&[reversed], 0).unwrap_err().to_string();
    assert!(error.contains("needs to be a layer that goes both ways, but has only one"), "{error}");
    let mut graph = ModelBuilder::new();
    let x = graph.input("x", [3]);
    let table = graph.layer("table", ReversibleEmbedding::new(5, 3));
    let reversed = graph.call_reversed(table, &[x]);
    let error = graph.build(&[reversed], 0).unwrap_err().to_string();
    assert!(error.contains("needs a first use that is not in reverse, but has none"), "{error}");
}
