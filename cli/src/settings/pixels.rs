//! Pixels of the data, and those that a trained network expects.

use manyhands::data::DataConfig;
use manyhands::schema::Pixels;
use manyhands::{Error, Model, Result};

/// Values of images in data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Images {
    /// From 0 to 1.
    Pixels,
    /// Bytes from 0 to 1, other arrays unchanged.
    Arrays,
}

/// Ranges, in the words of a help.
const CHOICES: &str = "`\"0..1\"` if it was trained on bytes / 255; `\"-1..1\"`, `\"0..255\"`, `\"torch\"` or `\"caffe\"` for networks of \
                       others: `docs/settings.md` says which";

/// A network to start from, behind a layer that gives it the pixels it expects: those of the settings, or those that its
/// file tells.
pub(super) fn in_front(data: &DataConfig, model: Model, chosen: Option<Pixels>) -> Result<Model> {
    if let Some(pixels) = chosen {
        return model.with_pixels(pixels);
    }
    let Some(images) = images(data, &model) else { return Ok(model) };
    match model.pixels() {
        Some(Pixels::Unit) => Ok(model),
        Some(pixels) if images == Images::Pixels => {
            log::warn!(
                "`start` expects pixels of `{pixels}`: a layer in front makes them of those from 0 to 1. If it was trained on others, \
                 name them by `pixels` in `[model]`"
            );
            model.with_pixels(pixels)
        }
        known => {
            let known = known.map_or_else(
                || "the pixels that `start` expects, which its file does not tell".to_owned(),
                |pixels| {
                    format!("the values of these arrays: `start` expects `{pixels}`, and bytes are read from 0 to 1")
                },
            );
            let help = if images == Images::Arrays {
                format!("{CHOICES}. `\"0..1\"` changes nothing")
            } else {
                CHOICES.to_owned()
            };
            Err(Error::model("key `pixels`", format!("needs {known}"), help))
        }
    }
}

/// Refuses a whole model that expects other pixels than the data have, or, to train on, unknown ones.
pub(super) fn check(data: &DataConfig, model: &Model, is_training: bool) -> Result<()> {
    let Some(images) = images(data, model) else { return Ok(()) };
    let problem = match model.pixels() {
        Some(Pixels::Unit) => return Ok(()),
        Some(pixels) => format!("expects pixels of `{pixels}`, but images are read from 0 to 1"),
        None if is_training && images == Images::Pixels => "does not tell which pixels it expects".to_owned(),
        None => return Ok(()),
    };
    let help = "train from it by `[model]` with `start = \"FILE\"`, `layers = []` and `pixels`, which puts a layer in front that makes them";
    Err(Error::model("the model", problem, help))
}

/// The values of the data's images, if the model reads one image.
fn images(data: &DataConfig, model: &Model) -> Option<Images> {
    let images = match data {
        DataConfig::ImageFolder(_) | DataConfig::Idx(_) | DataConfig::IdxFiles(_) | DataConfig::Cifar10(_) => {
            Images::Pixels
        }
        DataConfig::Npy(_) | DataConfig::Npz(_) | DataConfig::Safetensors(_) => Images::Arrays,
        _ => return None,
    };
    let [input] = model.inputs() else { return None };
    (input.shape.axes().len() == 3).then_some(images)
}
