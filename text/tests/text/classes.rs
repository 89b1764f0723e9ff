//! Models tell classes of texts as PEFT and PyTorch train them, from the tokens of transformers: `scripts/classes_golden.py`.

use std::path::Path;

use manyhands::data::{InMemory, Vocabulary};
use manyhands::layers::Lora;
use manyhands::losses::SparseCategoricalCrossentropy;
use manyhands::optimizers::AdamW;
use manyhands::{Compile, Fit, Model, Predictor, Trainer};
use manyhands_text::network::{self, CLASSIFIER, Factors, Output};
use manyhands_text::tokenizer::Around;
use manyhands_text::{ModelFiles, Tokenizer};
use serde_json::{Value, json};

use super::golden;
use super::outputs::{LENGTH, assert_close, assert_losses, rows};

const OUTPUT: Output = Output::Classes { count: 3, seed: 0 };

fn classes() -> Value {
    serde_json::from_slice(&std::fs::read(golden::path("classes.json")).unwrap()).unwrap()
}

fn vocabulary() -> Vocabulary {
    Vocabulary::word_pieces(&golden::path("bert").join("tokenizer.json")).unwrap()
}

fn open(folder: &Path) -> ModelFiles {
    ModelFiles::open(folder).unwrap()
}

#[test]
fn word_pieces_are_those_of_transformers() {
    let vocabulary = vocabulary();
    for known in classes()["pieces"].as_array().unwrap() {
        let ids: Vec<u64> = known["ids"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        let text = known["text"].as_str().unwrap();
        let own: Vec<u64> = vocabulary.encode(text).into_iter().map(u64::from).collect();
        assert_eq!(own, ids, "{text:?}");
    }
    let training = &classes()["training"];
    let texts = training["texts"].as_array().unwrap();
    let own: Vec<f32> =
        texts.iter().flat_map(|text| vocabulary.encode_padded(text.as_str().unwrap(), LENGTH)).collect();
    assert_eq!(own, rows(&training["ids"]).into_raw_vec_and_offset().0);
    let text = serde_json::to_string(&vocabulary).unwrap();
    assert_eq!(serde_json::from_str::<Vocabulary>(&text).unwrap(), vocabulary);
    assert_eq!(vocabulary.decode(&vocabulary.encode("The mat, now")), "the mat , now");
}

/// Each character of Unicode's first planes divides a word, vanishes or stays as in Hugging Face's `tokenizers`.
#[test]
fn all_characters_are_those_of_tokenizers() {
    let (vocabulary, other) = (vocabulary(), Tokenizer::from_folder(&golden::path("bert")).unwrap());
    let all: Vec<char> = ('\0'..'\u{30000}').collect();
    for some in all.chunks(256) {
        let text: String = some.iter().map(|letter| format!("a{letter}b ")).collect();
        let tokens = other.encode(&text, Around::None).unwrap().ids;
        assert_eq!(vocabulary.encode(&text), tokens, "from {:?} on", some[0]);
    }
}

/// Files that other programs read otherwise, and vocabularies of damaged model files.
#[test]
fn other_tokenizers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let text = std::fs::read_to_string(golden::path("bert").join("tokenizer.json")).unwrap();
    for (pointer, value, problem) in [
        ("/model/type", json!("BPE"), "another type"),
        ("/model/max_input_chars_per_word", json!(50), "longest words"),
        ("/normalizer/strip_accents", json!(false), "accents otherwise"),
        ("/pre_tokenizer/type", json!("Whitespace"), "divides words otherwise"),
        ("/post_processor/cls/0", json!("<s>"), "other tokens around"),
        ("/added_tokens/4/content", json!("<mask>"), "the special token `<mask>`"),
        ("/added_tokens/4/lstrip", json!(true), "have rules"),
        ("/model/vocab/[PAD]", json!(900), "not numbered"),
    ] {
        let mut file: Value = serde_json::from_str(&text).unwrap();
        *file.pointer_mut(pointer).unwrap() = value;
        std::fs::write(&path, file.to_string()).unwrap();
        let refused = Vocabulary::word_pieces(&path).unwrap_err().to_string();
        assert!(refused.contains(problem) && refused.contains("help: name the `tokenizer.json`"), "{refused}");
    }
    let lacking = serde_json::from_str::<Vocabulary>(r#"{"tokens": ["[PAD]"], "word_pieces": {"lowercase": true}}"#);
    assert!(lacking.unwrap_err().to_string().contains("lacks the token `[UNK]`"));
}

/// The name of a layer here for the module of a factor in PEFT.
fn layer_of(factor: &str) -> String {
    let path = factor.trim_start_matches("base_model.model.encoder.layer.").split_once('.').unwrap();
    let names = [
        ("attention.self.query", "attention.query"),
        ("attention.self.key", "attention.key"),
        ("attention.self.value", "attention.value"),
        ("attention.output.dense", "attention.output"),
        ("intermediate.dense", "feed_forward.up"),
        ("output.dense", "feed_forward.down"),
    ];
    let (_, name) = names.iter().find(|(module, _)| path.1.starts_with(module)).unwrap();
    format!("blocks.{}.{name}", path.0)
}

fn set(model: &mut Model, tensor: &str, values: &Value) {
    // Linear layers of PyTorch are turned; a vector has one column here.
    let values = if values[0].is_array() { rows(values).reversed_axes() } else { rows(&json!([values])) };
    let places = model.tensor_mut(tensor).unwrap();
    assert_eq!(places.len(), values.len(), "{tensor}");
    places.iter_mut().zip(&values).for_each(|(place, value)| *place = *value);
}

/// The model with the first factors and the first layer of classes of the golden run.
fn begin(known: &Value) -> Model {
    let files = open(&golden::path("bert"));
    let mut model = network::build(&files, LENGTH, OUTPUT).unwrap();
    let factors = Factors { lora: Lora::new(2).alpha(4.0), parts: None, setting: "the factors" };
    factors.add(&mut model, files.architecture(), 0).unwrap();
    for (factor, values) in known["initial"].as_object().unwrap() {
        set(&mut model, &format!("{}/lora_kernel_a", layer_of(factor)), values);
    }
    for part in ["kernel", "bias"] {
        set(&mut model, &format!("{CLASSIFIER}/{part}"), &known["head"][part]);
    }
    model
}

#[test]
fn classes_are_learned_as_with_peft() {
    let golden = classes();
    let known = &golden["training"];
    let labels = rows(&json!([known["labels"]])).row(0).to_owned();
    for adapters in ["cpu", "cpu,cpu,cpu"] {
        let data = InMemory::new(rows(&known["ids"]), labels.clone()).unwrap();
        let adam =
            AdamW { learning_rate: 3e-3, epsilon: 1e-8, weight_decay: 0.0, outer_epsilon: true, ..AdamW::default() };
        let compile = Compile::new(adam, SparseCategoricalCrossentropy::default());
        let mut trainer = Trainer::new(begin(known), compile).unwrap().adapters(adapters).unwrap();
        let history = trainer.fit(data, &Fit::new(30).batch_size(6).in_order()).unwrap();
        let losses: Vec<f64> = history.epochs.iter().map(|epoch| epoch.values.get("loss").unwrap()).collect();
        assert_losses(adapters, &losses, &golden::numbers(&known["losses"]));
    }
}

/// Sentence-transformers' other pooling gives the vector of the first token.
#[test]
fn the_pooling_of_a_folder_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden::path("bert")).unwrap().flatten() {
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let pooling = folder.path().join("1_Pooling");
    std::fs::create_dir(&pooling).unwrap();
    let ask = |settings: Value| std::fs::write(pooling.join("config.json"), settings.to_string()).unwrap();
    let ids = rows(&classes()["training"]["ids"]);
    let predict = |model: Model, data: InMemory| {
        Predictor::new(model).adapters("cpu").unwrap().predict(data, 6).unwrap().remove(0)
    };
    ask(json!({"word_embedding_dimension": 32, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}));
    let model = network::build(&open(folder.path()), LENGTH, OUTPUT).unwrap();
    let kernel = model.tensor("classifier/kernel").unwrap().to_vec();
    let logits = predict(model, InMemory::without_targets(ids.clone()).unwrap());
    let (types, mask) = (ids.mapv(|_| 0.0), ids.mapv(|id| if id == 0.0 { 0.0 } else { 1.0 }));
    let data = InMemory::without_targets(ids).unwrap().with_input(types).unwrap().with_input(mask).unwrap();
    let vectors = predict(network::build(&open(folder.path()), LENGTH, Output::Vectors).unwrap(), data);
    for (logits, vectors) in logits.outer_iter().zip(vectors.outer_iter()) {
        let first = vectors.index_axis(ndarray::Axis(0), 0);
        let of = |class: usize| {
            first.iter().enumerate().map(|(at, x)| f64::from(*x) * f64::from(kernel[3 * at + class])).sum()
        };
        assert_close("logits", logits.iter().copied(), &[of(0), of(1), of(2)], 1e-5);
    }
    ask(json!({"pooling_mode_mean_tokens": false, "pooling_mode_max_tokens": true}));
    let refused = network::build(&open(folder.path()), LENGTH, OUTPUT).unwrap_err().to_string();
    assert!(refused.contains("but asks for `pooling_mode_max_tokens`"), "{refused}");
    let refused = network::build(&open(&golden::path("llama")), LENGTH, OUTPUT).unwrap_err().to_string();
    assert!(refused.contains("needs to read in no order"), "{refused}");
}
