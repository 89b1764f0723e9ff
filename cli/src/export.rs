//! `manyhands export`.

use std::path::{Path, PathBuf};

use clap::Args;
use manyhands::model::RawExport;
use manyhands::schema::few;
use manyhands::{Error, Model, Result};
use manyhands_engine::{files, shown::bytes};

use super::run_folder::{load_model, model_path};
use super::terminal::{Terminal, check_file, make_folder_of, safe};

#[derive(Args)]
pub struct ExportArgs {
    /// Model file or checkpoint, or the folder of a run: its best model.
    #[arg(value_parser = model_path())]
    file: PathBuf,
    /// File to write; its ending names the format. Default: the model file's name with `.onnx`.
    #[arg(value_name = "OUT.onnx")]
    output: Option<PathBuf>,
    /// Write the network alone: inputs are encoded numbers, and outputs the model's own, such as logits.
    ///
    /// Without it, a model of a table takes the table's columns, one of pictures takes bytes, and both give labels and
    /// probabilities, as `predict` does.
    #[arg(long)]
    encoded: bool,
}

/// Writes a model for other programs.
pub fn run(args: &ExportArgs, terminal: &Terminal) -> Result<()> {
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("onnx"));
    files::check_apart(&[&output], &[&args.file])?;
    check_file(&output)?;
    let model = load_model(&args.file)?;
    make_folder_of(&output)?;
    let [inputs, outputs] =
        if args.encoded || !model.has_raw_form() { encoded(&model, &output)? } else { raw(&model, &output)? };
    let size = output.metadata().map_err(|error| Error::reading(&output, error))?.len();
    let file = safe(&output.display().to_string());
    terminal.line(format_args!("{file}: {}, from {} to {}", bytes(size), safe(&inputs), safe(&outputs)));
    Ok(())
}

/// Writes the network alone; gives its inputs and outputs in words.
fn encoded(model: &Model, output: &Path) -> Result<[String; 2]> {
    model.export(output)?;
    let outputs: Vec<String> = model.outputs().iter().map(|(name, shape)| format!("`{name}` {shape}")).collect();
    let inputs: Vec<String> = model.inputs().iter().map(|input| format!("`{}` {}", input.name, input.shape)).collect();
    Ok([inputs.join(", "), outputs.join(", ")])
}

/// Writes the network with what makes its inputs of rows; gives its inputs and outputs in words.
fn raw(model: &Model, output: &Path) -> Result<[String; 2]> {
    let RawExport { inputs, outputs, encoded } = model.export_raw(output)?;
    if !encoded.is_empty() {
        log::warn!(
            "no operator of ONNX splits texts as training did: give numbers of tokens to {}; `manyhands.schema` in the file's \
             metadata has the vocabulary, and `docs/guide/saving.md` the lines of Python that make them of a text",
            few(&encoded)
        );
    }
    let quoted = |names: Vec<String>| few(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>());
    Ok([quoted(inputs), quoted(outputs)])
}
