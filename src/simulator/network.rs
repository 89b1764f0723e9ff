//! The network between simulated machines: MPI's collectives in virtual time.
//!
//! One machine stands for all of its kind: they do the same at the same time.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use litemap::LiteMap;

use super::virtual_time::{Virtual, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::processes::{Group, Processes, Reply};
use crate::runtime::Runtime;
use crate::scheduler::PIECE;

/// A network, by its slowest link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Links {
    /// Bytes that a machine sends and receives at once, in 10⁹ a second each way.
    pub gb_s: f64,
    /// Milliseconds of a message whatever its bytes.
    pub latency_ms: f64,
}

impl Links {
    /// Milliseconds of a message.
    fn message_ms(self, bytes: f64) -> f64 {
        self.latency_ms + bytes / (self.gb_s * 1e6)
    }

    /// Milliseconds in which `machines` machines add so many bytes of each, and all get the sums: those of the fastest of three
    /// algorithms, since MPI libraries choose by the bytes and the number of machines. With `p` machines, of which `2^k` is the largest
    /// power of two, latency `a`, and `b` milliseconds for all bytes over one link:
    ///
    /// - recursive doubling: `k (a + b)`
    /// - halving and doubling (Rabenseifner): `2 k a + 2 (1 - 1 / 2^k) b`
    /// - ring: `2 (p - 1) a + 2 (1 - 1 / p) b`
    ///
    /// The first two take `2 (a + b)` more if `p` is no power of two, since the other machines first give their values to one of
    /// the `2^k`, and get the sums at the end. The additions themselves count nothing.
    ///
    /// Source: Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication operations in MPICH", section 4.5; for the ring
    /// Patarasuk, Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
    pub fn all_reduce_ms(self, machines: usize, bytes: f64) -> f64 {
        if machines < 2 {
            return 0.0;
        }
        let (rounds, power) = (f64::from(machines.ilog2()), machines.is_power_of_two());
        let folding_ms = if power { 0.0 } else { 2.0 * self.message_ms(bytes) };
        let doubling_ms = rounds * self.message_ms(bytes) + folding_ms;
        let halving_ms =
            2.0 * (rounds * self.latency_ms + (1.0 - (-rounds).exp2()) * self.bytes_ms(bytes)) + folding_ms;
        let others = count(machines - 1);
        let ring_ms = 2.0 * (others * self.latency_ms + others / (others + 1.0) * self.bytes_ms(bytes));
        doubling_ms.min(halving_ms).min(ring_ms)
    }

    /// Milliseconds in which process 0 gets so many bytes of all, one message after the other, and broadcasts them along a tree of
    /// messages: first their length, then they themselves.
    pub fn all_gather_ms(self, machines: usize, bytes: f64) -> f64 {
        if machines < 2 {
            return 0.0;
        }
        let rounds = f64::from((machines - 1).ilog2() + 1);
        self.message_ms(bytes) + rounds * (self.latency_ms + self.message_ms(bytes))
    }

    fn bytes_ms(self, bytes: f64) -> f64 {
        bytes / (self.gb_s * 1e6)
    }

    /// Milliseconds of a sum over all gradients, which go in parts, one after the other.
    fn sum_ms(self, machines: usize, bytes: f64) -> f64 {
        let part = part_bytes();
        let whole = (bytes / part).floor();
        let rest = bytes - whole * part;
        let rest_ms = if rest > 0.0 { self.all_reduce_ms(machines, rest) } else { 0.0 };
        whole * self.all_reduce_ms(machines, part) + rest_ms
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of machines, or of their bytes")]
fn count(number: usize) -> f64 {
    number as f64
}

/// Bytes of gradients that processes add at a time.
fn part_bytes() -> f64 {
    count(PIECE * size_of::<f32>())
}

/// The network of a simulation.
pub(super) struct Network {
    links: Links,
    /// Number of machines of each kind.
    counts: Vec<usize>,
    shared: Mutex<NetworkState>,
}

#[derive(Default)]
struct NetworkState {
    rounds: LiteMap<u64, NetworkRound>,
    /// Time until which the network is in use: collectives go one after the other.
    busy_until_ms: f64,
    /// Milliseconds of all collectives so far.
    total_ms: f64,
}

/// Work of the network in a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum NetworkWork {
    /// Messages of all to all.
    #[default]
    Gather,
    /// Sums of the values of all machines, so many bytes of each.
    Sum(f64),
    /// A message of so many bytes from each machine to each other one.
    Swap(f64),
}

/// A collective that some machines have not yet ended.
#[derive(Default)]
struct NetworkRound {
    brought: Vec<Option<Vec<u8>>>,
    /// Time when the last machine came.
    begin_ms: f64,
    work: NetworkWork,
    end_ms: Option<f64>,
    n_taken: usize,
    wakers: Vec<Waker>,
}

/// The machines of a kind, as one process.
struct MachineProcess {
    kind: usize,
    rank: usize,
    clock: Virtual,
    /// Parameters of the model for each value that is exchanged.
    scale: f64,
    n_begun: Mutex<u64>,
    network: Arc<Network>,
}

impl Network {
    pub fn new(links: Links, counts: Vec<usize>) -> Arc<Self> {
        Arc::new(Self { links, counts, shared: Mutex::default() })
    }

