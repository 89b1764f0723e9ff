//! Clock, timer and spawn: the one place where native, browser and simulator differ.

// Files: `native.rs`, `browser.rs`: the two systems; `threads.rs`, `one_thread.rs`: work over threads, and without them; `timers.rs`:
// waits of the native runtime; `metered.rs`: counts the host's memory traffic.

#[cfg(target_arch = "wasm32")]
mod browser;
mod metered;
#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg_attr(target_arch = "wasm32", path = "one_thread.rs")]
pub mod threads;
#[cfg(not(target_arch = "wasm32"))]
mod timers;

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use crate::error::{Error, Result};

#[cfg(target_arch = "wasm32")]
pub use browser::Browser;
pub use metered::Metered;
#[cfg(not(target_arch = "wasm32"))]
pub use native::{Native, STACK_BYTES, seconds_since_1970};

/// A future that need not move between threads.
pub type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

/// A future whose code is in this crate alone. That of an `async fn` is compiled again in each crate that calls it.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Services that an engine needs: clock, timer, tasks.
pub trait Runtime: Send + Sync {
    /// Milliseconds since some fixed moment.
    fn now_ms(&self) -> f64;

    /// Resolves after `ms` milliseconds.
    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Runs an actor until it ends, in a thread of its own where there are threads.
    fn spawn(&self, name: &str, actor: Box<dyn FnOnce() -> LocalTask + Send>);

    /// Charges for `bytes` of host memory that the caller has read or written: a virtual clock advances, a real one has.
    fn charge(&self, _bytes: u64) {}

    /// Waits for actors whose other end is gone to finish, if a thread may block.
    fn settle(&self, _last_words: LocalTask) {}
}

/// Bytes for which the system is not asked how many are free.
const LITTLE: u64 = 64 << 20;

/// Bytes of memory that the system can still give, if it has fewer than `needed`. It says so under Linux, which promises more than it has,
/// and ends the program that takes it; elsewhere an allocation itself fails.
pub fn free_if_below(needed: u64) -> Option<u64> {
    if needed <= LITTLE { None } else { free_memory().filter(|free| needed > *free) }
}

fn free_memory() -> Option<u64> {
    let text = if cfg!(target_os = "linux") { std::fs::read_to_string("/proc/meminfo").ok()? } else { return None };
    let free = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = free.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// Awaits all futures at once; ends with the first error.
///
/// # Errors
/// That of the first future that has one.
pub async fn all<T>(futures: Vec<impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, value) in &mut futures {
            if value.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *value = Some(ready?);
            }
        }
        let is_ready = futures.iter().all(|(_, value)| value.is_some());
        if is_ready { Poll::Ready(Result::<(), Error>::Ok(())) } else { Poll::Pending }
    })
    .await?;
    Ok(futures.into_iter().filter_map(|(_, value)| value).collect())
}

/// The message of a panic that was caught.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason is known")
}

/// The runtime of the target system.
pub fn system() -> Arc<dyn Runtime> {
    #[cfg(target_arch = "wasm32")]
    return Arc::new(Browser);
    #[cfg(not(target_arch = "wasm32"))]
    Arc::new(Native)
}
