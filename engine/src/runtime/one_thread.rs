//! Functions of `threads.rs` on one thread: WebAssembly without shared memory has no other.

/// Number of threads that compute.
pub fn count() -> usize {
    1
}

/// Runs two closures.
pub fn join(a: impl FnOnce(), b: impl FnOnce()) {
    a();
    b();
}

/// Calls `each(item)` for all items.
pub fn for_each<T>(items: Vec<T>, each: impl Fn(T)) {
    items.into_iter().for_each(each);
}

/// Calls `each(index, chunk)` for the chunks of a slice.
pub fn chunks(data: &mut [f32], len: usize, each: impl Fn(usize, &mut [f32])) {
    data.chunks_mut(len).enumerate().for_each(|(idx, chunk)| each(idx, chunk));
}

/// Calls `each(index, chunk, chunk)` for the chunks of two slices, side by side.
pub fn chunk_pairs(
    (a, a_len): (&mut [f32], usize),
    (b, b_len): (&mut [f32], usize),
    each: impl Fn(usize, &mut [f32], &mut [f32]),
) {
    let pairs = a.chunks_mut(a_len).zip(b.chunks_mut(b_len)).enumerate();
    pairs.for_each(|(idx, (a, b))| each(idx, a, b));
}

/// Results of `each(index, chunk)` for the chunks of a slice, in their order.
pub fn map_chunks<R>(data: &mut [f32], len: usize, each: impl Fn(usize, &mut [f32]) -> R) -> Vec<R> {
    data.chunks_mut(len).enumerate().map(|(idx, chunk)| each(idx, chunk)).collect()
}

/// Continues at once: a page must not block.
pub fn pause(_ms: u64) {}

/// Finished work.
#[derive(Debug)]
pub struct Background<T>(T);

/// Runs work at once.
///
/// # Errors
/// None here.
pub fn background<T>(_name: &str, work: impl FnOnce() -> T) -> std::io::Result<Background<T>> {
    Ok(Background(work()))
}

impl<T> Background<T> {
    /// Result of the work.
    pub fn wait(self) -> Option<T> {
        Some(self.0)
    }
}
