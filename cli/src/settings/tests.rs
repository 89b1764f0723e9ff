//! Tests of settings, and of the messages about mistakes in them.

use manyhands::adapters::MemoryLimits;
use manyhands::{Metric, SplitMode};

use super::*;

fn refused(text: &str) -> String {
    SettingsFile::parse(text, "run.toml").err().map(|error| error.to_string()).unwrap_or_default()
}

/// Settings with a mistake, and its message.
const MISTAKES: &[(&str, &str)] = &[
    (
        "[training]\nepochs = 3\nbatchsize = 4\n",
        "`run.toml`, line 3, key `batchsize`, is not known here\n  help: did you mean `batch_size`? the keys are: `epochs`, `batch_size`",
    ),
    (
        "[training]\nepochs = \"ten\"\n",
        "`run.toml`, line 2, key `epochs`, needs a whole number from 0 up, but got \"ten\"",
    ),
    (
        "[optimizer]\ntype = \"Adam\"\nlr = 1.0\n",
        "`run.toml`, line 3, key `lr`, is not known here\n  help: did you mean `learning_rate`? the keys are: `learning_rate`",
    ),
    (
        "\n[optimizer]\ntype = \"Adam\"\nbeta_1 = \"x\"\n",
        "`run.toml`, line 4, key `beta_1`, needs a number, but got \"x\"",
    ),
    (
        "[optimizer]\ntype = \"Adamm\"\n",
        "`run.toml`, line 2, key `type`, needs a known name, but got `Adamm`\n  help: did you mean `Adam`? the names are: `SGD`",
    ),
    ("[trainning]\n", "`run.toml`, line 1, key `trainning`, is not known here\n  help: did you mean `training`?"),
    (
        "[training]\nbatch_size = 32\ngradient_accumulation_steps = 4\n",
        "`run.toml`, line 3, key `gradient_accumulation_steps`, is not known here",
    ),
    (
        "[training]\ngradient_accumulation_steps = 4\n",
        "help: Keras updates after so many batches; here one batch is computed in parts: for Keras' 4 steps of 32 rows \
             write `batch_size = 128` and `micro_batches = 4`",
    ),
    (
        "[training]\nsplit = \"odd\"\n",
        "line 2, key `split`, needs `learned`, `even` or proportions such as `3:1`, but got `odd`",
    ),
    (
        "[training]\nvalidation = \"all\"\n",
        "line 2, key `validation`, needs \"test\", \"none\", or the fraction of the training rows to set aside, such as 0.1, but got \"all\"",
    ),
    ("[training]\nepochs = 3 4\n", "`run.toml`, line 2, key `epochs`, can't be read: "),
    (
        "[model]\ninput = [8]\nlayer = []\n",
        "`run.toml`, line 3, key `layer`, is not known here\n  help: did you mean `layers`?",
    ),
    ("[model]\nuntil = \"a\"\nlayers = []\n", "needs `start`, a model file, beside `until`"),
    ("[model]\npixels = \"-1..1\"\nlayers = []\n", "needs `start`, a model file, beside `pixels`"),
    ("[model]\nstart = \"a\"\ninput = [8]\nlayers = []\n", "needs no inputs beside `start`, whose model has them"),
    ("[data]\ntype = \"digits\"\n", "`run.toml` needs `model`, but has none\n  help: add `model`"),
    (
        "[data]\ntype = \"csv\"\ntrain = \"C:\\Users\\me\\a.csv\"\n",
        "`run.toml`, line 3, key `train`, has a `\\` between double quotes",
    ),
    (
        "[data]\ntype = \"csv\"\ntrain = \"C:\\data\\a.csv\"\n",
        "`run.toml`, line 3, key `train`, has a `\\` between double quotes",
    ),
    (
        "[data]\ntype = \"csv\"\ntrain = \"C:\\temp\\new.csv\"\n",
        "`run.toml`, line 3, key `train`, needs a path, but `\\t` between double quotes is a control character\n  help: write a path of Windows in single quotes",
    ),
    (
        "[loss]\ntype = \"mape\"\n",
        "needs a known name, but got `mape`\n  help: the names are: `SparseCategoricalCrossentropy`",
    ),
    (
        "[training]\nmetrics = [\"acuracy\"]\n",
        "line 2, key `metrics`, needs a known name, but got `acuracy`\n  help: did you mean `accuracy`?",
    ),
    ("[training]\nvalidation = 1\n", "line 2, key `validation`, needs \"test\""),
    ("[training]\nepochs = 3\nepochs = 4\n", "line 3, key `epochs`, appears twice\n  help: keep one of them"),
    ("[training]\nepochs = 2026-01-01\n", "line 2, key `epochs`, needs a whole number from 0 up, but got a date"),
    ("[training]\nepochs = nan\n", "line 2, key `epochs`, needs a whole number from 0 up, but got nan"),
    ("[training]\nplacement = 3\n", "line 2, key `placement`, needs \"replicas\", \"auto\", or a list of stages"),
    ("[training.early_stopping]\npatience = 3\nmonitr = \"loss\"\n", "line 3, key `monitr`, is not known here"),
    ("[training.epochs]\n", "line 1, table `training.epochs`, needs a whole number from 0 up, but got a table"),
];

