//! The processes that `mpirun` starts, through the MPI library of the system.
//!
//! All calls of MPI come from one thread of their own, so that a library without threads suffices, and the engine never blocks.
//! Messages with a status are gathered one by one in process 0, which so knows who is missing, and are then broadcast. Who waits
//! sleeps between looks, since processes that share a machine need its cores for their rows: MPI's own waits are busy ones.
//!
//! The standard wants the same bits of `MPI_Allreduce` in all processes (MPI 3.1, section 5.9.6), so no more than one collective is
//! needed for a sum. The trainer compares the weights after each epoch nevertheless.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use mpi::collective::SystemOperation;
use mpi::request::{Request as Pending, Scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, MatchedReceiveVec, Root, Source};
use mpi::{Rank, Tag, Threading};

use manyhands::processes::{Group, Processes, Reply};
use manyhands::{Error, ErrorKind, Result};
use manyhands_engine::runtime;

/// Variables that launchers of MPI set: Open MPI, MPICH and its relatives, MS-MPI, Slurm.
const LAUNCHED: &[&str] = &["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"];

/// Seconds after which a silent process counts as hung.
const LIMIT_S: u64 = 600;

/// Seconds that the others give process 0, which knows who is missing, to say so first.
const GRACE_S: f64 = 5.0;

/// Tag of messages to process 0.
const GATHER: Tag = 77;

/// Bytes that are broadcast at once.
const BLOCK: usize = 1 << 26;

/// Looks without a sleep between them, and the shortest and the longest sleep.
const EAGER_LOOKS: u32 = 200;
const SLEEPS_US: [u64; 2] = [20, 500];

/// The processes of this run: those that `mpirun` has started, or this one alone without it.
///
/// ```no_run
/// use manyhands::data::digits;
/// use manyhands::layers::{Dense, Flatten};
/// use manyhands::{Compile, Fit, Loss, Optimizer, Sequential, Trainer};
/// # fn main() -> manyhands::Result<()> {
/// let model = Sequential::new([8, 8, 1]).add(Flatten::default()).add(Dense::new(10)).build(0)?;
/// let compile = Compile::new(Optimizer::adam(1e-2), Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
/// let mut trainer = Trainer::new(model, compile)?.processes(manyhands_mpi::world()?);
/// trainer.fit(digits::train()?, &Fit::new(5))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If MPI was begun before, or the system gives no thread.
pub fn world() -> Result<Group> {
    if !LAUNCHED.iter().any(|variable| std::env::var_os(variable).is_some()) {
        return Ok(Group::alone());
    }
    Ok(Group::new(Arc::new(MpiWorld::begin()?)))
}

/// A collective for MPI's thread.
enum CollectiveRequest {
    AllGather(Vec<u8>, Sender<Vec<Vec<u8>>>),
    /// Values that are all of one length in all processes.
    Values(Collective, Vec<f32>, Sender<Vec<f32>>),
}

/// Collective in which all processes have as many values: `MPI_Allreduce`, `MPI_Alltoall`, `MPI_Allgather`.
#[derive(Clone, Copy)]
enum Collective {
    Reduce,
    ToAll,
    Gather,
}

/// Place of this process among the others.
struct ProcessPlace {
    rank: usize,
    size: usize,
    host: String,
}

/// The processes that were started together.
struct MpiWorld {
    place: ProcessPlace,
    requests: Sender<CollectiveRequest>,
    thread: Option<JoinHandle<()>>,
    limit_s: AtomicU64,
    /// Processes that process 0 waits for.
    missing: Arc<Mutex<Vec<usize>>>,
    /// Whether a collective will never end.
    is_stuck: Arc<AtomicBool>,
}

