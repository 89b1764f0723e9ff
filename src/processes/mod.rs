//! Several processes that train one network: how they exchange messages, and how they end together when one fails.
//!
//! [`Processes`] is the exchange itself, with the names of MPI: [`memory`] joins threads of one process, `mpi` (with the feature of
//! that name) the processes that `mpirun` starts. [`Group`] is what scheduler and trainer hold.
//!
//! Every collective but those of gradients ([`all_reduce`](Processes::all_reduce), [`all_to_all`](Processes::all_to_all),
//! [`all_gather_values`](Processes::all_gather_values)) carries a status. A process that fails answers the next one of the others with
//! its error, whatever that one is for, and so all of them end with the same message. Gradients are exchanged right after a collective
//! with a status, with nothing between them that can fail.

#[doc(hidden)]
pub mod memory;
#[cfg(feature = "mpi")]
pub mod mpi;
mod wire;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// Seconds that processes wait at the end for one that still writes files.
const CLOSING_S: u64 = 24 * 3600;

/// The answer of a collective, which has begun when this is returned.
pub type Reply<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Processes that exchange messages. All of them call the same collectives in the same order.
pub trait Processes: Send + Sync {
    /// Number of this process, counted from 0.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Name of this process' machine.
    fn host(&self) -> String;

    /// Sets the time limit, in seconds, after which a silent process counts as hung.
    fn set_limit_s(&self, _seconds: u64) {}

    /// Gives every process the messages of all, in the order of their ranks. Messages may differ in length.
    ///
    /// It fails, and names the processes that are missing, if one has sent nothing for the time limit.
    fn all_gather(&self, message: Vec<u8>) -> Reply<Vec<Vec<u8>>>;

    /// Adds values over all processes. Every process gets the same bits.
    ///
    /// It fails if it takes longer than the time limit.
    fn all_reduce(&self, values: Vec<f32>) -> Reply<Vec<f32>>;

    /// Sends each process its slice of the values, by rank, and gives the slices that all have sent here, by rank. The number of
    /// values is the same in all processes, and a multiple of their number.
    ///
    /// It fails if it takes longer than the time limit.
    fn all_to_all(&self, values: Vec<f32>) -> Reply<Vec<f32>>;

    /// Gives every process the values of all, by rank, as many of each.
    ///
    /// It fails if it takes longer than the time limit.
    fn all_gather_values(&self, values: Vec<f32>) -> Reply<Vec<f32>>;
}

/// The processes of a run, of which this is one.
///
/// ```
/// use manyhands::processes::Group;
/// let alone = Group::alone();
/// assert_eq!((alone.rank(), alone.size()), (0, 1));
/// ```
#[derive(Clone, Default)]
pub struct Group(Option<Joined>);

#[derive(Clone)]
struct Joined {
    processes: Arc<dyn Processes>,
    /// Whether all know that one has failed: nothing is exchanged from then on.
    has_ended: Arc<AtomicBool>,
    /// Whether the exchange itself failed, so that the others know of nothing.
    is_broken: Arc<AtomicBool>,
}

impl Group {
    /// A lone process.
    pub fn alone() -> Self {
        Self(None)
    }

    /// Several processes; a single one is a lone process.
    pub fn new(processes: Arc<dyn Processes>) -> Self {
        if processes.size() < 2 {
            return Self::alone();
        }
        Self(Some(Joined { processes, has_ended: Arc::default(), is_broken: Arc::default() }))
    }

    /// Whether this is a lone process.
    pub fn is_alone(&self) -> bool {
        self.0.is_none()
    }

    /// Number of this process, counted from 0.
    pub fn rank(&self) -> usize {
        self.0.as_ref().map_or(0, |joined| joined.processes.rank())
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.0.as_ref().map_or(1, |joined| joined.processes.size())
    }

    /// Whether this process writes files and shows progress.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Name of this process' machine; empty for a lone process.
    pub fn host(&self) -> String {
        self.0.as_ref().map_or_else(String::new, |joined| joined.processes.host())
    }

    /// Sets the time after which a silent process counts as hung, in seconds; 600 by default.
    pub fn set_limit_s(&self, seconds: u64) {
        self.0.iter().for_each(|joined| joined.processes.set_limit_s(seconds));
    }