/// Mistakes in tables that are chosen by their `type`, of whose keys serde tells nothing.
const MISTAKES_BY_TYPE: &[(&str, &str)] = &[
    (
        "[optimizer]\ntype = \"Adam\"\nbeta_2 = \"x\"\nbeta_1 = \"x\"\n",
        "line 4, key `beta_1`, needs a number, but got \"x\"",
    ),
    ("[optimizer]\nlearning_rate = 0.1\n", "line 1, table `optimizer`, needs `type`, but has none"),
    ("[optimizer]\ntype = 3\n", "line 2, key `type`, needs a string as `type`, but got 3"),
    (
        "[optimizer]\ntype = \"Adam\"\nclipnorm = \"x\"\n",
        "line 3, key `clipnorm`, needs a number as `clipnorm`, but got",
    ),
    (
        "[[losses]]\ntype = \"mse\"\n[[losses]]\ntype = \"Huber\"\ndelta = \"x\"\n",
        "line 5, key `delta`, needs a number",
    ),
    ("[[losses]]\ntype = \"mse\"\n[[losses]]\ndelta = 1.0\n", "line 3, table `losses`, needs `type`, but has none"),
    (
        "[schedule]\ntype = \"CosineDecay\"\ndecay_steps = 10\nwarmup_steps = -1\n",
        "line 4, key `warmup_steps`, needs a whole number from 0 up, but got -1",
    ),
    ("[schedule]\ntype = \"CosineDecay\"\n", "line 1, table `schedule`, needs `decay_steps`, but has none"),
    (
        "[schedule]\ntype = \"PiecewiseConstantDecay\"\nboundaries = [1]\nvalues = [\n  0.1,\n  \"x\",\n]\n",
        "line 6, key `values`, needs a number, but got \"x\"",
    ),
    (
        "[data]\ntype = \"image_folder\"\ntrain = \"a\"\nheight = 8\nwidth = \"x\"\n",
        "line 5, key `width`, needs a whole number from 0 up, but got \"x\"",
    ),
    ("[data]\ntype = \"image_folder\"\nheight = 8\nwidth = 8\n", "line 1, table `data`, needs `train`, but has none"),
    (
        "[data]\ntype = \"csv\"\ntrain = \"a\"\ntarget = 1.5\n",
        "line 4, key `target`, needs a column's name or index, or a list",
    ),
    (
        "[training]\naugment = [\n  { type = \"RandomFlip\" },\n  { type = \"RandomRotation\", factor = \"x\" },\n]\n",
        "line 4, key `factor`, needs a number, or a list of the smallest and the largest",
    ),
    (
        "[training]\nmetrics = [\n  \"accuracy\",\n  { auc = { curves = 1 } },\n]\n",
        "line 4, key `curves`, is not known here\n  help: did you mean `curve`?",
    ),
];

