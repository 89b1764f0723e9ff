//! Kinds of files, by their first bytes: files of other programs are never overwritten.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use crate::shown;

/// Bytes by which a file is known.
const BEGIN: u64 = 4096;

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A model or a checkpoint.
    Model,
    /// A line of CSV for each epoch.
    CsvLog,
    /// A line of JSON for each step and epoch.
    JsonLog,
    /// A trace that Perfetto opens.
    Trace,
    /// Predictions of a model, as CSV.
    Predictions,
    /// A model as ONNX.
    Onnx,
    /// Results of `manyhands bench`, as JSON.
    Report,
    /// A report as an SVG picture.
    Picture,
    /// Settings as a run had them.
    RunSettings,
    /// Results of a run, as JSON.
    RunResults,
    /// The page that `manyhands report` writes.
    Page,
    /// Trials of a sweep, as JSON.
    Sweep,
    /// Trials of a sweep, as CSV.
    SweepTable,
    /// A manual page of the command.
    ManualPage,
    /// Settings that `manyhands init` writes.
    Settings,
    /// A language model as GGUF.
    Gguf,
    /// Settings or texts beside the weights of a language model, by which their folder is known.
    ModelText,
    /// A file about an adapter in the user's cache. They have folders of their own, so that a file there may always be replaced.
    Cache,
}

/// Start of the first line of a log in CSV.
const CSV_LOG: &str = "epoch,step,learning_rate,seconds";
/// Start of each line of a log in JSON.
const JSON_LOG: &str = r#"{"kind":"#;
/// Start of a safetensors file with metadata, after the eight bytes of its header's length.
const METADATA: &str = r#"{"__metadata__":{""#;
/// First line of the settings of a run.
pub const RUN_SETTINGS_MARK: &str = "# The settings of a run of manyhands ";
/// First line of the results of a run, after the brace.
const RUN_RESULTS: &str = "{\n  \"manyhands_run\": ";
/// First line of the trials of a sweep, after the brace.
const SWEEP: &str = "{\n  \"manyhands_sweep\": ";
/// First columns of the trials of a sweep.
const SWEEP_TABLE: &str = "trial,state,epochs,";
/// Mark in the head of our pages.
pub const PAGE_MARK: &str = "<meta name=\"generator\" content=\"manyhands ";
/// Mark in our pictures.
pub const PICTURE_MARK: &str = "<!-- manyhands bench scaling -->";

/// Start of our ONNX files: the version of the format, which depends on the operators, and behind its number the program.
const ONNX: [&[u8]; 2] = [b"\x08", b"\x12\x09manyhands"];

impl FileKind {
    /// Name of the kind in messages.
    fn name(self) -> &'static str {
        match self {
            Self::Model => "a model or checkpoint of manyhands",
            Self::CsvLog => "a log that `--csv` wrote",
            Self::JsonLog => "a log that `--json` wrote",
            Self::Trace => "a trace of manyhands",
            Self::Predictions => "predictions of manyhands",
            Self::Onnx => "an ONNX file that manyhands wrote",
            Self::Report => "a report of `manyhands bench`",
            Self::Picture => "a picture of `manyhands bench`",
            Self::RunSettings => "the settings that a run wrote",
            Self::RunResults => "the results that a run wrote",
            Self::Page => "a page of `manyhands report`",
            Self::Sweep | Self::SweepTable => "the trials that `manyhands sweep` wrote",
            Self::ManualPage => "a manual page of manyhands",
            Self::Settings => "settings of `manyhands init`",
            Self::Gguf => "a GGUF file that manyhands wrote",
            Self::ModelText => "a text of a model's folder",
            Self::Cache => "a file of the cache",
        }
    }

    /// Whether a file of this kind may begin like this. Logs are written line by line: their first line may be cut off.
    fn begins(self, begin: &[u8]) -> bool {
        let text = String::from_utf8_lossy(begin);
        let line = |head: &str| match text.split_once('\n') {
            Some((line, _)) => line.starts_with(head),
            None => text.starts_with(head) || head.starts_with(&*text),
        };
        match self {
            Self::Model => {
                let text = String::from_utf8_lossy(begin.get(size_of::<u64>()..).unwrap_or_default());
                text.starts_with(METADATA) && text.contains("\"manyhands.")
            }
            Self::CsvLog => line(CSV_LOG),
            Self::JsonLog => line(JSON_LOG),
            Self::Trace => {
                text.starts_with("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")
                    && text.lines().nth(1).is_some_and(|line| line.contains(r#"{"name":"manyhands"}"#))
            }
            Self::Predictions => is_header_of_predictions(text.lines().next().unwrap_or_default()),
            Self::Onnx => begin.starts_with(ONNX[0]) && begin.get(2..).is_some_and(|rest| rest.starts_with(ONNX[1])),
            Self::Report => text.starts_with("{\n  \"bench\": \"") && text.contains("\n  \"version\": \""),
            Self::Picture => text.contains(PICTURE_MARK),
            Self::RunSettings => text.starts_with(RUN_SETTINGS_MARK),
            Self::RunResults => text.starts_with(RUN_RESULTS),
            Self::Page => text.starts_with("<!doctype html>") && text.contains(PAGE_MARK),
            Self::Sweep => text.starts_with(SWEEP),
            Self::SweepTable => text.starts_with(SWEEP_TABLE),
            Self::ManualPage => text.contains("\n.TH manyhands"),
            Self::Settings => text.starts_with("# Settings for `") && text.contains("written by `manyhands init`"),
            Self::Gguf => begin.starts_with(b"GGUF") && text.contains("manyhands.version"),
            Self::ModelText | Self::Cache => true,
        }
    }

    /// Refuses a path whose file is of another kind. Empty files and devices may be overwritten.
    ///
    /// # Errors
    /// If it does, or can't be read.
    pub fn check(self, path: &Path) -> Result<()> {
        // Reading from a pipe or a device may never end.
        if !path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0) {
            return Ok(());
        }
        let mut begin = Vec::new();
        let read = File::open(path).and_then(|file| file.take(BEGIN).read_to_end(&mut begin));
        read.map_err(|error| Error::reading(path, error))?;
        if self.begins(&begin) {
            return Ok(());
        }
        Err(Error::setting(
            format!("the file `{}`", shown(path)),
            format!("needs to be {} or a new file, but holds something else", self.name()),
            "name another file, or remove this one first; nothing was written",
        ))
    }
}

