//! Columns of texts and of their classes in a table, for `finetune`.

use std::path::Path;

use manyhands::data::csv::sketch::sketch;
use manyhands::{Error, Result};
use manyhands_engine::shown::shown;

use super::{table, texts};

/// Columns of a table of texts and their classes, as settings name them.
pub struct TextColumns {
    /// The column of texts.
    pub text: String,
    /// The column of classes.
    pub target: String,
}

impl TextColumns {
    /// The columns of a table that options name: `--text`, else the first column of free text, and `--target`, else the one that `init` takes.
    pub fn of(path: &Path, text: Option<&str>, target: Option<&str>) -> Result<Self> {
        let sketch = sketch(path)?;
        let target = table::target(path, &sketch, target)?;
        table::check_target(path, target, true)?;
        let text = match text {
            Some(name) => Some(table::named(path, &sketch, "--text", name)?),
            None => texts::column(&sketch, target, &[]),
        };
        let text = text.ok_or_else(|| {
            let problem = "needs a column of free text beside that of the classes, but has none";
            Error::data(
                format!("`{}`", shown(path)),
                problem,
                "name one by `--text`, and that of the classes by `--target`",
            )
        })?;
        Ok(Self { text: table::key(text), target: table::key(target) })
    }
}
