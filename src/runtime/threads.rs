//! Work on all cores. `one_thread.rs` has the same functions where there is one.

use rayon::prelude::*;

/// How many threads compute.
pub(crate) fn count() -> usize {
    rayon::current_num_threads()
}

/// Does two things, at once where a thread is free.
pub(crate) fn join(a: impl FnOnce() + Send, b: impl FnOnce() + Send) {
    rayon::join(a, b);
}

/// Calls `each(item)` for all items.
pub(crate) fn for_each<T: Send>(items: Vec<T>, each: impl Fn(T) + Send + Sync) {
    items.into_par_iter().for_each(each);
}

/// Calls `each(index, chunk)` for the chunks of a slice.
pub(crate) fn chunks(data: &mut [f32], len: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
    data.par_chunks_mut(len).enumerate().for_each(|(idx, chunk)| each(idx, chunk));
}

/// Calls `each(index, chunk, chunk)` for the chunks of two slices, side by side.
pub(crate) fn chunk_pairs(
    (a, a_len): (&mut [f32], usize),
    (b, b_len): (&mut [f32], usize),
    each: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    let pairs = a.par_chunks_mut(a_len).zip(b.par_chunks_mut(b_len)).enumerate();
    pairs.for_each(|(idx, (a, b))| each(idx, a, b));
}

/// What `each(index, chunk)` gives for the chunks of a slice, in their order.
pub(crate) fn map_chunks<R: Send>(
    data: &mut [f32],
    len: usize,
    each: impl Fn(usize, &mut [f32]) -> R + Sync,
) -> Vec<R> {
    data.par_chunks_mut(len).enumerate().map(|(idx, chunk)| each(idx, chunk)).collect()
}

/// Waits. For files that another program holds, not for devices: the engine never blocks on those.
#[allow(clippy::disallowed_methods, reason = "this is the native pause")]
pub(crate) fn pause(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}
