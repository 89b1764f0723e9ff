//! The networks that a page can train, the kernels that they are made of, and the digits for training.

use std::sync::Arc;

use manyhands::data::{Augmentation, Batch, ByteImages, Dataset, Factor, FillMode, InMemory, digits};
use manyhands::internals::kernels::{
    Families, activation, adam, add, batch_norm, clip, conv2d, dense, dropout, pooling, reduce, softmax_cross_entropy,
};
use manyhands::internals::presets::{self, Size};
use manyhands::{Compile, Error, Fit, Loss, Model, Optimizer, Result};
use ndarray::ArrayD;

use crate::messages::{BatchNorm, ModelChoice, Settings};

/// Pixels of a digit.
pub const PIXELS: usize = 64;
/// Value of full ink.
const WHITE: u8 = 16;

/// Digits in styles that the training data lack, of strokes: a label and the pixels of each. A test of the page writes the file.
static STYLES: &[u8] = include_bytes!("styles.bin");
/// Rows of each in an epoch.
const STYLE_ROWS: usize = 8;

/// The networks, by their ids.
const MODELS: [(&str, &str); 3] = [
    ("cnn", "three convolutions with batch-norm"),
    ("small", "one convolution with batch-norm"),
    ("wide", "three wide convolutions with batch-norm"),
];

/// The kernels of the networks' plans. The worker of a CPU adapter knows no others, so that the page loads no others.
pub static KERNELS: Families = &[
    activation::KERNELS,
    adam::KERNELS,
    add::KERNELS,
    batch_norm::KERNELS,
    clip::KERNELS,
    conv2d::KERNELS,
    dense::KERNELS,
    dropout::KERNELS,
    pooling::KERNELS,
    reduce::KERNELS,
    softmax_cross_entropy::KERNELS,
];

/// Models of the page.
///
/// # Errors
/// If a network can't be built.
pub fn choices() -> Result<Vec<ModelChoice>> {
    let choice = |(id, name): (&'static str, &'static str)| {
        let model = build(id, BatchNorm::PerShard, 0)?;
        let parameters = model.layout().parameters.iter().map(|placed| placed.range().len()).sum();
        Ok(ModelChoice { id, name, parameters })
    };
    MODELS.into_iter().map(choice).collect()
}

/// A network with fresh weights.
///
/// # Errors
/// If there is none of that id.
pub fn build(id: &str, form: BatchNorm, seed: u64) -> Result<Model> {
    let norm = match form {
        BatchNorm::PerShard => presets::digits::norm(),
        BatchNorm::WholeBatch => presets::digits::norm().synchronized(),
    };
    let size = Size { input: presets::digits::SHAPE.into(), outputs: digits::CLASSES, seed };
    match id {
        "cnn" => presets::digits::cnn(&size, norm),
        "small" => presets::digits::small_cnn(&size, norm),
        "wide" => presets::digits::wide_cnn(&size, norm),
        other => {
            let ids = MODELS.map(|(id, _)| format!("`{id}`")).join(" or ");
            Err(Error::setting("`model`", format!("needs to be {ids}, but is `{other}`"), "choose one of these"))
        }
    }
}

/// Settings of a run's training.
pub fn compile(settings: &Settings) -> Compile {
    let optimizer = Optimizer::adam(settings.learning_rate);
    Compile::new(optimizer, Loss::SPARSE_CATEGORICAL_CROSSENTROPY).seed(settings.seed)
}

/// Settings of a run's data from an epoch on, which is counted from 0.
///
/// # Errors
/// Only if the bytes in the program were damaged.
pub fn fit(settings: &Settings, epoch: u64) -> Result<Fit> {
    let fit = Fit::new(u64::MAX).batch_size(settings.batch_size).validation(Arc::new(digits::test()?));
    Ok(if is_varied(settings, epoch) { fit.augment(variations()) } else { fit })
}

/// The pictures to train on from an epoch on, which is counted from 0: where they are varied, drawings are among them.
///
/// # Errors
/// Only if the bytes in the program were damaged.
pub fn training(settings: &Settings, epoch: u64) -> Result<ByteImages> {
    let train = digits::train()?;
    if !is_varied(settings, epoch) {
        return Ok(train);
    }
    let (mut pixels, mut labels) = bytes_of(&train)?;
    for drawing in STYLES.chunks_exact(1 + PIXELS).cycle().take(STYLES.len() / (1 + PIXELS) * STYLE_ROWS) {
        labels.push(drawing[0]);
        pixels.extend_from_slice(&drawing[1..]);
    }
    Ok(ByteImages::new(presets::digits::SHAPE.into(), pixels, labels, WHITE)?.with_schema(train.schema()))
}

