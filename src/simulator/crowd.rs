//! Adapters that compute at the same time: where they share cores or memory, they slow each other down.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use super::virtual_time::lock;

/// The slowdown of an adapter while others compute, which share cores or memory with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crowding {
    /// Factor on its computing time while all of `n_others` compute.
    pub factor: f64,
    /// Number of other adapters beside which the factor was measured.
    pub n_others: u32,
}

impl Crowding {
    /// Factor on the computing time while so many others compute. Each of them adds as much as every other.
    pub fn beside(self, n_others: u32) -> f64 {
        let part = f64::from(n_others.min(self.n_others)) / f64::from(self.n_others.max(1));
        1.0 + (self.factor - 1.0) * part
    }
}

/// The adapters of a host that compute now.
#[derive(Default)]
pub(super) struct Crowd(Mutex<Now>);

#[derive(Default)]
struct Now {
    n_computing: u32,
    /// Beginnings and ends so far.
    n_changes: u64,
    wakers: Vec<Waker>,
}

impl Now {
    fn change(&mut self, n_computing: u32) {
        self.n_computing = n_computing;
        self.n_changes += 1;
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

/// An adapter that computes, until this is dropped.
pub(super) struct Computing(Arc<Crowd>);

impl Computing {
    pub fn begin(crowd: Arc<Crowd>) -> Self {
        {
            let mut now = lock(&crowd.0);
            let n_computing = now.n_computing + 1;
            now.change(n_computing);
        }
        Self(crowd)
    }

    /// Number of other adapters that compute, and of changes so far.
    pub fn others(&self) -> (u32, u64) {
        let now = lock(&self.0.0);
        (now.n_computing.saturating_sub(1), now.n_changes)
    }

    /// Waits until another adapter begins or ends, counted from a number of changes.
    pub async fn changed(&self, since: u64) {
        poll_fn(|context| {
            let mut now = lock(&self.0.0);
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
        let mut now = lock(&self.0.0);
        let n_computing = now.n_computing.saturating_sub(1);
        now.change(n_computing);
    }
}
