//! `manyhands merge`.

use std::path::PathBuf;

use clap::Args;
use manyhands::Result;
use manyhands_engine::shown::thousands;
use manyhands_text::adapter::{Adapter, write_merged};
use manyhands_text::{Encoding, ModelFiles};

use super::terminal::{Terminal, make_folder_of, safe};

#[derive(Args)]
pub struct MergeArgs {
    /// Language model that the adapter was trained for: a Hugging Face folder or a GGUF file.
    model: PathBuf,
    /// Folder with a LoRA adapter, as `finetune` or PEFT wrote it.
    #[arg(long, value_name = "FOLDER")]
    adapter: PathBuf,
    /// New Hugging Face folder, or new GGUF file if the name ends in `.gguf`.
    #[arg(long, value_name = "OUT")]
    output: PathBuf,
    /// Type of the weights: F32, F16 or BF16; of a GGUF file also `Q8_0`, 8 bits.
    ///
    /// Default: F16 for a GGUF file, the model's own type for a folder.
    #[arg(long = "type", value_name = "TYPE", value_parser = writable)]
    encoding: Option<Encoding>,
}

/// Writes the merged model.
pub fn run(args: &MergeArgs, terminal: &Terminal) -> Result<()> {
    let model = ModelFiles::open(&args.model)?;
    let adapter = Adapter::read(&args.adapter, model.architecture())?;
    make_folder_of(&args.output)?;
    let encoding = write_merged(&args.output, &model, &adapter, args.encoding)?;
    let weights: usize = model.shapes().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    terminal.line(format_args!(
        "{}: {} weights as {}; the adapter changed {} of {} tensors",
        safe(&args.output.display().to_string()),
        thousands(weights),
        encoding.name(),
        adapter.pairs.len(),
        model.shapes().count()
    ));
    Ok(())
}

/// A type that files can have.
fn writable(name: &str) -> Result<Encoding, String> {
    let known = [Encoding::F32, Encoding::F16, Encoding::Bf16, Encoding::Q8_0];
    let found = Encoding::of_name(name).filter(|encoding| known.contains(encoding));
    found.ok_or_else(|| format!("needs to be {}", known.map(Encoding::name).join(", ")))
}
