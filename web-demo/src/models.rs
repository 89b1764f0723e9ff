//! The networks that a page can train, the kernels that they are made of, and the rows for training.

use std::sync::Arc;

use manyhands::data::{Augmentation, ByteImages, Dataset, Factor, FillMode, InMemory, digits};
use manyhands::layers::{Dense, Embedding, Gru};
use manyhands::presets::{self, Size};
use manyhands::{Compile, Error, Fit, Loss, Model, Optimizer, Result, Sequential};
use manyhands_engine::kernels::{
    Families, activation, adam, add, attention, batch_norm, clip, conv2d, dense, dropout, embedding, group_norm, merge,
    pooling, recurrent, recurrent_scan, reduce, softmax_cross_entropy,
};
use ndarray::ArrayD;

use crate::messages::ModelChoice;
use crate::settings::{BatchNorm, RunSettings};
use crate::tasks::{LearnedData, LearningTask, WHITE, bytes_of};

/// Pixels of a digit.
pub const PIXELS: usize = 64;

/// Digits in styles that the training data lack, of strokes: a label and the pixels of each. A test of the page writes the file.
static STYLES: &[u8] = include_bytes!("styles.bin");
/// Rows of each in an epoch.
const STYLE_ROWS: usize = 8;

/// Networks by their ids, with a name for people.
type Networks = &'static [(&'static str, &'static str)];

/// The networks for pictures. Clothes, which are larger, ask for twelve times the arithmetic of digits.
static OF_PICTURES: Networks =
    &[("cnn", "three convolutions"), ("small", "one convolution"), ("wide", "three wide convolutions")];
/// The networks for texts.
static OF_TEXTS: Networks =
    &[("gru", "a GRU of 128 units"), ("wide_gru", "two GRUs of 256 units"), ("gpt", "a small GPT of two blocks")];
/// Numbers that stand for a character.
const EMBEDDED: usize = 32;
/// Blocks of the GPT, and numbers that each place has in them.
const GPT: (usize, usize) = (2, 64);

/// The kernels of the networks' plans. The worker of a CPU adapter knows no others, so that the page loads no others.
pub static KERNELS: Families = &[
    activation::KERNELS,
    adam::KERNELS,
    add::KERNELS,
    attention::KERNELS,
    batch_norm::KERNELS,
    clip::KERNELS,
    conv2d::KERNELS,
    dense::KERNELS,
    dropout::KERNELS,
    embedding::KERNELS,
    group_norm::KERNELS,
    merge::KERNELS,
    pooling::KERNELS,
    recurrent::KERNELS,
    recurrent_scan::KERNELS,
    reduce::KERNELS,
    softmax_cross_entropy::KERNELS,
];

fn networks(data: LearnedData) -> Networks {
    match data {
        LearnedData::Digits | LearnedData::Fashion => OF_PICTURES,
        LearnedData::Text | LearnedData::Own => OF_TEXTS,
    }
}

/// Models of the page for some data.
///
/// # Errors
/// If a network can't be built.
pub fn choices(task: &LearningTask) -> Result<Vec<ModelChoice>> {
    let choice = |(id, name): &(&'static str, &'static str)| {
        let model = build(task, id, BatchNorm::PerShard, 0)?;
        let parameters = model.n_parameters();
        Ok(ModelChoice { id, name, parameters, has_batch_norm: model.has_batch_statistics() })
    };
    networks(task.data).iter().map(choice).collect()
}

/// A network with fresh weights.
///
/// # Errors
/// If there is none of that id.
pub fn build(task: &LearningTask, id: &str, form: BatchNorm, seed: u64) -> Result<Model> {
    of(task.data, task.outputs(), id, form, seed)
}

