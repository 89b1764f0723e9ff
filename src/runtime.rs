//! Clock, timer and spawn: the one place where native, browser and simulator differ.

use std::future::Future;
use std::pin::Pin;

/// A future that need not move between threads.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What an engine needs of the world around it.
pub trait Runtime: Send + Sync {
    /// Milliseconds since some fixed moment.
    fn now_ms(&self) -> f64;

    /// Resolves after `ms` milliseconds.
    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Runs an actor until it ends, in a thread of its own where there are threads.
    fn spawn(&self, name: &str, actor: Box<dyn FnOnce() -> Task + Send>);

    /// Says that the caller has just read or written `bytes` of host memory: a virtual clock moves on, a real one has.
    fn charge(&self, _bytes: u64) {}

    /// Waits for the last words of actors whose other end goes away, where a thread may block.
    fn settle(&self, _last_words: Task) {}
}

/// Threads, the system's clock and its timers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

/// Stack of an actor's thread. Creating shader modules recurses deeply in some drivers.
const STACK_BYTES: usize = 8 << 20;

impl Runtime for Native {
    #[allow(clippy::disallowed_methods, reason = "this is the native clock")]
    fn now_ms(&self) -> f64 {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed().as_secs_f64() * 1e3
    }

    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let timer = async_io::Timer::after(std::time::Duration::from_secs_f64(ms.max(0.0) / 1e3));
        Box::pin(async move {
            timer.await;
        })
    }

    #[allow(
        clippy::disallowed_methods,
        clippy::expect_used,
        reason = "this is the native spawn; without threads nothing can run"
    )]
    fn spawn(&self, name: &str, actor: Box<dyn FnOnce() -> Task + Send>) {
        std::thread::Builder::new()
            .name(name.into())
            .stack_size(STACK_BYTES)
            .spawn(move || pollster::block_on(actor()))
            .expect("the system gives a thread");
    }

    fn settle(&self, last_words: Task) {
        pollster::block_on(last_words);
    }
}
