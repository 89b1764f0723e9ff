//! The world of a simulation: its adapters, and the one thread that runs all actors.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::adapter::{self, SimulatedAdapter};
use super::arithmetic::Arithmetic;
use super::cost::Cost;
use super::crowd::Crowd;
use super::spec::AdapterSpec;
use super::virtual_time::{Virtual, lock};
use crate::error::{Error, Result};
use crate::runtime::{LocalTask, Runtime};
use manyhands_engine::adapters::{self, Info, Kind, Opener};

/// `backend` of a simulated adapter's [`Info`].
const BACKEND: &str = "simulated";

/// A machine of a world.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub adapters: Vec<AdapterSpec>,
    /// Costs of plans, if the plans do not determine them.
    pub costs: Arc<[Cost]>,
    /// Bytes that its host goes over in a millisecond.
    pub bytes_per_ms: f64,
}

/// Simulated adapters and a virtual clock.
///
/// Everything runs in the caller's thread. When every actor and the main future wait, the clock jumps to the next timer.
pub struct World {
    /// The runtime of each machine, and its adapters.
    hosts: Vec<(Virtual, Range<usize>)>,
    runtime: Virtual,
    adapters: Vec<Arc<SimulatedAdapter>>,
    tasks: Vec<Option<LocalTask>>,
    ready: Arc<ReadyTasks>,
}

/// Tasks that are ready, in the order in which they were woken.
#[derive(Default)]
struct ReadyTasks {
    queue: Mutex<VecDeque<usize>>,
}

/// Wakes one task.
struct Waking {
    task: usize,
    is_queued: AtomicBool,
    ready: Arc<ReadyTasks>,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            lock(&self.ready.queue).push_back(self.task);
        }
    }
}

/// The number of the main future.
const MAIN: usize = usize::MAX;

/// Polls at one virtual time after which the world counts as stuck.
const MOST_POLLS: u32 = 10_000_000;

impl World {
    /// A world whose adapters compute through the twins, and whose host takes no time.
    pub fn new(adapters: Vec<AdapterSpec>) -> Self {
        Self::seeded(adapters, 0)
    }

    /// A world as of [`new`](Self::new), with jitter of another seed.
    pub fn seeded(adapters: Vec<AdapterSpec>, seed: u64) -> Self {
        Self::with_twins(adapters, f64::INFINITY, seed)
    }

    /// A world as of [`new`](Self::new), with a host that goes over its memory at `copy_gb_s`, in 10⁹ bytes a second.
    pub fn on_host(adapters: Vec<AdapterSpec>, copy_gb_s: f64) -> Self {
        Self::with_twins(adapters, copy_gb_s * 1e6, 0)
    }

    fn with_twins(adapters: Vec<AdapterSpec>, bytes_per_ms: f64, seed: u64) -> Self {
        let machine = Machine { adapters, costs: Arc::default(), bytes_per_ms };
        Self::of_machines(vec![machine], Arithmetic::Twins, seed)
    }

    /// A world of several machines. Each has a runtime of its own, since its host keeps only its own adapters waiting.
    pub(super) fn of_machines(machines: Vec<Machine>, arithmetic: Arithmetic, seed: u64) -> Self {
        let runtime = Virtual::new(f64::INFINITY);
        let (mut hosts, mut adapters) = (Vec::new(), Vec::new());
        for (Machine { adapters: specs, costs, bytes_per_ms }, stream) in machines.into_iter().zip(0..) {
            let (first, host) = (adapters.len(), runtime.another_host(bytes_per_ms));
            let crowd = Arc::<Crowd>::default();
            adapters.extend(specs.into_iter().enumerate().map(|(position, spec)| {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                rng.set_stream((stream << 32) | position as u64);
                let place = (host.clone(), crowd.clone());
                Arc::new(SimulatedAdapter::new(
                    (first + position, position, spec),
                    arithmetic,
                    costs.clone(),
                    place,
                    rng,
                ))
            }));
            hosts.push((host, first..adapters.len()));
        }
        Self { hosts, runtime, adapters, tasks: Vec::new(), ready: Arc::default() }
    }

