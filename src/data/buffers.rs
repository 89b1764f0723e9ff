//! Buffers of earlier batches, to be filled again.

use std::sync::{Arc, Mutex, PoisonError};

/// Buffers of the batches that were made. One that no batch holds any more is filled again: memory that is new to the process
/// costs as much as the values that are written to it.
#[derive(Debug, Default)]
pub struct Buffers(Mutex<Vec<Arc<[f32]>>>);

impl Buffers {
    /// A buffer with one owner. Its values are zeros, or those of an earlier batch.
    pub fn take(&self, len: usize) -> Arc<[f32]> {
        let is_free = |buffer: &mut Arc<[f32]>| buffer.len() == len && Arc::get_mut(buffer).is_some();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = kept.iter_mut().position(is_free).map(|free| kept.swap_remove(free));
        drop(kept);
        free.unwrap_or_else(|| std::iter::repeat_n(0.0, len).collect())
    }

    /// Keeps a buffer for the time when no batch holds it any more.
    pub fn keep(&self, buffer: &Arc<[f32]>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer.clone());
    }

    /// Forgets all buffers, so that their memory is free once no batch holds them.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_filled_again_once_no_batch_holds_it() {
        let buffers = Buffers::default();
        let first = buffers.take(3);
        assert_eq!(first[..], [0.0; 3]);
        buffers.keep(&first);
        let place = first.as_ptr();
        assert_ne!(buffers.take(3).as_ptr(), place, "a batch holds it");
        drop(first);
        assert_ne!(buffers.take(2).as_ptr(), place, "of another length");
        let mut again = buffers.take(3);
        assert_eq!((again.as_ptr(), Arc::get_mut(&mut again).is_some()), (place, true));
        buffers.keep(&again);
        buffers.clear();
        assert!(Arc::get_mut(&mut again).is_some(), "forgotten buffers have no other owner");
    }
}
