//! A virtual clock, which moves only on request, and its timers.

use litemap::LiteMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::runtime::{LocalTask, Runtime};

/// An actor that waits for the world to run it.
pub(super) type Actor = Box<dyn FnOnce() -> LocalTask + Send>;

/// The virtual runtime of a host in a [`World`](super::world::World). All hosts share one clock.
#[derive(Clone)]
pub struct Virtual {
    shared: Arc<SharedTime>,
    host: Arc<VirtualHost>,
}

struct SharedTime {
    time: Mutex<Time>,
    spawned: Mutex<Vec<Actor>>,
}

/// A machine.
struct VirtualHost {
    /// Speed at which it goes over its memory.
    bytes_per_ms: f64,
    /// Time until which it goes over its memory, and its actors wait.
    busy_until_ms: Mutex<f64>,
}

impl VirtualHost {
    fn new(bytes_per_ms: f64) -> Arc<Self> {
        Arc::new(Self { bytes_per_ms, busy_until_ms: Mutex::default() })
    }
}

#[derive(Default)]
struct Time {
    now_ms: f64,
    /// Deadlines from 0 up sort as their bits do; timers of one deadline go off in the order of their making.
    timers: LiteMap<(u64, u64), Waker>,
    n_timers: u64,
}

/// A panic elsewhere leaves clock and queues consistent: each change is atomic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Virtual {
    pub(super) fn new(bytes_per_ms: f64) -> Self {
        let (time, spawned) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(SharedTime { time, spawned }), host: VirtualHost::new(bytes_per_ms) }
    }

    /// Another host with the same clock.
    pub(super) fn another_host(&self, bytes_per_ms: f64) -> Self {
        Self { shared: self.shared.clone(), host: VirtualHost::new(bytes_per_ms) }
    }

    /// Actors that were spawned and never run.
    pub(super) fn take_spawned(&self) -> Vec<Actor> {
        std::mem::take(&mut lock(&self.shared.spawned))
    }

    /// Moves the clock to the next timer; false, and no change, if there is none up to `limit_ms`.
    pub(super) fn jump(&self, limit_ms: f64) -> bool {
        let mut time = lock(&self.shared.time);
        let Some(deadline_ms) = time.timers.keys().next().map(|(bits, _)| f64::from_bits(*bits)) else { return false };
        if deadline_ms > limit_ms {
            return false;
        }
        time.now_ms = time.now_ms.max(deadline_ms);
        let after = (time.now_ms.to_bits() + 1, 0);
        let timers = std::mem::take(&mut time.timers);
        let (due, later): (LiteMap<_, Waker>, _) = timers.into_iter().partition(|(key, _)| *key < after);
        time.timers = later;
        drop(time);
        due.into_iter().for_each(|(_, waker)| waker.wake());
        true
    }
}

impl Runtime for Virtual {
    fn now_ms(&self) -> f64 {
        let now_ms = lock(&self.shared.time).now_ms;
        lock(&self.host.busy_until_ms).max(now_ms)
    }

    fn sleep(&self, ms: f64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let now_ms = self.now_ms();
        let mut time = lock(&self.shared.time);
        time.n_timers += 1;
        let key = ((now_ms + ms.max(0.0)).to_bits(), time.n_timers);
        Box::pin(VirtualSleep { shared: self.shared.clone(), key })
    }

    fn spawn(&self, _name: &str, actor: Actor) {
        lock(&self.shared.spawned).push(actor);
    }

    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    fn charge(&self, bytes: u64) {
        let now_ms = self.now_ms();
        *lock(&self.host.busy_until_ms) = now_ms + bytes as f64 / self.host.bytes_per_ms;
    }
}

struct VirtualSleep {
    shared: Arc<SharedTime>,
    key: (u64, u64),
}

impl Future for VirtualSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut time = lock(&self.shared.time);
        if f64::from_bits(self.key.0) <= time.now_ms {
            return Poll::Ready(());
        }
        time.timers.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        lock(&self.shared.time).timers.remove(&self.key);
    }
}