    pub fn n_machines(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Milliseconds of all collectives so far.
    pub fn total_ms(&self) -> f64 {
        lock(&self.shared).total_ms
    }

    /// The processes, as the machines of a kind see them.
    pub fn join(self: &Arc<Self>, kind: usize, clock: Virtual, scale: f64) -> Group {
        let rank = self.counts[..kind].iter().sum();
        Group::new(Arc::new(MachineProcess {
            kind,
            rank,
            clock,
            scale,
            n_begun: Mutex::default(),
            network: self.clone(),
        }))
    }

    /// Ends a round that all have come to.
    fn close(&self, shared: &mut NetworkState, number: u64) {
        let Some(round) = shared.rounds.get_mut(&number) else { return };
        let lens = round.brought.iter().map(|message| message.as_ref().map_or(0, Vec::len));
        let gathered: f64 = lens.zip(&self.counts).map(|(len, machines)| count(len * machines)).sum();
        let n_machines = self.n_machines();
        let ms = match round.work {
            NetworkWork::Gather => self.links.all_gather_ms(n_machines, gathered),
            NetworkWork::Sum(bytes) => self.links.sum_ms(n_machines, bytes),
            NetworkWork::Swap(bytes) => count(n_machines.saturating_sub(1)) * self.links.message_ms(bytes),
        };
        let end_ms = round.begin_ms.max(shared.busy_until_ms) + ms;
        round.end_ms = Some(end_ms);
        round.wakers.drain(..).for_each(Waker::wake);
        shared.busy_until_ms = end_ms;
        shared.total_ms += ms;
    }
}

impl MachineProcess {
    /// Bytes of the gradients for which values stand.
    fn bytes(&self, values: &[f32]) -> f64 {
        count(size_of_val(values)) * self.scale
    }

