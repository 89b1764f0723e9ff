// The run of the page as a program: in Rust, in Python, and what Keras itself has for several devices.

import { isText } from "./settings.js";

/** @import { Data, Settings } from "./messages.js" */

/** Filters of each convolution, by network. @type {Record<string, number[]>} */
const FILTERS = { cnn: [16, 32, 64], wide: [64, 128, 256], small: [8] };
/** Where a program finds a text. @type {Partial<Record<Data, string>>} */
const TEXTS = { text: "lincoln.txt", own: "your-text.txt" };
/** Units of each GRU, by network. @type {Record<string, number[]>} */
const UNITS = { gru: [128], wide_gru: [256, 256] };
/** Epochs where the page trains without end. */
const EPOCHS = 12;
/** Characters of a row of text. */
const LENGTH = 40;

/**
 * Programs that train as the page does with these settings.
 * @param {Settings} settings
 * @returns {{ rust: string, python: string, keras: string }}
 */
export function linesOf(settings) {
  return { rust: rust(settings), python: python(settings), keras: KERAS };
}

const KERAS = `# In the place of \`make_parallel\`, before the model is made. The devices need to be of one kind,
# and each gets as many rows.
keras.distribution.set_distribution(keras.distribution.DataParallel())`;

/** The GPT in Python. */
const GPT = `
class Places(layers.Layer):
    def build(self, shape):
        self.vectors = self.add_weight(shape=shape[1:])

    def call(self, x):
        return x + self.vectors

tokens = keras.Input((${LENGTH},))
features = Places()(layers.Embedding(len(characters), 64)(tokens))
for _ in range(2):
    normed = layers.LayerNormalization()(features)
    features = features + layers.MultiHeadAttention(2, 32)(normed, normed, use_causal_mask=True)
    normed = layers.LayerNormalization()(features)
    features = features + layers.Dense(64)(layers.Dense(256, "gelu")(normed))
model = keras.Model(tokens, layers.Dense(len(characters))(layers.LayerNormalization()(features)))`;

/** @param {Settings} settings */
function python(settings) {
  const { data, model, split, batch_norm, batch_size, learning_rate, epochs, seed } = settings;
  const kind = kindOf(data);
  const read = {
    digits: "(x, y), test = manyhands_ml.digits()",
    fashion: `# The page has a tenth of these rows.
(x, y), (test_x, test_y) = keras.datasets.fashion_mnist.load_data()
x, test = x[..., None] / 255, (test_x[..., None] / 255, test_y)`,
    text: `text = open("${TEXTS[data]}").read()${data === "text" ? "  # data/lincoln.txt of this page" : ""}
characters = sorted(set(text))
codes = np.array([characters.index(character) for character in text])
rows = np.lib.stride_tricks.sliding_window_view(codes, ${LENGTH + 1})[::${LENGTH}]
n_train = len(rows) * 9 // 10
x, y, test = rows[:n_train, :-1], rows[:n_train, 1:], (rows[n_train:, :-1], rows[n_train:, 1:])`,
  }[kind];
  const imports = { digits: "import keras\nimport manyhands_ml\nfrom manyhands_ml import make_parallel", fashion: "import keras\nfrom manyhands_ml import make_parallel", text: "import keras\nimport numpy as np\nfrom manyhands_ml import make_parallel" }[kind];
  const convolution = (/** @type {number} */ filters) => [`layers.Conv2D(${filters}, 3, padding="same", use_bias=False)`, "layers.BatchNormalization(momentum=0.9)", "layers.ReLU()"];
  const body = isText(data)
    ? [`keras.Input((${LENGTH},))`, "layers.Embedding(len(characters), 32)", ...(UNITS[model] ?? []).map((units) => `layers.GRU(${units}, return_sequences=True)`), "layers.Dense(len(characters))"]
    : [`keras.Input((${sideOf(data)}, ${sideOf(data)}, 1))`, ...pooled((FILTERS[model] ?? []).map(convolution), "layers.MaxPooling2D()"), "layers.Flatten()", ...(model === "small" ? [] : ["layers.Dropout(0.4)"]), "layers.Dense(10)"];
  const options = [...(split === "even" ? ['split="even"'] : []), ...(!isText(data) && batch_norm === "whole_batch" ? ['batch_statistics="batch"'] : []), `seed=${seed}`];
  return `${imports}

${read}
layers = keras.layers
keras.utils.set_random_seed(${seed})
${model === "gpt" ? GPT : `model = keras.Sequential([
${body.map((layer) => `    ${layer},\n`).join("")}])`}
# On all GPUs, or on the CPU where there is none.
model = make_parallel(model, ${options.join(", ")})
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(${learning_rate}), loss, metrics=["accuracy"])
${remark(settings, "# ")}model.fit(x, y, batch_size=${batch_size}, epochs=${epochs || EPOCHS}, validation_data=test)`;
}