/// `row`, then perhaps `file`, then columns of classes and numbers.
fn is_header_of_predictions(line: &str) -> bool {
    let mut columns = line.split(',');
    let is_number = |column: &str| ["probability", "logit", "value", "class"].iter().any(|it| column.contains(it));
    columns.next() == Some("row") && columns.any(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_its_first_bytes() {
        let model = [&8_u64.to_le_bytes()[..], br#"{"__metadata__":{"manyhands.model":"{}"}}"#].concat();
        let foreign = [&8_u64.to_le_bytes()[..], br#"{"__metadata__":{"format":"pt"}}"#].concat();
        let own: [(FileKind, &[u8]); 16] = [
            (FileKind::Model, &model),
            (FileKind::Gguf, b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0manyhands.version"),
            (FileKind::CsvLog, b"epoch,step,learning_rate,seconds,loss\n1,2,3,4,5\n"),
            (FileKind::JsonLog, b"{\"kind\":\"step\",\"step\":1}\n"),
            (
                FileKind::Trace,
                b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"manyhands\"}},",
            ),
            (FileKind::Predictions, b"row,file,class,probability_a\n0,x.png,a,1\n"),
            (FileKind::Onnx, b"\x08\x08\x12\x09manyhands\x1a\x050.1.0"),
            (FileKind::Onnx, b"\x08\x09\x12\x09manyhands\x1a\x050.1.0"),
            (FileKind::Report, b"{\n  \"bench\": \"steps\",\n  \"version\": \"0.1.0\""),
            (FileKind::Picture, b"<svg width=\"720\"><!-- manyhands bench scaling -->"),
            (FileKind::RunSettings, b"# The settings of a run of manyhands 0.1.0\n[data]\n"),
            (FileKind::RunResults, b"{\n  \"manyhands_run\": 1,\n"),
            (FileKind::Sweep, b"{\n  \"manyhands_sweep\": 1,\n"),
            (FileKind::SweepTable, b"trial,state,epochs,val_loss\n1,finished,3,0.5\n"),
            (FileKind::ManualPage, b".ie \\n(.g .ds Aq \\(aq\n.TH manyhands-train 1\n"),
            (FileKind::Page, b"<!doctype html>\n<meta name=\"generator\" content=\"manyhands 0.1.0\">\n"),
        ];
        let others: [&[u8]; 11] = [
            b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0",
            b"\x08\x08\x12\x07pytorch\x1a\x052.4.0",
            &foreign,
            b"a,b\n1,2\n",
            b"epoch,price\n1,2\n",
            b"row,a,b\n1,2,3\n",
            b"{\n \"a\": 1\n}\n",
            b"<svg width=\"720\">",
            b"<!doctype html>\n<title>mine</title>\n",
            b"# settings\n[data]\n",
            b"\n",
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (kind, _) in own {
            std::fs::write(&path, "").unwrap();
            assert!(kind.check(&path).is_ok() && kind.check(&folder.path().join("nowhere")).is_ok());
            for (other, begin) in own {
                std::fs::write(&path, begin).unwrap();
                assert_eq!(kind.check(&path).is_ok(), kind == other, "{kind:?} {other:?}");
            }
            for begin in others {
                std::fs::write(&path, begin).unwrap();
                let error = kind.check(&path).unwrap_err().to_string();
                assert!(error.contains("or a new file, but holds something else"), "{kind:?}: {error}");
            }
        }
    }
}
