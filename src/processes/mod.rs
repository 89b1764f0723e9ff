//! Several processes that train one network: how they exchange messages, and how they end together when one fails.
//!
//! [`Processes`] is the exchange itself, with the names of MPI: [`memory`] joins threads of one process, the package
//! `manyhands-mpi` the processes that `mpirun` starts. [`Group`] is what scheduler and trainer hold.
//!
//! Every collective but those of gradients ([`all_reduce`](Processes::all_reduce), [`all_to_all`](Processes::all_to_all),
//! [`all_gather_values`](Processes::all_gather_values)) carries a status. A process that fails answers the next one of the others with
//! its error, whatever that one is for, and so all of them end with the same message. Gradients are exchanged right after a collective
//! with a status, with nothing between them that can fail.

// Files: `joined.rs`: the other processes of a run (`alone.rs` without the feature `processes`); `memory.rs`: threads of one process,
// for tests; `wire.rs`: messages as bytes.

#[cfg_attr(not(feature = "processes"), path = "alone.rs")]
mod joined;
#[cfg(feature = "processes")]
#[doc(hidden)]
pub mod memory;
#[cfg(feature = "processes")]
mod wire;

use std::future::Future;
use std::pin::Pin;
#[cfg(feature = "processes")]
use std::sync::Arc;

use crate::error::{Error, Result};
pub(crate) use joined::Joined;

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

impl Group {
    /// A lone process.
    pub fn alone() -> Self {
        Self(None)
    }

    /// Several processes; a single one is a lone process.
    #[cfg(feature = "processes")]
    pub fn new(processes: Arc<dyn Processes>) -> Self {
        if processes.size() < 2 {
            return Self::alone();
        }
        Self(Some(Joined::new(processes)))
    }

    /// The processes, if there are several.
    pub(crate) fn joined(&self) -> Option<&Joined> {
        self.0.as_ref()
    }

    /// Whether this is a lone process.
    pub fn is_alone(&self) -> bool {
        self.0.is_none()
    }

    /// Number of this process, counted from 0.
    pub fn rank(&self) -> usize {
        self.0.as_ref().map_or(0, Joined::rank)
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.0.as_ref().map_or(1, Joined::size)
    }

    /// Whether this process writes files and shows progress.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Name of this process' machine; empty for a lone process.
    pub fn host(&self) -> String {
        self.0.as_ref().map_or_else(String::new, Joined::host)
    }

    /// Sets the time after which a silent process counts as hung, in seconds; 600 by default.
    pub fn set_limit_s(&self, seconds: u64) {
        self.0.iter().for_each(|joined| joined.set_limit_s(seconds));
    }

    /// Whether the exchange itself failed: the other processes know of nothing, and have to be ended by this one's end.
    pub fn is_broken(&self) -> bool {
        self.0.as_ref().is_some_and(Joined::is_broken)
    }

    /// Gives every process the messages of all, by rank.
    ///
    /// # Errors
    /// If a process has failed: the error of the first one, with its rank, in every process.
    pub async fn all_gather(&self, message: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        match &self.0 {
            None => Ok(vec![message]),
            Some(joined) => joined.all_gather(message).await,
        }
    }

    /// The error of the first process that has one.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub(crate) async fn first(&self, error: Option<Error>) -> Result<Option<Error>> {
        let Some(joined) = &self.0 else { return Ok(error) };
        joined.first(error).await
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
        match &self.0 {
            None => Box::pin(std::future::ready(Ok(values))),
            Some(joined) => joined.exchange_values(values, begin),
        }
    }

    /// Tells the other processes of an error that ends this one, unless all know already. Returns the error that all end with.
    pub async fn tell(&self, error: Error) -> Error {
        match &self.0 {
            Some(joined) => joined.tell(error).await,
            None => error,
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
    pub fn refuse(&self, who: &str, help: &str) -> Result<()> {
        if self.is_alone() {
            return Ok(());
        }
        Err(Error::setting(who, format!("needs a single process, but the run has {}", self.size()), help))
    }
}
