//! Data and models that are given in place of a settings file.

use std::path::Path;

use crate::init;
use manyhands::Error;
use manyhands_engine::files::FileKind;
use manyhands_engine::shown::shown;

/// The error of a file that can't be read as settings; of data or a model, one that says what to do with it.
pub fn explain(path: &Path, error: Error) -> Error {
    let who = format!("`{}`", shown(path));
    // Both may be `.safetensors` files: what is no model is data.
    if is_model(path) {
        let help = format!(
            "`manyhands evaluate` and `predict` take it; where a run saved it, `manyhands train --resume {}` continues that",
            shown(path)
        );
        return Error::setting(who, "needs to be a settings file, but is a model file", help);
    }
    if init::is_data(path) {
        let what = if path.is_dir() { "a folder" } else { "data" };
        let help = format!("`manyhands init {}` looks at it, and writes settings that train on it", shown(path));
        return Error::setting(who, format!("needs to be a settings file, but is {what}"), help);
    }
    error
}

fn is_model(path: &Path) -> bool {
    path.is_file() && init::has_extension(path, &["safetensors"]) && FileKind::Model.check(path).is_ok()
}
