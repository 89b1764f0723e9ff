//! A runtime that counts the host's memory traffic.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{LocalTask, Runtime};

/// Wraps a runtime and counts the bytes of host memory that are read and written.
pub struct Metered {
    inner: Arc<dyn Runtime>,
    bytes: AtomicU64,
}

impl Metered {
    /// Counts from 0.
    pub fn new(inner: Arc<dyn Runtime>) -> Self {
        Self { inner, bytes: AtomicU64::new(0) }
    }

    /// Number of bytes up to now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Runtime for Metered {
    fn now_ms(&self) -> f64 {
        self.inner.now_ms()
    }

    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.inner.sleep(ms)
    }

    fn spawn(&self, name: &str, actor: Box<dyn FnOnce() -> LocalTask + Send>) {
        self.inner.spawn(name, actor);
    }

    fn charge(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn settle(&self, last_words: LocalTask) {
        self.inner.settle(last_words);
    }
}
