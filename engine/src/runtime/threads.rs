//! Work on all cores. `one_thread.rs` has the same functions for a single thread.

use std::sync::OnceLock;

use rayon::ThreadPool;
use rayon::prelude::*;

#[allow(dead_code, reason = "its pause is for where nothing may wait")]
#[path = "one_thread.rs"]
mod one_thread;

/// The threads that compute; empty if the system gives none, and then the caller's thread computes.
///
/// rayon's own pool would panic then.
fn pool() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let build = || {
        let built = rayon::ThreadPoolBuilder::new().num_threads(wanted()).build();
        built.map_err(|error| log::warn!("the system gives no threads to compute on, so one does it all: {error}")).ok()
    };
    POOL.get_or_init(build).as_ref()
}

/// Number of threads by `RAYON_NUM_THREADS`, so many for a core at most: more only wait, and starting thousands takes half a
/// minute. 0 leaves it to rayon.
fn wanted() -> usize {
    const MOST_OF_A_CORE: usize = 16;
    let wanted = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
    wanted.min(MOST_OF_A_CORE * std::thread::available_parallelism().map_or(1, usize::from))
}

/// Runs work on the pool, unless the caller is one of a pool's threads.
fn on<R: Send>(pool: &ThreadPool, work: impl FnOnce() -> R + Send) -> R {
    if rayon::current_thread_index().is_some() { work() } else { pool.install(work) }
}

/// Number of threads that compute.
pub fn count() -> usize {
    pool().map_or(1, |pool| on(pool, rayon::current_num_threads))
}

/// Runs two closures, in parallel if a thread is free.
pub(crate) fn join(a: impl FnOnce() + Send, b: impl FnOnce() + Send) {
    match pool() {
        Some(pool) => on(pool, || rayon::join(a, b)),
        None => {
            one_thread::join(a, b);
            ((), ())
        }
    };
}

/// Calls `each(item)` for all items.
pub fn for_each<T: Send>(items: Vec<T>, each: impl Fn(T) + Send + Sync) {
    match pool() {
        Some(pool) => on(pool, || items.into_par_iter().for_each(each)),
        None => one_thread::for_each(items, each),
    }
}

/// Calls `each(index, chunk)` for the chunks of a slice.
pub fn chunks(data: &mut [f32], len: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
    match pool() {
        Some(pool) => on(pool, || data.par_chunks_mut(len).enumerate().for_each(|(idx, chunk)| each(idx, chunk))),
        None => one_thread::chunks(data, len, each),
    }
}

/// Calls `each(index, chunk, chunk)` for the chunks of two slices, side by side.
pub(crate) fn chunk_pairs(
    (a, a_len): (&mut [f32], usize),
    (b, b_len): (&mut [f32], usize),
    each: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    let Some(pool) = pool() else { return one_thread::chunk_pairs((a, a_len), (b, b_len), each) };
    on(pool, || {
        let pairs = a.par_chunks_mut(a_len).zip(b.par_chunks_mut(b_len)).enumerate();
        pairs.for_each(|(idx, (a, b))| each(idx, a, b));
    });
}

/// Results of `each(index, chunk)` for the chunks of a slice, in their order.
pub fn map_chunks<R: Send>(data: &mut [f32], len: usize, each: impl Fn(usize, &mut [f32]) -> R + Sync) -> Vec<R> {
    match pool() {
        Some(pool) => on(pool, || data.par_chunks_mut(len).enumerate().map(|(idx, chunk)| each(idx, chunk)).collect()),
        None => one_thread::map_chunks(data, len, each),
    }
}

/// Waits, for files that another program holds; the engine never blocks on devices.
#[allow(clippy::disallowed_methods, reason = "this is the native pause")]
pub(crate) fn pause(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// Work in a thread of its own.
#[derive(Debug)]
pub struct Background<T>(std::thread::JoinHandle<T>);

/// Begins work in a thread of its own: writing a file, which would block a computing thread.
///
/// # Errors
/// If the system gives no thread. Then nothing was begun.
#[allow(clippy::disallowed_methods, reason = "this is the native spawn of what is no actor")]
pub fn background<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<Background<T>> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(Background)
}

impl<T> Background<T> {
    /// Waits for its end; `None` if it panicked.
    pub fn wait(self) -> Option<T> {
        self.0.join().ok()
    }
}
