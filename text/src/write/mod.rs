//! Writes models as others read them: Hugging Face folders, GGUF files.

// Files: `folder.rs`: Hugging Face folders; `gguf.rs`: GGUF files; `vocabulary.rs`: vocabularies of GGUF
// files; `stored.rs`: tensors as files have them.

mod folder;
mod gguf;
mod stored;
mod vocabulary;

use std::path::Path;

use manyhands_engine::files::{self, FileKind};
use manyhands_engine::shown;
use serde_json::Value;

pub use self::folder::write_folder;
pub use self::gguf::write_gguf;
pub(crate) use self::stored::{single, write_arrays, write_safetensors};
use crate::{Error, Result, Tensor};

/// Gives a tensor of the model by its name, such as [`ModelFiles::tensor`](crate::ModelFiles::tensor), or one that was trained.
pub type Source<'a> = dyn FnMut(&str) -> Result<Tensor> + 'a;

/// Makes a folder, or takes one that is empty or whose weights this program wrote.
pub(crate) fn prepare(folder: &Path, weights: &str) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| Error::writing(folder, error))?;
    let weights = folder.join(weights);
    if weights.exists() {
        return FileKind::Model.check(&weights);
    }
    let mut entries = std::fs::read_dir(folder).map_err(|error| Error::reading(folder, error))?;
    if entries.next().is_some() {
        let problem = "needs to be a new or empty folder, but has other files";
        return Err(Error::setting(
            format!("the folder `{}`", shown(folder)),
            problem,
            "name another folder; nothing was written",
        ));
    }
    Ok(())
}

/// Writes JSON beside weights.
pub(crate) fn write_json(path: &Path, value: &Value) -> Result<()> {
    files::write(path, FileKind::ModelText, |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}
