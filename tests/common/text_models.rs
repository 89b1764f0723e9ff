//! Real language models, which `scripts/fetch-text-models` fetches.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with the models, which are fetched where they are missing.
pub fn fetched() -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let output = Command::new(root.join("scripts/fetch-text-models")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    root.join(String::from_utf8(output.stdout).unwrap().trim()).canonicalize().unwrap()
}