impl MpiWorld {
    #[allow(clippy::disallowed_methods, reason = "this is the thread that calls MPI, whose waits block")]
    fn begin() -> Result<Self> {
        let (requests, requested) = async_channel::unbounded();
        let (begun, place) = async_channel::bounded(1);
        let missing = Arc::<Mutex<Vec<usize>>>::default();
        let noted = missing.clone();
        let thread = std::thread::Builder::new().name("mpi".into()).spawn(move || serve(&requested, &begun, &noted));
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Process, "MPI", format!("needs a thread, but the system said: {error}"), "end others")
        })?;
        let place = place.recv_blocking().map_err(|_| {
            let problem = "needs to be begun once, but this process has begun it before";
            Error::new(ErrorKind::Process, "MPI", problem, "call `manyhands_mpi::world` once, and keep what it gives")
        })?;
        Ok(Self {
            place,
            requests,
            thread: Some(thread),
            limit_s: AtomicU64::new(LIMIT_S),
            missing,
            is_stuck: Arc::default(),
        })
    }

    /// Waits for an answer, but not forever.
    fn within_limit<T: Send + 'static>(&self, answer: Receiver<T>) -> Reply<T> {
        let limit_s = self.limit_s.load(Ordering::Relaxed);
        #[allow(clippy::cast_precision_loss, reason = "seconds of a wait")]
        let seconds = limit_s as f64 + if self.place.rank == 0 { 0.0 } else { GRACE_S };
        let limit = runtime::system().sleep(seconds * 1e3);
        let (missing, is_stuck) = (self.missing.clone(), self.is_stuck.clone());
        Box::pin(futures_lite::future::or(
            async move { answer.recv().await.map_err(|_| silent(&[], limit_s)) },
            async move {
                limit.await;
                is_stuck.store(true, Ordering::Release);
                Err(silent(&missing.lock().unwrap_or_else(PoisonError::into_inner), limit_s))
            },
        ))
    }

    fn ask<T: Send + 'static>(&self, request: impl FnOnce(Sender<T>) -> CollectiveRequest) -> Reply<T> {
        let (answer, answered) = async_channel::bounded(1);
        if self.requests.try_send(request(answer)).is_err() {
            log::debug!("MPI's thread has ended");
        }
        self.within_limit(answered)
    }
}

