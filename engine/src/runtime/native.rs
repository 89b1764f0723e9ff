//! Threads, the system's clock and its timers.

use std::future::Future;
use std::pin::Pin;

use super::{LocalTask, Runtime};

/// Threads, the system's clock and its timers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

/// Stack of an actor's thread. Creating shader modules recurses deeply in some drivers.
pub const STACK_BYTES: usize = 8 << 20;

/// Seconds since 1970, by the system's clock, for files that tell when they were written.
#[allow(clippy::disallowed_methods, reason = "this is the native clock")]
pub fn seconds_since_1970() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

impl Runtime for Native {
    #[allow(clippy::disallowed_methods, reason = "this is the native clock")]
    fn now_ms(&self) -> f64 {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed().as_secs_f64() * 1e3
    }

    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(super::timers::sleep(ms))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the native spawn")]
    fn spawn(&self, name: &str, actor: Box<dyn FnOnce() -> LocalTask + Send>) {
        let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
        // A panic drops the actor's channels, so that the other end sees them closed.
        if let Err(error) = thread.spawn(move || pollster::block_on(actor())) {
            log::error!(
                "the system gives no thread for `{name}`: {error}\n  \
                 help: end other programs, or raise the limits of threads and memory (`ulimit -u`, `ulimit -v`)"
            );
        }
    }

    fn settle(&self, last_words: LocalTask) {
        pollster::block_on(last_words);
    }
}