    /// Whether the exchange itself failed: the other processes know of nothing, and have to be ended by this one's end.
    pub fn is_broken(&self) -> bool {
        self.0.as_ref().is_some_and(|joined| joined.is_broken.load(Ordering::Acquire))
    }

    /// Gives every process the messages of all, by rank.
    ///
    /// # Errors
    /// If a process has failed: the error of the first one, with its rank, in every process.
    pub async fn all_gather(&self, message: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        match &self.0 {
            None => Ok(vec![message]),
            Some(joined) => joined.exchange(Ok(message)).await,
        }
    }

    /// Gives every process the numbers of all, by rank.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub(crate) async fn gather_numbers(&self, numbers: Vec<f64>) -> Result<Vec<Vec<f64>>> {
        if self.is_alone() {
            return Ok(vec![numbers]);
        }
        let messages = self.all_gather(wire::bytes_of(&numbers)).await?;
        Ok(messages.iter().map(|message| wire::numbers_in(message)).collect())
    }

    /// Adds numbers of all processes, in the order of their ranks.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub(crate) async fn sum(&self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        let mut all = self.gather_numbers(numbers).await?.into_iter();
        let mut sum = all.next().unwrap_or_default();
        for numbers in all {
            sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        Ok(sum)
    }

    /// The error of the first process that has one.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub(crate) async fn first(&self, error: Option<Error>) -> Result<Option<Error>> {
        let Some(joined) = &self.0 else { return Ok(error) };
        let mine = error.map_or_else(Vec::new, |error| wire::bytes_of_error(&joined.named(&error)));
        Ok(self.all_gather(mine).await?.iter().find_map(|message| wire::error_in(message)))
    }

    /// Adds values over all processes; begins at once.
    pub(crate) fn all_reduce(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        self.exchange_values(values, |processes, values| processes.all_reduce(values))
    }

    /// Sends each process its slice of the values, and gives those that all have sent here; begins at once.
    pub(crate) fn all_to_all(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        self.exchange_values(values, |processes, values| processes.all_to_all(values))
    }

    /// Gives every process the values of all, by rank; begins at once.
    pub(crate) fn all_gather_values(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        self.exchange_values(values, |processes, values| processes.all_gather_values(values))
    }

    /// Each of these collectives gives a lone process its own values.
    fn exchange_values(
        &self,
        values: Vec<f32>,
        begin: impl FnOnce(&dyn Processes, Vec<f32>) -> Reply<Vec<f32>>,
    ) -> Reply<Vec<f32>> {
        let Some(joined) = &self.0 else { return Box::pin(std::future::ready(Ok(values))) };
        let (joined, reply) = (joined.clone(), begin(&*joined.processes, values));
        Box::pin(async move { joined.unless_broken(reply.await) })
    }

    /// Tells the other processes of an error that ends this one, unless all know already. Returns the error that all end with.
    pub async fn tell(&self, error: Error) -> Error {
        match &self.0 {
            Some(joined) if !joined.has_ended.load(Ordering::Acquire) => match joined.exchange(Err(error)).await {
                Err(told) => told,
                Ok(_) => Error::new(ErrorKind::Process, "an error", "was told to no process", "start the run again"),
            },
            _ => error,
        }
    }

    /// A result of this process; an error is told to the others.
    ///
    /// # Errors
    /// That of the result, or of the first process that failed.
    pub async fn shared<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.tell(error).await),
        }
    }

    /// Ends this process' part with a result, once all others have ended theirs.
    ///
    /// # Errors
    /// That of the result, or of the first process that failed.
    pub async fn close<T>(&self, result: Result<T>) -> Result<T> {
        let value = self.shared(result).await?;
        if self.is_alone() {
            return Ok(value);
        }
        // The first process may write a report meanwhile.
        self.set_limit_s(CLOSING_S);
        self.all_gather(Vec::new()).await.map(|_| value)
    }

    /// Refuses what several processes can't do.
    ///
    /// # Errors
    /// If this is one of several.
    pub(crate) fn refuse(&self, who: &str, help: &str) -> Result<()> {
        if self.is_alone() {
            return Ok(());
        }
        Err(Error::setting(who, format!("needs a single process, but the run has {}", self.size()), help))
    }
}

impl Joined {
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
