//! Models with an adapter merged into their weights.

use std::path::Path;

use manyhands_engine::shown;

use super::Adapter;
use crate::encoding::Encoding;
use crate::write::{write_folder, write_gguf};
use crate::{Error, ModelFiles, Result};

/// Writes a model with an adapter's changes: a GGUF file if the path ends in `.gguf`, else a Hugging Face folder. Gives the encoding of the
/// matrices.
///
/// Without an encoding, a folder has that of the model's embedding, and F16 if that is packed; a GGUF file has F16. Tensors are read,
/// changed and written one by one, so that the model need not fit into memory.
///
/// # Errors
/// If something is there under this path, but for an empty folder; as [`write_folder`] and [`write_gguf`]; if the adapter does not fit the
/// model. Then nothing is left behind.
pub fn write_merged(
    output: &Path,
    model: &ModelFiles,
    adapter: &Adapter,
    encoding: Option<Encoding>,
) -> Result<Encoding> {
    let is_gguf = output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    check_new(output, is_gguf)?;
    let encoding = match encoding {
        Some(encoding) => encoding,
        None if is_gguf => Encoding::F16,
        None => own(model)?,
    };
    let mut source = |name: &str| adapter.merged(model.tensor(name)?);
    if is_gguf {
        write_gguf(output, model, encoding, &mut source)?;
    } else {
        let written = write_folder(output, model, encoding, &mut source);
        if written.is_err() {
            // It is removed if it is empty.
            drop(std::fs::remove_dir(output));
        }
        written?;
    }
    Ok(encoding)
}

fn check_new(output: &Path, is_gguf: bool) -> Result<()> {
    let is_empty = || std::fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_none());
    if !output.exists() || !is_gguf && is_empty() {
        return Ok(());
    }
    let needed = if is_gguf { "a new file" } else { "a new or empty folder" };
    let problem = format!("needs to be {needed}, but is there already");
    Err(Error::setting(
        format!("the output `{}`", shown(output)),
        problem,
        "name another one, or remove this one first; nothing was written",
    ))
}

/// The encoding of a model's weights, as folders can have it.
fn own(model: &ModelFiles) -> Result<Encoding> {
    let encoding = model.tensor("embedding.embeddings")?.encoding;
    Ok(if encoding.block_len() == 1 { encoding } else { Encoding::F16 })
}