#[test]
fn mistakes_are_named_by_file_line_and_key() {
    for (text, expected) in MISTAKES.iter().chain(MISTAKES_BY_TYPE) {
        assert!(refused(text).contains(expected), "{text}\n{}\n{expected}", refused(text));
    }
}

#[test]
fn a_rate_that_the_schedule_makes_nothing_of_is_refused() {
    let settings = |optimizer: &str, schedule: &str| {
        format!("{}[optimizer]\ntype = \"SGD\"\n{optimizer}[schedule]\n{schedule}", layers("{ type = \"Flatten\" },\n"))
    };
    let piecewise = "type = \"PiecewiseConstantDecay\"\nboundaries = [1]\nvalues = [0.1, 0.2]\n";
    let error = refused(&settings("learning_rate = 0.1\n", piecewise));
    assert_eq!(
        error,
        "`run.toml`, line 12, key `learning_rate`, needs a schedule that starts from the optimizer's rate, but \
         `PiecewiseConstantDecay` has all rates in its `values`\n  help: change its `values`, and leave out the rate"
    );
    assert_eq!(refused(&settings("momentum = 0.9\n", piecewise)), "");
    let cosine = "type = \"CosineDecay\"\ndecay_steps = 10\n";
    assert_eq!(refused(&settings("learning_rate = 0.1\n", cosine)), "");
}

/// A model whose layers span several lines.
fn layers(layers: &str) -> String {
    format!("[data]\ntype = \"digits\"\n[loss]\ntype = \"mse\"\n[model]\ninput = [8, 8, 1]\nlayers = [\n{layers}]\n")
}