/// A network with fresh weights for some data, whose network has so many outputs.
///
/// # Errors
/// If there is none of that id.
pub fn of(data: LearnedData, outputs: usize, id: &str, form: BatchNorm, seed: u64) -> Result<Model> {
    let norm = match form {
        BatchNorm::PerShard => presets::digits::norm(),
        BatchNorm::WholeBatch => presets::digits::norm().synchronized(),
    };
    let size = Size { input: data.input(), outputs, seed };
    match (data, id) {
        (LearnedData::Digits | LearnedData::Fashion, "cnn") => presets::digits::cnn(&size, norm),
        (LearnedData::Digits | LearnedData::Fashion, "small") => presets::digits::small_cnn(&size, norm),
        (LearnedData::Digits | LearnedData::Fashion, "wide") => presets::digits::wide_cnn(&size, norm),
        (LearnedData::Text | LearnedData::Own, "gru") => grus(&size, &[128]),
        (LearnedData::Text | LearnedData::Own, "wide_gru") => grus(&size, &[256, 256]),
        (LearnedData::Text | LearnedData::Own, "gpt") => presets::gpt(&size, GPT.0, GPT.1),
        (data, other) => {
            let ids: Vec<String> = networks(data).iter().map(|(id, _)| format!("`{id}`")).collect();
            let problem = format!("needs to be {}, but is `{other}`", ids.join(" or "));
            Err(Error::setting("`model`", problem, "choose one of these"))
        }
    }
}

/// Layers that tell at each position which character comes next.
fn grus(size: &Size, units: &[usize]) -> Result<Model> {
    let embedded = Sequential::new(size.input.clone()).add(Embedding::new(size.outputs, EMBEDDED));
    let body = units.iter().fold(embedded, |body, units| body.add(Gru::new(*units).return_sequences()));
    body.add(Dense::new(size.outputs)).build(size.seed)
}

/// Settings of a run's training.
pub fn compile(settings: &RunSettings) -> Compile {
    let optimizer = Optimizer::adam(settings.learning_rate);
    Compile::new(optimizer, Loss::SPARSE_CATEGORICAL_CROSSENTROPY).seed(settings.seed)
}

/// Settings of a run's data from an epoch on, which is counted from 0.
pub fn fit(settings: &RunSettings, task: &LearningTask, epoch: u64) -> Fit {
    let fit = Fit::new(u64::MAX).batch_size(settings.batch_size).validation(Arc::clone(&task.test));
    if is_varied(settings, epoch) { fit.augment(variations()) } else { fit }
}

/// The rows to train on from an epoch on, which is counted from 0: where digits are varied, drawings are among them.
///
/// # Errors
/// Only if the bytes in the program were damaged.
pub fn training(settings: &RunSettings, task: &LearningTask, epoch: u64) -> Result<Arc<dyn Dataset>> {
    if !is_varied(settings, epoch) {
        return Ok(Arc::clone(&task.train));
    }
    let (mut pixels, mut labels) = bytes_of(task.train.as_ref(), WHITE[0])?;
    for drawing in STYLES.chunks_exact(1 + PIXELS).cycle().take(STYLES.len() / (1 + PIXELS) * STYLE_ROWS) {
        labels.push(drawing[0]);
        pixels.extend_from_slice(&drawing[1..]);
    }
    let images = ByteImages::new(task.input(), pixels, labels, WHITE[0])?.with_schema(task.train.schema());
    Ok(Arc::new(images))
}

/// Whether this epoch, counted from 0, is the first with varied pictures behind others.
pub fn begins_to_vary(settings: &RunSettings, epoch: u64) -> bool {
    epoch > 0 && is_varied(settings, epoch) && !is_varied(settings, epoch - 1)
}

/// Whether pictures are varied: digits, for which one draws.
fn is_varied(settings: &RunSettings, epoch: u64) -> bool {
    settings.data == LearnedData::Digits && settings.varied_from > 0 && epoch + 1 >= settings.varied_from
}

/// The variations of training pictures: other slants and widths, by which people's hands differ.
fn variations() -> [Augmentation; 2] {
    let fill_mode = FillMode::Constant;
    let (height_factor, width_factor) = (Factor::One(0.1), Some(Factor::One(0.1)));
    [
        Augmentation::RandomRotation { factor: Factor::One(0.03), fill_mode, fill_value: 0.0 },
        Augmentation::RandomZoom { height_factor, width_factor, fill_mode, fill_value: 0.0 },
    ]
}