/** @param {Settings} settings */
function rust(settings) {
  const { data, model, split, batch_norm, batch_size, learning_rate, epochs, seed } = settings;
  const is_text = isText(data);
  const kind = kindOf(data);
  const is_gpt = model === "gpt";
  const names = is_gpt ? [] : is_text ? ["Dense", "Embedding", "Gru"] : ["BatchNormalization", "Conv2D", "Dense", ...(model === "small" ? [] : ["Dropout"]), "Flatten", "MaxPooling2D", "Relu"];
  const uses = {
    digits: "use manyhands::data::digits;",
    fashion: "use std::path::Path;\n\nuse manyhands::data::idx;",
    text: "use std::path::Path;\n\nuse manyhands::data::{Split, Texts, TokenSettings, Vocabulary, Windows};",
  }[kind];
  const read = {
    digits: "let train = digits::train()?;",
    fashion: '// The page has a tenth of these rows.\n    let (train, _) = idx::open_folder(Path::new("fashion-mnist"))?;',
    text: `let texts = Texts::read(Path::new("${TEXTS[data]}"))?;${data === "text" ? " // data/lincoln.txt of this page" : ""}
    let characters = TokenSettings { split: Split::Character, ..TokenSettings::default() };
    let vocabulary = Vocabulary::adapt(characters, texts.iter().map(String::as_str));
    let outputs = vocabulary.tokens().len();
    let train = Texts::new(vocabulary, texts, Windows::new(${LENGTH})?.stride(${LENGTH})?)?;`,
  }[kind];
  const norm = `BatchNormalization::new().momentum(0.9)${batch_norm === "whole_batch" ? ".synchronized()" : ""}`;
  const convolution = (/** @type {number} */ filters) => [`Conv2D::new(${filters}, [3, 3]).same().no_bias()`, norm, "Relu::default()"];
  const body = is_text
    ? ["Embedding::new(outputs, 32)", ...(UNITS[model] ?? []).map((units) => `Gru::new(${units}).return_sequences()`), "Dense::new(outputs)"]
    : [...pooled((FILTERS[model] ?? []).map(convolution), "MaxPooling2D::new([2, 2])"), "Flatten::default()", ...(model === "small" ? [] : ["Dropout::new(0.4)"]), "Dense::new(10)"];
  const input = is_text ? `[${LENGTH}]` : `[${sideOf(data)}, ${sideOf(data)}, 1]`;
  return `${uses}
${is_gpt ? "use manyhands::presets::{self, Size};" : `use manyhands::layers::{${names.join(", ")}};`}
use manyhands::{Compile, Fit, Loss, Optimizer, ${is_gpt ? "" : "Sequential, "}${split === "even" ? "SplitMode, " : ""}Trainer};

fn main() -> manyhands::Result<()> {
    ${read}
    ${is_gpt ? `// Two blocks of 64 features.
    let model = presets::gpt(&Size { input: ${input}.into(), outputs, seed: ${seed} }, 2, 64)?;` : `let model = Sequential::new(${input})
${body.map((layer) => `        .add(${layer})\n`).join("")}        .build(${seed})?;`}
    let compile = Compile::new(Optimizer::adam(${learning_rate}), Loss::SPARSE_CATEGORICAL_CROSSENTROPY).seed(${seed});
    // On all GPUs, or on the CPU where there is none.
    let mut trainer = Trainer::new(model, compile)?${split === "even" ? ".split(SplitMode::Even)" : ""};
    ${remark(settings, "// ", "\n    ")}trainer.fit(train, &Fit::new(${epochs || EPOCHS}).batch_size(${batch_size}))?;
    Ok(())
}`;
}

/**
 * What the page does otherwise, as a line of comment; nothing, if it does the same.
 * @param {Settings} settings
 * @param {string} mark Of a comment.
 * @param {string} [end] What follows it.
 */
function remark({ data, epochs, varied_from }, mark, end = "\n") {
  const is_varied = data === "digits" && varied_from > 0 && (epochs === 0 || varied_from <= epochs);
  const others = [...(epochs === 0 ? ["trains without end"] : []), ...(is_varied ? [`varies the digits from epoch ${varied_from} on`] : [])];
  return others.length > 0 ? `${mark}The page ${others.join(", and ")}; this program does not.${end}` : "";
}

/** The data whose program has the same lines, but for a name. @param {Data} data */
function kindOf(data) {
  return data === "own" ? "text" : data;
}

/** @param {Data} data */
function sideOf(data) {
  return data === "digits" ? 8 : 28;
}

/**
 * Layers of convolutions, with the pooling behind the second one, or behind the only one.
 * @param {string[][]} convolutions
 * @param {string} pooling
 */
function pooled(convolutions, pooling) {
  return convolutions.flatMap((layers, at) => (at === Math.min(1, convolutions.length - 1) ? [...layers, pooling] : layers));
}
