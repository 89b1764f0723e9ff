//! Files of language models are read as transformers, tokenizers and gguf read them. Golden values are those of `scripts/text_golden.py`.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes, by the clock of the system")]

mod blocks;
mod chats;
mod classes;
mod damaged;
mod examples;
#[path = "../../../tests/common/fuzz.rs"]
mod fuzz;
mod fuzzed;
mod generated;
mod golden;
mod lines;
mod merged;
mod models;
#[path = "../../../tests/common/needed.rs"]
mod needed;
mod outputs;
mod packed;
mod real;
#[path = "../../../tests/common/text_models.rs"]
mod text_models;
mod tokens;
mod written;