/// The error for processes that do not answer.
fn silent(missing: &[usize], limit_s: u64) -> Error {
    let who = match missing {
        [] => "another process".into(),
        [rank] => format!("process {rank}"),
        ranks => format!("processes {}", ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    };
    Error::new(
        ErrorKind::Process,
        who,
        format!("needs to answer within {limit_s} s, but has not: it hangs, or its connection is gone"),
        "look for its machine; the last checkpoint resumes, also with fewer processes; `process_timeout` sets the limit",
    )
}

impl Processes for MpiWorld {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn size(&self) -> usize {
        self.place.size
    }

    fn host(&self) -> String {
        self.place.host.clone()
    }

    fn set_limit_s(&self, seconds: u64) {
        self.limit_s.store(seconds, Ordering::Relaxed);
    }

    fn all_gather(&self, message: Vec<u8>) -> Reply<Vec<Vec<u8>>> {
        self.ask(|answer| CollectiveRequest::AllGather(message, answer))
    }

    fn all_reduce(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        self.ask(|answer| CollectiveRequest::Values(Collective::Reduce, values, answer))
    }

    fn all_to_all(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        self.ask(|answer| CollectiveRequest::Values(Collective::ToAll, values, answer))
    }

    fn all_gather_values(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        self.ask(|answer| CollectiveRequest::Values(Collective::Gather, values, answer))
    }
}

impl Drop for MpiWorld {
    /// Ends MPI together with the other processes. After a hang or a panic this process just ends, and `mpirun` ends the others.
    fn drop(&mut self) {
        self.requests.close();
        if self.is_stuck.load(Ordering::Acquire) || std::thread::panicking() {
            return;
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("MPI's thread panicked");
        }
    }
}

/// MPI's thread: one collective after the other, until all that could ask are gone.
#[allow(clippy::disallowed_methods, reason = "this is the thread that calls MPI, whose waits block")]
fn serve(requests: &Receiver<CollectiveRequest>, begun: &Sender<ProcessPlace>, missing: &Mutex<Vec<usize>>) {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else { return };
    let world = universe.world();
    let place = ProcessPlace {
        rank: index(world.rank()),
        size: index(world.size()),
        host: mpi::environment::processor_name().unwrap_or_default(),
    };
    let size = place.size;
    if begun.try_send(place).is_err() {
        return;
    }
    let mut spare: Vec<f32> = Vec::new();
    while let Ok(request) = requests.recv_blocking() {
        // Who asked may have given up.
        let is_wanted = match request {
            CollectiveRequest::AllGather(message, answer) => {
                answer.try_send(all_gather(&world, message, missing)).is_ok()
            }
            CollectiveRequest::Values(collective, values, answer) => {
                let len = if matches!(collective, Collective::Gather) { values.len() * size } else { values.len() };
                spare.resize(len, 0.0);
                match collective {
                    Collective::Reduce => {
                        world.all_reduce_into(&values[..], &mut spare[..], SystemOperation::sum());
                    }
                    Collective::ToAll => world.all_to_all_into(&values[..], &mut spare[..]),
                    Collective::Gather => world.all_gather_into(&values[..], &mut spare[..]),
                }
                answer.try_send(std::mem::replace(&mut spare, values)).is_ok()
            }
        };
        if !is_wanted {
            log::debug!("an answer of MPI is no longer wanted");
        }
    }
}

fn index(rank: Rank) -> usize {
    usize::try_from(rank).unwrap_or_default()
}

/// Gathers messages in process 0, and broadcasts them.
fn all_gather(world: &SimpleCommunicator, message: Vec<u8>, missing: &Mutex<Vec<usize>>) -> Vec<Vec<u8>> {
    let root = world.process_at_rank(0);
    let all = if world.rank() == 0 {
        joined(&gather(world, message, missing))
    } else {
        mpi::request::scope(|scope| wait_for(root.immediate_send_with_tag(scope, &message[..], GATHER)));
        Vec::new()
    };
    let mut len = [all.len() as u64];
    mpi::request::scope(|scope| wait_for(root.immediate_broadcast_into(scope, &mut len[..])));
    let mut all = all;
    all.resize(usize::try_from(len[0]).unwrap_or_default(), 0);
    for block in all.chunks_mut(BLOCK) {
        mpi::request::scope(|scope| wait_for(root.immediate_broadcast_into(scope, block)));
    }
    parted(&all)
}

/// The messages of all processes, in process 0.
fn gather(world: &SimpleCommunicator, own: Vec<u8>, missing: &Mutex<Vec<usize>>) -> Vec<Vec<u8>> {
    let mut all: Vec<Option<Vec<u8>>> = vec![None; index(world.size())];
    all[0] = Some(own);
    let mut looks = 0;
    while all.iter().any(Option::is_none) {
        let mut has_come = false;
        for (rank, place) in (0..).zip(&mut all).filter(|(_, place)| place.is_none()) {
            if let Some(found) = world.process_at_rank(rank).immediate_matched_probe_with_tag(GATHER) {
                *place = Some(found.matched_receive_vec().0);
                has_come = true;
            }
        }
        if !has_come {
            if looks == EAGER_LOOKS {
                let silent = all.iter().enumerate().filter(|(_, place)| place.is_none());
                *missing.lock().unwrap_or_else(PoisonError::into_inner) = silent.map(|(rank, _)| rank).collect();
            }
            rest(&mut looks);
        } else if looks > EAGER_LOOKS {
            // The list of those that are missing is made anew.
            looks = EAGER_LOOKS;
        }
    }
    missing.lock().unwrap_or_else(PoisonError::into_inner).clear();
    all.into_iter().flatten().collect()
}

/// Waits until a request has ended.
fn wait_for<'a, D: ?Sized, S: Scope<'a>>(mut request: Pending<'a, D, S>) {
    let mut looks = 0;
    while let Err(pending) = request.test() {
        request = pending;
        rest(&mut looks);
    }
}

/// A pause before the next look: a short one at first.
#[allow(clippy::disallowed_methods, reason = "this is the thread that calls MPI, whose waits block")]
fn rest(looks: &mut u32) {
    *looks = looks.saturating_add(1);
    if *looks <= EAGER_LOOKS {
        return std::thread::yield_now();
    }
    let [shortest, longest] = SLEEPS_US;
    std::thread::sleep(Duration::from_micros((shortest * u64::from(*looks - EAGER_LOOKS)).min(longest)));
}

/// Messages, each behind its length.
fn joined(messages: &[Vec<u8>]) -> Vec<u8> {
    messages
        .iter()
        .flat_map(|message| (message.len() as u64).to_le_bytes().into_iter().chain(message.iter().copied()))
        .collect()
}

/// The messages of [`joined`].
fn parted(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk() {
        let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX).min(rest.len());
        messages.push(rest[..len].to_vec());
        bytes = &rest[len..];
    }
    messages
}
