//! Threads, the system's clock and its timers.

use std::future::Future;
use std::pin::Pin;

use super::{Runtime, Task};

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
