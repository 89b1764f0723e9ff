//! One test of a file at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Holds the other tests of this file back until it is dropped: those that count what the process creates, or that take
/// the whole machine.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
