//! The `manyhands` command, run as a user runs it, and the files that it reads and writes. Needs the CPU alone.

#[path = "../common/command.rs"]
mod command;
#[path = "../common/golden.rs"]
mod golden;
#[path = "../common/needed.rs"]
mod needed;
#[path = "../common/text_models.rs"]
mod text_models;

mod bench;
mod cli;
mod doctor;
mod finetune;
mod flowers;
mod folds;
mod generate;
mod guide;
mod importance;
mod init;
mod judged;
mod merge;
mod names;
#[cfg(unix)]
mod outside;
mod portable;
mod pretrained;
mod report;
mod runs;
mod saving;
mod settings;
mod simulate;
mod sweep;
mod tables;
mod texts;
