//! Adapters that compute at the same time: where they share cores or memory, they slow each other down.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use super::virtual_time::lock;

/// The slowdown of an adapter while others of its machine compute, which share cores or memory with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Crowding {
    /// Factor on its computing time while one other adapter computes, by position in the machine; 1 at its own.
    pub beside: Vec<f64>,
    /// Factor while all others compute.
    pub beside_all: f64,
}

impl Crowding {
    /// A factor beside all others, to which each of them adds as much as every other.
    #[allow(clippy::cast_precision_loss, reason = "a few adapters")]
    pub fn even(own: usize, n_adapters: usize, factor: f64) -> Self {
        let part = (factor - 1.0) / n_adapters.saturating_sub(1).max(1) as f64;
        let beside = (0..n_adapters).map(|position| if position == own { 1.0 } else { 1.0 + part }).collect();
        Self { beside, beside_all: factor }
    }

    /// Factor on the computing time while these others compute: that of a single one and that of all are as measured, and in between
    /// what all together add to the sum of the single ones grows with their number.
    #[allow(clippy::cast_precision_loss, reason = "a few adapters")]
    pub fn factor(&self, others: &[usize]) -> f64 {
        let beside = |position: usize| self.beside.get(position).copied().unwrap_or(1.0);
        let excess: f64 = others.iter().map(|position| beside(*position) - 1.0).sum();
        let of_singles: f64 = self.beside.iter().map(|factor| factor - 1.0).sum();
        let n_others = self.beside.len().saturating_sub(1);
        let part = if n_others > 1 { others.len().saturating_sub(1) as f64 / (n_others - 1) as f64 } else { 0.0 };
        (1.0 + excess + part.min(1.0) * (self.beside_all - 1.0 - of_singles)).max(1.0)
    }

    /// The slowdown of the adapter at `on[own]`, where only those adapters are there.
    #[must_use]
    pub fn among(&self, own: usize, on: &[usize]) -> Self {
        let others: Vec<usize> =
            on.iter().enumerate().filter(|(place, _)| *place != own).map(|(_, idx)| *idx).collect();
        let beside = |(place, idx): (usize, &usize)| if place == own { 1.0 } else { self.factor(&[*idx]) };
        Self { beside: on.iter().enumerate().map(beside).collect(), beside_all: self.factor(&others) }
    }
}

/// The adapters of a host that compute now.
#[derive(Default)]
pub(super) struct Crowd(Mutex<Now>);

#[derive(Default)]
struct Now {
    /// Their positions.
    computing: Vec<usize>,
    /// Beginnings and ends so far.
    n_changes: u64,
    wakers: Vec<Waker>,
}

impl Now {
    fn changed(&mut self) {
        self.n_changes += 1;
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

/// An adapter that computes, until this is dropped.
pub(super) struct Computing {
    crowd: Arc<Crowd>,
    position: usize,
}

impl Computing {
    /// The adapter at a position of its machine begins.
    pub fn begin(crowd: Arc<Crowd>, position: usize) -> Self {
        {
            let mut now = lock(&crowd.0);
            now.computing.push(position);
            now.changed();
        }
        Self { crowd, position }
    }

    /// The other adapters that compute, and the number of changes so far.
    pub fn others(&self) -> (Vec<usize>, u64) {
        let now = lock(&self.crowd.0);
        let others = now.computing.iter().copied().filter(|position| *position != self.position);
        (others.collect(), now.n_changes)
    }

    /// Waits until another adapter begins or ends, counted from a number of changes.
    pub async fn changed(&self, since: u64) {
        poll_fn(|context| {
            let mut now = lock(&self.crowd.0);
            if now.n_changes != since {
                return Poll::Ready(());
            }
            now.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        let mut now = lock(&self.crowd.0);
        if let Some(place) = now.computing.iter().position(|position| *position == self.position) {
            now.computing.swap_remove(place);
        }
        now.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::Crowding;

    #[test]
    fn factors_of_one_and_of_all_are_as_measured() {
        let crowding = Crowding { beside: vec![1.0, 1.2, 1.0, 1.5], beside_all: 2.3 };
        assert!((crowding.factor(&[]) - 1.0).abs() < 1e-12);
        assert!((crowding.factor(&[1]) - 1.2).abs() < 1e-12 && (crowding.factor(&[2]) - 1.0).abs() < 1e-12);
        assert!((crowding.factor(&[1, 2, 3]) - 2.3).abs() < 1e-12, "all");
        // The sum is 1.7, and half of what is missing to 2.3.
        assert!((crowding.factor(&[3, 1]) - 2.0).abs() < 1e-12, "two of three");
        let few = crowding.among(1, &[3, 0, 1]);
        assert_eq!(few.beside, [1.5, 1.0, 1.2]);
        assert!((few.beside_all - 2.0).abs() < 1e-12 && (few.factor(&[0, 2]) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn an_even_slowdown_grows_with_the_number() {
        let crowding = Crowding::even(2, 4, 4.0);
        assert_eq!(crowding.beside, [2.0, 2.0, 1.0, 2.0]);
        assert!((crowding.factor(&[0, 1]) - 3.0).abs() < 1e-12);
    }
}
