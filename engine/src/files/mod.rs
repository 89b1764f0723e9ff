//! The one place that writes files: models, checkpoints, logs, traces, predictions, reports; and how those are read again.
//!
//! A file may come from a stranger: it is read by [`read`], [`read_text`] or [`each_line`], which open no pipe and no device and know
//! limits.
//!
//! A file is replaced atomically ([`Output`]): its readers see the old contents or the new, never a part. A file that is
//! neither empty nor of the [`FileKind`] that is written is never overwritten. Links are followed, and mode and owner of the
//! old file are kept. Devices and pipes are written to, never replaced.

// Files: `output.rs`: replacement; `log.rs`: logs, which are appended; `kind.rs`: files that may be overwritten; `identity.rs`: the file
// behind a path; `lock.rs`: excludes a second run; `input.rs`: reads within limits; `utf16.rs`: the
// other encoding of Windows.

mod identity;
mod input;
mod kind;
mod lock;
mod log;
mod output;
mod utf16;

pub use identity::{are_same, check_apart};
pub use input::each_line;
pub use input::{open, read, read_text, text_of};
pub use kind::FileKind;
pub use kind::{PAGE_MARK, PICTURE_MARK, RUN_SETTINGS_MARK};
pub use lock::Lock;
pub use log::{create_log, resume_log};
pub use output::is_pipe;
pub use output::{Output, check, write};
pub use utf16::{from_utf16, is_utf16};
