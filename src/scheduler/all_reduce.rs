//! Sums of gradients over all processes, of which several are on their way at once.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::Result;
use crate::kernels::halves::{self, BLOCK, Halves};
use crate::plan::GradientCompression;
use crate::processes::{Group, Reply};

/// Values that processes exchange at a time; the same in all of them.
pub(crate) const PIECE: usize = 1 << 18;

/// Pieces that are on their way at once.
const AHEAD: usize = 2;

/// The pieces in which a range of values is exchanged.
pub fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(PIECE).map(move |start| start..(start + PIECE).min(range.end))
}

/// Sums over all processes that are on their way, each with its place. All processes send the same places in the same order.
pub struct AllReduce<P> {
    group: Group,
    compression: GradientCompression,
    sent: VecDeque<(P, Reply<Vec<f32>>)>,
    /// Memory of sums that were taken back, for values to send.
    spare: Vec<Vec<f32>>,
}

impl<P> AllReduce<P> {
    /// Sums whose values travel in a format.
    pub fn new(group: Group, compression: GradientCompression) -> Self {
        Self { group, compression, sent: VecDeque::new(), spare: Vec::new() }
    }

    /// Whether a sum should be taken before the next values are sent.
    pub fn is_full(&self) -> bool {
        self.sent.len() >= AHEAD
    }

    /// Memory for so many values to send, with any values: that of a sum that was taken back, if there is one.
    pub fn memory(&mut self, len: usize) -> Vec<f32> {
        let mut values = self.spare.pop().unwrap_or_default();
        values.resize(len, 0.0);
        values
    }

    /// Sends values, no more than a piece.
    pub fn send(&mut self, place: P, values: Vec<f32>) {
        let reply = match self.compression {
            GradientCompression::None => self.group.all_reduce(values),
            GradientCompression::Fp16 => all_reduce_halves(self.group.clone(), values),
        };
        self.sent.push_back((place, reply));
    }

    /// Waits for the sum of the values that were sent first; `None` if none are on their way.
    ///
    /// # Errors
    /// If another process does not answer.
    pub async fn next(&mut self) -> Option<(P, Result<Vec<f32>>)> {
        let (place, reply) = self.sent.pop_front()?;
        Some((place, reply.await))
    }

    /// Takes back the memory of a sum.
    pub fn reuse(&mut self, sum: Vec<f32>) {
        self.spare.push(sum);
    }
}

/// Adds values over all processes, which travel as 16-bit floats. Each process adds those of one slice, in 32 bits and in the order of
/// the ranks, and all get the sums as 16-bit floats: the same bits.
///
/// The first of two exchanges has begun when this is returned; the second begins while it is awaited.
fn all_reduce_halves(group: Group, mut values: Vec<f32>) -> Reply<Vec<f32>> {
    let (len, size, rank) = (values.len(), group.size(), group.rank());
    let slice = len.div_ceil(size).next_multiple_of(BLOCK);
    values.resize(slice * size, 0.0);
    let packed: Vec<f32> = values.chunks_exact(slice).flat_map(halves::pack).collect();
    let begun = group.all_to_all(packed);
    Box::pin(async move {
        let received = begun.await?;
        let mut sum = vec![0.0; slice];
        for (from, packed) in received.chunks_exact(halves::packed_len(slice)).enumerate() {
            if from == rank {
                add(&mut sum, &values[rank * slice..(rank + 1) * slice]);
            } else {
                Halves::new(packed).for_each(0..slice, |first, part| add(&mut sum[first..first + BLOCK], part));
            }
        }
        let sums = group.all_gather_values(halves::pack(&sum)).await?;
        for (values, packed) in values.chunks_exact_mut(slice).zip(sums.chunks_exact(halves::packed_len(slice))) {
            Halves::new(packed).for_each(0..slice, |first, part| values[first..first + BLOCK].copy_from_slice(part));
        }
        values.truncate(len);
        Ok(values)
    })
}

fn add(sum: &mut [f32], values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

#[cfg(feature = "processes")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::memory;

    async fn sum(mut all_reduce: AllReduce<Range<usize>>, values: &mut [f32]) {
        let mut pieces = pieces(0..values.len());
        loop {
            for piece in pieces.by_ref().take(AHEAD - all_reduce.sent.len()) {
                let mut sent = all_reduce.memory(piece.len());
                sent.copy_from_slice(&values[piece.clone()]);
                all_reduce.send(piece, sent);
            }
            let Some((piece, sum)) = all_reduce.next().await else { return };
            let sum = sum.unwrap();
            values[piece].copy_from_slice(&sum);
            all_reduce.reuse(sum);
        }
    }

    /// Sums of a value of each process, in each of them.
    fn sums(
        size: usize,
        len: usize,
        compression: GradientCompression,
        value: fn(usize, usize) -> f32,
    ) -> Vec<Vec<f32>> {
        let work = |group: Group| {
            let mut values: Vec<f32> = (0..len).map(|at| value(group.rank(), at)).collect();
            pollster::block_on(sum(AllReduce::new(group, compression), &mut values));
            values
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = memory::groups(size).into_iter().map(|group| scope.spawn(|| work(group))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn value(rank: usize, at: usize) -> f32 {
        ((at * 7 + rank * 13) % 101) as f32 * 0.37 - 11.0
    }

    #[test]
    fn halves_lose_little_and_all_processes_get_the_same_bits() {
        // One piece, several, and fewer values than a slice.
        for (size, len) in [(2, 1000), (3, 2 * PIECE + 77), (4, 3)] {
            let whole = sums(size, len, GradientCompression::None, value);
            let halves = sums(size, len, GradientCompression::Fp16, value);
            assert!(halves.iter().all(|sums| *sums == halves[0]) && whole.iter().all(|sums| *sums == whole[0]));
            for (got, want) in halves[0].iter().zip(&whole[0]) {
                // Each value but one and then the sum is rounded by 2^-11 of itself; values are below 27.
                let most = (27.0 * size as f32 + want.abs()) * 2f32.powi(-11);
                assert!((got - want).abs() <= most, "{size}: {got} is not {want}");
            }
        }
    }

    #[test]
    fn halves_tell_of_values_that_are_not_finite() {
        let spoilt = |rank: usize, at: usize| if (rank, at) == (1, 70) { f32::INFINITY } else { value(rank, at) };
        for sums in sums(3, 500, GradientCompression::Fp16, spoilt) {
            assert!(sums[64..128].iter().all(|sum| sum.is_nan()) && sums[128..].iter().all(|sum| sum.is_finite()));
        }
    }
}
