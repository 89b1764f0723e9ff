//! `manyhands export`.

use std::path::PathBuf;

use clap::Args;
use manyhands::{Error, Model, Result};
use manyhands_engine::{files, shown::bytes};

use super::run_folder::model_path;
use super::terminal::{Terminal, check_file, make_folder_of, safe};

#[derive(Args)]
pub struct ExportArgs {
    /// Model file or checkpoint, or the folder of a run: its best model.
    #[arg(value_parser = model_path())]
    file: PathBuf,
    /// File to write; its ending names the format. Default: the model file's name with `.onnx`.
    #[arg(value_name = "OUT.onnx")]
    output: Option<PathBuf>,
}

/// Writes a model for other programs.
pub fn run(args: &ExportArgs, terminal: &Terminal) -> Result<()> {
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("onnx"));
    files::check_apart(&[&output], &[&args.file])?;
    check_file(&output)?;
    let model = Model::load(&args.file)?;
    make_folder_of(&output)?;
    model.export(&output)?;
    let size = output.metadata().map_err(|error| Error::reading(&output, error))?.len();
    let outputs: Vec<String> = model.outputs().iter().map(|(name, shape)| format!("`{name}` {shape}")).collect();
    let inputs: Vec<String> = model.inputs().iter().map(|input| format!("`{}` {}", input.name, input.shape)).collect();
    terminal.line(format_args!(
        "{}: {}, from {} to {}",
        safe(&output.display().to_string()),
        bytes(size),
        safe(&inputs.join(", ")),
        safe(&outputs.join(", "))
    ));
    Ok(())
}
