//! Texts for other programs: completions of shells, manual pages, schemas for editors.

use std::path::{Path, PathBuf};

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use manyhands::{Error, Result};
use manyhands_engine::files::{self, FileKind};

use super::terminal::Terminal;

const SETTINGS: &str = include_str!("settings.schema.json");
const LOG: &str = include_str!("log.schema.json");

/// Name of the program.
const PROGRAM: &str = "manyhands";

#[derive(Args)]
pub struct SchemaArgs {
    /// The schema of settings files, or of the lines of a log.
    #[arg(value_enum, default_value_t = SchemaOf::Settings)]
    of: SchemaOf,
}

#[derive(Clone, Copy, ValueEnum)]
enum SchemaOf {
    Settings,
    Log,
}

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Args)]
pub struct ManArgs {
    /// Folder to which the pages of all commands are written, in place of showing the first.
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Prints a JSON Schema.
pub fn schema(args: &SchemaArgs, terminal: &Terminal) {
    terminal.verbatim(match args.of {
        SchemaOf::Settings => SETTINGS.trim_end(),
        SchemaOf::Log => LOG.trim_end(),
    });
}

/// Prints a script that completes arguments.
pub fn completions(args: &CompletionsArgs, mut command: Command, terminal: &Terminal) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, PROGRAM, &mut script);
    terminal.verbatim(String::from_utf8_lossy(&script).trim_end());
}

/// Prints the manual page of the program, or writes those of all commands.
pub fn man(args: &ManArgs, command: Command, terminal: &Terminal) -> Result<()> {
    let mut command = command.name(PROGRAM);
    let Some(folder) = &args.folder else {
        terminal.verbatim(page(command)?.trim_end());
        return Ok(());
    };
    std::fs::create_dir_all(folder).map_err(|error| Error::writing(folder, error))?;
    // This gives commands their whole names: `manyhands-train`.
    command.build();
    for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = subcommand.get_display_name().unwrap_or(subcommand.get_name()).to_owned();
        write(folder, &name, &page(subcommand.clone())?)?;
    }
    write(folder, PROGRAM, &page(command)?)
}

fn page(command: Command) -> Result<String> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text).map_err(|error| Error::writing("a manual page", error))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    files::write(&folder.join(format!("{name}.1")), FileKind::ManualPage, |out| out.write_all(text.as_bytes()))
}
