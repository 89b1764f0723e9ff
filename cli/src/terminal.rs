//! Output of text: results to stdout; progress, warnings and errors to stderr, without mixing lines.

use std::env;
use std::fmt::{Arguments, Display};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use log::{Level, LevelFilter};
use manyhands::{Error, Result};
use manyhands_engine::shown::shown;
use manyhands_engine::table::wrap;
use terminal_size::terminal_size_of;

use super::bar::{Bar, Bars};

/// Error that wgpu logs under Wine, which lacks a part for showing pictures. Nothing here shows any.
const NO_PICTURES: &str = "create_factory_media failed";

/// The two streams, and the bar that one of them may show.
#[derive(Clone)]
pub struct Terminal {
    bars: Bars,
    /// Whether a result could not be written.
    has_failed: Arc<AtomicBool>,
    is_quiet: bool,
    /// Rank of this process among several: only the first shows results.
    rank: usize,
}

impl Terminal {
    pub fn new(is_quiet: bool) -> Self {
        Self::in_process(is_quiet, 0)
    }

    /// The streams of one of several processes: only warnings of others than the first are shown, with their ranks.
    pub fn in_process(is_quiet: bool, rank: usize) -> Self {
        Self { bars: Bars::default(), has_failed: Arc::default(), is_quiet: is_quiet || rank > 0, rank }
    }

    /// These streams without progress, for a part of the command that another part reports on.
    pub fn silent(&self) -> Self {
        Self { is_quiet: true, ..self.clone() }
    }

    /// Whether only results, warnings and errors are wanted.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Shows the warnings of the library above the bar, or also its decisions; `RUST_LOG` asks for more or less.
    pub fn start_log(&self, is_verbose: bool) {
        let stderr = AboveBar(self.bars.clone());
        let level = if is_verbose { LevelFilter::Debug } else { LevelFilter::Warn };
        let rank = self.rank;
        // What holds for all processes is shown by the first; adapters are each process' own.
        let shown: &[&str] =
            if rank == 0 { &["manyhands"] } else { &["manyhands::scheduler", "manyhands_engine::adapters"] };
        let mut builder = env_logger::Builder::new();
        builder.filter_level(LevelFilter::Error);
        for module in shown {
            builder.filter_module(module, level);
        }
        let started = builder
            .parse_default_env()
            .format(move |out, record| {
                let text = record.args().to_string();
                if text.starts_with(NO_PICTURES) {
                    return Ok(());
                }
                let level = match record.level() {
                    Level::Warn => "warning".into(),
                    level => level.as_str().to_lowercase(),
                };
                let process = if rank == 0 { String::new() } else { format!("process {rank}: ") };
                writeln!(out, "{}", coloured(&to_show(&format!("{process}{level}: {text}"), error_columns())))
            })
            .target(env_logger::Target::Pipe(Box::new(stderr)))
            .try_init();
        if let Err(error) = started {
            self.error(&error);
        }
    }

    /// Text of the result, in lines that fit the terminal. Names in it can't change what the terminal shows.
    pub fn line(&self, text: impl Display) {
        self.verbatim(to_show(&text.to_string(), columns()));
    }

    /// Text with tables: they fit as many columns as the precision of its format says.
    pub fn report(&self, report: &impl Display) {
        match columns() {
            Some(columns) => self.line(format_args!("{report:.columns$}")),
            None => self.line(report),
        }
    }

    /// A result for other programs, unchanged. A closed reader, such as `head`, is no error.
    pub fn verbatim(&self, text: impl Display) {
        if self.rank > 0 {
            return;
        }
        let written = self.bars.suspend(|| writeln!(io::stdout().lock(), "{text}"));
        if let Err(error) = written
            && error.kind() != ErrorKind::BrokenPipe
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            self.error(&Error::writing("stdout", error));
        }
    }

    /// A piece of a text that grows, without a line break. A terminal gets no control characters but tabs.
    ///
    /// # Errors
    /// If it can't be written, even where the reader, such as `head`, has seen enough.
    #[cfg(feature = "text")]
    pub fn piece(text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        let is_terminal = stdout.is_terminal();
        let text =
            if is_terminal { text.split('\t').map(safe).collect::<Vec<_>>().join("\t") } else { text.to_owned() };
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// Whether a result could not be written.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// A line beside the results.
    pub fn note(&self, text: impl Display) {
        if self.rank > 0 {
            return;
        }
        let text = to_show(&text.to_string(), error_columns());
        self.bars.suspend(|| to_stderr(format_args!("{}\n", coloured(&text))));
    }

    /// Prints the error that ended the command.
    pub fn error(&self, error: &dyn Display) {
        self.note(format_args!("error: {error}"));
    }

    /// A progress bar on stderr, if that is a terminal.
    pub fn bar(&self, len: u64, position: u64) -> Option<Bar> {
        if self.rank > 0 || !io::stderr().is_terminal() {
            return None;
        }
        Some(self.bars.begin(len, position, error_columns().unwrap_or(80)))
    }
}

