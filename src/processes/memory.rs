//! Processes that are threads, or tasks, of one process: for tests, and for predictions of several machines.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::{Group, Processes, Reply};
use crate::error::{Error, ErrorKind, Result};

/// Contribution of one participant to a collective.
#[derive(Clone)]
enum Contribution {
    Bytes(Vec<u8>),
    Values(Vec<f32>),
}

/// A collective that some participants have not yet ended.
#[derive(Default)]
struct CollectiveRound {
    brought: Vec<Option<Contribution>>,
    wakers: Vec<Waker>,
    n_taken: usize,
}

/// State that all participants share.
#[derive(Default)]
struct SharedRounds {
    rounds: BTreeMap<u64, CollectiveRound>,
    /// A participant that is gone: the others would wait for it without end.
    gone: Option<usize>,
}

/// One participant.
struct Participant {
    rank: usize,
    size: usize,
    /// Number of its collectives so far.
    n_begun: Mutex<u64>,
    shared: Arc<Mutex<SharedRounds>>,
}

/// Groups of `size` participants, by rank.
pub fn groups(size: usize) -> Vec<Group> {
    let shared = Arc::<Mutex<SharedRounds>>::default();
    let member = |rank| Participant { rank, size, n_begun: Mutex::default(), shared: shared.clone() };
    (0..size).map(|rank| Group::new(Arc::new(member(rank)))).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Participant {
    /// Brings a message to the next collective, and waits for those of the others.
    fn exchange(&self, message: Contribution) -> impl Future<Output = Result<Vec<Contribution>>> + Send + use<> {
        let mut n_begun = lock(&self.n_begun);
        let number = *n_begun;
        *n_begun += 1;
        let (size, shared) = (self.size, self.shared.clone());
        {
            let mut shared = lock(&shared);
            let round = shared.rounds.entry(number).or_default();
            round.brought.resize(size, None);
            round.brought[self.rank] = Some(message);
            round.wakers.drain(..).for_each(Waker::wake);
        }
        poll_fn(move |context| {
            let mut shared = lock(&shared);
            let gone = shared.gone;
            let Some(round) = shared.rounds.get_mut(&number) else { return Poll::Ready(Err(lost(None))) };
            if let Some(messages) = round.brought.iter().cloned().collect::<Option<Vec<Contribution>>>() {
                round.n_taken += 1;
                if round.n_taken == size {
                    shared.rounds.remove(&number);
                }
                return Poll::Ready(Ok(messages));
            }
            if gone.is_some() {
                return Poll::Ready(Err(lost(gone)));
            }
            round.wakers.push(context.waker().clone());
            Poll::Pending
        })
    }

    /// Values of all participants, as many of each.
    fn exchange_values(&self, values: Vec<f32>) -> impl Future<Output = Result<Vec<Vec<f32>>>> + Send + use<> {
        let len = values.len();
        let messages = self.exchange(Contribution::Values(values));
        let values = move |message| match message {
            Contribution::Values(values) if values.len() == len => Some(values),
            Contribution::Values(_) | Contribution::Bytes(_) => None,
        };
        async move { messages.await?.into_iter().map(values).collect::<Option<_>>().ok_or_else(unlike) }
    }
}

fn lost(rank: Option<usize>) -> Error {
    let who = rank.map_or_else(|| "a process".into(), |rank| format!("process {rank}"));
    Error::new(ErrorKind::Process, who, "needs to take part to the end, but is gone", "see its own message")
}

impl Processes for Participant {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn host(&self) -> String {
        "memory".into()
    }

    fn all_gather(&self, message: Vec<u8>) -> Reply<Vec<Vec<u8>>> {
        let messages = self.exchange(Contribution::Bytes(message));
        let bytes = |message| match message {
            Contribution::Bytes(bytes) => Some(bytes),
            Contribution::Values(_) => None,
        };
        Box::pin(async move { messages.await?.into_iter().map(bytes).collect::<Option<_>>().ok_or_else(unlike) })
    }

    fn all_reduce(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        let all = self.exchange_values(values);
        Box::pin(async move {
            let mut all = all.await?.into_iter();
            let mut sum = all.next().unwrap_or_default();
            for values in all {
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            Ok(sum)
        })
    }

    fn all_to_all(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        let (rank, slice) = (self.rank, values.len() / self.size);
        let all = self.exchange_values(values);
        Box::pin(async move {
            let slices = all.await?.into_iter().map(|values| values[rank * slice..(rank + 1) * slice].to_vec());
            Ok(slices.flatten().collect())
        })
    }

    fn all_gather_values(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        let all = self.exchange_values(values);
        Box::pin(async move { Ok(all.await?.concat()) })
    }
}

/// The error for processes that are not at the same collective: a mistake in the engine.
fn unlike() -> Error {
    let problem = "need to be at the same exchange, but are at unlike ones";
    Error::new(ErrorKind::Process, "the processes", problem, "this is a mistake in the library: please report it")
}

impl Drop for Participant {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.gone.get_or_insert(self.rank);
        shared.rounds.values_mut().flat_map(|round| round.wakers.drain(..)).for_each(Waker::wake);
    }
}
