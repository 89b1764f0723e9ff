//! Does a network of another program get the pixels it expects, or is it refused by name?

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use std::fs;

use manyhands::Sequential;
use manyhands::layers::{Dense, GlobalAveragePooling2D};
use manyhands::schema::{Pixels, Schema};
use tempfile::TempDir;

use crate::command::{outputs, refused, succeed};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/settings/data/bars");

/// A folder with a network of which no file says how it was trained, and settings that start from it.
fn folder(pixels: Option<Pixels>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let network = Sequential::new([8, 8, 3]).add_named("pool", GlobalAveragePooling2D::default());
    let mut model = network.add_named("old", Dense::new(5)).build(1).unwrap();
    model.set_schema(Schema { pixels, ..Schema::default() });
    model.save(folder.path().join("start.safetensors")).unwrap();
    folder
}

fn settings(folder: &TempDir, model: &str) {
    let data = format!("[data]\ntype = 'image_folder'\ntrain = '{DATA}/train'\nheight = 8\nwidth = 8\nchannels = 3\n");
    let rest = "[loss]\ntype = 'SparseCategoricalCrossentropy'\n[training]\nepochs = 1\nvalidation = 'none'\n";
    fs::write(folder.path().join("run.toml"), format!("{model}\n{data}{rest}")).unwrap();
}

const START: &str =
    "start = 'start.safetensors'\nuntil = 'pool'\nlayers = [{ type = 'Dense', name = 'new', units = 2 }]\n";

#[test]
fn a_layer_in_front_makes_the_pixels_that_a_file_names() {
    let folder = folder(Some(Pixels::Torch));
    settings(&folder, &format!("[model]\n{START}"));
    let (seen, warnings) = outputs(&folder, "train run.toml --save new.safetensors");
    assert!(seen.contains("pixels") && warnings.contains("`start` expects pixels of `torch`"), "{seen}{warnings}");
    assert!(succeed(&folder, "summary new.safetensors").contains("Rescaling"));
    // The new model reads pixels from 0 to 1, as data have them.
    succeed(&folder, &format!("evaluate new.safetensors {DATA}/test"));
}

#[test]
fn unknown_pixels_are_asked_for() {
    let folder = folder(None);
    settings(&folder, &format!("[model]\n{START}"));
    let error = refused(&folder, "train run.toml --dry-run");
    let needed =
        "`run.toml`, table `model`, key `pixels` needs the pixels that `start` expects, which its file does not tell";
    assert!(error.contains(needed), "{error}");
    settings(&folder, &format!("[model]\npixels = '-1..1'\n{START}"));
    succeed(&folder, "train run.toml --dry-run");
    settings(&folder, "model = 'start.safetensors'");
    let error = refused(&folder, "train run.toml --dry-run");
    assert!(error.contains("the model does not tell which pixels it expects"), "{error}");
}

#[test]
fn a_whole_model_of_other_pixels_is_refused() {
    let folder = folder(Some(Pixels::Centered));
    settings(&folder, "model = 'start.safetensors'");
    for line in ["train run.toml --dry-run", "evaluate start.safetensors --config run.toml --part train"] {
        let error = refused(&folder, line);
        assert!(error.contains("expects pixels of `-1..1`, but images are read from 0 to 1"), "{error}");
        assert!(error.contains("`pixels`, which puts a layer in front"), "{error}");
    }
}