/// Columns of the results: those of the variable `COLUMNS`, else of the terminal. Without limit where there is none.
pub fn columns() -> Option<usize> {
    told_columns().or_else(|| Some(terminal_size_of(io::stdout())?.0.0.into()))
}

/// Columns of the terminal that shows warnings and errors. In a file they stay whole, to be searched for.
fn error_columns() -> Option<usize> {
    let columns = terminal_size_of(io::stderr())?.0.0.into();
    Some(told_columns().unwrap_or(columns))
}

fn told_columns() -> Option<usize> {
    // The precision of a format, by which tables fit, has 16 bits.
    const MOST: usize = u16::MAX as usize;
    let columns = env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0)?;
    Some(MOST.min(columns))
}

/// Text in lines that fit, without control characters.
fn to_show(text: &str, columns: Option<usize>) -> String {
    let text = safe(text);
    columns.map_or(text.clone(), |columns| wrap(&text, columns))
}

/// Lines of text without control characters.
pub fn safe(text: &str) -> String {
    text.split('\n').map(|line| shown(line).to_string()).collect::<Vec<_>>().join("\n")
}

/// Text whose lines begin with a word in colour where they are an error, a warning or help, as the compiler of Rust has them.
fn coloured(text: &str) -> String {
    text.split('\n').map(coloured_line).collect::<Vec<_>>().join("\n")
}

fn coloured_line(line: &str) -> String {
    const WORDS: [(&str, AnsiColor); 3] =
        [("error:", AnsiColor::Red), ("warning:", AnsiColor::Yellow), ("help:", AnsiColor::Cyan)];
    let rest = line.trim_start();
    let Some((word, color)) = WORDS.into_iter().find(|(word, _)| rest.starts_with(word)) else {
        return line.into();
    };
    let style = Style::new().bold().fg_color(Some(color.into()));
    format!("{}{style}{word}{style:#}{}", &line[..line.len() - rest.len()], &rest[word.len()..])
}

/// Errors of stderr itself can't be reported. Colours are left out where stderr is no terminal, or `NO_COLOR` is set.
fn to_stderr(text: Arguments<'_>) {
    drop(anstream::stderr().lock().write_fmt(text));
}

/// Writes to stderr without tearing the bar.
struct AboveBar(Bars);

impl Write for AboveBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| anstream::stderr().lock().write_all(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses a folder as an output file before the run, not after it.
pub fn check_file(path: &Path) -> Result<()> {
    if path.is_dir() {
        let problem = "needs to be a file, but is a folder";
        return Err(Error::setting(format!("`{}`", path.display()), problem, "name a file in it"));
    }
    Ok(())
}

/// Makes the folder of a file that is to be written, so that a long run does not end with an error.
pub fn make_folder_of(path: &Path) -> Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => std::fs::create_dir_all(folder).map_err(|error| Error::writing(folder, error)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_fits_and_steers_nothing() {
        assert_eq!(to_show("class \u{1b}[31mred\nnext", None), "class \\u{1b}[31mred\nnext");
        assert_eq!(to_show("  help: name one of these, or none", Some(24)), "  help: name one of\n    these, or none");
    }

    #[test]
    fn the_first_word_of_an_error_and_of_its_help_is_in_colour() {
        let text = "error: no such file: a.csv\n  help: name another\nan error: no label";
        let bold = |color: u8, word: &str| format!("\u{1b}[1m\u{1b}[{color}m{word}\u{1b}[0m");
        let shown = format!(
            "{} no such file: a.csv\n  {} name another\nan error: no label",
            bold(31, "error:"),
            bold(36, "help:")
        );
        assert_eq!(coloured(text), shown);
        assert_eq!(anstream::adapter::strip_str(&shown).to_string(), text);
    }
}