    /// Its clock, timers and spawn, for a scheduler or trainer.
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(self.runtime_of(0))
    }

    /// The runtime of a machine.
    pub(super) fn runtime_of(&self, machine: usize) -> Virtual {
        self.hosts.get(machine).map_or_else(|| self.runtime.clone(), |(host, _)| host.clone())
    }

    /// The adapters of a machine.
    pub(super) fn adapters_of(&self, machine: usize) -> Vec<Info> {
        self.hosts.get(machine).map_or_else(Vec::new, |(_, range)| self.adapters()[range.clone()].to_vec())
    }

    /// Opens its adapters, for [`Builder::opener`](crate::scheduler::Builder::opener). Other adapters
    /// are opened as usual: the CPU adapter, which computes in no virtual time.
    pub fn opener(&self) -> Opener {
        let adapters = self.adapters.clone();
        Arc::new(move |info, actor, runtime, events| {
            match adapters.get(info.index).filter(|_| info.backend == BACKEND) {
                Some(adapter) => Ok(adapter::open(adapter.clone(), info, actor, events)),
                None => adapters::open(info, actor, runtime, events),
            }
        })
    }

    /// Its adapters.
    pub fn adapters(&self) -> Vec<Info> {
        let adapters = self.adapters.iter().enumerate();
        let info = |(index, adapter): (usize, &Arc<SimulatedAdapter>)| Info {
            index,
            name: adapter.spec.name.clone(),
            kind: Kind::DiscreteGpu,
            backend: BACKEND.into(),
            driver: String::new(),
            vendor: 0,
            device: 0,
            bus_id: String::new(),
        };
        adapters.map(info).collect()
    }

    /// Runs a future, and the actors with it, until it is ready.
    ///
    /// # Errors
    /// If it is not ready at `limit_ms` of virtual time, or waits for what can never come.
    pub fn run<T>(&mut self, limit_ms: f64, main: impl Future<Output = T>) -> Result<T> {
        let mut main = pin!(main);
        let mut wakers: Vec<Arc<Waking>> = (0..self.tasks.len()).map(|task| self.waking(task)).collect();
        let main_waking = self.waking(MAIN);
        wakers.iter().chain([&main_waking]).for_each(|waking| waking.clone().wake());
        let mut polls = 0;
        loop {
            for actor in self.runtime.take_spawned() {
                wakers.push(self.waking(self.tasks.len()));
                self.tasks.push(Some(actor()));
                wakers.iter().last().into_iter().for_each(|waking| waking.clone().wake());
            }
            let next = lock(&self.ready.queue).pop_front();
            polls += 1;
            match next {
                Some(MAIN) => {
                    main_waking.is_queued.store(false, Ordering::Release);
                    let waker = Waker::from(main_waking.clone());
                    if let Poll::Ready(value) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return Ok(value);
                    }
                }
                Some(task) => self.poll(task, &wakers),
                None if self.runtime.jump(limit_ms) => polls = 0,
                None => return Err(self.stuck("has nothing to wait for")),
            }
            if polls > MOST_POLLS {
                return Err(self.stuck("never waits"));
            }
        }
    }

    fn waking(&self, task: usize) -> Arc<Waking> {
        Arc::new(Waking { task, is_queued: AtomicBool::new(false), ready: self.ready.clone() })
    }

    fn poll(&mut self, task_idx: usize, wakers: &[Arc<Waking>]) {
        let (Some(task), Some(waking)) = (&mut self.tasks[task_idx], wakers.get(task_idx)) else { return };
        waking.is_queued.store(false, Ordering::Release);
        let waker = Waker::from(waking.clone());
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks[task_idx] = None;
        }
    }

    fn stuck(&self, how: &str) -> Error {
        Error::setting(
            "the simulation",
            format!("needs to end, but {how} at {} ms of virtual time", self.runtime.now_ms()),
            "give it more time, or look for what waits without a limit",
        )
    }
}