#[test]
fn mistakes_in_layers_are_named_by_line_and_key() {
    let flatten = "{ type = \"Flatten\" },\n";
    let cases = [
        (
            "{ type = \"Dense\", unit = 3 },\n",
            "layer 1 `Dense`, key `unit`, is not known here\n  help: did you mean `units`?",
        ),
        ("{ type = \"Dense\" },\n", "layer 1 `Dense`, needs `units`, but has none\n  help: add `units`"),
        (
            "{ type = \"Dense\", units = \"x\" },\n",
            "layer 1 `Dense`, key `units`, needs a whole number from 0 up, but got \"x\"",
        ),
        (
            "{ type = \"Dense\", units = -1 },\n",
            "layer 1 `Dense`, key `units`, needs a whole number from 0 up, but got -1",
        ),
        (
            "{ type = \"Dense\", name = \"a\", units = 3, activation = \"reluu\" },\n",
            "layer 1 `a`, key `activation`, needs a known name, but got `reluu`\n  help: did you mean `relu`?",
        ),
        (
            "{ type = \"Densee\", units = 3 },\n",
            "layer 1 `Densee`, key `type`, needs a known type, but got `Densee`\n  help: did you mean `Dense`?",
        ),
        (
            "{ type = \"Conv2D\", filters = 3, kernel_size = [1, 2, 3] },\n",
            "layer 1 `Conv2D`, key `kernel_size`, needs a whole number from 0 up, or a list of 2 of them, but got 3 of them",
        ),
        ("{ units = 3 },\n", "layer 1 `?`, needs a `type`, but has none"),
        (
            "{ type = \"Bidirectional\", layer = { type = \"LSTM\", units = 3, unit = 3 } },\n",
            "layer 1 `Bidirectional`, key `unit`, is not known here\n  help: did you mean `units`?",
        ),
        (
            "{ type = \"Bidirectional\", layer = { type = \"LSTM\" } },\n",
            "layer 1 `Bidirectional`, key `layer`, needs `units`, but has none",
        ),
        ("{ type = \"Dense\", units = 3, trainable = 1 },\n", "key `trainable`, needs `true` or `false`, but got 1"),
    ];
    for (layer, expected) in cases {
        let error = refused(&layers(&format!("{flatten}{layer}")));
        assert!(error.contains(&format!("`run.toml`, line 9, {expected}")), "{layer}\n{error}\n{expected}");
    }
    let own_table = "[data]\ntype = \"digits\"\n[model]\ninput = [8]\n[[model.layers]]\ntype = \"Dense\"\nunit = 3\n";
    assert!(
        refused(own_table).contains("line 7, layer 0 `Dense`, key `unit`, is not known here"),
        "{}",
        refused(own_table)
    );
    let build = |text: &str| SettingsFile::parse(text, "run.toml").unwrap().build_model(0).unwrap_err().to_string();
    let small = build(&layers("{ type = \"MaxPooling2D\", pool_size = 9 },\n"));
    assert!(small.contains("`run.toml`, line 8, layer 0 `max_pooling2d` (MaxPooling2D) needs an image of"), "{small}");
    let again = "{ type = \"Flatten\" },\n{ name = \"one\", type = \"Dense\", units = 64 },\n{ reuse = \"one\" },\n";
    let used = build(&layers(&format!("{again}{{ type = \"Add\", inputs = [\"one\", \"two\"] }},\n")));
    let expected = "names `two`, but neither an input nor a layer before it has that name\n  help: the names are: `flatten`, \
                    `input`, `one`, `one:1`; the second use of a layer `name` is `name:1`, its third `name:2`";
    assert!(used.contains(expected), "{used}");
    let other = build(&layers(&format!("{again}{{ reuse = \"oen\" }},\n")));
    assert!(other.contains("reuses `oen`, but no layer before it has that name\n  help: did you mean `one`? the names are: `flatten`, `one`"), "{other}");
}

/// Settings that every script of Keras has.
#[test]
fn short_forms_of_keras_are_read() {
    let written = "{ type = \"conv2d\", filters = 4, kernel_size = 3, strides = 2, padding = \"SAME\", activation = \"ReLU\" },\n\
                   { type = \"MaxPooling2D\", pool_size = 2, strides = 2 },\n{ type = \"relu\" },\n{ type = \"Flatten\" },\n\
                   { type = \"Dense\", units = 2, activation = \"leakyrelu\", kernel_initializer = \"HeNormal\" },\n";
    let long = "{ type = \"Conv2D\", filters = 4, kernel_size = [3, 3], strides = [2, 2], padding = \"same\", activation = \"relu\" },\n\
                { type = \"MaxPooling2D\", pool_size = [2, 2], strides = [2, 2] },\n{ type = \"ReLU\" },\n{ type = \"Flatten\" },\n\
                { type = \"Dense\", units = 2, activation = \"leaky_relu\", kernel_initializer = \"he_normal\" },\n";
    let config = |text: &str| SettingsFile::parse(&layers(text), "run.toml").unwrap().build_model(0).unwrap().config();
    assert_eq!(config(written), config(long));
    let model = "model = \"a\"\nloss = \"mse\"\noptimizer = \"adamw\"\n";
    let text = format!(
        "{model}[data]\ntype = \"DIGITS\"\n[training]\nmetrics = [\"acc\", \"mae\", {{ TopKCategoricalAccuracy = {{ k = 2 }} }}]\nnon_finite = \"Skip\"\n"
    );
    let settings = SettingsFile::parse(&text, "run.toml").unwrap();
    assert_eq!(settings.loss.map(|loss| loss.name()), Some("MeanSquaredError"));
    assert_eq!(settings.optimizer.name(), "AdamW");
    let metrics = settings.training.metrics.of_outputs(1).unwrap();
    assert_eq!(metrics, [[Metric::Accuracy, Metric::MeanAbsoluteError, Metric::TopKCategoricalAccuracy { k: 2 }]]);
    let listed = "model = \"a\"\nlosses = [\"mse\", { type = \"binary_crossentropy\" }]\n[data]\ntype = \"digits\"\n";
    let losses = SettingsFile::parse(listed, "run.toml").unwrap().losses.unwrap();
    assert_eq!(losses.iter().map(|loss| loss.name()).collect::<Vec<_>>(), ["MeanSquaredError", "BinaryCrossentropy"]);
}