/// One digit to be classified.
///
/// # Errors
/// If it has not 64 pixels, or one is not finite.
pub fn drawing(pixels: &[f32]) -> Result<Arc<dyn Dataset>> {
    let image = ndarray::ArrayView::from_shape((1, 8, 8, 1), pixels).map_err(|_| {
        Error::data("the drawing", format!("needs {PIXELS} pixels, but has {}", pixels.len()), "send 8×8 pixels")
    })?;
    Ok(Arc::new(InMemory::without_targets(image.to_owned())?))
}

/// Probabilities from logits, row by row.
pub fn probabilities(logits: &ArrayD<f32>) -> Vec<f32> {
    let row = |logits: &[f32]| {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
        let sum: f32 = weights.iter().sum();
        weights.into_iter().map(move |weight| weight / sum)
    };
    logits.as_slice().unwrap_or_default().chunks(digits::CLASSES).flat_map(row).collect()
}

/// The most probable digit of each row, with its probability.
pub fn answers(probabilities: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let best = |row: &[f32]| (0..).zip(row.iter().copied()).max_by(|a: &(u8, f32), b| a.1.total_cmp(&b.1));
    probabilities.chunks(digits::CLASSES).filter_map(best).unzip()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use manyhands::model::Objective;
    use manyhands_engine::plan::{Command, Plan};

    use super::*;
    use crate::tasks::tests::tasks;

    /// The kernels of a plan, by family.
    fn stems(plan: &Plan) -> BTreeSet<&'static str> {
        let commands = plan.passes.values().flatten();
        let stem = |command: &Command| match command {
            Command::Dispatch(dispatch) => Some(dispatch.kernel.stem),
            Command::Exchange(_) => None,
        };
        commands.filter_map(stem).collect()
    }

    #[test]
    fn the_table_holds_the_kernels_of_the_networks_and_no_others() {
        let objective = Objective::new(vec![Loss::SPARSE_CATEGORICAL_CROSSENTROPY], Optimizer::adam(1e-3));
        let mut used = BTreeSet::new();
        for task in tasks() {
            for (id, _) in networks(task.data) {
                for form in [BatchNorm::PerShard, BatchNorm::WholeBatch] {
                    let model = build(&task, id, form, 0).unwrap();
                    used.append(&mut stems(&model.plan(&objective).unwrap()));
                    used.append(&mut stems(&model.inference_plan()));
                }
            }
        }
        let table: BTreeSet<&str> = KERNELS.iter().flat_map(|family| family.iter()).map(|kernel| kernel.stem).collect();
        assert_eq!(table, used, "the table (left) and the plans (right)");
    }

    #[test]
    fn digits_are_varied_and_drawings_among_them_from_an_epoch_on() {
        let text = r#"{"model":"cnn","adapters":[0],"throttles":[],"batch_size":64,"split":"even","batch_norm":"whole_batch",
            "learning_rate":0.002,"seed":0,"epochs":0}"#;
        let never: RunSettings = serde_json::from_str(text).unwrap();
        let third = RunSettings { varied_from: 3, ..never.clone() };
        let [digits, fashion, _] = tasks();
        for (settings, epoch, is_varied) in
            [(&never, 9, false), (&third, 1, false), (&third, 2, true), (&third, 9, true)]
        {
            let (train, fit) = (training(settings, &digits, epoch).unwrap(), fit(settings, &digits, epoch));
            assert_eq!((train.len() > 1437, !fit.augment.is_empty()), (is_varied, is_varied), "{epoch}");
            assert_eq!(train.schema(), digits.train.schema());
            assert_eq!(begins_to_vary(settings, epoch), is_varied && epoch == 2);
        }
        assert!(
            !begins_to_vary(&RunSettings { varied_from: 1, ..never.clone() }, 0),
            "there is no other epoch before it"
        );
        let drawn = training(&third, &digits, 2).unwrap();
        assert_eq!(drawn.len(), 1437 + STYLES.len() / 65 * STYLE_ROWS);
        let (_, labels) = bytes_of(drawn.as_ref(), WHITE[0]).unwrap();
        assert!(labels[1437..].contains(&4) && labels.iter().all(|label| *label < 10));
        let clothes = RunSettings { data: LearnedData::Fashion, ..third };
        assert_eq!(training(&clothes, &fashion, 9).unwrap().len(), fashion.train.len());
        assert!(fit(&clothes, &fashion, 9).augment.is_empty());
    }

    #[test]
    fn the_page_trains_the_presets_of_the_digits() {
        let [digits, ..] = tasks();
        for (id, preset) in [("cnn", "digits_cnn"), ("small", "digits_small_cnn"), ("wide", "digits_wide_cnn")] {
            let preset = presets::find(preset).unwrap();
            let (of_preset, of_page) = (preset.build(5).unwrap(), build(&digits, id, BatchNorm::PerShard, 5).unwrap());
            assert_eq!(of_preset.config(), of_page.config());
            assert_eq!(of_preset.weights, of_page.weights);
            let text = OF_PICTURES.iter().find(|(known, _)| *known == id).unwrap().1;
            assert_eq!(preset.about, format!("{text} with batch-norm"));
        }
    }

    #[test]
    fn the_forms_of_batch_normalization_share_their_tensors() {
        let [digits, fashion, _] = tasks();
        for task in [&digits, &fashion] {
            for (id, _) in OF_PICTURES {
                let forms = [BatchNorm::PerShard, BatchNorm::WholeBatch].map(|form| build(task, id, form, 1).unwrap());
                assert_eq!(forms[0].layout(), forms[1].layout());
                assert_ne!(forms[0].config(), forms[1].config());
            }
        }
        let error = build(&digits, "vgg", BatchNorm::PerShard, 0).unwrap_err().to_string();
        assert!(error.starts_with("`model` needs to be `cnn` or `small` or `wide`, but is `vgg`"), "{error}");
    }

    #[test]
    fn networks_of_a_text_have_an_output_for_each_character() {
        let [.., text] = tasks();
        let n = text.outputs();
        let parameters: Vec<usize> = choices(&text).unwrap().iter().map(|choice| choice.parameters).collect();
        let gru = |inputs: usize, units: usize| 3 * units * (inputs + units + 2);
        let wide = 32 * n + gru(32, 256) + gru(256, 256) + 257 * n;
        let block = 2 * 2 * 64 + 4 * 64 * 65 + 65 * 256 + 257 * 64;
        let gpt = 64 * n + 64 * 40 + 2 * block + 2 * 64 + 65 * n;
        assert_eq!(parameters, [32 * n + gru(32, 128) + 129 * n, wide, gpt]);
    }

    #[test]
    fn probabilities_sum_to_one_and_the_largest_wins() {
        let mut logits = vec![0.0; 20];
        (logits[3], logits[17]) = (1000.0, 2.0);
        let probabilities = probabilities(&ArrayD::from_shape_vec(vec![2, 10], logits).unwrap());
        assert!((probabilities[10..].iter().sum::<f32>() - 1.0).abs() < 1e-6);
        let (digits, confidences) = answers(&probabilities);
        assert_eq!(digits, [3, 7]);
        // e² / (e² + 9)
        assert!((confidences[0] - 1.0).abs() < 1e-6 && (confidences[1] - 0.450_853).abs() < 1e-5);
    }

    #[test]
    fn a_drawing_has_64_pixels() {
        assert_eq!(drawing(&[0.5; 64]).unwrap().len(), 1);
        let error = drawing(&[0.5; 63]).err().unwrap().to_string();
        assert!(error.contains("needs 64 pixels, but has 63"), "{error}");
    }
}