    /// Brings a message, or other work; gives the messages of all kinds when the network has carried them.
    fn exchange(
        &self,
        message: Vec<u8>,
        work: NetworkWork,
    ) -> impl Future<Output = Result<Vec<Vec<u8>>>> + Send + use<> {
        let mut n_begun = lock(&self.n_begun);
        let number = *n_begun;
        *n_begun += 1;
        let (network, clock) = (self.network.clone(), self.clock.clone());
        {
            let mut shared = lock(&network.shared);
            let round = shared.rounds.entry(number).or_default();
            round.brought.resize(network.counts.len(), None);
            round.brought[self.kind] = Some(message);
            round.begin_ms = round.begin_ms.max(clock.now_ms());
            round.work = work;
            if round.brought.iter().all(Option::is_some) {
                network.close(&mut shared, number);
            }
        }
        async move {
            let end_ms = poll_fn(|context| {
                let mut shared = lock(&network.shared);
                let Some(round) = shared.rounds.get_mut(&number) else { return Poll::Ready(None) };
                if round.end_ms.is_none() {
                    round.wakers.push(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(round.end_ms)
            });
            let end_ms = end_ms.await.ok_or_else(unlike)?;
            clock.sleep(end_ms - clock.now_ms()).await;
            let mut shared = lock(&network.shared);
            let round = shared.rounds.get_mut(&number).ok_or_else(unlike)?;
            let messages = round.brought.iter().cloned().map(Option::unwrap_or_default).collect();
            round.n_taken += 1;
            if round.n_taken == network.counts.len() {
                shared.rounds.remove(&number);
            }
            Ok(messages)
        }
    }
}

impl Processes for MachineProcess {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.network.n_machines()
    }

    fn host(&self) -> String {
        "simulated".into()
    }

    fn all_gather(&self, message: Vec<u8>) -> Reply<Vec<Vec<u8>>> {
        let (messages, counts) = (self.exchange(message, NetworkWork::Gather), self.network.counts.clone());
        Box::pin(async move {
            let of_kinds = messages.await?.into_iter().zip(counts);
            Ok(of_kinds.flat_map(|(message, machines)| std::iter::repeat_n(message, machines)).collect())
        })
    }

    /// Gives the values back: adapters that take time only have none to add.
    fn all_reduce(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        let exchange = self.exchange(Vec::new(), NetworkWork::Sum(self.bytes(&values)));
        Box::pin(async move { exchange.await.map(|_| values) })
    }

    /// Gives the values back.
    fn all_to_all(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        let bytes = self.bytes(&values) / count(self.size());
        let exchange = self.exchange(Vec::new(), NetworkWork::Swap(bytes));
        Box::pin(async move { exchange.await.map(|_| values) })
    }

    /// Gives the values of this machine, once for each.
    fn all_gather_values(&self, values: Vec<f32>) -> Reply<Vec<f32>> {
        let size = self.size();
        let exchange = self.exchange(Vec::new(), NetworkWork::Swap(self.bytes(&values)));
        Box::pin(async move { exchange.await.map(|_| values.repeat(size)) })
    }
}

/// The error for machines that are not at the same collective: a mistake in the engine.
fn unlike() -> Error {
    let problem = "need to be at the same exchange, but are at unlike ones";
    Error::new(ErrorKind::Process, "simulated machines", problem, "this is a mistake in the library: please report it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: Links = Links { gb_s: 0.1, latency_ms: 0.05 };

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-12
    }

    #[test]
    fn the_fastest_way_to_add_depends_on_bytes_and_machines() {
        assert_eq!(LINKS.all_reduce_ms(1, 1e6), 0.0);
        // Two machines swap all that they have, once; 1 MB takes 10 ms.
        assert!(close(LINKS.all_reduce_ms(2, 1e6), 0.05 + 10.0));
        // Few bytes: one message in each of three rounds; 100 bytes take a microsecond.
        assert!(close(LINKS.all_reduce_ms(8, 100.0), 3.0 * 0.051));
        // Halving and doubling on a power of two, the ring where there is none.
        assert!(close(LINKS.all_reduce_ms(8, 1e6), 6.0 * 0.05 + 2.0 * 7.0 / 8.0 * 10.0));
        assert!(close(LINKS.all_reduce_ms(7, 1e6), 12.0 * 0.05 + 2.0 * 6.0 / 7.0 * 10.0));
        // Many machines that are no power of two: a ring of 600 messages takes longer than giving values away before.
        assert!(close(LINKS.all_reduce_ms(300, 1e5), 16.0 * 0.05 + 2.0 * 255.0 / 256.0 + 2.0 * 1.05));
    }

    #[test]
    fn no_sum_is_faster_than_its_bytes_or_its_rounds() {
        for machines in 2..600 {
            for bytes in [4.0, 1e3, 1e5, 1e7] {
                let ms = LINKS.all_reduce_ms(machines, bytes);
                let others = count(machines - 1);
                let rounds = f64::from((machines - 1).ilog2() + 1);
                assert!(ms >= rounds * 0.05 - 1e-9 && ms >= bytes / 1e5 - 1e-9, "{machines}: {bytes} bytes in {ms}");
                assert!(ms <= 2.0 * (others * 0.05 + bytes / 1e5), "{machines}: {bytes} bytes in {ms}");
            }
        }
    }

    #[test]
    fn gradients_go_in_parts() {
        let part = part_bytes();
        let whole = LINKS.sum_ms(4, 2.5 * part);
        assert!(close(whole, 2.0 * LINKS.all_reduce_ms(4, part) + LINKS.all_reduce_ms(4, part / 2.0)));
        assert_eq!(LINKS.sum_ms(4, 0.0), 0.0);
    }
}