#[test]
fn every_setting_can_be_read() {
    let text = r#"
        model = "start.safetensors"
        [data]
        type = "csv"
        train = "a.csv"
        test = "b.csv"
        target = "y"
        target_kind = "classes"
        [[losses]]
        type = "SparseCategoricalCrossentropy"
        label_smoothing = 0.1
        [optimizer]
        type = "SGD"
        [schedule]
        type = "ReduceLROnPlateau"
        [training]
        epochs = 3
        batch_size = 7
        seed = 1
        validation = 0.1
        fold = "2/5"
        class_weight = "balanced"
        adapters = "all"
        memory = "0=6GB, cpu=1.5 GiB"
        split = "3:1"
        clip_norm = 1.0
        gradient_compression = "fp16"
        batch_statistics = "batch"
        precision = "mixed_float16"
        drop_remainder = true
        micro_batches = 2
        shuffle = false
        workers = 0
        prefetch = 0
        metrics = ["accuracy", { top_k_categorical_accuracy = { k = 5 } }]
        loss_weights = [1.0]
        reduction = "sum"
        learning_rate_batch = 32
        non_finite = "skip"
        early_stopping = { monitor = "val_loss", mode = "auto", patience = 3, min_delta = 0.1 }
        cpu_fallback = false
    "#;
    let mut settings = SettingsFile::parse(text, "run.toml").unwrap();
    assert!(matches!(&settings.model, ModelSource::File(path) if path.to_str() == Some("start.safetensors")));
    assert_eq!(settings.training.split, SplitMode::Fixed(vec![3.0, 1.0]));
    assert_eq!(settings.training.fold, Some((2, 5)));
    let limits = MemoryLimits::default().limit("0", 6_000_000_000).limit("cpu", 3 << 29);
    assert_eq!(settings.training.memory, Some(limits));
    assert_eq!(settings.training.metrics.of_outputs(1).unwrap()[0][1], Metric::TopKCategoricalAccuracy { k: 5 });
    settings.start_paths_at(Some(Path::new("/data")));
    assert_eq!(settings.data.files(), [PathBuf::from("/data/a.csv"), PathBuf::from("/data/b.csv")]);
}

/// Settings in comments of the example are right, too.
#[test]
fn the_example_shows_every_key() {
    let text = DIGITS.replace("\n# ", "\n");
    let lines = text.lines().skip_while(|line| !line.starts_with("[data]")).collect::<Vec<_>>().join("\n");
    SettingsFile::parse(&lines, "digits.toml").unwrap();
    let error = refused("[training]\nnone = 1\n");
    for key in error.split("the keys are: ").nth(1).unwrap().lines().next().unwrap().split(", ") {
        assert!(lines.contains(&format!("\n{} = ", key.trim_matches('`'))), "{key}");
    }
}

#[test]
fn the_digits_are_whole() {
    let settings = SettingsFile::of(None).unwrap();
    let model = settings.build_model(5).unwrap();
    // The text describes the model of the preset.
    let preset = manyhands::presets::find("digits_cnn").unwrap().build(5).unwrap();
    assert_eq!((model.config(), &model.weights), (preset.config(), &preset.weights));
    assert_eq!(settings.compile(&model, 0).unwrap().losses, [Loss::SPARSE_CATEGORICAL_CROSSENTROPY]);
}