fn is_varied(settings: &Settings, epoch: u64) -> bool {
    settings.varied_from > 0 && epoch + 1 >= settings.varied_from
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

/// Pixels from 0 to 16 and labels of the test digits, as bytes.
///
/// # Errors
/// Only if the bytes in the program were damaged.
pub fn test_bytes() -> Result<(Vec<u8>, Vec<u8>)> {
    bytes_of(&digits::test()?)
}

fn bytes_of(images: &ByteImages) -> Result<(Vec<u8>, Vec<u8>)> {
    let rows: Vec<usize> = (0..images.len()).collect();
    let batch = Batch::fetch(images, &rows)?;
    let bytes = |values: &[f32], scale: u8| values.iter().map(|value| byte(value * f32::from(scale))).collect();
    Ok((bytes(&batch.inputs[0], WHITE), bytes(&batch.targets[0], 1)))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers from 0 to 16")]
fn byte(value: f32) -> u8 {
    value.round() as u8
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

    use manyhands::internals::model::Objective;
    use manyhands::internals::plan::{Command, Plan};

    use super::*;

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
        for (id, _) in MODELS {
            for form in [BatchNorm::PerShard, BatchNorm::WholeBatch] {
                let model = build(id, form, 0).unwrap();
                used.append(&mut stems(&model.plan(&objective).unwrap()));
                used.append(&mut stems(&model.inference_plan()));
            }
        }
        let table: BTreeSet<&str> = KERNELS.iter().flat_map(|family| family.iter()).map(|kernel| kernel.stem).collect();
        assert_eq!(table, used, "the table (left) and the plans (right)");
    }

    #[test]
    fn pictures_are_varied_and_drawings_among_them_from_an_epoch_on() {
        let text = r#"{"model":"cnn","adapters":[0],"throttles":[],"batch_size":64,"split":"even","batch_norm":"whole_batch",
            "learning_rate":0.002,"seed":0,"epochs":0}"#;
        let never: Settings = serde_json::from_str(text).unwrap();
        let third = Settings { varied_from: 3, ..never.clone() };
        for (settings, epoch, is_varied) in
            [(&never, 9, false), (&third, 1, false), (&third, 2, true), (&third, 9, true)]
        {
            let (train, fit) = (training(settings, epoch).unwrap(), fit(settings, epoch).unwrap());
            assert_eq!((train.len() > 1437, !fit.augment.is_empty()), (is_varied, is_varied), "{epoch}");
            assert_eq!(train.schema(), digits::train().unwrap().schema());
        }
        let drawn = training(&third, 2).unwrap();
        assert_eq!(drawn.len(), 1437 + STYLES.len() / 65 * STYLE_ROWS);
        assert!(drawn.labels()[1437..].contains(&4) && drawn.labels().iter().all(|label| *label < 10));
    }

    #[test]
    fn the_page_trains_the_presets_of_the_digits() {
        for (id, preset) in [("cnn", "digits_cnn"), ("small", "digits_small_cnn"), ("wide", "digits_wide_cnn")] {
            let preset = presets::find(preset).unwrap();
            let (of_preset, of_page) = (preset.build(5).unwrap(), build(id, BatchNorm::PerShard, 5).unwrap());
            assert_eq!(of_preset.config(), of_page.config());
            assert_eq!(of_preset.weights, of_page.weights);
            let text = MODELS.iter().find(|(known, _)| *known == id).unwrap().1;
            assert_eq!(preset.about, text);
        }
    }

    #[test]
    fn the_forms_of_batch_normalization_share_their_tensors() {
        for (id, _) in MODELS {
            let forms = [BatchNorm::PerShard, BatchNorm::WholeBatch].map(|form| build(id, form, 1).unwrap());
            assert_eq!(forms[0].layout(), forms[1].layout());
            assert_ne!(forms[0].config(), forms[1].config());
        }
        let error = build("vgg", BatchNorm::PerShard, 0).unwrap_err().to_string();
        assert!(error.starts_with("`model` needs to be `cnn` or `small` or `wide`, but is `vgg`"), "{error}");
    }

    #[test]
    fn test_digits_are_bytes_again() {
        let (pixels, labels) = test_bytes().unwrap();
        assert_eq!((pixels.len(), labels.len()), (360 * PIXELS, 360));
        assert_eq!(pixels.iter().max(), Some(&16));
        assert!(labels.iter().all(|label| *label < 10));
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
