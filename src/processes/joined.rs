//! The other processes of a run, as each of them sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Processes, Reply, wire};
use crate::error::{Error, ErrorKind, Result};

/// The processes of a run, of which this is one of several.
#[derive(Clone)]
pub(crate) struct Joined {
    processes: Arc<dyn Processes>,
    /// Whether all know that one has failed: nothing is exchanged from then on.
    has_ended: Arc<AtomicBool>,
    /// Whether the exchange itself failed, so that the others know of nothing.
    is_broken: Arc<AtomicBool>,
}

impl Joined {
    pub(super) fn new(processes: Arc<dyn Processes>) -> Self {
        Self { processes, has_ended: Arc::default(), is_broken: Arc::default() }
    }

    pub fn rank(&self) -> usize {
        self.processes.rank()
    }

    pub fn size(&self) -> usize {
        self.processes.size()
    }

    pub(super) fn host(&self) -> String {
        self.processes.host()
    }

    pub(super) fn set_limit_s(&self, seconds: u64) {
        self.processes.set_limit_s(seconds);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Gives every process the messages of all, by rank.
    ///
    /// # Errors
    /// If a process has failed: the error of the first one, with its rank, in every process.
    pub async fn all_gather(&self, message: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.exchange(Ok(message)).await
    }

    /// Gives every process the numbers of all, by rank.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub async fn gather_numbers(&self, numbers: &[f64]) -> Result<Vec<Vec<f64>>> {
        let messages = self.all_gather(wire::bytes_of(numbers)).await?;
        Ok(messages.iter().map(|message| wire::numbers_in(message)).collect())
    }

    /// Adds numbers of all processes, in the order of their ranks.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub async fn sum(&self, numbers: &[f64]) -> Result<Vec<f64>> {
        let mut all = self.gather_numbers(numbers).await?.into_iter();
        let mut sum = all.next().unwrap_or_default();
        for numbers in all {
            sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        Ok(sum)
    }

    /// The error of the first process that has one.
    pub(super) async fn first(&self, error: Option<Error>) -> Result<Option<Error>> {
        let mine = error.map_or_else(Vec::new, |error| wire::bytes_of_error(&self.named(&error)));
        Ok(self.all_gather(mine).await?.iter().find_map(|message| wire::error_in(message)))
    }

    /// Begins an exchange of values.
    pub(super) fn exchange_values(
        &self,
        values: Vec<f32>,
        begin: impl FnOnce(&dyn Processes, Vec<f32>) -> Reply<Vec<f32>>,
    ) -> Reply<Vec<f32>> {
        let (joined, reply) = (self.clone(), begin(&*self.processes, values));
        Box::pin(async move { joined.unless_broken(reply.await) })
    }

    /// Tells the other processes of an error that ends this one, unless all know already. Returns the error that all end with.
    pub(super) async fn tell(&self, error: Error) -> Error {
        if self.has_ended.load(Ordering::Acquire) {
            return error;
        }
        match self.exchange(Err(error)).await {
            Err(told) => told,
            Ok(_) => Error::new(ErrorKind::Process, "an error", "was told to no process", "start the run again"),
        }
    }

    async fn exchange(&self, message: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        if self.has_ended.load(Ordering::Acquire) {
            let problem = "have ended the run already";
            return Err(Error::new(ErrorKind::Process, "the processes", problem, "start the run again"));
        }
        let sent = match &message {
            Ok(message) => wire::fine(message),
            Err(error) => wire::failed(error),
        };
        let replies = self.unless_broken(self.processes.all_gather(sent).await)?;
        let read: Vec<Result<&[u8], Error>> = replies.iter().map(|reply| wire::read(reply)).collect();
        if read.iter().all(Result::is_ok) {
            return Ok(read.into_iter().flatten().map(<[u8]>::to_vec).collect());
        }
        self.has_ended.store(true, Ordering::Release);
        Err(self.common(read))
    }

    /// The one error of several processes, of which some have failed.
    fn common(&self, read: Vec<Result<&[u8], Error>>) -> Error {
        let n_failed = read.iter().filter(|reply| reply.is_err()).count();
        let mut failed = (0..).zip(read).filter_map(|(rank, reply)| Some((rank, reply.err()?)));
        let Some((rank, error)) = failed.next() else {
            return Error::new(ErrorKind::Process, "the processes", "have ended the run", "start it again");
        };
        // A mistake in settings or data is one of all processes.
        let is_of_all =
            n_failed == self.processes.size() && failed.all(|(_, other)| other.problem() == error.problem());
        if is_of_all { error } else { of_process(rank, &error) }
    }

    /// An error with the rank and the machine of this process.
    fn named(&self, error: &Error) -> Error {
        of_process(self.processes.rank(), error)
    }

    /// Notes that an exchange failed.
    fn unless_broken<T>(&self, reply: Result<T>) -> Result<T> {
        if reply.is_err() {
            self.has_ended.store(true, Ordering::Release);
            self.is_broken.store(true, Ordering::Release);
        }
        reply
    }
}

/// An error that names the process in which it came up.
fn of_process(rank: usize, error: &Error) -> Error {
    Error::new(error.kind(), format!("process {rank}: {}", error.who()), error.problem(), error.help())
}
